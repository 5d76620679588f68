//! `--help` is the reference: what it says is looked at when it changes.

use clap::CommandFactory;
use toolfleet::commands::Program;

use crate::support::{program, run};

#[test]
fn the_help_of_every_command_is_what_was_last_agreed_on() {
    let mut paths = Vec::new();
    collect(&Program::command(), &mut Vec::new(), &mut paths);
    assert!(paths.len() > 12, "{paths:?}");
    for path in paths {
        let mut arguments: Vec<&str> = path.iter().map(String::as_str).collect();
        arguments.push("--help");
        let ran = run(program(&arguments));
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{path:?}");
        let name = [&["help".to_owned()], &path[..]].concat().join("_");
        insta::assert_snapshot!(name, ran.out);
    }
}

#[test]
fn secrets_of_the_environment_are_not_in_the_help() {
    for command in ["dispatcher", "worker", "migrate", "call"] {
        let mut program = program(&[command, "--help"]);
        program.env("DATABASE_URL", "postgres://u:hunter2@h/d");
        program.env("NATS_URL", "nats://u:hunter2@h");
        let ran = run(program);
        assert!(ran.out.contains("NATS_URL") || ran.out.contains("DATABASE_URL"));
        assert!(!ran.out.contains("hunter2"), "{command}");
    }
}

#[test]
fn the_version_is_the_one_it_was_built_as() {
    let ran = run(program(&["--version"]));
    assert_eq!(
        ran.out,
        format!("toolfleet {}\n", env!("CARGO_PKG_VERSION"))
    );
}

/// The path of every command, the program's own included.
fn collect(command: &clap::Command, path: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    paths.push(path.clone());
    for child in command.get_subcommands() {
        path.push(child.get_name().to_owned());
        collect(child, path, paths);
        path.pop();
    }
}
