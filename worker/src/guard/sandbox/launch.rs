//! The launcher: restricts itself and becomes the program.

use std::{
    fs::File,
    io::{self, Write},
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

use fleet::manifest::Sandbox;
use rustix::{
    process::{Resource, Rlimit, setrlimit},
    thread::{CapabilitySet, CapabilitySets, set_capabilities},
};

use super::{Launch, calls, files};
use crate::guard::serve;

/// The life of a launcher: `guard sandbox FD LAUNCH PROGRAM [ARGUMENT…]`. FD is a pipe to the guard: it reads why the program
/// was not started, or the end of the file, which exec brings about.
pub(in crate::guard) fn launch() -> ExitCode {
    let mut arguments = std::env::args_os().skip(3);
    let mut text = || arguments.next()?.into_string().ok();
    let (Some(pipe), Some(told), Some(program)) = (text(), text(), text()) else {
        return ExitCode::FAILURE;
    };
    // Opened anew, so that exec closes it.
    let Ok(mut to_guard) = File::options()
        .write(true)
        .open(format!("/proc/self/fd/{pipe}"))
    else {
        return ExitCode::FAILURE;
    };
    let inherited = pipe.parse().map_err(io::Error::other);
    let closed = inherited.and_then(|pipe: i32| Ok(nix::unistd::close(pipe)?));
    let why = match closed
        .map_err(|error| error.to_string())
        .and_then(|()| enter(&told, &program))
    {
        Ok(tmp) => {
            let mut command = Command::new(&program);
            command.args(arguments);
            if let Some(tmp) = tmp {
                command.env("TMPDIR", tmp);
            }
            let error = command.exec();
            let hint = if error.kind() == io::ErrorKind::PermissionDenied {
                "; its sandbox must have it, and what runs it, in read"
            } else {
                ""
            };
            format!("{}{hint}", serve::why_not_started(&program, &error))
        }
        Err(why) => why,
    };
    // A guard that is gone reads nothing.
    to_guard.write_all(why.as_bytes()).unwrap_or(());
    ExitCode::FAILURE
}

/// Takes from this process what the program may not have. Returns the attempt's own folder.
fn enter(told: &str, program: &str) -> Result<Option<std::path::PathBuf>, String> {
    let launch: Launch = serde_json::from_str(told)
        .map_err(|error| format!("its sandbox cannot be read: {error}"))?;
    files::restrict(&launch, program)?;
    // Also root's: files of others are then others' files.
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, none)
        .map_err(|error| format!("its rights cannot be given up: {error}"))?;
    for (resource, most) in limits(&launch.sandbox) {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, limit).map_err(|error| {
            format!("its sandbox asks for more than this worker has: {resource:?} {most}: {error}")
        })?;
    }
    calls::restrict(&launch.sandbox)?;
    Ok(launch.tmp)
}

/// What the kernel limits for each process.
fn limits(sandbox: &Sandbox) -> Vec<(Resource, u64)> {
    let mut limits = vec![
        (Resource::Nofile, sandbox.open_files),
        (Resource::Fsize, sandbox.file_size as u64),
        (Resource::Core, 0),
    ];
    if let Some(cpu) = sandbox.cpu {
        let begun = u64::from(cpu.subsec_nanos() > 0);
        limits.push((Resource::Cpu, cpu.as_secs() + begun));
    }
    limits
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_begun_second_counts() {
        let sandbox = Sandbox {
            cpu: Some(Duration::from_millis(1_500)),
            ..Sandbox::default()
        };
        assert!(limits(&sandbox).contains(&(Resource::Cpu, 2)));
        assert!(
            !limits(&Sandbox::default())
                .iter()
                .any(|(what, _)| *what == Resource::Cpu)
        );
    }
}
