//! A whole fleet of processes, each behind wires of its own.

use std::path::PathBuf;

use fleet_chaos::wire::{
    nats::{self, Message},
    postgres::{self, Fault, Refusal, Statement},
};
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    run_folder::RunFolder,
    wait::until_so,
    witness::Witness,
};
use futures_util::{StreamExt, stream};
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;
use toolfleet::servers::process::{Ending, Launch, Process};

const CALLS: i64 = 200;

/// A process, and its wires.
struct Member {
    process: Process,
    postgres: postgres::Wire,
    nats: nats::Wire,
    tools: postgres::Wire,
}

impl Member {
    async fn start(fleet: &Fleet, folder: &RunFolder, role: &str) -> Self {
        let port = port(&fleet.database.url);
        let postgres = postgres::Wire::to(port).await.unwrap();
        let tools = postgres::Wire::to(port).await.unwrap();
        let nats = nats::Wire::to(port_of_nats(fleet)).await.unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_chaos_toolfleet"));
        command
            .args([role, "--parent-pipe", "--name", role])
            .args(["--http", "127.0.0.1:0", "--log", "info"])
            .env(
                "DATABASE_URL",
                with_port(&fleet.database.url, postgres.port()),
            )
            .env("NATS_URL", format!("nats://127.0.0.1:{}", nats.port()));
        if role == "worker" {
            let state: PathBuf = folder.path().join("state");
            command
                .env(
                    "WORKER_TOOL_DATABASE_URL",
                    fleet.database.tool_url_through(tools.port()),
                )
                .arg("--state-dir")
                .arg(state);
        }
        let launch = Launch {
            name: role.to_owned(),
            command,
            log: folder.path().join(format!("{role}.log")),
            ending: Ending {
                ask: Signal::SIGTERM,
                grace: std::time::Duration::from_secs(10),
                at_once: Signal::SIGKILL,
            },
            parent_pipe: true,
        };
        Self {
            process: Process::spawn(launch).unwrap(),
            postgres,
            nats,
            tools,
        }
    }

    async fn stop(mut self) {
        self.process.stop(&CancellationToken::new()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_behind_wires_is_unharmed_and_all_that_it_says_is_known() {
    let spec = Spec::with([deposit(), echo()])
        .dispatchers(0)
        .workers(0, &[]);
    let fleet = Fleet::start(spec).await;
    let tables = "CREATE TABLE tools.deposits (n bigint NOT NULL)";
    sqlx::raw_sql(tables)
        .execute(&mut fleet.database.connect().await)
        .await
        .unwrap();
    let mut questions = fleet.client.subscribe("services.echo").await.unwrap();
    let service = async {
        while let Some(question) = questions.next().await {
            let inbox = question.reply.unwrap();
            fleet.client.publish(inbox, question.payload).await.unwrap();
        }
    };
    let folder = RunFolder::create().unwrap();
    let dispatcher = Member::start(&fleet, &folder, "dispatcher").await;
    let worker = Member::start(&fleet, &folder, "worker").await;
    let calling = async {
        until_so("a dispatcher to hear", async || {
            fleet.dispatchers_heard().await == 1
        })
        .await;
        let answers = stream::iter(0..CALLS).map(|n| {
            let tool = if n % 2 == 0 { "deposit" } else { "echo" };
            fleet
                .submit(tool, &json!({"n": n}))
                .key(&n.to_string())
                .wait()
        });
        answers.buffer_unordered(16).collect::<Vec<_>>().await
    };
    let answers = tokio::select! {
        answers = calling => answers,
        () = service => unreachable!("the caller's connection stands"),
    };
    for answer in &answers {
        assert_eq!(answer["state"], "succeeded", "{:?}", **answer);
    }
    let deposits = fleet.count("SELECT count(*) FROM tools.deposits").await;
    assert_eq!(deposits, CALLS / 2);
    until_so("a heartbeat", async || {
        worker.postgres.passed(Statement::Beat) > 0
    })
    .await;
    let calls = u64::try_from(CALLS).unwrap();
    // One message for each call, though a pointer may be published or delivered twice.
    for (wire, kind) in [
        (&dispatcher.nats, Message::Request),
        (&dispatcher.nats, Message::Publish),
        (&dispatcher.nats, Message::Reply),
        (&worker.nats, Message::Deliver),
        (&worker.nats, Message::Ack),
        (&worker.nats, Message::Tool),
    ] {
        assert!(
            wire.passed(kind) >= calls,
            "{kind:?}: {}",
            wire.passed(kind)
        );
    }
    // Not every publication is answered, and calls that are decided together are told of together.
    for (wire, kind) in [
        (&dispatcher.nats, Message::PubAck),
        (&worker.nats, Message::Reply),
    ] {
        let passed = wire.passed(kind);
        assert!(passed > 0, "{kind:?}: {passed}");
    }
    assert_eq!(dispatcher.nats.passed(Message::Request), calls);
    assert_eq!(worker.nats.passed(Message::Tool), calls);
    assert_eq!(worker.tools.passed(Statement::Commit), calls / 2);
    // Calls share statements.
    for (wire, statement) in [
        (&dispatcher.postgres, Statement::Accept),
        (&worker.postgres, Statement::Claim),
        (&worker.postgres, Statement::Complete),
    ] {
        let passed = wire.passed(statement);
        assert!((1..=calls).contains(&passed), "{statement:?}: {passed}");
    }
    invariants::hold(&fleet, &Witness::start().await).await;
    worker.stop().await;
    dispatcher.stop().await;
}

fn deposit() -> String {
    json!({
        "name": "deposit",
        "version": 1,
        "description": "Notes a number.",
        "effect": "transaction",
        "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        "executor": {"sql": {
            "database": "fleet",
            "statement": "INSERT INTO tools.deposits VALUES ($1)",
            "params": ["{n}"],
        }},
    })
    .to_string()
}

fn echo() -> String {
    json!({
        "name": "echo",
        "version": 1,
        "description": "Says the same.",
        "effect": "read",
        "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        "executor": {"nats": {"subject": "services.echo"}},
    })
    .to_string()
}

fn port(url: &str) -> u16 {
    let (front, _) = url.rsplit_once('/').unwrap();
    front.rsplit_once(':').unwrap().1.parse().unwrap()
}

fn with_port(url: &str, port: u16) -> String {
    let (front, name) = url.rsplit_once('/').unwrap();
    let (front, _) = front.rsplit_once(':').unwrap();
    format!("{front}:{port}/{name}")
}

fn port_of_nats(fleet: &Fleet) -> u16 {
    fleet
        .nats_url()
        .rsplit_once(':')
        .unwrap()
        .1
        .parse()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_kept_when_the_ledger_takes_no_writes_for_a_moment() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("look", "read")]).workers(0, &[]);
    let fleet = Fleet::start(spec).await;
    let folder = RunFolder::create().unwrap();
    let worker = Member::start(&fleet, &folder, "worker").await;
    let read_only = Fault::Error(Refusal::ReadOnly);
    worker.postgres.arm(Statement::Complete, 1, read_only);
    let call = fleet.submit("look", &json!({"what": "a"}));
    let answer = call.wait().await;
    assert_eq!(
        worker.postgres.struck(),
        [(Statement::Complete, 1, read_only)]
    );
    assert_eq!(answer["result"], json!({"done": "a"}), "{:?}", *answer);
    assert_eq!(answer["error"], serde_json::Value::Null);
    worker.stop().await;
}
