//! A nats-server with `deploy/nats-server.conf`, its users, and what dispatchers are told in `deploy/toolfleet.env.example`.

use std::{fs, path::Path, process::Stdio};

use fleet::config::BusArgs;
use serde_json::Value;
use tokio::process::{Child, Command};
use toolfleet::servers::find::{self, SearchPaths};

use crate::wait::until_so;

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");

/// Who connects, and the inbox prefix that the configuration gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// Dispatchers and workers.
    Fleet,
    /// A caller of the tenant `default`.
    Agent,
    /// A tool that is a NATS service.
    Service,
    /// A person.
    Operator,
}

impl User {
    const ALL: [Self; 4] = [Self::Fleet, Self::Agent, Self::Service, Self::Operator];

    /// As `nats.env` and the configuration name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fleet => "fleet",
            Self::Agent => "agent",
            Self::Service => "service",
            Self::Operator => "operator",
        }
    }

    /// What its client is told that its inboxes begin with.
    pub const fn inbox(self) -> &'static str {
        match self {
            Self::Fleet | Self::Service => "_INBOX",
            Self::Agent => "_INBOX.default",
            Self::Operator => "_INBOX_operator",
        }
    }

    pub(crate) fn password(self) -> String {
        format!("pw-{}", self.name())
    }

    /// The fields of `CONNECT`.
    pub fn login(self) -> String {
        let (user, password) = (self.name(), self.password());
        format!("\"user\":\"{user}\",\"pass\":\"{password}\"")
    }

    /// Where it connects on this port of 127.0.0.1.
    pub fn url(self, port: u16) -> String {
        format!(
            "nats://{}:{}@127.0.0.1:{port}",
            self.name(),
            self.password()
        )
    }

    /// The same as settings.
    ///
    /// # Panics
    ///
    /// Its inbox prefix is none.
    pub fn args(self, port: u16) -> BusArgs {
        BusArgs {
            nats_inbox: self.inbox().parse().expect("the beginning of an inbox"),
            ..BusArgs::at(self.url(port).into())
        }
    }
}

/// The server. It is killed when it is dropped.
#[derive(Debug)]
pub struct Shipped {
    port: u16,
    _server: Child,
}

impl Shipped {
    /// Starts it in this folder and waits until it listens. Of the configuration only what is the machine's is replaced:
    /// where it listens, and where it keeps its streams.
    ///
    /// # Panics
    ///
    /// It does not start.
    pub async fn start(folder: &Path) -> Self {
        let shipped = read("nats-server.conf");
        let ports = folder.join("ports");
        fs::create_dir_all(&ports).expect("a folder for the ports");
        let mut text = shipped;
        for (theirs, ours) in [
            ("listen: 127.0.0.1:4222", "listen: 127.0.0.1:-1".to_owned()),
            ("http: 127.0.0.1:8222", "http: 127.0.0.1:-1".to_owned()),
            (
                "store_dir: /var/lib/nats",
                format!("store_dir: {:?}", folder.join("store")),
            ),
        ] {
            assert_eq!(text.matches(theirs).count(), 1, "{theirs}");
            text = text.replace(theirs, &ours);
        }
        text.push_str(&format!("\nports_file_dir: {ports:?}\n"));
        let configuration = folder.join("shipped.conf");
        fs::write(&configuration, text).expect("write the configuration");
        let program = find::nats_server(&SearchPaths::of_this_process()).await;
        let log = fs::File::create(folder.join("shipped.log")).expect("a log");
        let mut command = Command::new(program.expect("nats-server is installed"));
        command.arg("-c").arg(&configuration).env_clear();
        for user in User::ALL {
            let variable = format!("NATS_{}_PASSWORD", user.name().to_uppercase());
            command.env(variable, user.password());
        }
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        let command = command.stderr(log).kill_on_drop(true);
        let server = command.spawn().expect("start nats-server");
        let mut port = None;
        until_so("nats-server to say where it listens", async || {
            port = announced(&ports);
            port.is_some()
        })
        .await;
        Self {
            port: port.expect("it has one"),
            _server: server,
        }
    }

    /// Where it listens on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// What the shipped settings say for this variable.
    ///
    /// # Panics
    ///
    /// They say nothing of it.
    pub fn setting(variable: &str) -> String {
        let text = read("toolfleet.env.example");
        let line = text.lines().find_map(|line| {
            let (name, value) = line.split_once('=')?;
            (name == variable).then(|| value.to_owned())
        });
        line.unwrap_or_else(|| panic!("toolfleet.env.example has no {variable}"))
    }
}

fn read(file: &str) -> String {
    let path = Path::new(DEPLOY).join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The port in the file that the server writes once it listens.
fn announced(folder: &Path) -> Option<u16> {
    let file = fs::read_dir(folder).ok()?.next()?.ok()?;
    let ports: Value = serde_json::from_slice(&fs::read(file.path()).ok()?).ok()?;
    ports["nats"][0].as_str()?.rsplit(':').next()?.parse().ok()
}
