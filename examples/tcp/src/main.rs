use std::process::ExitCode;

use example_tcp::Tcp;
use worker::Worker;

fn main() -> ExitCode {
    let printer = Tcp::new("127.0.0.1:7411");
    Worker::builder().executor("tcp", printer).run()
}
