//! The `forebay` program.

use forebay::allocator;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

fn main() -> std::process::ExitCode {
    allocator::prepare();
    forebay::cli::main()
}
