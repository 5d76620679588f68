//! The program. What it does is in the library, so that a test can start it as a process, too.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// A call is some two hundred small allocations in either process; glibc spends twice as long on them.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    toolfleet::program::main()
}
