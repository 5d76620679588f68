//! A nats-server with the files of `deploy/nats`, as they are shipped, and its users.

use std::{fs, path::Path, process::Stdio};

use fleet::config::BusArgs;
use serde_json::Value;
use tokio::process::{Child, Command};
use toolfleet::servers::find::{self, SearchPaths};

use crate::wait::until_so;

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");

/// Who connects: the users of `deploy/nats/users.conf`, which `toolfleet nats-config` writes for [`EXAMPLE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// Dispatchers.
    Dispatcher,
    /// Workers of the queue `default`.
    Worker,
    /// Workers of the queue `programs`.
    Programs,
    /// A person.
    Operator,
    /// Gateways.
    Gateway,
    /// The example that is a NATS service.
    Service,
    /// Another service.
    Charge,
    /// A caller of the tenant `default`, in the fleet's account.
    Agent,
    /// A caller of the tenant `acme`, in the fleet's account.
    Acme,
    /// A caller of the tenant `beta`, in an account of its own.
    Beta,
}

/// How `deploy/nats` was written.
pub const EXAMPLE: [&str; 9] = [
    "nats-config",
    "--tenant",
    "default,acme,beta",
    "--own-account",
    "beta",
    "--queue",
    "default,programs",
    "--service",
    "translate+add_term,charge",
];

impl User {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Dispatcher,
        Self::Worker,
        Self::Programs,
        Self::Operator,
        Self::Gateway,
        Self::Service,
        Self::Charge,
        Self::Agent,
        Self::Acme,
        Self::Beta,
    ];

    /// As the configuration names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dispatcher => "dispatcher",
            Self::Worker => "worker-default",
            Self::Programs => "worker-programs",
            Self::Operator => "operator",
            Self::Gateway => "gateway",
            Self::Service => "service-translate+add_term",
            Self::Charge => "service-charge",
            Self::Agent => "agent-default",
            Self::Acme => "agent-acme",
            Self::Beta => "agent-beta",
        }
    }

    /// What its client is told that its inboxes begin with.
    pub const fn inbox(self) -> &'static str {
        match self {
            Self::Dispatcher => "_INBOX_dispatcher",
            Self::Worker => "_INBOX_worker.default",
            Self::Programs => "_INBOX_worker.programs",
            Self::Operator => "_INBOX_operator",
            Self::Gateway => "_INBOX_gateway",
            Self::Service => "_INBOX_service.tools-translate+tools-add_term",
            Self::Charge => "_INBOX_service.tools-charge",
            Self::Agent => "_INBOX.default",
            Self::Acme => "_INBOX.acme",
            Self::Beta => "_INBOX.beta",
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
    /// Where dispatchers answer, as `nats-config` tells them.
    pub const REPLIES: &str =
        "_INBOX.{tenant}.,_INBOX_operator.,_INBOX_service.,_INBOX_gateway.,_R_.";

    /// Starts it in this folder and waits until it listens. Of the configuration only what is the machine's is replaced:
    /// where it listens, and where it keeps its streams.
    ///
    /// # Panics
    ///
    /// It does not start.
    pub async fn start(folder: &Path) -> Self {
        let ports = folder.join("ports");
        fs::create_dir_all(&ports).expect("a folder for the ports");
        let mut text = read("nats/nats-server.conf");
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
        let configuration = folder.join("nats-server.conf");
        let secrets = User::ALL.map(|user| {
            let (name, password) = (user.name(), user.password());
            format!("\"password-{name}\": \"{password}\"\n")
        });
        for (file, text) in [
            ("nats-server.conf", &text),
            ("users.conf", &read("nats/users.conf")),
            ("secrets.conf", &secrets.concat()),
        ] {
            fs::write(folder.join(file), text).expect("write the configuration");
        }
        let program = find::nats_server(&SearchPaths::of_this_process()).await;
        let log = fs::File::create(folder.join("shipped.log")).expect("a log");
        let mut command = Command::new(program.expect("nats-server is installed"));
        command.arg("-c").arg(&configuration).env_clear();
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
