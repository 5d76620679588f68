//! Who a program of the run is at NATS, and who may be what: the users that `toolfleet nats-config` writes, or none.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use async_nats::ConnectOptions;
use tokio::process::Command;

/// Where a program finds NATS and who it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// `nats://127.0.0.1:PORT`.
    pub url: String,
    /// Without one the server is told no name.
    pub user: Option<User>,
}

/// A user of nats-server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Its password.
    pub password: String,
    /// What its inboxes begin with.
    pub inbox: String,
}

impl Login {
    /// Without a user.
    pub fn anonymous(url: impl Into<String>) -> Self {
        let url = url.into();
        Self { url, user: None }
    }

    /// The options of a connection of this user.
    pub fn options(&self) -> ConnectOptions {
        let options = ConnectOptions::new();
        match self.user.clone() {
            None => options,
            Some(user) => options
                .user_and_password(user.name, user.password)
                .custom_inbox_prefix(user.inbox),
        }
    }
}

/// How often servers are asked whether they are still there, and soon after a broken connection a new one is tried.
const PING: Duration = Duration::from_secs(5);
const CONNECT_MAX: Duration = Duration::from_secs(3);
const RECONNECT: Duration = Duration::from_millis(100);

impl Login {
    /// A connection as any program makes one, but with less patience than a day of production has.
    ///
    /// # Errors
    ///
    /// There is no such address.
    pub async fn connect(&self) -> Result<async_nats::Client> {
        let options = self
            .options()
            .retry_on_initial_connect()
            .ping_interval(PING)
            .connection_timeout(CONNECT_MAX)
            .reconnect_delay_callback(|_tries| RECONNECT);
        let connecting = options.connect(&self.url).await;
        connecting.with_context(|| format!("a client cannot connect to {}", self.url))
    }
}

/// The users of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// A dispatcher.
    Dispatcher,
    /// A worker.
    Worker,
    /// Who calls tools.
    Agent,
    /// Who calls tools for the other tenant.
    OtherAgent,
    /// Who settles, and deletes streams.
    Operator,
    /// The NATS service of the world outside.
    Service,
}

/// The services' tools. Nothing listens for the last.
const SERVICES: &str = "nats_charge+nats_put+nats_look,nats_nobody";
/// The folder of the files, beside the server's store.
const FOLDER: &str = "nats";
const URL: &str = "nats://127.0.0.1:4222";

impl Who {
    const fn file(self) -> &'static str {
        match self {
            Self::Dispatcher => "dispatcher.env",
            Self::Worker => "worker-default.env",
            Self::Agent => "agent-default.env",
            Self::OtherAgent => "agent-other.env",
            Self::Operator => "operator.env",
            Self::Service => "service-nats_charge+nats_put+nats_look.env",
        }
    }

    /// What a program of this user sets, to reach the server on this port of 127.0.0.1: its file as `nats-config` wrote it into
    /// the folder of the run, or without users the address alone.
    ///
    /// # Errors
    ///
    /// There are users, but not this one.
    pub fn variables(self, run: &Path, port: u16) -> Result<Vec<(String, String)>> {
        let here = format!("127.0.0.1:{port}");
        let folder = run.join(FOLDER);
        if !folder.exists() {
            return Ok(vec![("NATS_URL".to_owned(), format!("nats://{here}"))]);
        }
        let path = folder.join(self.file());
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let lines = text.lines().filter_map(|line| line.split_once('='));
        let (_, written) = URL.split_once("://").context("a URL")?;
        lines
            .filter(|(name, _)| !name.starts_with('#'))
            .map(|(name, value)| {
                // Of a process the address is a file of its own. It names another port.
                let value = match value.strip_prefix("file:") {
                    Some(file) => fs::read_to_string(file)
                        .with_context(|| format!("read {file}"))?
                        .trim()
                        .to_owned(),
                    None => value.to_owned(),
                };
                anyhow::Ok((name.to_owned(), value.replace(written, &here)))
            })
            .collect()
    }

    /// The same for a client of ours.
    ///
    /// # Errors
    ///
    /// There are users, but not this one.
    pub fn login(self, run: &Path, port: u16) -> Result<Login> {
        let variables = self.variables(run, port)?;
        let value = |name: &str| {
            let found = variables.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.as_str())
        };
        let url = value("NATS_URL").context("the address of NATS")?;
        let Some((front, place)) = url.rsplit_once('@') else {
            return Ok(Login::anonymous(url));
        };
        let user = front
            .trim_start_matches("nats://")
            .split_once(':')
            .context("a user and its password")?;
        Ok(Login {
            url: format!("nats://{place}"),
            user: Some(User {
                name: user.0.to_owned(),
                password: user.1.to_owned(),
                inbox: value("NATS_INBOX").context("its inboxes")?.to_owned(),
            }),
        })
    }
}

/// Has the users written by `nats-config`, beside a store in the folder of the run. Returns what nats-server is to be told.
///
/// # Errors
///
/// The program does not write them.
pub async fn write(toolfleet: &Path, run: &Path) -> Result<String> {
    let folder = run.join(FOLDER);
    let mut command = Command::new(toolfleet);
    command
        .args([
            "nats-config",
            "--tenant",
            "default,other",
            "--service",
            SERVICES,
        ])
        .args(["--url", URL, "--out"])
        .arg(&folder);
    let said = command.output().await.context("start nats-config")?;
    let complaint = String::from_utf8_lossy(&said.stderr);
    ensure!(said.status.success(), "nats-config: {complaint}");
    let path = folder.join("nats-server.conf");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    fs::write(&path, of_this_machine(&text, &run.join("store"))?)
        .with_context(|| format!("write {}", path.display()))?;
    Ok(format!("include ../{FOLDER}/nats-server.conf\n"))
}

/// The configuration without what is the machine's: where the server listens, which is told elsewhere, and its store.
fn of_this_machine(text: &str, store: &Path) -> Result<String> {
    let mut text = text.to_owned();
    for (theirs, ours) in [
        ("listen: 127.0.0.1:4222\n", String::new()),
        ("http: 127.0.0.1:8222\n", String::new()),
        ("store_dir: /var/lib/nats", format!("store_dir: {store:?}")),
    ] {
        if text.matches(theirs).count() != 1 {
            bail!("nats-server.conf is not as expected: {theirs:?} is not there once");
        }
        text = text.replace(theirs, &ours);
    }
    Ok(text)
}
