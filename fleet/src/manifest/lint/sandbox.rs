//! What a program may reach and use.

use std::time::Duration;

use super::{linted::Linted, warnings::Warnings};
use crate::manifest::Sandbox;

/// Less than interpreters and most runtimes need to start.
const MEMORY_SENSIBLE: usize = 16 * 1024 * 1024;

/// Warns of a write without a sandbox, and of settings that have no effect or take it back.
pub(super) fn lint(subject: &Linted<'_>, warnings: &mut Warnings) {
    let Some(program) = &subject.program else {
        return;
    };
    match &program.sandbox {
        None if subject.writes() => warnings.add(
            "/executor/process",
            "the program may do all that its worker's user may, kill the worker among it; write sandbox: strict and what it \
             needs beside",
        ),
        None => {}
        Some(sandbox) => settings(sandbox, program.timeout, warnings),
    }
}

fn settings(sandbox: &Sandbox, timeout: Option<Duration>, warnings: &mut Warnings) {
    if sandbox.memory < MEMORY_SENSIBLE {
        warnings.add(
            "/sandbox/memory",
            "interpreters need more than this to start, and the program is killed beyond it; write 16MiB or more",
        );
    }
    if let (Some(cpu), Some(timeout)) = (sandbox.cpu, timeout)
        && cpu > timeout
        && sandbox.processes == 1
    {
        warnings.add(
            "/sandbox/cpu",
            "a single process is ended by timeout before it has used this much; write less than timeout, or leave it out",
        );
    }
    let gives_all = |paths: &[String]| paths.iter().any(|path| path == "/");
    for (field, paths) in [("read", &sandbox.read), ("write", &sandbox.write)] {
        if gives_all(paths) {
            warnings.add(
                format!("/sandbox/{field}"),
                format!("with / in {field} the sandbox keeps no file from the program; name the folders that it needs"),
            );
        }
    }
    if let Some(path) = sandbox
        .read
        .iter()
        .find(|path| sandbox.write.contains(path))
    {
        warnings.add(
            "/sandbox/read",
            format!("what stands in write may be read too; leave {path} out here"),
        );
    }
}
