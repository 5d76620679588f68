//! `toolfleet-floor`: the least that a durable call costs.

use std::process::ExitCode;

fn main() -> ExitCode {
    toolfleet_floor::program::main()
}
