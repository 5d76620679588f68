//! Servers that are away, turn us away, or are not what we need.

use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use fleet::store::migrate::migrate;
use sqlx::Connection;
use tokio::{io::AsyncReadExt, net::TcpStream};
use toolfleet::servers::{
    Nats, Postgres,
    find::{self, SearchPaths},
    free_ports, tools,
};

use super::Mistake;
use crate::support::{ledger, nats, postgres};

/// Every server that something is wrong with.
pub(super) struct World {
    /// Fit, but for the roles that log in.
    postgres: Postgres,
    nats: Nats,
    plain: Server,
    strict: Server,
    /// A port with a listener that never answers.
    silent: TcpListener,
    nobody: u16,
}

impl World {
    pub(super) async fn start(folder: &Path) -> Self {
        let (postgres, nats) = tokio::join!(postgres(folder, true), nats(folder));
        migrate(&ledger(&postgres.url())).await.unwrap();
        let mut owner = sqlx::PgConnection::connect(&postgres.url()).await.unwrap();
        let roles = "CREATE ROLE stranger LOGIN PASSWORD 'x'; CREATE ROLE strong LOGIN CREATEROLE; \
                     CREATE ROLE boss LOGIN PASSWORD 'x'; CREATE ROLE half LOGIN PASSWORD 'x'; \
                     GRANT USAGE ON SCHEMA toolfleet TO half; GRANT SELECT ON toolfleet._migrations, toolfleet.fleet TO half; \
                     GRANT CREATE ON DATABASE toolfleet TO half";
        sqlx::raw_sql(roles).execute(&mut owner).await.unwrap();
        let empty = "CREATE DATABASE empty";
        sqlx::raw_sql(empty).execute(&mut owner).await.unwrap();
        owner.close().await.unwrap();
        let (plain, strict) = tokio::join!(
            Server::start(folder, "plain", ""),
            Server::start(folder, "strict", STRICT)
        );
        Self {
            postgres,
            nats,
            plain,
            strict,
            silent: TcpListener::bind("127.0.0.1:0").unwrap(),
            nobody: free_ports(1).unwrap()[0],
        }
    }

    pub(super) async fn stop(self) {
        self.nats.stop().await;
        self.postgres.stop().await;
    }

    /// The text with names instead of the ports, which the system picked.
    pub(super) fn named(&self, text: &str) -> String {
        let ports = [
            (self.postgres.port(), "POSTGRES"),
            (self.nats.port(), "NATS"),
            (self.plain.port, "PLAIN"),
            (self.strict.port, "STRICT"),
            (self.silent(), "SILENT"),
            (self.nobody, "NOBODY"),
        ];
        let password = self.postgres.url();
        let password = password
            .split(['@', ':'])
            .nth(2)
            .unwrap_or_default()
            .to_owned();
        let text = text.replace(&password, "PASSWORD");
        ports.iter().fold(text, |text, (port, name)| {
            text.replace(&port.to_string(), name)
        })
    }

    fn silent(&self) -> u16 {
        self.silent.local_addr().unwrap().port()
    }

    /// The database as this role with this password.
    fn database(&self, role: &str, password: &str, name: &str) -> String {
        format!(
            "postgres://{role}:{password}@127.0.0.1:{}/{name}",
            self.postgres.port()
        )
    }
}

/// Users who may not do all that the fleet needs.
const STRICT: &str = "jetstream: {}\n\
    accounts: { \
      A: { users: [ { user: fleet, password: right } ] }, \
      B: { jetstream: enabled, users: [ { user: mute, password: right, permissions: { publish: \"_INBOX.>\" } } ] } }\n";

/// A nats-server with a configuration of its own.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    async fn start(folder: &Path, name: &str, configuration: &str) -> Self {
        let program = find::nats_server(&SearchPaths::of_this_process())
            .await
            .unwrap();
        let port = free_ports(1).unwrap()[0];
        let file = folder.join(format!("{name}.conf"));
        let store = folder.join(name);
        let configuration = configuration.replace(
            "jetstream: {}",
            &format!("jetstream: {{ store_dir: \"{}\" }}", store.display()),
        );
        fs::write(
            &file,
            format!("listen: \"127.0.0.1:{port}\"\n{configuration}"),
        )
        .unwrap();
        let mut command = Command::new(program);
        command
            .arg("-c")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let server = Self {
            child: command.spawn().unwrap(),
            port,
        };
        let began = Instant::now();
        while !greets(port).await {
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "{name} does not start"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

async fn greets(port: u16) -> bool {
    let Ok(mut connection) = TcpStream::connect(("127.0.0.1", port)).await else {
        return false;
    };
    let mut greeting = [0; 5];
    connection.read_exact(&mut greeting).await.is_ok() && &greeting == b"INFO "
}

const ID: &str = "01936c2e-0000-7000-8000-000000000001";

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn all(world: &World) -> Vec<Mistake> {
    let away = format!("postgres://u:hunter2@127.0.0.1:{}/d", world.nobody);
    let nats_away = format!("nats://u:hunter2@127.0.0.1:{}", world.nobody);
    let good = world.postgres.url();
    let nats = world.nats.url();
    let at = |port: u16, login: &str| format!("nats://{login}127.0.0.1:{port}");
    let mut all = Vec::new();
    for line in [
        "dispatcher",
        "worker",
        "migrate",
        "calls list",
        "tools list",
    ] {
        let mistake = Mistake::of("Postgres is away", line);
        all.push(mistake.with("DATABASE_URL", &away));
    }
    let postgres =
        |name, line: &str, url: String| Mistake::of(name, line).with("DATABASE_URL", url);
    let silent = format!("postgres://u:hunter2@127.0.0.1:{}/d", world.silent());
    let unknown = "postgres://u:hunter2@nowhere.invalid/d".to_owned();
    let wrong = world.database("toolfleet", "hunter2", "toolfleet");
    let stranger = world.database("stranger", "x", "toolfleet");
    let half = world.database("half", "x", "toolfleet");
    all.extend([
        Mistake::of(
            "Postgres is away, as a flag",
            &format!("calls show {ID} --database-url {away}"),
        ),
        postgres("Postgres is away, looked at", "doctor", away.clone()).with("NATS_URL", &nats),
        postgres("a host that does not exist", "migrate", unknown),
        postgres("a Postgres that does not answer", "migrate", silent),
        postgres("the wrong password", "calls list", wrong.clone()),
        postgres(
            "the wrong password, of a dispatcher",
            "dispatcher",
            wrong.clone(),
        ),
        postgres("the wrong password, looked at", "doctor", wrong.clone()).with("NATS_URL", &nats),
        postgres(
            "a database that does not exist",
            "calls list",
            world.database("stranger", "x", "elsewhere"),
        ),
        postgres("a role that may not read", "calls list", stranger.clone()),
        postgres(
            "a role that may read too little",
            "calls list",
            half.clone(),
        ),
        postgres(
            "a role that may not migrate",
            "migrate",
            world.database("stranger", "x", "empty"),
        ),
        postgres("a role that may not write", "dispatcher", half).with("NATS_URL", &nats),
        postgres(
            "a database without the schema",
            "calls list",
            world.database("stranger", "x", "empty"),
        ),
        postgres(
            "a NATS port for Postgres",
            "migrate",
            format!("postgres://u:hunter2@127.0.0.1:{}/d", world.nats.port()),
        ),
        postgres(
            "the role of the tools is the owner",
            "migrate --tool-role toolfleet",
            good.clone(),
        ),
        postgres(
            "the role of the tools may create roles",
            "migrate --tool-role strong",
            good.clone(),
        ),
        postgres(
            "the role of the tools does not exist",
            "migrate --tool-role tools",
            good.clone(),
        ),
        postgres(
            "the role of the tools is the worker's own",
            "worker",
            good.clone(),
        )
        .with("NATS_URL", &nats)
        .with("WORKER_TOOL_DATABASE_URL", &good),
        postgres("the wrong password of the tools", "worker", good.clone())
            .with("NATS_URL", &nats)
            .with(
                "WORKER_TOOL_DATABASE_URL",
                tools::url_of(&good, "hunter2").replace(tools::ROLE, "boss"),
            ),
    ]);
    for line in ["dispatcher", "worker"] {
        let mistake = postgres("NATS is away", line, good.clone());
        all.push(mistake.with("NATS_URL", &nats_away));
    }
    let bus = |name, line: &str, url: String| {
        Mistake::of(name, line)
            .with("DATABASE_URL", &good)
            .with("NATS_URL", url)
    };
    all.extend([
        bus(
            "NATS is away, of a client",
            "call look_up",
            nats_away.clone(),
        ),
        bus("NATS is away, looked at", "doctor", nats_away),
        bus(
            "a NATS host that does not exist",
            "call look_up",
            "nats://nowhere.invalid".to_owned(),
        ),
        bus(
            "a NATS server that does not answer",
            "call look_up",
            at(world.silent(), ""),
        ),
        bus(
            "the wrong NATS password",
            "call look_up",
            at(world.strict.port, "fleet:hunter2@"),
        ),
        bus(
            "the wrong NATS password, of a dispatcher",
            "dispatcher",
            at(world.strict.port, "fleet:hunter2@"),
        ),
        bus("no NATS password", "worker", at(world.strict.port, "")),
        bus(
            "a NATS server without JetStream",
            "dispatcher",
            at(world.plain.port, ""),
        ),
        bus(
            "a NATS account without JetStream",
            "dispatcher",
            at(world.strict.port, "fleet:right@"),
        ),
        bus(
            "a NATS user who may publish nothing",
            "dispatcher",
            at(world.strict.port, "mute:right@"),
        ),
        bus(
            "a NATS user who may not call",
            "call look_up",
            at(world.strict.port, "mute:right@"),
        ),
        bus(
            "a Postgres port for NATS",
            "call look_up",
            at(world.postgres.port(), ""),
        ),
        bus("no dispatcher", "call look_up", nats.clone()),
        bus(
            "a port that is taken",
            &format!("dispatcher --http 127.0.0.1:{}", world.silent()),
            nats.clone(),
        ),
        bus(
            "an address of another machine",
            "worker --http 192.0.2.1:80",
            nats,
        ),
    ]);
    all
}
