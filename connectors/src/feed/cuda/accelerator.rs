//! Trainings on CUDA: kernels by NVRTC, products of matrices by cuBLAS, both found when a training begins.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Arc;

use cudarc::cublas::{self, CudaBlas};
use cudarc::driver::{
    CudaFunction, CudaSlice, DevicePtr, DeviceRepr, LaunchConfig, PinnedHostSlice, PushKernelArg, sys,
};
use cudarc::nvrtc;
use forebay_feed::SlotAllocator;
use forebay_model::{Fault, Result, codes};

use super::{Cuda, failed};
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
pub struct Letter(PinnedHostSlice<u8>);

fn missing(library: &str, package: &str) -> Fault {
    let message = format!("the library {library} is not found, which training on a GPU needs");
    Fault::new(codes::UNSUPPORTED, message)
        .hint(format!("install CUDA's libraries (or `pip install {package}`), and put them on LD_LIBRARY_PATH"))
}

#[allow(unsafe_code, reason = "looking for a library runs its initialisation")]
fn need_libraries() -> Result<()> {
    // SAFETY: these are CUDA's own libraries.
    let (nvrtc, cublas) = unsafe { (nvrtc::sys::is_culib_present(), cublas::sys::is_culib_present()) };
    match (nvrtc, cublas) {
        (false, _) => Err(missing("NVRTC", "nvidia-cuda-nvrtc")),
        (_, false) => Err(missing("cuBLAS", "nvidia-cublas")),
        (true, true) => Ok(()),
    }
}

fn of_blas(what: &str) -> impl Fn(cublas::result::CublasError) -> Fault + '_ {
    move |error| Fault::new(codes::STORAGE, format!("cuBLAS failed to {what}")).cause(error)
}

/// What NVRTC is told beside the source: products and sums are rounded one by one, as on the host.
fn options(precision: Precision) -> nvrtc::CompileOptions {
    let options = match precision {
        Precision::F32 => Vec::new(),
        Precision::Bf16 => vec!["-DBF16".to_owned()],
    };
    nvrtc::CompileOptions { fmad: Some(false), options, ..Default::default() }
}

fn compiled(precision: Precision) -> Result<nvrtc::Ptx> {
    nvrtc::compile_ptx_with_opts(SOURCE, options(precision))
        .map_err(|error| Fault::internal("the kernels of trainings cannot be compiled").cause(error))
}

impl Accelerator for Cuda {
    type Program = Program;
    type Letter = Letter;

    fn slots(&self) -> Arc<dyn SlotAllocator> {
        Arc::new(self.pinned())
    }

    fn program(&self, precision: Precision) -> Result<Program> {
        need_libraries()?;
        let module = self.context.load_module(compiled(precision)?).map_err(|error| {
            failed("load the kernels")(error).hint("NVRTC must not be newer than what the driver knows")
        })?;
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
        #[allow(unsafe_code, reason = "the memory is not set")]
        // SAFETY: it is read only after something was copied there.
        let slice = unsafe { self.context.alloc_pinned_with_flags::<u8>(bytes, sys::CU_MEMHOSTALLOC_PORTABLE) };
        slice.map(Letter).map_err(failed("lock memory"))
    }

    fn send(&self, from: &CudaSlice<u8>, letter: &mut Letter) -> Result<()> {
        // Records the letter's own event, for which `open` waits.
        let part = from.slice(..letter.0.len());
        self.compute.memcpy_dtoh(&part, &mut letter.0).map_err(failed("report a step"))
    }

    fn open(&self, letter: &mut Letter, bytes: &mut [u8]) -> Result<()> {
        bytes.copy_from_slice(letter.0.as_slice().map_err(failed("report a step"))?);
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

#[cfg(test)]
mod tests {
    use super::super::tests::compiler_is_found;
    use super::*;

    #[test]
    fn kernels_compile_where_the_compiler_is_found() {
        if !compiler_is_found() {
            return;
        }
        for precision in [Precision::F32, Precision::Bf16] {
            let ptx = compiled(precision).unwrap().to_src();
            for kernel in KERNELS {
                assert!(ptx.contains(&format!(".entry {kernel}(")), "{kernel}");
            }
        }
    }
}
