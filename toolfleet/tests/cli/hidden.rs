//! What other programs of the same Unix user see of a dispatcher.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
};

use crate::support::folder;

/// A user who owns nothing.
const NOBODY: u32 = 65_534;
const PASSWORD: &str = "of-the-dispatcher";

/// Killed when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A command as an ordinary user, who is not root: root reads everything.
fn as_a_user(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_clear().stdin(Stdio::null());
    if nix::unistd::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

/// Whether another program of that user can read or open this file of that process.
fn is_read(pid: u32, file: &str) -> bool {
    // Of `mem` nothing is mapped at its beginning, so it is opened alone.
    let count = if file == "mem" { "count=0" } else { "count=1" };
    let mut reading = as_a_user("/bin/dd");
    reading.args([&format!("if=/proc/{pid}/{file}"), "of=/dev/null", count]);
    reading.stderr(Stdio::null()).status().unwrap().success()
}

#[test]
fn no_other_program_of_its_user_reads_the_passwords_of_a_dispatcher() {
    let folder = folder();
    // Where that user may run it.
    let program = folder.path().join("toolfleet");
    fs::copy(env!("CARGO_BIN_EXE_toolfleet"), &program).unwrap();
    // A server that takes the connection and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "postgres://user:{PASSWORD}@{}/ledger",
        silent.local_addr().unwrap()
    );
    let start = |program: &str, args: &[&str]| {
        let mut command = as_a_user(program);
        command.args(args).env("DATABASE_URL", &url);
        command.stderr(Stdio::piped()).stdout(Stdio::null());
        Running(command.spawn().unwrap())
    };
    // It can be read of a program that does not hide it.
    let plain = start("/bin/sleep", &["60"]);
    assert!(is_read(plain.0.id(), "environ"));

    let args = ["dispatcher", "--http", "127.0.0.1:0"];
    let mut dispatcher = start(program.to_str().unwrap(), &args);
    let mut said = BufReader::new(dispatcher.0.stderr.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("listening")));
    for file in ["environ", "mem", "fd/0", "maps"] {
        assert!(!is_read(dispatcher.0.id(), file), "{file}");
    }
}
