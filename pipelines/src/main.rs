//! The `forebay` program.

/// Gives memory back to the system soon after it is freed, so that the memory limit holds between
/// passes too; the system's allocator keeps it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    forebay::cli::main()
}
