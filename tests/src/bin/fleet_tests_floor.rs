//! The yardstick, in a build that is there whenever these tests are.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolfleet_floor::program::main()
}
