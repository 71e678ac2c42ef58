//! A CUDA driver for tests, with NVRTC and cuBLAS, as one shared library: the entry points that cudarc resolves at run
//! time and that Forebay calls, with the semantics of the real ones.
//!
//! - A stream is a queue on a thread of its own ([`stream`]). Copies and kernels take as long as a seed says.
//! - Copies from and to page-locked memory are asynchronous. A copy from ordinary memory takes the bytes over before
//!   the call returns; one to ordinary memory is done when the call returns.
//! - Events follow CUDA's rules: a wait is for the last record before it; an event that was never recorded is done.
//! - Kernels are the program's own source, compiled for the host ([`compiler`]); their blocks run in any order.
//! - Allocation fails when the device's memory is used up; an error that breaks the device stays.
//!
//! What a real device would do silently is seen and reported ([`report`]): bytes of page-locked memory that change
//! while a copy from them is queued, memory that is freed while it is in use.
//!
//! Environment: `FAKE_CUDA_SEED` (delays and orders), `FAKE_CUDA_REPORT` (a file for violations and counts),
//! `FAKE_CUDA_DELAY_US` (the longest time that a copy or kernel waits; 200), `FAKE_CUDA_MEMORY` (bytes of a device;
//! 1 GiB), `FAKE_CUDA_DEVICES` (1), `FAKE_CUDA_FAULT` (see [`fault`]).
#![allow(unsafe_code, non_snake_case, reason = "an interface of C")]
#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "documented by NVIDIA"
)]

pub mod compiler;
pub mod driver;
pub mod event;
pub mod fault;
pub mod memory;
pub mod products;
pub mod report;
pub mod stream;

/// A number of the environment.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}
