//! The programs of `docs/clients.md`, run as they stand there, by the clients that people have.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::json;
use tokio::{process::Command, time::timeout};

/// What each program says, whatever its language.
const SAID: &str = "waited: succeeded
accepted: queued
attached: succeeded same call
got: succeeded applied
batch: queued queued refused
refused: 400 invalid_arguments /city
taken back: cancelled
in doubt: do_not_repeat
large: 1200000 characters
";
/// What each says on standard error when no dispatcher runs.
const NOBODY: &str = "no dispatcher is there; nothing was stored, try again later\n";
const PATIENCE: Duration = Duration::from_secs(60);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The blocks with this mark, one after the other.
fn program_of(mark: &str) -> String {
    let page = fs::read_to_string(root().join("docs/clients.md")).unwrap();
    let fence = format!("\n```{mark}\n");
    let blocks: Vec<&str> = page
        .split(&fence)
        .skip(1)
        .map(|rest| rest.split("\n```").next().unwrap())
        .collect();
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

async fn run(interpreter: &str, program: &Path, fleet: &Fleet) -> Ran {
    let mut command = Command::new(interpreter);
    command.arg(program).env("NATS_URL", fleet.nats_url());
    let running = command.kill_on_drop(true).output();
    let output = timeout(PATIENCE, running).await.expect("it ends").unwrap();
    Ran {
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
        is_ok: output.status.success(),
    }
}

/// The tools of `examples/tools`, on a service that can be told what to do.
fn tools(witness: &Witness) -> [String; 2] {
    let url = witness.url();
    let get_weather = format!(
        "name: get_weather\nversion: 1\ndescription: Tells the weather.\neffect: read\n\
         input_schema: {{type: object, properties: {{city: {{type: string}}, days: {{type: integer}}}}, required: [city]}}\n\
         output_limit: 4MiB\n\
         executor: {{http: {{method: POST, url: \"{url}\", body: {{what: \"{{city}}\"}}}}}}\n"
    );
    let charge_account = format!(
        "name: charge_account\nversion: 1\ndescription: Charges an account.\neffect: once\ntimeout: 1s\n\
         input_schema: {{type: object, properties: {{account: {{type: string}}, amount_cents: {{type: integer}}}}, required: [account, amount_cents]}}\n\
         executor: {{http: {{method: POST, url: \"{url}\", body: {{what: \"{{account}}\"}}}}}}\n"
    );
    [get_weather, charge_account]
}

async fn the_page_works(mark: &str, interpreter: &str, name: &str) {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with(tools(&witness))).await;
    let report = json!({"report": "0".repeat(1_200_000)}).to_string();
    witness.always("Everywhere", Reply::Body(report));
    witness.always("Atlantis", Reply::Hang);
    witness.always("lost", Reply::DoneThenHang);
    let folder = tempfile::tempdir().unwrap();
    symlink(modules(), folder.path().join("node_modules")).unwrap();
    let program = folder.path().join(name);
    fs::write(&program, program_of(mark)).unwrap();

    let ran = run(interpreter, &program, &fleet).await;
    assert_eq!((ran.out.as_str(), ran.is_ok), (SAID, true), "{}", ran.err);
    assert_eq!((witness.applied("acme"), witness.applied("lost")), (1, 1));
    until_so("the batch to be done", async || {
        witness.applied("Bergen") == 1 && witness.applied("Tromsø") == 1
    })
    .await;
    fleet.dispatchers[0].drain().await;
    let calls = fleet.calls().await.len();
    let ran = run(interpreter, &program, &fleet).await;
    assert_eq!(
        (ran.err.as_str(), ran.is_ok),
        (NOBODY, false),
        "{}",
        ran.out
    );
    assert_eq!(fleet.calls().await.len(), calls);
    fleet.add_dispatcher().await;
    invariants::hold(&fleet, &witness).await;
}

fn modules() -> PathBuf {
    root().join("tests/node/node_modules")
}

#[tokio::test]
async fn the_program_in_python_works() {
    let python = interpreter("TOOLFLEET_PYTHON", "python3");
    the_page_works("python", &python, "client.py").await;
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
    the_page_works("javascript", &node, "client.mjs").await;
}

#[tokio::test]
async fn the_program_on_a_plain_socket_works() {
    let python = interpreter("TOOLFLEET_PYTHON", "python3");
    the_page_works("python socket", &python, "socket_client.py").await;
}
