//! A worker with tools of its own, which is otherwise what `toolfleet worker` is, in a build that can be armed to end at a
//! checkpoint.

use std::{env, path::Path, process::ExitCode};

use fleet_chaos::effects::{File, native};
use worker::Worker;

fn main() -> ExitCode {
    Worker::builder().run_with(async |builder| {
        let path = env::var_os(native::FILE)
            .ok_or_else(|| format!("set {} to the path of the file of effects", native::FILE))?;
        Ok(native::with_tools(builder, File::open(Path::new(&path))?))
    })
}
