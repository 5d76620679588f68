//! Programs that are MCP servers and start slowly, hang, close their output, ask, or get another secret; servers over HTTP that become
//! others.

use std::{fs, path::Path, time::Duration};

use fleet::{
    call::Effect,
    outcome::{Outcome, OutcomeWord},
    secrets::Secrets,
    wire::code::Code,
};
use fleet_tests::wait::until_so;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};
use worker::executors::{Executor, Prepared, Returned};

use super::{
    mcp::{SERVER, start},
    mcp_scene::{Scene, manifest, word},
};

const AMPLE: Duration = Duration::from_secs(20);
/// As long as a program that is silent is waited for, and a little.
const PATIENT: Duration = Duration::from_secs(60);

/// A program that needs three seconds to start.
fn slow_to_start(revision: &str) -> Scene {
    let server = tempfile::tempdir().unwrap();
    let folder = server.path().to_str().unwrap();
    let command = format!("sleep 3; exec python3 {SERVER} stdio {revision} {folder}");
    let transport = json!({"stdio": {"command": ["sh", "-c", command]}});
    Scene::of(server, None, &transport, "refuse")
}

fn exists(pid: &str) -> bool {
    Path::new("/proc").join(pid).exists()
}

/// Calls until the server is there again: until then nothing of a call starts.
async fn until_applied(scene: &Scene, tool: &str, effect: Effect) {
    let until = Instant::now() + PATIENT;
    loop {
        let outcome = scene.run(tool, effect).await;
        match word(&outcome) {
            (OutcomeWord::Applied, None) => return,
            (OutcomeWord::NotStarted, Some(Code::Unavailable | Code::Timeout)) => {
                assert!(Instant::now() < until, "it is there again: {outcome:?}");
            }
            other => panic!("{other:?}"),
        }
    }
}

fn result(returned: Returned) -> Value {
    match returned.outcome {
        Outcome::Applied { result, .. } => serde_json::from_str(result.get()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_starts_slowly_is_known_for_what_it_is() {
    let slow = async |revision| {
        let scene = slow_to_start(revision);
        // The time of one call is too short for it, and does not end it.
        let short = conformance::context(Duration::from_millis(500));
        let returned = scene.run_in("count", Effect::Once, short).await;
        assert_eq!(
            word(&returned.outcome),
            (OutcomeWord::NotStarted, Some(Code::Timeout))
        );
        let outcome = scene.run("count", Effect::Once).await;
        assert_eq!(
            word(&outcome),
            (OutcomeWord::Applied, None),
            "{revision} {outcome:?}"
        );
        assert_eq!((scene.effects(), scene.pids().len()), (1, 1), "{revision}");
    };
    tokio::join!(slow("modern"), slow("legacy"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_answers_nothing_any_more_is_started_again() {
    let frozen = async |revision| {
        let scene = Scene::stdio(revision);
        until_applied(&scene, "count", Effect::Once).await;
        let pids = scene.pids();
        fs::write(scene.path(&format!("{}.frozen", pids[0])), "").unwrap();
        let short = conformance::context(Duration::from_millis(300));
        let returned = scene.run_in("echo", Effect::Read, short).await;
        assert_eq!(
            word(&returned.outcome),
            (OutcomeWord::Unknown, Some(Code::Timeout))
        );
        until_applied(&scene, "count", Effect::Once).await;
        assert_eq!((scene.effects(), scene.pids().len()), (2, 2), "{revision}");
        assert!(!exists(&pids[0]));
    };
    tokio::join!(frozen("modern"), frozen("legacy"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_closes_its_output_has_ended() {
    let scene = Scene::stdio("modern");
    let began = Instant::now();
    let outcome = scene.run("mute", Effect::Read).await;
    assert_eq!(
        word(&outcome),
        (OutcomeWord::Unknown, Some(Code::Unavailable)),
        "{outcome:?}"
    );
    assert!(began.elapsed() < AMPLE / 2, "nobody waits for the deadline");
    let first = scene.pids();
    until_applied(&scene, "count", Effect::Once).await;
    assert_eq!(scene.pids().len(), 2);
    assert!(!exists(&first[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_over_http_that_becomes_another_is_asked_what_it_is() {
    let becomes = async |before, after, always_200| {
        let server = tempfile::tempdir().unwrap();
        let (child, port) = start(before, server.path());
        fs::write(server.path().join("port"), port.to_string()).unwrap();
        if always_200 {
            fs::write(server.path().join("always-200"), "").unwrap();
        }
        let url = format!("http://127.0.0.1:{port}/mcp");
        let transport = json!({"http": {"url": url}});
        let mut scene = Scene::of(server, Some(child), &transport, "refuse");
        until_applied(&scene, "count", Effect::Once).await;
        let mut child = scene.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        scene.child = Some(start(after, scene.path("").as_path()).0);
        let until = Instant::now() + PATIENT;
        while scene.run("echo", Effect::Read).await.word() != OutcomeWord::Applied {
            assert!(Instant::now() < until, "{before} {after} {always_200}");
        }
        until_applied(&scene, "count", Effect::Once).await;
        assert_eq!(scene.effects(), 2, "{before} {after} {always_200}");
    };
    tokio::join!(
        becomes("modern", "legacy", false),
        becomes("modern", "legacy", true),
        becomes("legacy", "modern", false),
        becomes("legacy", "modern", true),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_gets_another_secret_and_neither_is_told() {
    let server = tempfile::tempdir().unwrap();
    let command = json!(["python3", SERVER, "stdio", "modern", server.path()]);
    let transport = json!({"stdio": {"command": command, "env": {"TOKEN": "secret://TOKEN"}}});
    let mut scene = Scene::of(server, None, &transport, "refuse");
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("TOKEN");
    scene.secrets = Secrets::new(Some(folder.path().to_owned()));
    fs::write(&token, "the-first-secret").unwrap();
    let mut calls = JoinSet::new();
    let run = |prepared: Box<dyn Prepared>| prepared.run(conformance::context(AMPLE));
    let begun = async |count| {
        until_so("the calls to begin", async || scene.begun() == count).await;
    };

    calls.spawn(run(scene.prepared("tell", Effect::Read)));
    begun(1).await;
    let first = scene.pids();
    // It has the older secret, and comes late.
    let late = scene.prepared("tell", Effect::Read);
    fs::write(&token, "the-second-one").unwrap();
    calls.spawn(run(scene.prepared("tell", Effect::Read)));
    begun(2).await;
    calls.spawn(run(late));
    begun(3).await;
    assert_eq!(scene.pids().len(), 2, "a new program has the new secret");
    assert!(exists(&first[0]), "the old one still has a call");
    fs::write(scene.path("tell"), "").unwrap();
    while let Some(call) = calls.join_next().await {
        assert_eq!(result(call.unwrap()), json!("the token is [secret]"));
    }
    until_so("the old one to end with its last call", async || {
        !exists(&first[0])
    })
    .await;
    assert_eq!(scene.pids().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_asks_during_a_call_is_answered_and_bounded() {
    for revision in ["modern", "legacy"] {
        let scene = Scene::stdio(revision);
        let context = conformance::context(AMPLE);
        let replies = result(scene.run_in("pings", Effect::Read, context).await);
        let mut replies = replies.as_array().unwrap().clone();
        replies.sort_by_key(|reply| reply["id"].to_string());
        for (number, reply) in replies[..3].iter().enumerate() {
            assert_eq!(
                *reply,
                json!({"jsonrpc": "2.0", "id": format!("p-{number}"), "result": {}})
            );
        }
        assert_eq!(
            (&replies[3]["id"], &replies[3]["error"]["code"]),
            (&json!("r-1"), &json!(-32601))
        );
        let outcome = scene.run("noise", Effect::Read).await;
        assert_eq!(word(&outcome), (OutcomeWord::Applied, None), "{outcome:?}");
    }
    let scene = Scene::http("modern");
    let outcome = scene.run("pings", Effect::Read).await;
    assert_eq!(word(&outcome), (OutcomeWord::Applied, None), "{outcome:?}");
    let replies = fs::read_to_string(scene.path("replies")).unwrap();
    assert_eq!(replies.lines().count(), 32);
}

#[test]
fn a_program_for_each_call_takes_a_slot_of_programs() {
    for (lifetime, takes) in [("call", true), ("shared", false)] {
        let transport = json!({"stdio": {"command": ["x"], "lifetime": lifetime}});
        let scene = Scene::of(tempfile::tempdir().unwrap(), None, &transport, "refuse");
        let tool = manifest("count", Effect::Once);
        assert_eq!(scene.executor.is_program(&tool), takes, "{lifetime}");
    }
    let transport = json!({"http": {"url": "http://127.0.0.1:9/mcp"}});
    let scene = Scene::of(tempfile::tempdir().unwrap(), None, &transport, "refuse");
    assert!(!scene.executor.is_program(&manifest("count", Effect::Once)));
}
