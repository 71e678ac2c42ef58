//! DLPack: tensors handed over without a copy. The structures are those of its C header, version 1.
//!
//! A tensor on a device is handed over with the consumer's stream, which waits for the copy. Its deleter may be called
//! by any thread, with Python's lock or without.

use std::ffi::{CStr, c_void};
use std::sync::Arc;

use forebay::connectors::ConsumerStream;
use forebay::feed::{PartLayout, Type};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::batch::Rows;
use crate::fault::raised;

/// `kDLCPU` and `kDLCUDA`.
const CPU: i32 = 1;
const CUDA: i32 = 2;

const LEGACY: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";

#[repr(C)]
struct Device {
    kind: i32,
    id: i32,
}

#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    data_type: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: Tensor,
    owner: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct ManagedVersioned {
    major: u32,
    minor: u32,
    owner: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    tensor: Tensor,
}

/// What a tensor keeps alive: the batch, and with it the slot.
struct Owner {
    _batch: Arc<Rows>,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

fn data_type(of: Type) -> DataType {
    let (code, bits) = match of {
        Type::I32 => (0, 32),
        Type::I64 => (0, 64),
        Type::U8 => (1, 8),
        Type::F16 => (2, 16),
        Type::F32 => (2, 32),
        Type::Bf16 => (4, 16),
    };
    DataType { code, bits, lanes: 1 }
}

/// The shape of a part: as many rows as the batch has.
pub(crate) fn shape(batch: &Rows, part: &PartLayout) -> Vec<i64> {
    let mut shape: Vec<i64> = part.shape.iter().map(|extent| *extent as i64).collect();
    if let Some(rows) = shape.first_mut() {
        *rows = batch.shape_rows() as i64;
    }
    shape
}

/// The device of a batch, as DLPack tells it.
pub(crate) fn device(batch: &Rows) -> (i32, i32) {
    match batch {
        Rows::Host(_) => (CPU, 0),
        Rows::Device(batch) => (CUDA, batch.device() as i32),
    }
}

fn tensor(batch: &Arc<Rows>, part: &PartLayout) -> (Tensor, Box<Owner>) {
    let shape = shape(batch, part);
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis];
    }
    let mut owner = Box::new(Owner { _batch: batch.clone(), shape, strides });
    // Consumers may write: the slot is theirs until the last of them drops it.
    let data = match &**batch {
        Rows::Host(batch) => batch.part(part.role).as_ptr().cast_mut().cast(),
        Rows::Device(batch) => (batch.address() + part.offset as u64) as *mut c_void,
    };
    let (kind, id) = device(batch);
    let tensor = Tensor {
        data,
        device: Device { kind, id },
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
    batch: &Arc<Rows>,
    part: &PartLayout,
    versioned: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let (tensor, owner) = tensor(batch, part);
    let owner = Box::into_raw(owner).cast();
    let (pointer, name, destructor): (*mut c_void, _, ffi::PyCapsule_Destructor) = if versioned {
        let managed = ManagedVersioned { major: 1, minor: 0, owner, deleter: Some(delete_versioned), flags: 0, tensor };
        (Box::into_raw(Box::new(managed)).cast(), VERSIONED, drop_versioned)
    } else {
        let managed = Managed { tensor, owner, deleter: Some(delete) };
        (Box::into_raw(Box::new(managed)).cast(), LEGACY, drop_legacy)
    };
    // SAFETY: pointer and name outlive the capsule: the name is static, and what the pointer leads to
    // is freed by the consumer that renames the capsule, or by the destructor.
    unsafe {
        let capsule = ffi::PyCapsule_New(pointer, name.as_ptr(), Some(destructor));
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}

/// Whether the consumer may have a batch on this device.
pub(crate) fn check_device(batch: &Rows, wanted: Option<(i32, i32)>) -> PyResult<()> {
    let there = device(batch);
    match wanted {
        Some(wanted) if wanted != there => Err(PyBufferError::new_err(format!(
            "the batch lies on the DLPack device {there:?}, not on {wanted:?}: copy it afterwards"
        ))),
        _ => Ok(()),
    }
}

/// Lets the stream that a consumer gave wait until a batch is there. Without one it is the default stream; -1 is none.
pub(crate) fn wait_on(py: Python<'_>, batch: &Rows, stream: Option<i64>) -> PyResult<()> {
    let Rows::Device(batch) = batch else { return Ok(()) };
    let stream = match stream {
        None | Some(1) => ConsumerStream::Legacy,
        Some(2) => ConsumerStream::PerThread,
        Some(-1) => ConsumerStream::Unknown,
        Some(handle) if handle > 2 => ConsumerStream::Handle(handle as u64),
        Some(other) => {
            let message = format!("{other} is no CUDA stream: DLPack takes -1, 1, 2, or the handle of a stream");
            return Err(PyValueError::new_err(message));
        }
    };
    py.detach(|| batch.wait_on(stream)).map_err(|fault| raised(py, &fault))
}

/// # Safety
/// `managed` comes from [`capsule`] and is not used again.
unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: both were boxes, and this is called once.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.owner.cast::<Owner>()));
    }
}

/// # Safety
/// As [`delete`].
unsafe extern "C" fn delete_versioned(managed: *mut ManagedVersioned) {
    // SAFETY: both were boxes, and this is called once.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.owner.cast::<Owner>()));
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
