//! Kernels: from CUDA C to machine code of one architecture.
//!
//! A cubin is loaded rather than PTX, since a driver refuses PTX of a compiler that is newer than itself. Compiled
//! kernels are kept for the rest of the process, by source, options, architecture and version of the compiler.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use cudarc::nvrtc::{result, sys};
use forebay_model::{Fault, Result, codes};

use super::libraries::{self, LibraryStatus};
use super::wheels::wheel_name;

/// Compute capability of a device: `sm_<major><minor>` is its architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GpuArchitecture {
    pub major: i32,
    pub minor: i32,
}

impl fmt::Display for GpuArchitecture {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "sm_{}{}", self.major, self.minor)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CubinKey {
    source: &'static str,
    options: Vec<String>,
    version: (i32, i32),
}

static COMPILED: Mutex<Option<HashMap<CubinKey, Vec<u8>>>> = Mutex::new(None);

/// Fails with a hint on the package to install, unless the library was found.
pub fn require_library(status: LibraryStatus, library: &str, package: &str) -> Result<()> {
    let message = match status {
        LibraryStatus::Found => return Ok(()),
        LibraryStatus::Absent => format!("the library {library} is not found, which a GPU needs"),
        LibraryStatus::Lacks(symbol) => {
            format!("the library {library} is too old: it lacks `{symbol}`")
        }
    };
    let package = wheel_name(package);
    Err(Fault::new(codes::UNSUPPORTED, message).hint(format!(
        "install CUDA's libraries, or `pip install {package}` into the active virtual \
         environment; or leave `device` out"
    )))
}

/// The compiler's version.
#[allow(unsafe_code, reason = "a foreign function")]
pub fn nvrtc_version() -> Result<(i32, i32)> {
    require_library(libraries::nvrtc_status(), "NVRTC", "nvidia-cuda-nvrtc")?;
    let mut major = 0;
    let mut minor = 0;
    // SAFETY: both pointers are valid for the call.
    unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) }
        .result()
        .map_err(|error| Fault::internal("NVRTC does not tell its version").cause(error))?;
    Ok((major, minor))
}

fn compiler_options(defines: &[&str], architecture: GpuArchitecture) -> Vec<String> {
    let mut options = vec![
        format!("--gpu-architecture={architecture}"),
        "--fmad=false".to_owned(),
    ];
    options.extend(defines.iter().map(|define| format!("-D{define}")));
    options
}

/// Machine code of a source. Products and sums are rounded one by one, as on the host.
pub fn cubin(
    source: &'static str,
    defines: &[&str],
    architecture: GpuArchitecture,
) -> Result<Vec<u8>> {
    let key = CubinKey {
        source,
        options: compiler_options(defines, architecture),
        version: nvrtc_version()?,
    };
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let compiled = compiled.get_or_insert_default();
    if let Some(code) = compiled.get(&key) {
        return Ok(code.clone());
    }
    let code = NvrtcHandle::compile(source, &key.options)?.cubin()?;
    compiled.insert(key, code.clone());
    Ok(code)
}

/// A program of NVRTC, which is destroyed with it.
struct NvrtcHandle(sys::nvrtcProgram);

impl Drop for NvrtcHandle {
    #[allow(unsafe_code, reason = "a foreign function")]
    fn drop(&mut self) {
        // SAFETY: the program was created, and is used by nothing else.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

impl NvrtcHandle {
    #[allow(unsafe_code, reason = "a foreign function")]
    fn compile(source: &str, options: &[String]) -> Result<NvrtcHandle> {
        let text = CString::new(source)
            .map_err(|error| Fault::internal("a kernel's source has a zero byte").cause(error))?;
        let program = NvrtcHandle(result::create_program(&text, None).map_err(nvrtc_fault)?);
        // SAFETY: the program is alive.
        unsafe { result::compile_program(program.0, options) }
            .map_err(|error| program.refused(error, options))?;
        Ok(program)
    }

    #[allow(unsafe_code, reason = "a foreign function")]
    fn refused(&self, error: result::NvrtcError, options: &[String]) -> Fault {
        // SAFETY: the program is alive.
        let log = unsafe { result::get_program_log(self.0) }.unwrap_or_default();
        let log = CStr::from_bytes_until_nul(bytemuck::cast_slice(&log)).map(CStr::to_string_lossy);
        let log = log.unwrap_or_default();
        nvrtc_fault(error).hint(format!(
            "NVRTC with {options:?}: {}",
            log.lines().next().unwrap_or("")
        ))
    }

    /// Machine code of the architecture that the options name.
    #[allow(unsafe_code, reason = "foreign functions")]
    fn cubin(&self) -> Result<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: the program is compiled.
        unsafe { sys::nvrtcGetCUBINSize(self.0, &raw mut bytes) }
            .result()
            .map_err(nvrtc_fault)?;
        let mut code = vec![0_u8; bytes];
        // SAFETY: the buffer has the length that NVRTC reports.
        unsafe { sys::nvrtcGetCUBIN(self.0, code.as_mut_ptr().cast()) }
            .result()
            .map_err(nvrtc_fault)?;
        Ok(code)
    }
}

fn nvrtc_fault(error: result::NvrtcError) -> Fault {
    Fault::internal("a kernel cannot be compiled").cause(error)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use forebay_train::TRAINING_KERNELS;

    use super::*;
    use crate::cuda::CHECKSUM_KERNEL;

    const ARCHITECTURES: [GpuArchitecture; 4] = [
        GpuArchitecture { major: 7, minor: 5 },
        GpuArchitecture { major: 8, minor: 0 },
        GpuArchitecture { major: 9, minor: 0 },
        GpuArchitecture {
            major: 10,
            minor: 0,
        },
    ];

    /// NVRTC needs no GPU: `pip install nvidia-cuda-nvrtc` is enough. `FOREBAY_REQUIRE_NVRTC` makes its absence a
    /// failure.
    #[test]
    fn kernels_compile_for_every_architecture() {
        if libraries::nvrtc_status() != LibraryStatus::Found {
            assert!(
                std::env::var_os("FOREBAY_REQUIRE_NVRTC").is_none(),
                "NVRTC: {:?}",
                libraries::nvrtc_status()
            );
            let _ = writeln!(std::io::stderr(), "skipped: no NVRTC found");
            return;
        }
        for architecture in ARCHITECTURES {
            for (source, defines, kernels) in [
                (CHECKSUM_KERNEL, &[][..], &["checksum"][..]),
                (TRAINING_KERNELS.source, &[], TRAINING_KERNELS.names),
                (TRAINING_KERNELS.source, &["BF16"], TRAINING_KERNELS.names),
            ] {
                let program =
                    NvrtcHandle::compile(source, &compiler_options(defines, architecture)).unwrap();
                // An ELF file, whose table of names has the kernels.
                let code = program.cubin().unwrap();
                assert_eq!(code.get(..4), Some(&b"\x7fELF"[..]), "{architecture}");
                let text = ptx(&program);
                assert!(
                    text.contains(&format!(".target {architecture}")),
                    "{architecture}"
                );
                for kernel in kernels {
                    let found = code
                        .windows(kernel.len())
                        .any(|bytes| bytes == kernel.as_bytes());
                    assert!(found, "{architecture}: no {kernel} in the cubin");
                    assert!(
                        text.contains(&format!(".entry {kernel}(")),
                        "{architecture}: no {kernel} in the PTX"
                    );
                }
                assert_eq!(
                    cubin(source, defines, architecture).unwrap(),
                    code,
                    "{architecture}"
                );
            }
        }
        let compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = compiled
            .as_ref()
            .unwrap()
            .keys()
            .filter(|key| key.version == nvrtc_version().unwrap())
            .count();
        assert!(kept >= 3 * ARCHITECTURES.len(), "{kept} are kept");
    }

    #[allow(unsafe_code)]
    fn ptx(program: &NvrtcHandle) -> String {
        // SAFETY: the program is compiled.
        let text = unsafe { result::get_ptx(program.0) }.unwrap();
        CStr::from_bytes_until_nul(bytemuck::cast_slice(&text))
            .unwrap()
            .to_string_lossy()
            .into_owned()
    }

    #[test]
    fn a_source_that_does_not_compile_tells_its_first_error() {
        if libraries::nvrtc_status() != LibraryStatus::Found {
            return;
        }
        let fault = cubin(
            "extern \"C\" __global__ void broken() { nonsense; }",
            &[],
            ARCHITECTURES[1],
        )
        .unwrap_err();
        assert!(
            fault
                .hint_text()
                .is_some_and(|hint| hint.contains("nonsense")),
            "{fault:?}"
        );
    }
}
