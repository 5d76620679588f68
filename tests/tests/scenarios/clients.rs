//! The programs of `docs/clients.md`, `docs/client-tools.md` and `docs/completion.md`, run as they stand there, by the clients that
//! people have.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    shipped::User,
    wait::until_so,
    witness::Witness,
};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

/// What each program says, whatever its language.
const SAID: &str = "waited: succeeded
accepted: queued
attached: succeeded same call
got: succeeded applied
batch: queued queued refused
refused: 400 invalid_arguments /city
taken back: cancelled
charged: succeeded
";
/// What each says on standard error when no dispatcher runs.
const NOBODY: &str = "no dispatcher is there; nothing was stored, try again later\n";
const PATIENCE: Duration = Duration::from_secs(60);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The blocks of a page with this mark.
fn blocks(page: &str, mark: &str) -> Vec<String> {
    let page = fs::read_to_string(root().join(page)).unwrap();
    let fence = format!("\n```{mark}\n");
    let blocks = page.split(&fence).skip(1);
    blocks
        .map(|rest| rest.split("\n```").next().unwrap().to_owned())
        .collect()
}

/// The blocks with this mark, one after the other.
fn program_of(mark: &str) -> String {
    let blocks = blocks("docs/clients.md", mark);
    assert_eq!(blocks.len(), 2, "blocks of {mark}");
    blocks.join("\n\n")
}

#[expect(clippy::disallowed_methods, reason = "where the tests' programs are")]
fn interpreter(variable: &str, otherwise: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_unset| otherwise.to_owned())
}

struct Ran {
    out: String,
    err: String,
    is_ok: bool,
}

/// Runs a program as this user of a nats-server as it is shipped, or without one.
async fn run(interpreter: &str, program: &Path, fleet: &Fleet, user: Option<User>) -> Ran {
    let mut command = Command::new(interpreter);
    command.arg(program);
    match user {
        Some(user) => command
            .env("NATS_URL", user.url(fleet.nats_port()))
            .env("NATS_INBOX", user.inbox()),
        None => command.env("NATS_URL", fleet.nats_url()),
    };
    let running = command.kill_on_drop(true).output();
    let output = timeout(PATIENCE, running).await.expect("it ends").unwrap();
    Ran {
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
        is_ok: output.status.success(),
    }
}

/// A service of `examples/`, as the page starts it, on a port that the system picks. Ends when it is dropped.
struct Service {
    port: u16,
    _process: Child,
}

impl Service {
    async fn start(file: &str, folder: &Path) -> Self {
        let mut command = Command::new(interpreter("TOOLFLEET_PYTHON", "python3"));
        command
            .arg(root().join("examples").join(file))
            .args(["--port", "0"]);
        command
            .current_dir(folder)
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let first = timeout(PATIENCE, lines.next_line())
            .await
            .expect("it starts");
        let first: Value = serde_json::from_str(&first.unwrap().unwrap()).unwrap();
        let port = u16::try_from(first["port"].as_u64().unwrap()).unwrap();
        Self {
            port,
            _process: process,
        }
    }
}

/// The tools of `examples/tools` that the page uses, at the ports of these services; a probe's tool first.
fn tools(weather: &Service, payments: &Service) -> [String; 3] {
    ["get_weather", "find_charge", "charge_account"].map(|name| {
        let file = root().join(format!("examples/tools/{name}.yaml"));
        let manifest = fs::read_to_string(file).unwrap();
        let ports = [(":8701/", weather.port), (":8702/", payments.port)];
        let moved = ports.iter().fold(manifest.clone(), |text, (port, free)| {
            text.replace(port, &format!(":{free}/"))
        });
        assert_ne!(moved, manifest, "{name} names no port");
        moved
    })
}

/// How often this account was charged.
fn charges(folder: &Path, account: &str) -> usize {
    let ledger = fs::read_to_string(folder.join("ledger.jsonl")).unwrap();
    let charges = ledger
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    charges
        .filter(|charge| charge["account"] == account)
        .count()
}

async fn the_page_works(mark: &str, interpreter: &str, name: &str, user: Option<User>) {
    let folder = tempfile::tempdir().unwrap();
    let (weather, payments) = tokio::join!(
        Service::start("weather_service.py", folder.path()),
        Service::start("payment_service.py", folder.path())
    );
    let spec = Spec::with(tools(&weather, &payments));
    let spec = if user.is_some() { spec.shipped() } else { spec };
    let mut fleet = Fleet::start(spec).await;
    symlink(modules(), folder.path().join("node_modules")).unwrap();
    let program = folder.path().join(name);
    fs::write(&program, program_of(mark)).unwrap();

    let ran = run(interpreter, &program, &fleet, user).await;
    assert_eq!((ran.out.as_str(), ran.is_ok), (SAID, true), "{}", ran.err);
    // Sent twice with one key, and charged once.
    let charged = (
        charges(folder.path(), "acme"),
        charges(folder.path(), "beta"),
    );
    assert_eq!(charged, (1, 1));
    let succeeded = "SELECT count(*) FROM toolfleet.calls WHERE state = 'succeeded'";
    until_so("the batch to be done", async || {
        // The first weather, two charges, and the two of the batch.
        fleet.count(succeeded).await == 5
    })
    .await;
    fleet.dispatchers[0].drain().await;
    let calls = fleet.calls().await.len();
    let ran = run(interpreter, &program, &fleet, user).await;
    assert_eq!(
        (ran.err.as_str(), ran.is_ok),
        (NOBODY, false),
        "{}",
        ran.out
    );
    assert_eq!(fleet.calls().await.len(), calls);
    fleet.add_dispatcher().await;
    // The world outside is the examples' own here; a witness that saw nothing has nothing to object to.
    invariants::hold(&fleet, &Witness::start().await).await;
}

fn modules() -> PathBuf {
    root().join("tests/node/node_modules")
}

#[tokio::test]
async fn the_program_in_python_works() {
    let python = interpreter("TOOLFLEET_PYTHON", "python3");
    the_page_works("python", &python, "client.py", None).await;
}

#[tokio::test]
async fn the_program_that_runs_its_own_tool_works() {
    let page = "docs/client-tools.md";
    let one = |mark| blocks(page, mark).remove(0);
    let spec = Spec::with([one("yaml")]).workers(0, &[]);
    let fleet = Fleet::start(spec.shipped()).await;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("shell.py");
    fs::write(&program, one("python")).unwrap();
    let python = interpreter("TOOLFLEET_PYTHON", "python3");
    let ran = run(&python, &program, &fleet, Some(User::Agent)).await;
    assert_eq!(ran.out, one("text") + "\n", "{}", ran.err);
    assert!(ran.is_ok, "{}", ran.err);
    invariants::hold(&fleet, &Witness::start().await).await;
}

#[tokio::test]
async fn the_service_that_answers_later_goes_on_where_it_was() {
    let page = "docs/completion.md";
    let spec = Spec::with([blocks(page, "yaml").remove(1)]);
    let fleet = Fleet::start(spec).await;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("report.py");
    let source = blocks(page, "python").remove(0);
    let python = interpreter("TOOLFLEET_PYTHON", "python3");
    let service = async |source: &str| {
        fs::write(&program, source).unwrap();
        let mut command = Command::new(&python);
        command.arg(&program).current_dir(folder.path());
        command.env("NATS_URL", fleet.nats_url());
        let mut process = command
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let first = timeout(PATIENCE, lines.next_line()).await;
        assert_eq!(first.expect("it starts").unwrap().unwrap(), "ready");
        (process, lines)
    };
    // The first one does not come to its answer.
    let endless = source.replace("sleep(1)  # the long", "sleep(3600)  # the long");
    assert_ne!(endless, source);
    let (mut killed, _lines) = service(&endless).await;
    let month = serde_json::json!({"month": "2026-10"});
    let call = fleet.submit("make_report", &month).key("october");
    let call = call.asynchronous().await.call_id();
    fleet.until_state(call, "awaiting_client").await;
    killed.kill().await.unwrap();
    let (_service, mut lines) = service(&source).await;
    let row = fleet.until_state(call, "succeeded").await;
    assert_eq!(row["result"]["month"], "2026-10", "{row}");
    let said = timeout(PATIENCE, lines.next_line()).await;
    let said = said.expect("it says so").unwrap().unwrap();
    assert_eq!(said, "decided: succeeded");
    invariants::hold(&fleet, &Witness::start().await).await;
}

#[tokio::test]
async fn the_program_in_javascript_works() {
    let packages = modules().join("@nats-io/transport-node");
    assert!(
        packages.is_dir(),
        "run `make setup`: {} is missing",
        packages.display()
    );
    let node = interpreter("TOOLFLEET_NODE", "node");
    the_page_works("javascript", &node, "client.mjs", None).await;
}

#[tokio::test]
async fn the_program_on_a_plain_socket_works() {
    let python = interpreter("TOOLFLEET_PYTHON", "python3");
    the_page_works("python socket", &python, "socket_client.py", None).await;
}

#[tokio::test]
async fn the_programs_work_as_the_agent_that_is_shipped() {
    let python = interpreter("TOOLFLEET_PYTHON", "python3");
    let node = interpreter("TOOLFLEET_NODE", "node");
    for (mark, interpreter, name) in [
        ("python", &python, "client.py"),
        ("javascript", &node, "client.mjs"),
        ("python socket", &python, "socket_client.py"),
    ] {
        the_page_works(mark, interpreter, name, Some(User::Agent)).await;
    }
}
