//! Tools that are NATS services, in the languages that people write them in: the examples, started as a user starts them.

use std::{path::Path, process::Stdio, time::Duration};

use async_nats::Subscriber;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::{LONG, until_so},
    witness::Witness,
};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

const SERVICES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/services");
const PACKAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/node/node_modules");

/// A service that runs, in a folder of its own. Dropping it kills it.
struct Service {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Service {
    async fn python(fleet: &Fleet, folder: &Path, more: &[&str]) -> Self {
        let script = Path::new(SERVICES).join("translate.py");
        Self::start(
            program("TOOLFLEET_PYTHON", "python3"),
            &script,
            fleet,
            folder,
            more,
        )
        .await
    }

    async fn node(fleet: &Fleet, folder: &Path, more: &[&str]) -> Self {
        assert!(
            Path::new(PACKAGES).is_dir(),
            "run `make setup`: {PACKAGES} is not there"
        );
        // Node looks for packages beside the script, as it does where a user copies it to.
        let script = folder.join("translate.mjs");
        std::fs::copy(Path::new(SERVICES).join("translate.mjs"), &script).unwrap();
        std::os::unix::fs::symlink(PACKAGES, folder.join("node_modules")).unwrap();
        Self::start(
            program("TOOLFLEET_NODE", "node"),
            &script,
            fleet,
            folder,
            more,
        )
        .await
    }

    async fn start(
        program: String,
        script: &Path,
        fleet: &Fleet,
        folder: &Path,
        more: &[&str],
    ) -> Self {
        let mut command = Command::new(&program);
        command
            .arg(script)
            .arg("--nats")
            .arg(fleet.nats_url())
            .args(more);
        let command = command
            .current_dir(folder)
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut service = Self { child, lines };
        assert_eq!(service.line().await, json!({"ready": true}));
        service
    }

    async fn line(&mut self) -> Value {
        let line = timeout(LONG, self.lines.next_line())
            .await
            .expect("the service says something");
        serde_json::from_str(&line.unwrap().expect("the service lives")).unwrap()
    }

    async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

fn program(variable: &str, default: &str) -> String {
    #[expect(clippy::disallowed_methods, reason = "a test has no command line")]
    std::env::var(variable).unwrap_or_else(|_unset| default.to_owned())
}

fn example(name: &str) -> String {
    std::fs::read_to_string(Path::new(SERVICES).join(name)).unwrap()
}

/// The example's write, as a tool that does not recognise repetitions.
fn once() -> String {
    let write = example("add_term.yaml").replace("name: add_term", "name: add_once");
    let write = write.replace("effect: idempotent", "effect: once");
    write.replace("idempotency: { valid_for: 24h }", "")
}

fn terms(folder: &TempDir) -> usize {
    let glossary = std::fs::read_to_string(folder.path().join("glossary.jsonl"));
    glossary.map_or(0, |text| text.lines().count())
}

async fn fleet() -> Fleet {
    let fast = "retry: {strategy: fixed, max_attempts: 20, base: 200ms}\n";
    let tools = [
        example("translate.yaml") + fast,
        example("add_term.yaml"),
        once(),
    ];
    Fleet::start(Spec::with(tools)).await
}

fn fox() -> Value {
    json!({"term": "fox", "to": "fr", "is": "renard"})
}

/// Hears what the services are asked. It also keeps a subscription open, so that the server never says that there is none.
async fn overhear(fleet: &Fleet, subject: &'static str) -> Subscriber {
    let heard = fleet.client.subscribe(subject).await.unwrap();
    // The answer to a question comes after the server has read what stands before it.
    fleet.dispatchers_heard().await;
    heard
}

async fn answers_and_refuses(fleet: &Fleet) {
    let nobody = fleet
        .submit("translate", &json!({"text": "fox", "to": "fr"}))
        .wait()
        .await;
    assert_eq!(
        (&nobody["outcome"], nobody.code()),
        (&json!("business_error"), "tool_error"),
        "{}",
        *nobody
    );
    assert_eq!(nobody["error"]["details"]["status"], 404);
    assert!(
        nobody["error"]["message"]
            .as_str()
            .unwrap()
            .contains("add_term"),
        "{}",
        *nobody
    );
    let added = fleet.submit("add_term", &fox()).key("k").wait().await;
    assert_eq!(
        (&added["state"], &added["result"]),
        (&json!("succeeded"), &json!({"terms": 1})),
        "{}",
        *added
    );
    let told = fleet
        .submit("translate", &json!({"text": "fox", "to": "fr"}))
        .wait()
        .await;
    assert_eq!(told["result"], json!({"text": "renard"}), "{}", *told);
}

#[tokio::test]
async fn a_service_in_python_answers_and_refuses() {
    let (fleet, folder, witness) = (
        fleet().await,
        tempfile::tempdir().unwrap(),
        Witness::start().await,
    );
    let _service = Service::python(&fleet, folder.path(), &[]).await;
    answers_and_refuses(&fleet).await;
    assert_eq!(terms(&folder), 1);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_service_in_javascript_answers_and_refuses() {
    let (fleet, folder, witness) = (
        fleet().await,
        tempfile::tempdir().unwrap(),
        Witness::start().await,
    );
    let _service = Service::node(&fleet, folder.path(), &[]).await;
    answers_and_refuses(&fleet).await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_service_stops_when_its_call_is_taken_back() {
    let (fleet, witness) = (fleet().await, Witness::start().await);
    for language in ["python", "node"] {
        let folder = tempfile::tempdir().unwrap();
        let slow = ["--slow-ms", "60000"];
        let mut service = match language {
            "python" => Service::python(&fleet, folder.path(), &slow).await,
            _ => Service::node(&fleet, folder.path(), &slow).await,
        };
        let mut heard = overhear(&fleet, "tools.translate").await;
        let call = fleet.submit("translate", &json!({"text": language, "to": "fr"}));
        let call = call.asynchronous().await.call_id();
        timeout(LONG, heard.next()).await.unwrap().unwrap();
        fleet
            .ask("toolfleet.v1.default.cancel", &json!({"call_id": call}))
            .await;
        fleet.until_state(call, "cancelled").await;
        assert_eq!(
            service.line().await,
            json!({"stopped": call.to_string()}),
            "{language}"
        );
        service.kill().await;
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_read_whose_service_is_killed_in_mid_call_is_tried_again_when_it_is_back() {
    let (fleet, folder, witness) = (
        fleet().await,
        tempfile::tempdir().unwrap(),
        Witness::start().await,
    );
    let service = Service::python(&fleet, folder.path(), &[]).await;
    fleet.submit("add_term", &fox()).key("k").wait().await;
    service.kill().await;
    let service = Service::python(&fleet, folder.path(), &["--slow-ms", "60000"]).await;
    let mut heard = overhear(&fleet, "tools.translate").await;
    let call = fleet.submit("translate", &json!({"text": "fox", "to": "fr"}));
    let call = call.asynchronous().await.call_id();
    timeout(LONG, heard.next()).await.unwrap().unwrap();
    drop(heard);
    service.kill().await;
    let _service = Service::python(&fleet, folder.path(), &[]).await;
    let row = fleet.until_state(call, "succeeded").await;
    assert!(row["attempts"].as_i64().unwrap() >= 2, "{row}");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_write_whose_service_is_killed_in_mid_call_is_in_doubt_and_never_run_again() {
    let (fleet, folder, witness) = (
        fleet().await,
        tempfile::tempdir().unwrap(),
        Witness::start().await,
    );
    let service = Service::python(&fleet, folder.path(), &["--slow-ms", "60000"]).await;
    // Long enough to be sure that the service has it.
    let call = fleet
        .submit("add_once", &fox())
        .key("k")
        .deadline(Duration::from_secs(20));
    let accepted = call.clone().asynchronous().await.call_id();
    until_so("the effect to have taken place", async || {
        terms(&folder) == 1
    })
    .await;
    service.kill().await;
    let _service = Service::python(&fleet, folder.path(), &[]).await;
    let row = fleet.until_state(accepted, "in_doubt").await;
    assert_eq!(row["attempts"], 1);
    let replay = call.wait().await;
    assert_eq!(
        (replay.code(), &replay["replayed"]),
        ("in_doubt", &json!(true))
    );
    assert_eq!(terms(&folder), 1, "one effect, and no other");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_call_whose_service_is_not_there_waits_for_it_and_a_once_call_runs_once() {
    let (fleet, folder, witness) = (
        fleet().await,
        tempfile::tempdir().unwrap(),
        Witness::start().await,
    );
    let call = fleet.submit("translate", &json!({"text": "fox", "to": "fr"}));
    let call = call.asynchronous().await.call_id();
    let nobody = fleet.submit("add_once", &fox()).key("k").wait().await;
    assert_eq!(
        (&nobody["state"], &nobody["effect"]),
        (&json!("failed"), &json!("not_applied")),
        "{}",
        *nobody
    );
    assert_eq!(
        nobody["attempts"], 3,
        "nothing started, so it was tried again"
    );
    let _service = Service::python(&fleet, folder.path(), &[]).await;
    fleet.until_state(call, "failed").await;
    assert_eq!(terms(&folder), 0);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn arguments_that_no_message_can_carry_end_the_call_before_its_first_attempt() {
    let witness = Witness::start().await;
    // The dispatcher takes them; with the headers that a tool is told they are too much.
    let manifest = example("translate.yaml").replace("maxLength: 256", "maxLength: 1000000");
    let once = manifest.replace("name: translate", "name: translate_once");
    let once = once.replace("effect: read", "effect: once");
    let spec = Spec::with([manifest, once]).max_payload(64 * 1024);
    let fleet = Fleet::start(spec).await;
    let mut heard = overhear(&fleet, "tools.translate").await;
    let large = json!({"text": "x".repeat(40 * 1024), "to": "fr"});
    for (tool, effect) in [("translate", "none"), ("translate_once", "not_applied")] {
        let refused = fleet.submit(tool, &large).key(tool).wait().await;
        assert_eq!(
            (refused.code(), &refused["state"], &refused["effect"]),
            ("payload_too_large", &json!("failed"), &json!(effect)),
            "{tool}: {}",
            *refused
        );
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("max_payload"), "{message}");
        assert_eq!(refused["attempts"], 0, "{tool}: {}", *refused);
    }
    let fits = json!({"text": "fox", "to": "fr"});
    let accepted = fleet.submit("translate", &fits).asynchronous().await;
    let first = timeout(LONG, heard.next()).await.unwrap().unwrap();
    let headers = first.headers.unwrap();
    assert_eq!(
        headers.get("Toolfleet-Call-Id").unwrap().as_str(),
        accepted.call_id().to_string(),
        "nothing was sent before it"
    );
    let reply = first.reply.unwrap();
    fleet.client.publish(reply, "{}".into()).await.unwrap();
    fleet.until_state(accepted.call_id(), "succeeded").await;
    invariants::hold(&fleet, &witness).await;
}

/// What a service answers to a request of its own under this key.
async fn asked_directly(fleet: &Fleet, key: &str, term: &str) -> Value {
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("Idempotency-Key", key);
    let body = json!({"term": term, "to": "fr", "is": "mot"}).to_string();
    let request = async_nats::Request::new()
        .headers(headers)
        .payload(body.into())
        .timeout(Some(LONG));
    let answer = fleet.client.send_request("tools.add_term", request).await;
    serde_json::from_slice(&answer.unwrap().payload).unwrap()
}

#[tokio::test]
async fn a_service_answers_a_key_once_and_says_the_same_again() {
    let (fleet, witness) = (fleet().await, Witness::start().await);
    for language in ["python", "node"] {
        let folder = tempfile::tempdir().unwrap();
        let service = match language {
            "python" => Service::python(&fleet, folder.path(), &[]).await,
            _ => Service::node(&fleet, folder.path(), &[]).await,
        };
        let mut heard = overhear(&fleet, "tools.add_term").await;
        let call = fleet.submit("add_term", &fox()).key(language);
        let added = call.wait().await;
        assert_eq!(added["result"], json!({"terms": 1}), "{}", *added);
        let request = timeout(LONG, heard.next()).await.unwrap().unwrap();
        drop(heard);
        let headers = request.headers.unwrap();
        let key = headers.get("Idempotency-Key").unwrap().as_str();

        let other = asked_directly(&fleet, "another", "wolf").await;
        assert_eq!(other, json!({"terms": 2}), "{language}");
        let again = asked_directly(&fleet, key, "fox").await;
        assert_eq!(again, json!({"terms": 1}), "{language}: as the first time");
        let other = asked_directly(&fleet, "a third", "bear").await;
        assert_eq!(other, json!({"terms": 3}), "{language}: nothing was added");
        if language == "python" {
            assert_eq!(terms(&folder), 3);
            service.kill().await;
            let _service = Service::python(&fleet, folder.path(), &[]).await;
            let again = asked_directly(&fleet, key, "fox").await;
            assert_eq!(again, json!({"terms": 1}), "it knows keys after a crash");
            assert_eq!(terms(&folder), 3);
        } else {
            service.kill().await;
        }
    }
    invariants::hold(&fleet, &witness).await;
}
