//! CUDA's libraries: where they are found at run time, and whether they have every symbol that is called here.
//!
//! cudarc looks a symbol up at its first use, and panics where the library lacks it. So each library is checked
//! against a list before anything of it is called.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cudarc::{cublas, driver, nvrtc};
use libloading::Library as Loaded;

/// Status of a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LibraryStatus {
    /// The library has every symbol that is called.
    Found,
    /// The loader does not find it.
    Absent,
    /// The library is too old: the first symbol that it lacks.
    Lacks(&'static str),
}

const DRIVER: [&str; 33] = [
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuGetErrorString",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAllocAsync",
    "cuMemAlloc_v2",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
];

const COMPILER: [&str; 9] = [
    "nvrtcCompileProgram",
    "nvrtcCreateProgram",
    "nvrtcDestroyProgram",
    "nvrtcGetCUBIN",
    "nvrtcGetCUBINSize",
    "nvrtcGetErrorString",
    "nvrtcGetProgramLog",
    "nvrtcGetProgramLogSize",
    "nvrtcVersion",
];

const PRODUCTS: [&str; 6] = [
    "cublasCreate_v2",
    "cublasDestroy_v2",
    "cublasGemmEx",
    "cublasGetProperty",
    "cublasGetVersion_v2",
    "cublasSetStream_v2",
];

/// The driver's library, libcuda.
#[allow(unsafe_code, reason = "loading a library runs its initialisation")]
pub fn driver_status() -> LibraryStatus {
    // SAFETY: libcuda is the driver's own library, which every CUDA program loads.
    unsafe {
        check_symbols(
            driver::sys::is_culib_present(),
            || driver::sys::culib(),
            &DRIVER,
        )
    }
}

/// The compiler of kernels, NVRTC.
#[allow(unsafe_code, reason = "loading a library runs its initialisation")]
pub fn nvrtc_status() -> LibraryStatus {
    load_from_known_places();
    // SAFETY: NVRTC comes with CUDA.
    unsafe {
        check_symbols(
            nvrtc::sys::is_culib_present(),
            || nvrtc::sys::culib(),
            &COMPILER,
        )
    }
}

/// Products of matrices, cuBLAS.
#[allow(unsafe_code, reason = "loading a library runs its initialisation")]
pub fn cublas_status() -> LibraryStatus {
    load_from_known_places();
    // SAFETY: cuBLAS comes with CUDA.
    unsafe {
        check_symbols(
            cublas::sys::is_culib_present(),
            || cublas::sys::culib(),
            &PRODUCTS,
        )
    }
}

/// The file of the driver's library, where that is loaded.
#[allow(unsafe_code, reason = "loading a library runs its initialisation")]
pub fn driver_file() -> Option<PathBuf> {
    // SAFETY: as `driver`; the library is taken only where it is.
    unsafe { driver::sys::is_culib_present().then(|| driver::sys::culib()) }
        .and_then(|lib| mapped_file(lib, &DRIVER))
}

/// The file of NVRTC, where that is loaded.
#[allow(unsafe_code, reason = "loading a library runs its initialisation")]
pub fn nvrtc_file() -> Option<PathBuf> {
    // SAFETY: as `compiler`; the library is taken only where it is.
    unsafe { nvrtc::sys::is_culib_present().then(|| nvrtc::sys::culib()) }
        .and_then(|lib| mapped_file(lib, &COMPILER))
}

/// The file of cuBLAS, where that is loaded.
#[allow(unsafe_code, reason = "loading a library runs its initialisation")]
pub fn cublas_file() -> Option<PathBuf> {
    // SAFETY: as `products`; the library is taken only where it is.
    unsafe { cublas::sys::is_culib_present().then(|| cublas::sys::culib()) }
        .and_then(|lib| mapped_file(lib, &PRODUCTS))
}

/// The mapped file that holds the first of these symbols that the library has. Only Linux lists mapped files.
fn mapped_file(library: &Loaded, symbols: &[&str]) -> Option<PathBuf> {
    let address = symbols
        .iter()
        .find_map(|symbol| symbol_address(library, symbol))?;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| file_at(line, address))
}

#[allow(unsafe_code, reason = "the type of a symbol is the caller's claim")]
fn symbol_address(library: &Loaded, symbol: &str) -> Option<usize> {
    // SAFETY: the address is only compared.
    let symbol = unsafe { library.get::<*const ()>(symbol.as_bytes()) };
    symbol.ok().map(|address| *address as usize)
}

/// The file of a line of `/proc/self/maps`, if the line's range holds an address.
fn file_at(line: &str, address: usize) -> Option<PathBuf> {
    let (range, _) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    if !(start..end).contains(&address) {
        return None;
    }
    // Memory of no file has no path.
    let path_start = line.find('/')?;
    Some(PathBuf::from(&line[path_start..]))
}

fn check_symbols(
    present: bool,
    library: impl FnOnce() -> &'static Loaded,
    symbols: &[&'static str],
) -> LibraryStatus {
    if !present {
        return LibraryStatus::Absent;
    }
    let library = library();
    #[allow(unsafe_code, reason = "the type of a symbol is the caller's claim")]
    // SAFETY: addresses are only looked up, and never followed.
    let has = |symbol: &str| unsafe { library.get::<*const ()>(symbol.as_bytes()) }.is_ok();
    symbols
        .iter()
        .find(|symbol| !has(symbol))
        .map_or(LibraryStatus::Found, |symbol| LibraryStatus::Lacks(symbol))
}

/// Directory of Python's packages, if Python has loaded this program: its prefix.
static PREFIX: OnceLock<PathBuf> = OnceLock::new();

/// Also searches for CUDA's libraries next to the packages of this prefix of Python, such as a
/// virtual environment that is not activated. Only the first call counts.
pub fn add_python_prefix(prefix: PathBuf) {
    let _ = PREFIX.set(prefix);
}

/// Prefixes of the names of libraries; each comes after the libraries that it depends on.
const STEMS: [&str; 4] = [
    "libnvrtc-builtins.so.",
    "libnvrtc.so.",
    "libcublasLt.so.",
    "libcublas.so.",
];

/// Loads NVRTC and cuBLAS by their paths from where CUDA and the wheels of PyPI put them. The loader finds a library
/// that is loaded already by its name, so that cudarc finds these. What the loader's own path has comes first.
fn load_from_known_places() {
    static LOADED: OnceLock<Vec<Loaded>> = OnceLock::new();
    LOADED.get_or_init(|| {
        #[allow(unsafe_code, reason = "loading a library runs its initialisation")]
        // SAFETY: these are CUDA's own libraries, which are looked for anyhow.
        let on_the_path =
            unsafe { nvrtc::sys::is_culib_present() && cublas::sys::is_culib_present() };
        let mut loaded = Vec::new();
        if on_the_path {
            return loaded;
        }
        let directories = library_directories();
        for stem in STEMS {
            loaded.extend(load_first(&directories, stem));
        }
        loaded
    });
}

/// Loads the first library whose file name begins with a stem; `None` if none can be loaded.
fn load_first(directories: &[PathBuf], stem: &str) -> Option<Loaded> {
    for path in directories
        .iter()
        .flat_map(|directory| sorted_entries(directory))
    {
        let Some(name) = path.file_name() else {
            continue;
        };
        if !name.to_string_lossy().starts_with(stem) {
            continue;
        }
        #[allow(unsafe_code, reason = "loading a library runs its initialisation")]
        // SAFETY: these are CUDA's own libraries.
        if let Ok(library) = unsafe { Loaded::new(&path) } {
            return Some(library);
        }
    }
    None
}

/// Directories that may hold CUDA's libraries: of CUDA itself, then of wheels (`nvidia/*/lib` in `site-packages`).
pub fn library_directories() -> Vec<PathBuf> {
    let roots = ["CUDA_HOME", "CUDA_PATH"]
        .into_iter()
        .filter_map(std::env::var_os)
        .map(PathBuf::from);
    let toolkits = roots.chain([PathBuf::from("/usr/local/cuda"), PathBuf::from("/opt/cuda")]);
    let toolkits =
        toolkits.flat_map(|root| [root.join("lib64"), root.join("targets/x86_64-linux/lib")]);
    let prefixes = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .into_iter()
        .filter_map(std::env::var_os)
        .map(PathBuf::from);
    let prefixes = PREFIX.get().cloned().into_iter().chain(prefixes);
    let pythons = prefixes.map(|prefix| prefix.join("lib")).chain([
        PathBuf::from("/usr/local/lib"),
        PathBuf::from("/usr/lib"),
        PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".local/lib"),
    ]);
    let packages = pythons
        .flat_map(|lib| sorted_entries(&lib))
        .filter(|path| path.to_string_lossy().contains("/python3"));
    let packages =
        packages.flat_map(|python| [python.join("site-packages"), python.join("dist-packages")]);
    let wheels = packages
        .flat_map(|packages| sorted_entries(&packages.join("nvidia")))
        .map(|package| package.join("lib"));
    toolkits
        .chain(wheels)
        .filter(|directory| directory.is_dir())
        .collect()
}

fn sorted_entries(directory: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths
}
