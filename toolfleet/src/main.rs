//! The program. What it does is in the library, so that a test can start it as a process, too.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolfleet::program::main()
}
