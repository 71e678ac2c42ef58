//! Trainings on CUDA: kernels by NVRTC, products of matrices by cuBLAS, both found when a training begins.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cublas::{self, CudaBlas};
use cudarc::driver::{CudaFunction, CudaSlice, DevicePtr, DeviceRepr, LaunchConfig, PushKernelArg};
use forebay_feed::{SlotAllocator, SlotMemory};
use forebay_model::{Fault, Result, codes};

use super::compile::need;
use super::libraries;
use super::pinned::PinnedBuffer;
use super::{Cuda, DEVICE_HINT, failed};
use crate::train::{Accelerator, ColumnMajor, KERNELS, Precision, Product, SOURCE};

/// Threads of a block.
const BLOCK_THREADS: u64 = 256;

/// A kernel's one argument: a struct of words, of which the driver takes as many as the kernel has.
struct Words([u64; 24]);

#[allow(unsafe_code, reason = "arguments of kernels have no types")]
// SAFETY: nothing but numbers.
unsafe impl DeviceRepr for Words {}

/// Kernels and products of matrices in a precision.
pub struct Program {
    kernels: BTreeMap<&'static str, CudaFunction>,
    blas: CudaBlas,
    values: cublas::sys::cudaDataType,
}

/// Page-locked memory for what is read back.
pub struct Letter(PinnedBuffer);

fn of_blas(what: &str) -> impl Fn(cublas::result::CublasError) -> Fault + '_ {
    move |error| {
        Fault::new(codes::STORAGE, format!("cuBLAS failed to {what} on the GPU")).cause(error).hint(DEVICE_HINT)
    }
}

fn defines(precision: Precision) -> &'static [&'static str] {
    match precision {
        Precision::F32 => &[],
        Precision::Bf16 => &["BF16"],
    }
}

impl Accelerator for Cuda {
    type Program = Program;
    type Letter = Letter;

    fn slots(&self) -> Arc<dyn SlotAllocator> {
        Arc::new(self.pinned())
    }

    fn program(&self, precision: Precision) -> Result<Program> {
        need(libraries::products(), "cuBLAS", "nvidia-cublas")?;
        let module = self.module(SOURCE, defines(precision))?;
        let kernel = |name: &&'static str| Ok((*name, module.load_function(name).map_err(failed("find a kernel"))?));
        let values = match precision {
            Precision::F32 => cublas::sys::cudaDataType::CUDA_R_32F,
            Precision::Bf16 => cublas::sys::cudaDataType::CUDA_R_16BF,
        };
        Ok(Program {
            kernels: KERNELS.iter().map(kernel).collect::<Result<_>>()?,
            // Sums by atomics, whose order is none, are for those who ask for them.
            blas: CudaBlas::new(self.compute.clone()).map_err(of_blas("begin"))?,
            values,
        })
    }

    fn address(&self, memory: &CudaSlice<u8>) -> u64 {
        // Nothing waits nor is recorded here: events are ours.
        memory.device_ptr(&self.compute).0
    }

    fn put(&self, bytes: &[u8], to: &mut CudaSlice<u8>) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.compute.memcpy_htod(bytes, to).map_err(failed("copy a model"))
    }

    fn get(&self, from: &CudaSlice<u8>, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let part = from.slice(..bytes.len());
        self.compute.memcpy_dtoh(&part, bytes).map_err(failed("copy a model back"))?;
        self.compute.synchronize().map_err(failed("copy a model back"))
    }

    fn letter(&self, bytes: usize) -> Result<Letter> {
        PinnedBuffer::new(&self.context, bytes).map(Letter)
    }

    fn send(&self, from: &CudaSlice<u8>, letter: &mut Letter) -> Result<()> {
        let part = from.slice(..letter.0.bytes().len());
        letter.0.copy_from(&self.compute, &part).map_err(failed("report a step"))
    }

    fn open(&self, letter: &mut Letter, bytes: &mut [u8]) -> Result<()> {
        bytes.copy_from_slice(letter.0.wait_and_read().map_err(failed("report a step"))?);
        Ok(())
    }

    #[allow(unsafe_code, reason = "arguments of kernels have no types")]
    unsafe fn launch(&self, program: &Program, kernel: &'static str, arguments: &[u64]) -> Result<()> {
        let unknown = || Fault::internal(format!("there is no kernel `{kernel}`"));
        let function = program.kernels.get(kernel).ok_or_else(unknown)?;
        let mut words = Words([0; 24]);
        words.0.get_mut(..arguments.len()).ok_or_else(unknown)?.copy_from_slice(arguments);
        let blocks = u32::try_from(words.0[0].div_ceil(BLOCK_THREADS)).map_err(|_| unknown())?;
        let shape =
            LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (BLOCK_THREADS as u32, 1, 1), shared_mem_bytes: 0 };
        let mut launch = self.compute.launch_builder(function);
        launch.arg(&words);
        // SAFETY: the caller's.
        unsafe { launch.launch(shape) }.map(drop).map_err(failed("start a kernel"))
    }

    #[allow(unsafe_code, reason = "the library takes pointers")]
    unsafe fn multiply(&self, program: &Program, product: &Product) -> Result<()> {
        let ColumnMajor { a_transposed, b_transposed, m, n, k, a, lda, b, ldb, c, ldc } = product.column_major();
        let way = |transposed: bool| match transposed {
            true => cublas::sys::cublasOperation_t::CUBLAS_OP_T,
            false => cublas::sys::cublasOperation_t::CUBLAS_OP_N,
        };
        let count = |count: u64| {
            i32::try_from(count).map_err(|_| Fault::new(codes::LIMIT, "a matrix has more rows than cuBLAS takes"))
        };
        let (one, zero) = (1.0_f32, 0.0_f32);
        self.context.bind_to_thread().map_err(failed("multiply matrices"))?;
        // SAFETY: the handle is alive and uses the stream for computation; the rest is the caller's.
        let done = unsafe {
            cublas::result::gemm_ex(
                *program.blas.handle(),
                way(a_transposed),
                way(b_transposed),
                count(m)?,
                count(n)?,
                count(k)?,
                (&raw const one).cast::<c_void>(),
                a as *const c_void,
                program.values,
                count(lda)?,
                b as *const c_void,
                program.values,
                count(ldb)?,
                (&raw const zero).cast::<c_void>(),
                c as *mut c_void,
                cublas::sys::cudaDataType::CUDA_R_32F,
                count(ldc)?,
                cublas::sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                cublas::sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        };
        done.map_err(of_blas("multiply matrices"))
    }
}
