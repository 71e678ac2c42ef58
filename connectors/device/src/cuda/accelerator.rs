//! Trainings on CUDA: kernels by NVRTC, products of matrices by cuBLAS, both found when a training begins.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cublas::{self, CudaBlas};
use cudarc::driver::{CudaFunction, CudaSlice, DevicePtr, DeviceRepr, LaunchConfig, PushKernelArg};
use forebay_feed::{SlotAllocator, SlotMemory};
use forebay_model::{Fault, Result, codes};

use super::compile::require_library;
use super::libraries;
use super::pinned::PinnedBuffer;
use super::{CudaDevice, DEVICE_HINT, driver_fault};
use crate::accelerator::{Accelerator, ColumnMajorProduct, DeviceKernels, MatrixProduct};
use crate::precision::Precision;

/// Threads of a block.
const BLOCK_THREADS: u64 = 256;

/// A kernel's one argument: a struct of words, of which the driver takes as many as the kernel has.
struct ArgumentBlock([u64; 24]);

#[allow(unsafe_code, reason = "arguments of kernels have no types")]
// SAFETY: nothing but numbers.
unsafe impl DeviceRepr for ArgumentBlock {}

/// Kernels and products of matrices in a precision.
pub struct CudaProgram {
    kernels: BTreeMap<&'static str, CudaFunction>,
    blas: CudaBlas,
    values: cublas::sys::cudaDataType,
}

/// Page-locked memory for data that is copied back from the device.
pub struct PinnedReadback(PinnedBuffer);

fn blas_fault(action: &str) -> impl Fn(cublas::result::CublasError) -> Fault + '_ {
    move |error| {
        Fault::new(
            codes::STORAGE,
            format!("cuBLAS failed to {action} on the GPU"),
        )
        .cause(error)
        .hint(DEVICE_HINT)
    }
}

fn precision_defines(precision: Precision) -> &'static [&'static str] {
    match precision {
        Precision::F32 => &[],
        Precision::Bf16 => &["BF16"],
    }
}

impl Accelerator for CudaDevice {
    type Program = CudaProgram;
    type Letter = PinnedReadback;

    fn slot_allocator(&self) -> Arc<dyn SlotAllocator> {
        Arc::new(self.pinned())
    }

    fn load_program(&self, kernels: &DeviceKernels, precision: Precision) -> Result<CudaProgram> {
        require_library(libraries::cublas_status(), "cuBLAS", "nvidia-cublas")?;
        let module = self.compile_module(kernels.source, precision_defines(precision))?;
        let kernel = |name: &&'static str| {
            Ok((
                *name,
                module
                    .load_function(name)
                    .map_err(driver_fault("find a kernel"))?,
            ))
        };
        let values = match precision {
            Precision::F32 => cublas::sys::cudaDataType::CUDA_R_32F,
            Precision::Bf16 => cublas::sys::cudaDataType::CUDA_R_16BF,
        };
        Ok(CudaProgram {
            kernels: kernels.names.iter().map(kernel).collect::<Result<_>>()?,
            // Sums by atomics, which have no fixed order, are used only on request.
            blas: CudaBlas::new(self.compute.clone()).map_err(blas_fault("begin"))?,
            values,
        })
    }

    fn address(&self, memory: &CudaSlice<u8>) -> u64 {
        // Nothing waits nor is recorded here: events are ours.
        memory.device_ptr(&self.compute).0
    }

    fn upload(&self, bytes: &[u8], to: &mut CudaSlice<u8>) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.compute
            .memcpy_htod(bytes, to)
            .map_err(driver_fault("copy a model"))
    }

    fn download(&self, from: &CudaSlice<u8>, bytes: &mut [u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let part = from.slice(..bytes.len());
        self.compute
            .memcpy_dtoh(&part, bytes)
            .map_err(driver_fault("copy a model back"))?;
        self.compute
            .synchronize()
            .map_err(driver_fault("copy a model back"))
    }

    fn allocate_readback(&self, bytes: usize) -> Result<PinnedReadback> {
        PinnedBuffer::new(&self.context, bytes).map(PinnedReadback)
    }

    fn enqueue_readback(&self, from: &CudaSlice<u8>, letter: &mut PinnedReadback) -> Result<()> {
        let part = from.slice(..letter.0.bytes().len());
        letter
            .0
            .copy_from(&self.compute, &part)
            .map_err(driver_fault("report a step"))
    }

    fn wait_readback(&self, letter: &mut PinnedReadback, bytes: &mut [u8]) -> Result<()> {
        bytes.copy_from_slice(
            letter
                .0
                .wait_and_read()
                .map_err(driver_fault("report a step"))?,
        );
        Ok(())
    }

    #[allow(unsafe_code, reason = "arguments of kernels have no types")]
    unsafe fn launch(
        &self,
        program: &CudaProgram,
        kernel: &'static str,
        arguments: &[u64],
    ) -> Result<()> {
        let unknown = || Fault::internal(format!("there is no kernel `{kernel}`"));
        let function = program.kernels.get(kernel).ok_or_else(unknown)?;
        let mut words = ArgumentBlock([0; 24]);
        words
            .0
            .get_mut(..arguments.len())
            .ok_or_else(unknown)?
            .copy_from_slice(arguments);
        let blocks = u32::try_from(words.0[0].div_ceil(BLOCK_THREADS)).map_err(|_| unknown())?;
        let shape = LaunchConfig {
            grid_dim: (blocks, 1, 1),
            block_dim: (BLOCK_THREADS as u32, 1, 1),
            shared_mem_bytes: 0,
        };
        let mut launch = self.compute.launch_builder(function);
        launch.arg(&words);
        // SAFETY: the caller's.
        unsafe { launch.launch(shape) }
            .map(drop)
            .map_err(driver_fault("start a kernel"))
    }

    #[allow(unsafe_code, reason = "the library takes pointers")]
    unsafe fn multiply(&self, program: &CudaProgram, product: &MatrixProduct) -> Result<()> {
        let ColumnMajorProduct {
            a_transposed,
            b_transposed,
            m,
            n,
            k,
            a,
            lda,
            b,
            ldb,
            c,
            ldc,
        } = product.column_major();
        let way = |transposed: bool| {
            if transposed {
                cublas::sys::cublasOperation_t::CUBLAS_OP_T
            } else {
                cublas::sys::cublasOperation_t::CUBLAS_OP_N
            }
        };
        let count = |count: u64| {
            i32::try_from(count)
                .map_err(|_| Fault::new(codes::LIMIT, "a matrix has more rows than cuBLAS takes"))
        };
        let unit = 1.0_f32;
        let zero = 0.0_f32;
        self.context
            .bind_to_thread()
            .map_err(driver_fault("multiply matrices"))?;
        // SAFETY: the handle is alive and uses the stream for computation; the rest is the caller's.
        let done = unsafe {
            cublas::result::gemm_ex(
                *program.blas.handle(),
                way(a_transposed),
                way(b_transposed),
                count(m)?,
                count(n)?,
                count(k)?,
                (&raw const unit).cast::<c_void>(),
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
        done.map_err(blas_fault("multiply matrices"))
    }
}
