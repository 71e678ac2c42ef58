//! Links the program.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // At a fixed address: tables of functions are ready in the file. Otherwise the loader fills in four megabytes of
    // them at each start: see `engine/decisions/thread-and-process-start.md`.
    let set = |name: &str, value: &str| std::env::var(name).is_ok_and(|is| is == value);
    if set("CARGO_CFG_TARGET_OS", "linux") && set("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
