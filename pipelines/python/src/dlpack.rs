//! DLPack: exchange of tensors without a copy. The structures are those of its C header, version 1.
//!
//! A tensor on a device is exported for the consumer's stream, which waits for the copy. Its
//! deleter may be called by any thread, with Python's lock or without.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use forebay::connectors::ConsumerStream;
use forebay::feed::{PartLayout, ValueType};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::batch_rows::BatchRows;
use crate::fault::fault_exception;

/// `kDLCPU` and `kDLCUDA`.
const CPU: i32 = 1;
const CUDA: i32 = 2;

const LEGACY: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";

#[repr(C)]
struct DlDevice {
    kind: i32,
    id: i32,
}

#[repr(C)]
struct DlDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: DlDevice,
    ndim: i32,
    data_type: DlDataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct DlManagedTensor {
    tensor: DlTensor,
    owner: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DlManagedTensor)>,
}

#[repr(C)]
struct DlManagedTensorVersioned {
    major: u32,
    minor: u32,
    owner: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DlManagedTensorVersioned)>,
    flags: u64,
    tensor: DlTensor,
}

/// Owner of a tensor's memory: the batch, and with it the slot.
struct TensorOwner {
    _batch: Arc<BatchRows>,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

fn data_type(of: ValueType) -> DlDataType {
    let (code, bits) = match of {
        ValueType::I32 => (0, 32),
        ValueType::I64 => (0, 64),
        ValueType::U8 => (1, 8),
        ValueType::F16 => (2, 16),
        ValueType::F32 => (2, 32),
        ValueType::Bf16 => (4, 16),
    };
    DlDataType {
        code,
        bits,
        lanes: 1,
    }
}

/// The shape of a part: as many rows as the batch has.
pub(crate) fn shape(batch: &BatchRows, part: &PartLayout) -> Vec<i64> {
    let mut shape: Vec<i64> = part.shape.iter().map(|extent| *extent as i64).collect();
    if let Some(rows) = shape.first_mut() {
        *rows = batch.shape_rows() as i64;
    }
    shape
}

/// The device of a batch, in DLPack's numbers.
pub(crate) fn device(batch: &BatchRows) -> (i32, i32) {
    match batch {
        BatchRows::Host(_) => (CPU, 0),
        BatchRows::Device(batch) => (CUDA, batch.device() as i32),
    }
}

fn tensor(batch: &Arc<BatchRows>, part: &PartLayout) -> (DlTensor, Box<TensorOwner>) {
    let shape = shape(batch, part);
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    let mut owner = Box::new(TensorOwner {
        _batch: batch.clone(),
        shape,
        strides,
    });
    // Consumers may write: the slot is theirs until the last of them drops it.
    let data = match &**batch {
        BatchRows::Host(batch) => batch.part(part.role).as_ptr().cast_mut().cast(),
        BatchRows::Device(batch) => (batch.address() + part.offset as u64) as *mut c_void,
    };
    let (kind, id) = device(batch);
    let tensor = DlTensor {
        data,
        device: DlDevice { kind, id },
        ndim: owner.shape.len() as i32,
        data_type: data_type(part.data_type),
        shape: owner.shape.as_mut_ptr(),
        strides: owner.strides.as_mut_ptr(),
        byte_offset: 0,
    };
    (tensor, owner)
}

/// A capsule of a part; `versioned` for consumers that know version 1.
pub(crate) fn capsule<'py>(
    py: Python<'py>,
    batch: &Arc<BatchRows>,
    part: &PartLayout,
    versioned: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let (tensor, owner) = tensor(batch, part);
    let owner = Box::into_raw(owner).cast();
    let (pointer, name, destructor): (*mut c_void, _, ffi::PyCapsule_Destructor) = if versioned {
        let managed = DlManagedTensorVersioned {
            major: 1,
            minor: 0,
            owner,
            deleter: Some(delete_versioned),
            flags: 0,
            tensor,
        };
        (
            Box::into_raw(Box::new(managed)).cast(),
            VERSIONED,
            drop_versioned,
        )
    } else {
        let managed = DlManagedTensor {
            tensor,
            owner,
            deleter: Some(delete),
        };
        (Box::into_raw(Box::new(managed)).cast(), LEGACY, drop_legacy)
    };
    // SAFETY: pointer and name outlive the capsule: the name is static, and what the pointer leads to
    // is freed by the consumer that renames the capsule, or by the destructor.
    unsafe {
        let capsule = ffi::PyCapsule_New(pointer, name.as_ptr(), Some(destructor));
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}

/// Fails if the consumer requests another device.
pub(crate) fn check_device(batch: &BatchRows, requested: Option<(i32, i32)>) -> PyResult<()> {
    let batch_device = device(batch);
    match requested {
        Some(requested) if requested != batch_device => Err(PyBufferError::new_err(format!(
            "the batch lies on the DLPack device {batch_device:?}, not on {requested:?}: copy it \
             afterwards"
        ))),
        _ => Ok(()),
    }
}

/// Makes the consumer's stream wait until a batch is copied. No stream given means the default
/// stream; -1 means no stream.
pub(crate) fn wait_on(py: Python<'_>, batch: &BatchRows, stream: Option<i64>) -> PyResult<()> {
    let BatchRows::Device(batch) = batch else {
        return Ok(());
    };
    let stream = match stream {
        None | Some(1) => ConsumerStream::Legacy,
        Some(2) => ConsumerStream::PerThread,
        Some(-1) => ConsumerStream::Unknown,
        Some(handle) if handle > 2 => ConsumerStream::Handle(handle as u64),
        Some(other) => {
            let message = format!(
                "{other} is no CUDA stream: DLPack takes -1, 1, 2, or the handle of a stream"
            );
            return Err(PyValueError::new_err(message));
        }
    };
    py.detach(|| batch.wait_on(stream))
        .map_err(|fault| fault_exception(py, &fault, None))
}

/// # Safety
/// `managed` comes from [`capsule`] and is not used again.
unsafe extern "C" fn delete(managed: *mut DlManagedTensor) {
    // SAFETY: both were boxes, and this is called once.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.owner.cast::<TensorOwner>()));
    }
}

/// # Safety
/// As [`delete`].
unsafe extern "C" fn delete_versioned(managed: *mut DlManagedTensorVersioned) {
    // SAFETY: both were boxes, and this is called once.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.owner.cast::<TensorOwner>()));
    }
}

/// # Safety
/// Python calls it with the capsule that goes.
unsafe extern "C" fn drop_legacy(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule that still has its name has not been consumed, so that its tensor is ours.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, LEGACY.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, LEGACY.as_ptr()).cast());
        }
    }
}

/// # Safety
/// As [`drop_legacy`].
unsafe extern "C" fn drop_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: as above.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        }
    }
}
