//! Report of CUDA on this machine: the file and version of each library, and the command that
//! installs a missing one.

use std::path::PathBuf;

use cudarc::cublas::sys as cublas;

use super::libraries::{self, LibraryStatus};
use super::wheels::{driver_version, wheel_name};
use super::{compile, describe_devices};
use crate::{CudaLibrary, CudaReport};

/// The libraries and devices of this machine. Never panics: a library is called only if it has every symbol.
pub fn report() -> CudaReport {
    let driver = LibraryProbe {
        name: "driver",
        found: libraries::driver_status(),
        file: libraries::driver_file(),
        version: driver_version()
            .map(|version| format!("CUDA {}.{}", version / 1000, version % 1000 / 10)),
        remedy: "install NVIDIA's driver, as with `sudo apt install nvidia-driver-580`; a \
                 container starts with `--gpus all`"
            .to_owned(),
    };
    let compiler = LibraryProbe {
        name: "NVRTC",
        found: libraries::nvrtc_status(),
        file: libraries::nvrtc_file(),
        version: compile::nvrtc_version()
            .ok()
            .map(|(major, minor)| format!("{major}.{minor}")),
        remedy: install_hint("nvidia-cuda-nvrtc"),
    };
    let products = LibraryProbe {
        name: "cuBLAS",
        found: libraries::cublas_status(),
        file: libraries::cublas_file(),
        version: cublas_version(),
        remedy: install_hint("nvidia-cublas"),
    };
    CudaReport {
        libraries: [driver, compiler, products]
            .map(LibraryProbe::into_library)
            .into(),
        devices: describe_devices(),
    }
}

fn install_hint(package: &str) -> String {
    format!(
        "`pip install {}` into the active virtual environment",
        wheel_name(package)
    )
}

struct LibraryProbe {
    name: &'static str,
    found: LibraryStatus,
    file: Option<PathBuf>,
    version: Option<String>,
    remedy: String,
}

impl LibraryProbe {
    fn into_library(self) -> CudaLibrary {
        let file = self.file.map_or_else(
            || "an unknown file".to_owned(),
            |file| file.display().to_string(),
        );
        let (finding, remedy) = match self.found {
            LibraryStatus::Found => (
                format!(
                    "{}, {file}",
                    self.version.unwrap_or_else(|| "unknown version".to_owned())
                ),
                None,
            ),
            LibraryStatus::Absent => ("not found".to_owned(), Some(self.remedy)),
            LibraryStatus::Lacks(symbol) => (
                format!("too old, lacks `{symbol}`, {file}"),
                Some(self.remedy),
            ),
        };
        CudaLibrary {
            name: self.name,
            found: finding,
            remedy,
        }
    }
}

#[allow(unsafe_code, reason = "a foreign function")]
fn cublas_version() -> Option<String> {
    use cublas::libraryPropertyType_t::{MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL};
    if libraries::cublas_status() != LibraryStatus::Found {
        return None;
    }
    let part = |which| {
        let mut number = 0;
        // SAFETY: the library has the function, and the pointer is valid for the call.
        unsafe { cublas::cublasGetProperty(which, &raw mut number) }
            .result()
            .ok()
            .map(|()| number)
    };
    Some(format!(
        "{}.{}.{}",
        part(MAJOR_VERSION)?,
        part(MINOR_VERSION)?,
        part(PATCH_LEVEL)?
    ))
}
