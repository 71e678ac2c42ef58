//! cuBLAS: products of matrices on a stream.

use std::ffi::{c_int, c_void};

use crate::fault::{CudaStatus, INVALID_VALUE, SUCCESS};
use crate::memory::DEVICE;
use crate::stream::{FakeStream, StreamWork};
use crate::{fault, report};

const TRANSPOSED: c_int = 1;
const F32: c_int = 0;
const BF16: c_int = 14;

/// The status of cuBLAS for a call that failed on the device.
const EXECUTION_FAILED: CudaStatus = 13;

/// A handle: the stream that products go to.
pub struct CublasHandle {
    stream: *mut FakeStream,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasCreate_v2(handle: *mut *mut CublasHandle) -> CudaStatus {
    unsafe {
        *handle = Box::into_raw(Box::new(CublasHandle {
            stream: std::ptr::null_mut(),
        }))
    };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasDestroy_v2(handle: *mut CublasHandle) -> CudaStatus {
    drop(unsafe { Box::from_raw(handle) });
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetVersion_v2(
    _handle: *mut CublasHandle,
    version: *mut c_int,
) -> CudaStatus {
    unsafe { *version = 130_000 };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasGetProperty(kind: c_int, value: *mut c_int) -> CudaStatus {
    // Major version, minor version, patch level.
    unsafe { *value = if kind == 0 { 13 } else { 0 } };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasSetStream_v2(
    handle: *mut CublasHandle,
    stream: *mut FakeStream,
) -> CudaStatus {
    unsafe { (*handle).stream = stream };
    SUCCESS
}

/// One side of a product, as it lies in the device's memory, column after column.
#[derive(Clone, Copy)]
struct MatrixOperand {
    start: u64,
    kind: c_int,
    leading: usize,
    transposed: bool,
}

impl MatrixOperand {
    fn value_bytes(&self) -> usize {
        if self.kind == BF16 { 2 } else { 4 }
    }

    /// How many bytes lie between the first value and the end of the last.
    fn bytes(&self, rows: usize, columns: usize) -> usize {
        let (rows, columns) = if self.transposed {
            (columns, rows)
        } else {
            (rows, columns)
        };
        ((columns - 1) * self.leading + rows) * self.value_bytes()
    }

    /// All values, row after row.
    ///
    /// # Safety
    /// The matrix lies in a live allocation.
    unsafe fn values(&self, rows: usize, columns: usize) -> Vec<f32> {
        let at = |row: usize, column: usize| {
            let place = if self.transposed {
                row * self.leading + column
            } else {
                column * self.leading + row
            };
            // SAFETY: the caller's.
            unsafe {
                match self.kind {
                    BF16 => f32::from_bits(
                        u32::from((self.start as *const u16).add(place).read()) << 16,
                    ),
                    _ => (self.start as *const f32).add(place).read(),
                }
            }
        };
        (0..rows)
            .flat_map(|row| (0..columns).map(move |column| at(row, column)))
            .collect()
    }
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "the interface of cuBLAS")]
pub unsafe extern "C" fn cublasGemmEx(
    handle: *mut CublasHandle,
    a_way: c_int,
    b_way: c_int,
    m: c_int,
    n: c_int,
    k: c_int,
    _alpha: *const c_void,
    a: u64,
    a_kind: c_int,
    lda: c_int,
    b: u64,
    b_kind: c_int,
    ldb: c_int,
    _beta: *const c_void,
    c: u64,
    c_kind: c_int,
    ldc: c_int,
    _compute: c_int,
    _algorithm: c_int,
) -> CudaStatus {
    let m = m as usize;
    let n = n as usize;
    let k = k as usize;
    let ldc = ldc as usize;
    let a = MatrixOperand {
        start: a,
        kind: a_kind,
        leading: lda as usize,
        transposed: a_way == TRANSPOSED,
    };
    let b = MatrixOperand {
        start: b,
        kind: b_kind,
        leading: ldb as usize,
        transposed: b_way == TRANSPOSED,
    };
    let least = |side: &MatrixOperand, rows, columns| {
        side.leading >= if side.transposed { columns } else { rows }
    };
    let product = MatrixOperand {
        start: c,
        kind: c_kind,
        leading: ldc,
        transposed: false,
    };
    if c_kind != F32
        || m == 0
        || n == 0
        || k == 0
        || ldc < m
        || !least(&a, m, k)
        || !least(&b, k, n)
    {
        return INVALID_VALUE;
    }
    report::count("product");
    let work = move || {
        let places = [(a, m, k), (b, k, n), (product, m, n)];
        if !places
            .iter()
            .all(|(side, rows, columns)| DEVICE.holds(side.start, side.bytes(*rows, *columns)))
        {
            return report::violation("a product reaches beyond its memory");
        }
        // SAFETY: all three lie in live allocations.
        unsafe {
            let left = a.values(m, k);
            let right = MatrixOperand {
                transposed: !b.transposed,
                ..b
            }
            .values(n, k);
            for column in 0..n {
                for row in 0..m {
                    let pairs = left[row * k..(row + 1) * k]
                        .iter()
                        .zip(&right[column * k..(column + 1) * k]);
                    let sum = pairs.fold(0.0_f32, |sum, (left, right)| sum + left * right);
                    (c as *mut f32).add(column * ldc + row).write(sum);
                }
            }
        }
    };
    unsafe { &*(*handle).stream }.push(StreamWork::Compute(Box::new(work)));
    if fault::count_call() == SUCCESS {
        SUCCESS
    } else {
        EXECUTION_FAILED
    }
}
