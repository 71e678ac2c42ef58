//! Wheels of PyPI with CUDA's libraries, for the driver of this machine.

use cudarc::driver::sys as driver;

use super::libraries::{self, LibraryStatus};

/// The first driver of the CUDA version that wheels without a suffix are made for.
const WHEELS_DRIVER: i32 = 13_000;

/// The wheel of PyPI with a library for the driver of this machine.
pub fn wheel_name(package: &str) -> String {
    let suffix = if driver_version().is_some_and(|version| version < WHEELS_DRIVER) {
        "-cu12"
    } else {
        ""
    };
    format!("{package}{suffix}")
}

/// The CUDA version that the driver supports: 1000 times the major one, 10 times the minor one.
#[allow(unsafe_code, reason = "a foreign function")]
pub fn driver_version() -> Option<i32> {
    let mut version = 0;
    // SAFETY: the driver has the function, and the pointer is valid for the call.
    let answer = (libraries::driver_status() == LibraryStatus::Found)
        .then(|| unsafe { driver::cuDriverGetVersion(&raw mut version) })?;
    answer.result().ok().map(|()| version)
}
