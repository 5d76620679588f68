//! What people get wrong, and what they read then: all of it in one snapshot, to be read when it changes.
//!
//! `manifests` are files, `lines` command lines and variables, `servers` what is wrong with Postgres and NATS; a mistake has a
//! name there, and the snapshot shows the command, what it printed, and its exit code.

mod lines;
mod manifests;
mod servers;

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use futures_util::{StreamExt, stream};

use crate::support::{folder, program};

/// How long a command may take that has to fail by itself.
const RUN_MAX: Duration = Duration::from_secs(60);
/// Commands at a time.
const AT_A_TIME: usize = 4;

/// One mistake.
#[derive(Debug, Default)]
pub(super) struct Mistake {
    name: &'static str,
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    /// What is written in `tool.yaml`, in the folder in which the command runs.
    file: Option<Vec<u8>>,
    /// What of the file is shown.
    shown: String,
}

impl Mistake {
    fn of(name: &'static str, line: &str) -> Self {
        Self {
            name,
            arguments: line.split_whitespace().map(str::to_owned).collect(),
            ..Self::default()
        }
    }

    fn with(mut self, variable: &'static str, value: impl Into<String>) -> Self {
        self.environment.push((variable, value.into()));
        self
    }

    /// Makes it, and tells what came of it.
    async fn make(self, folder: PathBuf) -> String {
        fs::create_dir(&folder).unwrap();
        if let Some(file) = &self.file {
            fs::write(folder.join("tool.yaml"), file).unwrap();
        }
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        let mut command = program(&arguments);
        command.envs(self.environment.iter().cloned());
        command.current_dir(&folder).stdin(Stdio::null());
        let mut command = tokio::process::Command::from(command);
        let running = command.kill_on_drop(true).output();
        let ran = tokio::time::timeout(RUN_MAX, running).await;
        let ran = ran.unwrap_or_else(|_| panic!("{}: it does not end", self.name));
        let ran = ran.unwrap();
        let mut told = format!("## {}\n", self.name);
        for line in self.shown.lines() {
            writeln!(told, "  {line}").unwrap();
        }
        told.push('$');
        for (variable, value) in &self.environment {
            write!(told, " {variable}='{value}'").unwrap();
        }
        writeln!(told, " toolfleet {}", self.arguments.join(" ")).unwrap();
        for printed in [ran.stdout, ran.stderr] {
            for line in String::from_utf8(printed).unwrap().lines() {
                // The log of a process has the time, and is not what is looked at here.
                // What the doctor found to be well differs from machine to machine.
                if !["20", "ok ", "warn "]
                    .iter()
                    .any(|start| line.starts_with(start))
                {
                    writeln!(told, "{line}").unwrap();
                }
            }
        }
        writeln!(told, "exit code {}\n", ran.status.code().unwrap()).unwrap();
        told
    }
}

#[tokio::test]
async fn every_mistake_is_answered_with_what_to_do() {
    let folder = folder();
    let world = servers::World::start(folder.path()).await;
    let mistakes: Vec<Mistake> = [manifests::all(), lines::all(), servers::all(&world)]
        .into_iter()
        .flatten()
        .collect();
    assert!(mistakes.len() >= 50, "{}", mistakes.len());
    let place =
        |number: usize| -> PathBuf { Path::join(folder.path(), format!("mistake{number}")) };
    let told: Vec<String> = stream::iter(mistakes.into_iter().enumerate())
        .map(|(number, mistake)| mistake.make(place(number)))
        .buffered(AT_A_TIME)
        .collect()
        .await;
    let told = told.concat();
    let told = told.replace(&folder.path().display().to_string(), "FOLDER");
    let told = world.named(&told);
    insta::assert_snapshot!("mistakes", told);
    let printed = |line: &&str| !line.starts_with(['$', ' ']);
    for word in ["hunter2", ".c:", "os error", "panicked"] {
        let line = told
            .lines()
            .filter(printed)
            .find(|line| line.contains(word));
        assert_eq!(line, None, "{word}");
    }
    world.stop().await;
}
