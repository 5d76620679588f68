//! The guard under process tools: a worker that runs inside a test cannot run the test's own program again.

use std::process::ExitCode;

fn main() -> ExitCode {
    worker::guard::main()
}
