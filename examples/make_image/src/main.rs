use example_make_image::MakeImage;
use worker::Worker;

fn main() -> std::process::ExitCode {
    Worker::builder().tool(MakeImage).run()
}
