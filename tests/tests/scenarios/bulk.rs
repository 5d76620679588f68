//! `toolfleet call --bulk`: a file of calls, sent by the real program, interrupted and sent again.

use std::{fs, path::Path, process::Stdio, time::Duration};

use fleet_tests::{
    fleet::{Fleet, Spec, built},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use futures_util::StreamExt;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tokio::{process::Command, time::timeout};

const CALLS: &str = "SELECT count(*) FROM toolfleet.calls";
const PATIENCE: Duration = Duration::from_secs(90);

fn bulk(fleet: &Fleet, file: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(built("fleet_tests_toolfleet"));
    let arguments = ["call", "--bulk", file.to_str().unwrap()];
    command
        .args(arguments)
        .args(flags)
        .env("NATS_URL", fleet.nats_url());
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

struct Ran {
    code: Option<i32>,
    answers: Vec<Value>,
    err: String,
}

async fn run(mut command: Command) -> Ran {
    let output = timeout(PATIENCE, command.output())
        .await
        .expect("it ends")
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    Ran {
        code: output.status.code(),
        answers: text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_sent_again_doubles_nothing_and_says_what_was_refused() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read"), witness.tool("charge", "once")];
    let fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("no", Reply::No("not today"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("calls.jsonl");
    // The same line twice is two calls; TOOL is for lines that name none.
    let lines = [
        r#"{"args":{"what":"same"}}"#,
        r#"{"args":{"what":"same"}}"#,
        "",
        r#"{"tool":"look","args":{"what":"look","n":9007199254740993}}"#,
        r#"{"args":{"what":"no"},"idempotency_key":"mine"}"#,
        r#"{"args":{"what":[7,8]}}"#,
        "not json",
        r#"{"args":{"what":"colour"},"colour":"red"}"#,
    ];
    fs::write(&file, lines.join("\n")).unwrap();
    let first = run(bulk(&fleet, &file, &["charge", "--wait-all", "60"])).await;
    assert_eq!(first.code, Some(1), "{}", first.err);
    let told: Vec<(u64, &str, &str)> = first
        .answers
        .iter()
        .map(|answer| {
            let envelope = &answer["answer"];
            (
                answer["line"].as_u64().unwrap(),
                envelope["state"].as_str().unwrap(),
                envelope["error"]["code"].as_str().unwrap_or_default(),
            )
        })
        .collect();
    // A line that was not sent is answered when it is read.
    assert_eq!(
        told,
        [
            (7, "refused", "malformed_json"),
            (1, "queued", ""),
            (2, "queued", ""),
            (4, "queued", ""),
            (5, "queued", ""),
            (6, "refused", "invalid_arguments"),
            (8, "refused", "invalid_arguments"),
        ]
    );
    assert!(
        first.err.ends_with(
            "7 lines: 4 accepted, 0 there already, 3 refused (2 invalid_arguments, 1 malformed_json); 1 failed, 3 succeeded\n"
        ),
        "{}",
        first.err
    );
    let again = run(bulk(&fleet, &file, &["charge", "--json"])).await;
    let summary = &again.answers.last().unwrap()["summary"];
    assert_eq!(
        (
            &summary["accepted"],
            &summary["already_there"],
            &summary["refused"]
        ),
        (&json!(0), &json!(4), &json!(3))
    );
    assert_eq!(again.err, "", "a program reads no progress");
    assert_eq!((witness.applied("same"), witness.asked("no")), (2, 1));
    assert_eq!(fleet.count(CALLS).await, 4);
    let other = run(bulk(
        &fleet,
        &file,
        &["charge", "--key-prefix", "tuesday", "--json"],
    ))
    .await;
    let summary = &other.answers.last().unwrap()["summary"];
    assert_eq!(
        (&summary["accepted"], &summary["already_there"]),
        (&json!(3), &json!(1))
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_was_interrupted_goes_on_where_it_was() {
    const LINES: usize = 6_000;
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("charge", "once")]).workers(0, &[]);
    let fleet = Fleet::start(spec).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("calls.jsonl");
    let line = |n: usize| json!({"tool": "charge", "args": {"what": format!("n{n}")}}).to_string();
    let text: Vec<String> = (0..LINES).map(line).collect();
    fs::write(&file, text.join("\n") + "\n").unwrap();
    let out = folder.path().join("answers.jsonl");
    let flags = ["--out", out.to_str().unwrap()];
    let mut interrupted = bulk(&fleet, &file, &flags)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until_so("some to be accepted", async || {
        fleet.count(CALLS).await >= 1_000
    })
    .await;
    let pid = i32::try_from(interrupted.id().unwrap()).unwrap();
    kill(Pid::from_raw(pid), Signal::SIGINT).unwrap();
    interrupted.wait().await.unwrap();
    let before = fleet.count(CALLS).await;
    let again = run(bulk(&fleet, &file, &[&flags[..], &["--json"]].concat())).await;
    assert_eq!(again.code, Some(0), "{}", again.err);
    assert_eq!(fleet.count(CALLS).await, i64::try_from(LINES).unwrap());
    let summary = &again.answers[0]["summary"];
    println!("interrupted with {before} of {LINES} lines accepted; again: {summary}");
    let known = summary["already_there"].as_i64().unwrap();
    // What was on its way when it was interrupted is known, too.
    assert!(known >= before && summary["refused"] == 0, "{summary}");
    let answers = fs::read_to_string(&out).unwrap();
    assert_eq!(answers.lines().count(), LINES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_passes_by_itself_is_tried_again() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("charge", "once")]).dispatchers(0);
    let mut fleet = Fleet::start(spec).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("calls.jsonl");
    fs::write(&file, r#"{"tool":"charge","args":{"what":"a"}}"#).unwrap();
    let mut heard = fleet
        .client
        .subscribe("toolfleet.v1.default.batch")
        .await
        .unwrap();
    let client = fleet.client.clone();
    let sending = bulk(&fleet, &file, &["--wait-all", "60"]);
    let (ran, ()) = tokio::join!(run(sending), async {
        // A dispatcher that is overloaded, then none.
        let request = heard.next().await.unwrap();
        let full = json!({"state": "refused", "error": {"code": "overloaded", "message": "full"}});
        let reply = request.reply.unwrap();
        client
            .publish(reply, full.to_string().into())
            .await
            .unwrap();
        heard.unsubscribe().await.unwrap();
        client.flush().await.unwrap();
        fleet.add_dispatcher().await;
    });
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(witness.applied("a"), 1);
    invariants::hold(&fleet, &witness).await;
}
