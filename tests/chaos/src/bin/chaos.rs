//! `chaos`: a fleet under fire, from a seed.

use std::process::ExitCode;

use fleet_chaos::command::Command;

fn main() -> ExitCode {
    Command::main()
}
