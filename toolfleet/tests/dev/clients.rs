//! Client commands without an address: the fleet of the nearest `.toolfleet`, or a sentence that says why not.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use nix::sys::signal::Signal;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::support::{DevProcess, LONG, PROGRAM, folder, send};

/// A `dev` as it runs in a project, and a folder deep in it.
struct Project {
    folder: TempDir,
    deep: PathBuf,
    dev: DevProcess,
}

impl Project {
    async fn start() -> Self {
        let folder = folder(0o755);
        let deep = folder.path().join("deep/down");
        fs::create_dir_all(&deep).unwrap();
        let data = folder.path().join(".toolfleet");
        let dev = DevProcess::start_free(&data, &["--workers", "1"]).await;
        Self { folder, deep, dev }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join(".toolfleet/dev.json")
    }
}

struct Ran {
    code: i32,
    out: String,
    err: String,
}

/// Runs the program there, with nothing in its environment but this.
fn run(there: &Path, arguments: &[&str], env: &[(&str, &str)]) -> Ran {
    let mut command = Command::new(PROGRAM);
    command
        .args(arguments)
        .env_clear()
        .envs(env.iter().copied());
    command.current_dir(there).stdin(Stdio::null());
    let output = command.output().unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[tokio::test]
async fn a_client_below_the_folder_finds_the_fleet_and_says_so_in_one_line() {
    let project = Project::start().await;
    let file = project.file().canonicalize().unwrap();
    for (arguments, code) in [
        (&["calls", "list", "--json"][..], 0),
        (&["tools", "list"], 0),
        (&["workers", "list"], 0),
        (&["doctor"], 0),
        // Nothing is applied: the call is refused, by our dispatcher.
        (&["call", "no_such_tool", "a=1"], 1),
    ] {
        let ran = run(&project.deep, arguments, &[]);
        assert_eq!(ran.code, code, "{arguments:?}: {}{}", ran.out, ran.err);
        assert_eq!(ran.err.lines().count(), 1, "{arguments:?}: {}", ran.err);
        assert!(
            ran.err.contains(file.to_str().unwrap()) && !ran.err.contains("postgres://"),
            "{}",
            ran.err
        );
    }
    // Its `bench` too: no URL is asked for.
    let bench = [
        "bench",
        "--effect",
        "read",
        "--seconds",
        "1",
        "--warm-up",
        "0",
        "--json",
    ];
    let ran = run(&project.deep, &bench, &[("PATH", "/usr/bin:/bin")]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    project.dev.stop().await;
}

#[tokio::test]
async fn a_url_of_any_kind_and_the_fleets_own_processes_leave_the_folder_alone() {
    let project = Project::start().await;
    let nowhere = "postgres://nobody@127.0.0.1:1/nowhere";
    for (arguments, env, code) in [
        (&["calls", "list"][..], &[("DATABASE_URL", nowhere)][..], 69),
        (&["calls", "list", "--database-url", nowhere], &[], 69),
        // One address of another fleet and one of this would be two fleets.
        (&["calls", "list"], &[("NATS_URL", "nats://127.0.0.1:1")], 2),
        (&["call", "t"], &[("NATS_URL", "nats://127.0.0.1:1")], 69),
        (&["dispatcher"], &[], 2),
        (&["worker"], &[], 2),
        (&["migrate"], &[], 2),
    ] {
        let ran = run(&project.deep, arguments, env);
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.err);
        assert!(!ran.err.contains("dev.json"), "{arguments:?}: {}", ran.err);
    }
    project.dev.stop().await;
}

#[tokio::test]
async fn a_file_that_others_may_write_is_passed_over_and_one_of_a_dead_dev_is_named() {
    let mut project = Project::start().await;
    let file = project.file();
    let list = ["calls", "list"];
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let ran = run(&project.deep, &list, &[]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(
        ran.err.contains("others may write") && ran.err.contains("DATABASE_URL"),
        "{}",
        ran.err
    );
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();

    send(project.dev.pid, Signal::SIGKILL);
    timeout(LONG, project.dev.child.wait())
        .await
        .unwrap()
        .unwrap();
    let ran = run(&project.deep, &list, &[]);
    assert_eq!(ran.code, 69, "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    assert!(
        ran.err.contains("has ended") && ran.err.contains("toolfleet dev"),
        "{}",
        ran.err
    );

    // The next one ends what the killed one left.
    let data = project.folder.path().join(".toolfleet");
    let next = DevProcess::start_free(&data, &["--workers", "0"]).await;
    assert_eq!(run(&project.deep, &list, &[]).code, 0);
    next.stop().await;
    let ran = run(&project.deep, &list, &[]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("toolfleet dev"), "{}", ran.err);
}
