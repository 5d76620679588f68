//! `toolfleet-floor`: what a durable call costs at least.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolfleet_floor::program::main()
}
