//! Requirements for a device that trains.

use std::sync::Arc;

use forebay_feed::SlotAllocator;
use forebay_model::Result;

use crate::device::ComputeDevice;
use crate::precision::Precision;

/// A device that can train: in addition to a queue for copies it has one for computation, to which
/// all operations of this trait belong. Addresses are those of the device's memory, in bytes.
pub trait Accelerator: ComputeDevice {
    /// Kernels and products of matrices in a precision.
    type Program;
    /// Memory of the host for data that is copied back later.
    type Letter;

    /// Allocator of a feed's slots.
    fn slot_allocator(&self) -> Arc<dyn SlotAllocator>;

    /// Makes kernels ready.
    fn load_program(&self, kernels: &DeviceKernels, precision: Precision) -> Result<Self::Program>;

    /// Address of memory.
    fn address(&self, memory: &Self::Memory) -> u64;

    /// Writes to the beginning of some memory; the bytes are taken over before the call comes back.
    fn upload(&self, bytes: &[u8], to: &mut Self::Memory) -> Result<()>;

    /// Waits for everything so far, and reads the beginning of some memory.
    fn download(&self, from: &Self::Memory, bytes: &mut [u8]) -> Result<()>;

    /// Allocates `bytes` bytes of host memory.
    fn allocate_readback(&self, bytes: usize) -> Result<Self::Letter>;

    /// Copies the beginning of some memory into a letter, later.
    fn enqueue_readback(&self, from: &Self::Memory, letter: &mut Self::Letter) -> Result<()>;

    /// Waits for the last copy back and all work before it, and reads its bytes.
    fn wait_readback(&self, letter: &mut Self::Letter, bytes: &mut [u8]) -> Result<()>;

    /// Starts a kernel with its arguments, of which the first is the number of threads.
    ///
    /// # Safety
    /// The arguments are those of the kernel, and the memory that they point to covers all accesses
    /// of the kernel.
    #[allow(unsafe_code, reason = "addresses have no types")]
    unsafe fn launch(
        &self,
        program: &Self::Program,
        kernel: &'static str,
        arguments: &[u64],
    ) -> Result<()>;

    /// Multiplies matrices in the program's precision; the product is `f32`.
    ///
    /// # Safety
    /// The matrices are as large as the product requires.
    #[allow(unsafe_code, reason = "addresses have no types")]
    unsafe fn multiply(&self, program: &Self::Program, product: &MatrixProduct) -> Result<()>;
}

/// Kernels of a device.
#[derive(Debug, Clone, Copy)]
pub struct DeviceKernels {
    /// The source of all of them, in CUDA C++. `BF16` is defined for products in [`Precision::Bf16`].
    pub source: &'static str,
    /// Their names.
    pub names: &'static [&'static str],
}

/// A matrix in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMatrix {
    /// Address of the matrix.
    pub address: u64,
    /// Values from one stored row to the next.
    pub stride: u64,
    /// True if its transpose is stored.
    pub transposed: bool,
}

/// `c = a b`, where `a` is `m x k`, `b` is `k x n`, and `c` is `m x n`; all lie row after row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatrixProduct {
    /// Rows of `a` and `c`.
    pub m: u64,
    /// Columns of `a`, rows of `b`.
    pub k: u64,
    /// Columns of `b` and `c`.
    pub n: u64,
    /// Left operand, in the program's precision.
    pub a: DeviceMatrix,
    /// Right operand, in the program's precision.
    pub b: DeviceMatrix,
    /// Address of the product, in `f32`.
    pub c: u64,
    /// Values from one row of the product to the next.
    pub c_stride: u64,
}

/// The product in cuBLAS's layout, with matrices stored column after column: `c = op(a) op(b)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the words of BLAS")]
pub struct ColumnMajorProduct {
    pub a_transposed: bool,
    pub b_transposed: bool,
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub a: u64,
    pub lda: u64,
    pub b: u64,
    pub ldb: u64,
    pub c: u64,
    pub ldc: u64,
}

impl MatrixProduct {
    /// Converts a product from row-major to column-major layout. A row-major matrix is the
    /// transpose of a column-major one: so the product of the transposes, in the other order, is
    /// the transpose of the product.
    pub fn column_major(&self) -> ColumnMajorProduct {
        ColumnMajorProduct {
            a_transposed: self.b.transposed,
            b_transposed: self.a.transposed,
            m: self.n,
            n: self.m,
            k: self.k,
            a: self.b.address,
            lda: self.b.stride,
            b: self.a.address,
            ldb: self.a.stride,
            c: self.c,
            ldc: self.c_stride,
        }
    }
}
