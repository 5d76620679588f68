//! `dev.json`: the addresses and pids of a `dev`, for scripts. Replaced as a whole on every change.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

use super::private;

/// The content of `dev.json`: a promise to scripts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevState {
    /// The address for clients of the bus.
    pub nats_url: String,
    /// The address of the database with its password; hence the file's mode 0600.
    pub database_url: String,
    /// The same for sql tools, with a role that may not touch the history.
    #[serde(default)]
    pub tool_database_url: String,
    /// `/healthz`, `/readyz` and `/metrics` of the first dispatcher.
    pub http_url: String,
    /// The API of the first gateway, without `/v1`; none without a gateway.
    #[serde(default)]
    pub gateway_url: Option<String>,
    /// A token for every gateway that may do everything, for every tenant; none without a gateway.
    #[serde(default)]
    pub gateway_token: Option<String>,
    /// The dispatchers that run.
    pub dispatcher_pids: Vec<u32>,
    /// The workers that run.
    pub worker_pids: Vec<u32>,
    /// The gateways that run.
    #[serde(default)]
    pub gateway_pids: Vec<u32>,
    /// The nats-server, unless it is being restarted.
    pub nats_pid: Option<u32>,
    /// The postmaster, unless it is being restarted.
    pub postgres_pid: Option<u32>,
}

/// A `dev` that was killed left its `dev.json` behind.
#[derive(Debug, thiserror::Error)]
#[error(
    "the `toolfleet dev` of {} has ended and left its dev.json: start it again there, or set NATS_URL and DATABASE_URL",
    .0.display()
)]
pub struct DevEnded(pub(crate) PathBuf);

/// What a process that `dev` keeps alive is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Postgres,
    Nats,
    Dispatcher(u16),
    Worker(u16),
    Gateway(u16),
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres => f.write_str("postgres"),
            Self::Nats => f.write_str("nats-server"),
            Self::Dispatcher(number) => write!(f, "dev-dispatcher-{number}"),
            Self::Worker(number) => write!(f, "dev-worker-{number}"),
            Self::Gateway(number) => write!(f, "dev-gateway-{number}"),
        }
    }
}

/// The addresses.
#[derive(Debug)]
pub(crate) struct Urls {
    pub(crate) nats: String,
    pub(crate) database: String,
    pub(crate) tool_database: String,
    pub(crate) http: String,
    /// The API of the first gateway, and a token for it.
    pub(crate) gateway: Option<(String, String)>,
}

/// The pids of this moment, and the file with them once everything is up.
#[derive(Debug)]
pub(crate) struct Board {
    file: PathBuf,
    // A std mutex: held for a write of a few hundred bytes, never over an await.
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    urls: DevState,
    running: BTreeMap<Role, u32>,
    deaths: BTreeMap<Role, u32>,
    published: bool,
}

impl Board {
    pub(crate) fn new(file: PathBuf) -> Self {
        Self {
            file,
            inner: Mutex::default(),
        }
    }

    /// Sets the addresses; they do not change after that.
    pub(crate) fn locate(&self, urls: Urls) {
        let (gateway_url, gateway_token) = urls.gateway.unzip();
        self.lock().urls = DevState {
            nats_url: urls.nats,
            database_url: urls.database,
            tool_database_url: urls.tool_database,
            http_url: urls.http,
            gateway_url,
            gateway_token,
            ..DevState::default()
        };
    }

    pub(crate) fn up(&self, role: Role, pid: u32) -> io::Result<()> {
        let mut inner = self.lock();
        inner.running.insert(role, pid);
        self.write(&inner)
    }

    pub(crate) fn down(&self, role: Role) -> io::Result<()> {
        let mut inner = self.lock();
        inner.running.remove(&role);
        *inner.deaths.entry(role).or_default() += 1;
        self.write(&inner)
    }

    /// How often this process has ended so far.
    pub(crate) fn deaths(&self, role: Role) -> u32 {
        self.lock().deaths.get(&role).copied().unwrap_or_default()
    }

    /// Writes the file now and on every change from now on.
    pub(crate) fn publish(&self) -> io::Result<()> {
        let mut inner = self.lock();
        inner.published = true;
        self.write(&inner)
    }

    /// Removes the file: nothing runs any more.
    pub(crate) fn withdraw(&self) -> io::Result<()> {
        let mut inner = self.lock();
        if std::mem::take(&mut inner.published) {
            fs::remove_file(&self.file)
        } else {
            Ok(())
        }
    }

    /// Whether everything has been up.
    pub(crate) fn is_published(&self) -> bool {
        self.lock().published
    }

    pub(crate) fn state(&self) -> DevState {
        self.lock().state()
    }

    fn write(&self, inner: &Inner) -> io::Result<()> {
        if inner.published {
            replace(&self.file, &inner.state())
        } else {
            Ok(())
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn state(&self) -> DevState {
        let pids = |wanted: fn(&Role) -> bool| -> Vec<u32> {
            self.running
                .iter()
                .filter(|(role, _)| wanted(role))
                .map(|(_, pid)| *pid)
                .collect()
        };
        DevState {
            dispatcher_pids: pids(|role| matches!(role, Role::Dispatcher(_))),
            worker_pids: pids(|role| matches!(role, Role::Worker(_))),
            gateway_pids: pids(|role| matches!(role, Role::Gateway(_))),
            nats_pid: self.running.get(&Role::Nats).copied(),
            postgres_pid: self.running.get(&Role::Postgres).copied(),
            ..self.urls.clone()
        }
    }
}

/// What a predecessor left; `None` when it stopped cleanly or the file is unreadable.
pub(crate) fn read(file: &Path) -> Option<DevState> {
    serde_json::from_slice(&private::read(file).ok()?).ok()
}

fn replace(file: &Path, state: &DevState) -> io::Result<()> {
    let mut text = serde_json::to_vec_pretty(state)?;
    text.push(b'\n');
    private::replace(file, &text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_file_appears_when_published_follows_every_change_and_goes_when_withdrawn() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("dev.json");
        let board = Board::new(file.clone());
        board.up(Role::Postgres, 10).unwrap();
        board.up(Role::Worker(2), 12).unwrap();
        board.up(Role::Worker(1), 11).unwrap();
        assert!(read(&file).is_none());

        board.locate(Urls {
            nats: "nats://n".into(),
            database: "postgres://p".into(),
            tool_database: "postgres://t".into(),
            http: "http://h".into(),
            gateway: None,
        });
        board.publish().unwrap();
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let told = read(&file).unwrap();
        assert_eq!(
            (told.worker_pids.clone(), told.postgres_pid, told.nats_pid),
            (vec![11, 12], Some(10), None)
        );
        assert_eq!(told, board.state());

        board.down(Role::Worker(1)).unwrap();
        assert_eq!(read(&file).unwrap().worker_pids, [12]);
        assert_eq!(board.deaths(Role::Worker(1)), 1);

        board.withdraw().unwrap();
        assert!(!file.exists());
    }

    #[test]
    fn the_keys_of_the_file_are_a_promise() {
        let state = serde_json::to_value(DevState::default()).unwrap();
        let keys: Vec<&String> = state.as_object().unwrap().keys().collect();
        let promised = [
            "database_url",
            "dispatcher_pids",
            "gateway_pids",
            "gateway_token",
            "gateway_url",
            "http_url",
            "nats_pid",
            "nats_url",
            "postgres_pid",
            "tool_database_url",
            "worker_pids",
        ];
        assert_eq!(keys, promised);
    }
}
