//! Running the program in an environment of our own, and the servers it needs.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
};

use fleet::store::session;
use secrecy::SecretString;
use tempfile::TempDir;
use toolfleet::servers::{Nats, NatsOptions, Postgres, PostgresOptions, nats::MAX_PAYLOAD};

/// The program with nothing in its environment but what the test puts there, in the root of the repository.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolfleet"));
    command.args(arguments).env_clear().stdin(Stdio::null());
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap());
    command
}

/// What it came to.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Standard output as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("{}{}", self.out, self.err))
    }
}

/// Runs it to its end.
pub(crate) fn run(mut command: Command) -> Ran {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    Ran {
        code: status.code().expect("no signal ended it"),
        out: String::from_utf8(stdout).unwrap(),
        err: String::from_utf8(stderr).unwrap(),
    }
}

/// A folder that goes with the test; Postgres passes through it as another user when we are root.
pub(crate) fn folder() -> TempDir {
    use std::os::unix::fs::PermissionsExt;

    let permissions = std::fs::Permissions::from_mode(0o755);
    let mut folder = tempfile::Builder::new();
    folder
        .permissions(permissions)
        .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .unwrap()
}

pub(crate) async fn postgres(folder: &Path, fsync: bool) -> Postgres {
    let (data, log) = (folder.join("postgres"), folder.join("postgres.log"));
    Postgres::start(PostgresOptions {
        data,
        port: None,
        log,
        fsync,
        variables: Vec::new(),
    })
    .await
    .unwrap()
}

pub(crate) async fn nats(folder: &Path) -> Nats {
    let (store, log) = (folder.join("nats"), folder.join("nats.log"));
    let options = NatsOptions {
        store,
        port: None,
        log,
        max_payload: MAX_PAYLOAD,
        password: None,
        further: String::new(),
    };
    Nats::start(options).await.unwrap()
}

/// The ledger behind this URL.
pub(crate) fn ledger(url: &str) -> session::Postgres {
    session::Postgres::new(&SecretString::from(url.to_owned()), "test").unwrap()
}
