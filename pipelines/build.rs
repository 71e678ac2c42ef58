//! Links the program.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // An unoptimised program has 22 MiB of relocations, which the loader reads at each start: tests that limit memory
    // would count them. At a fixed address there are none. A released program keeps its random addresses.
    if is_set_to("PROFILE", "debug")
        && is_set_to("CARGO_CFG_TARGET_OS", "linux")
        && is_set_to("CARGO_CFG_TARGET_ENV", "gnu")
    {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}

fn is_set_to(variable: &str, value: &str) -> bool {
    std::env::var(variable).is_ok_and(|variable_value| variable_value == value)
}
