//! The program as it is, in a build that can be armed to end at a checkpoint.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolfleet::program::main()
}
