use std::process::ExitCode;

use example_executor::Lines;
use worker::Worker;

fn main() -> ExitCode {
    let lines = Lines::new("python3", &["server.py"]);
    Worker::builder().executor("lines", lines).run()
}
