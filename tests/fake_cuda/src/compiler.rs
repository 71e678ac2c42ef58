//! NVRTC: the source is compiled for the host by its C compiler. What it gives as machine code is the path of the
//! shared library, which modules load.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::fault::{CudaStatus, INVALID_VALUE, SUCCESS};
use crate::stream::random;
use crate::{number, report};

/// Words of the largest kernel's arguments.
const WORDS: usize = 24;

/// `nvrtcResult` where a program cannot be compiled.
const COMPILATION: CudaStatus = 6;

/// Kernels whose arguments are words rather than one struct.
const TAKE_WORDS: [&str; 1] = ["checksum"];

type LaunchFn = unsafe extern "C" fn(*mut c_void, *const u64, c_int, u32, u32, u64, u64);

/// A loaded library of kernels. It stays loaded as long as the process.
pub struct KernelModule {
    library: usize,
    #[allow(clippy::vec_box, reason = "callers hold the addresses of kernels")]
    kernels: Vec<Box<HostKernel>>,
}

/// A kernel.
pub struct HostKernel {
    function: usize,
    launch: LaunchFn,
    takes_words: bool,
}

impl KernelModule {
    /// Loads the library that a program was compiled to.
    pub fn load(image: &CStr) -> Option<KernelModule> {
        // SAFETY: the library was made by `nvrtcCompileProgram`, and does nothing when it is loaded.
        let library = unsafe { libc::dlopen(image.as_ptr(), libc::RTLD_NOW) };
        (!library.is_null()).then_some(KernelModule {
            library: library as usize,
            kernels: Vec::new(),
        })
    }

    fn symbol(&self, name: &CStr) -> Option<usize> {
        // SAFETY: the library stays open.
        let symbol = unsafe { libc::dlsym(self.library as *mut c_void, name.as_ptr()) };
        (!symbol.is_null()).then_some(symbol as usize)
    }

    /// A kernel by its name.
    pub fn kernel(&mut self, name: &CStr) -> Option<*const HostKernel> {
        let function = self.symbol(name)?;
        let launch = self.symbol(c"fake_launch")?;
        // SAFETY: `shim.c` declares it so.
        let launch = unsafe { std::mem::transmute::<usize, LaunchFn>(launch) };
        let takes_words = name.to_str().is_ok_and(|name| TAKE_WORDS.contains(&name));
        self.kernels.push(Box::new(HostKernel {
            function,
            launch,
            takes_words,
        }));
        self.kernels.last().map(|kernel| &raw const **kernel)
    }
}

impl HostKernel {
    /// Takes the arguments over; the result runs the kernel.
    ///
    /// # Safety
    /// The arguments are those of the kernel.
    pub unsafe fn prepare(
        &self,
        arguments: *const *const c_void,
        grid: u32,
        block: u32,
        nth: u64,
    ) -> impl FnOnce() + Send + use<> {
        let mut words = [0_u64; WORDS];
        for (at, word) in words.iter_mut().enumerate() {
            // SAFETY: a struct has all words in its one argument; others have an argument for each word.
            unsafe {
                match self.takes_words {
                    true if at < 3 => *word = **arguments.add(at).cast::<*const u64>(),
                    true => break,
                    false => *word = *(*arguments).cast::<u64>().add(at),
                }
            }
        }
        let function = self.function;
        let launch = self.launch;
        let takes_words = c_int::from(self.takes_words);
        let mut state = number("FAKE_CUDA_SEED", 0) ^ nth;
        let first = random(&mut state) % u64::from(grid);
        // A step of one less than the number of blocks is one backwards; both visit every block.
        let step = if random(&mut state).is_multiple_of(2) {
            1
        } else {
            u64::from(grid.max(2)) - 1
        };
        // SAFETY: the words are the kernel's arguments, whose memory the program keeps until the stream is done.
        move || unsafe {
            launch(
                function as *mut c_void,
                words.as_ptr(),
                takes_words,
                grid,
                block,
                first,
                step,
            )
        }
    }
}

/// A program: its source, and then the path of what it was compiled to, or what the compiler said.
pub struct FakeNvrtcProgram {
    source: String,
    library: CString,
    log: CString,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> CudaStatus {
    unsafe { (*major, *minor) = (13, 0) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvrtcGetErrorString(_status: CudaStatus) -> *const c_char {
    c"NVRTC_ERROR_COMPILATION".as_ptr()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcCreateProgram(
    program: *mut *mut FakeNvrtcProgram,
    source: *const c_char,
    _name: *const c_char,
    _headers: c_int,
    _header_sources: *const *const c_char,
    _header_names: *const *const c_char,
) -> CudaStatus {
    let source = unsafe { CStr::from_ptr(source) }
        .to_string_lossy()
        .replace("extern \"C\"", "");
    let made = FakeNvrtcProgram {
        source,
        library: CString::default(),
        log: CString::default(),
    };
    unsafe { *program = Box::into_raw(Box::new(made)) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcDestroyProgram(program: *mut *mut FakeNvrtcProgram) -> CudaStatus {
    drop(unsafe { Box::from_raw(*program) });
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcCompileProgram(
    program: *mut FakeNvrtcProgram,
    count: c_int,
    options: *const *const c_char,
) -> CudaStatus {
    report::count("compile");
    let program = unsafe { &mut *program };
    let option = |at| {
        unsafe { CStr::from_ptr(*options.add(at)) }
            .to_string_lossy()
            .into_owned()
    };
    let options: Vec<String> = (0..count as usize).map(option).collect();
    if !options
        .iter()
        .any(|option| option.starts_with("--gpu-architecture=sm_"))
    {
        program.log = c"no architecture is given".to_owned();
        return COMPILATION;
    }
    match compile(&program.source, &options) {
        Ok(library) => {
            program.library = library;
            SUCCESS
        }
        Err(said) => {
            program.log = CString::new(said.replace('\0', "")).unwrap_or_default();
            COMPILATION
        }
    }
}

fn compile(source: &str, options: &[String]) -> Result<CString, String> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::SeqCst);
    let stem = std::env::temp_dir().join(format!("fake-cuda-{}-{number}", std::process::id()));
    let text = stem.with_extension("c");
    let library = stem.with_extension("so");
    std::fs::write(&text, format!("{}\n{source}", include_str!("shim.c")))
        .map_err(|error| error.to_string())?;
    // The compiler that Rust links with. Products and sums are rounded one by one.
    let mut cc = Command::new("cc");
    cc.args([
        "-std=gnu11",
        "-O2",
        "-w",
        "-ffp-contract=off",
        "-shared",
        "-fPIC",
    ]);
    cc.args(options.iter().filter(|option| option.starts_with("-D")));
    let output = cc.arg(&text).arg("-o").arg(&library).arg("-lm").output();
    let _ = std::fs::remove_file(&text);
    let output = output.map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    path_of(&library).ok_or_else(|| "the temporary directory has no usable name".to_owned())
}

fn path_of(library: &Path) -> Option<CString> {
    CString::new(library.to_str()?).ok()
}

unsafe fn copy_text(text: &CString, to: *mut c_char) -> CudaStatus {
    let bytes = text.as_bytes_with_nul();
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to, bytes.len()) };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBINSize(
    program: *mut FakeNvrtcProgram,
    bytes: *mut usize,
) -> CudaStatus {
    let library = unsafe { &(*program).library };
    if library.is_empty() {
        return INVALID_VALUE;
    }
    unsafe { *bytes = library.as_bytes_with_nul().len() };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetCUBIN(
    program: *mut FakeNvrtcProgram,
    code: *mut c_char,
) -> CudaStatus {
    unsafe { copy_text(&(*program).library, code) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetProgramLogSize(
    program: *mut FakeNvrtcProgram,
    bytes: *mut usize,
) -> CudaStatus {
    unsafe { *bytes = (*program).log.as_bytes_with_nul().len() };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvrtcGetProgramLog(
    program: *mut FakeNvrtcProgram,
    log: *mut c_char,
) -> CudaStatus {
    unsafe { copy_text(&(*program).log, log) }
}
