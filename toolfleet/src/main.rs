//! The program. Its code is in the library, so that a test can start it as a process too.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// A call makes some two hundred small allocations in either process; glibc takes twice as long for them.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    toolfleet::program::main()
}
