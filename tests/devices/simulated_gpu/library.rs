//! The kernels, compiled by the host's C compiler.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use forebay::prelude::Precision;

use crate::support::repository;

/// In which order the threads of a kernel come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadOrder {
    Forwards,
    Backwards,
}

pub type KernelFn = unsafe extern "C" fn(*const u64);
pub type MultiplyFn = unsafe extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64);

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// Symbols are bound at once, and not visible to other libraries.
const RTLD_NOW: c_int = 2;

/// A library that stays as long as the process.
pub struct KernelLibrary(usize);

type SourcePatch = Option<(&'static str, &'static str)>;

static COMPILED: Mutex<BTreeMap<(Precision, ThreadOrder, SourcePatch), Arc<KernelLibrary>>> =
    Mutex::new(BTreeMap::new());

impl KernelLibrary {
    pub fn of(
        precision: Precision,
        threads: ThreadOrder,
        changed: SourcePatch,
    ) -> Arc<KernelLibrary> {
        let mut compiled = COMPILED.lock().unwrap();
        let compile = || Arc::new(KernelLibrary::compile(precision, threads, changed));
        compiled
            .entry((precision, threads, changed))
            .or_insert_with(compile)
            .clone()
    }

    fn compile(precision: Precision, threads: ThreadOrder, changed: SourcePatch) -> KernelLibrary {
        let mut source =
            std::fs::read_to_string(repository().join("connectors/train/src/device/kernels.cu"))
                .unwrap();
        if let Some((from, to)) = changed {
            assert!(source.contains(from), "nothing is changed: {from}");
            source = source.replace(from, to);
        }
        let dir = tempfile::tempdir().unwrap();
        let (kernels, library) = (dir.path().join("kernels.cu"), dir.path().join("kernels.so"));
        std::fs::write(&kernels, source).unwrap();
        // The compiler that Rust links with; products and sums are rounded one by one.
        let mut cc = Command::new("cc");
        cc.args([
            "-std=c11",
            "-O2",
            "-Wall",
            "-Werror",
            "-ffp-contract=off",
            "-shared",
            "-fPIC",
        ]);
        cc.arg(format!("-DKERNELS=\"{}\"", kernels.display()));
        if precision == Precision::Bf16 {
            cc.arg("-DBF16");
        }
        if threads == ThreadOrder::Backwards {
            cc.arg("-DBACKWARDS");
        }
        cc.args(["-x", "c"])
            .arg(repository().join("tests/devices/simulated_gpu/host.c"))
            .arg("-o")
            .arg(&library)
            .arg("-lm");
        let output = cc.output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        KernelLibrary::open(&library)
    }

    fn open(path: &Path) -> KernelLibrary {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the library was just made, and does nothing when it is loaded.
        let library = unsafe { dlopen(path.as_ptr(), RTLD_NOW) };
        assert!(!library.is_null());
        KernelLibrary(library as usize)
    }

    fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: the library stays open.
        let symbol = unsafe { dlsym(self.0 as *mut c_void, name.as_ptr()) };
        assert!(!symbol.is_null(), "there is no {name:?}");
        symbol
    }

    pub fn kernel(&self, name: &str) -> KernelFn {
        // SAFETY: all kernels are of this type.
        unsafe { std::mem::transmute::<*mut c_void, KernelFn>(self.symbol(name)) }
    }

    pub fn product(&self) -> MultiplyFn {
        // SAFETY: so it is declared.
        unsafe { std::mem::transmute::<*mut c_void, MultiplyFn>(self.symbol("product")) }
    }
}
