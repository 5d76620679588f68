//! The same over a pipe: `toolfleet mcp serve`, the real program, without Postgres.

use std::{
    process::{ExitStatus, Stdio},
    time::Duration,
};

use fleet::ids::CallId;
use fleet_tests::{
    fleet::{Fleet, Spec, built},
    invariants,
    wait::{LONG, until_so},
    witness::{Reply, Witness},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use super::{IN_META, said, texts};

/// A server and the client that has started it.
struct Piped {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Piped {
    fn start(fleet: &Fleet, flags: &[&str]) -> Self {
        let mut child = Command::new(built("fleet_tests_toolfleet"))
            .args(["mcp", "serve", "--log", "debug"])
            .args(flags)
            .env("NATS_URL", fleet.nats_url())
            .env_remove("DATABASE_URL")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Self {
            input: child.stdin.take(),
            child,
            output,
        }
    }

    async fn write(&mut self, text: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(text.as_bytes()).await.unwrap();
        input.flush().await.unwrap();
    }

    /// A request of the newest revision with these parameters.
    async fn send(&mut self, id: u32, method: &str, params: &str) {
        let comma = if params.is_empty() { "" } else { "," };
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{{{params}{comma}\"_meta\":{{{IN_META}}}}}}}\n"
        );
        self.write(&line).await;
    }

    async fn call(&mut self, id: u32, tool: &str, arguments: &str) {
        let params = format!(r#""name":"{tool}","arguments":{arguments}"#);
        self.send(id, "tools/call", &params).await;
    }

    /// The next answer.
    async fn hear(&mut self) -> Value {
        let line = timeout(LONG, self.output.next_line()).await;
        let line = line.expect("an answer in time").unwrap();
        serde_json::from_str(&line.expect("an answer")).unwrap()
    }

    async fn result(&mut self, id: u32) -> Value {
        let heard = self.hear().await;
        assert_eq!(heard["id"], id, "{heard}");
        assert!(heard["error"].is_null(), "{heard}");
        heard["result"].clone()
    }

    async fn error(&mut self) -> i64 {
        let heard = self.hear().await;
        heard["error"]["code"].as_i64().unwrap()
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id().unwrap()).unwrap();
        kill(Pid::from_raw(id), signal).unwrap();
    }

    /// Waits until it has ended, and returns what it wrote last.
    async fn ended(mut self) -> (ExitStatus, String) {
        let mut last = String::new();
        let mut output = self.output.into_inner();
        let read = timeout(LONG, output.read_to_string(&mut last)).await;
        read.expect("it ends").unwrap();
        let ended = timeout(LONG, self.child.wait()).await;
        (ended.expect("it ends").unwrap(), last)
    }
}

fn call_of(witness: &Witness, what: &str) -> CallId {
    witness.look(|seen| {
        let asked = seen.requests.iter().find(|request| request.what == what);
        asked.unwrap().header("toolfleet-call-id").parse().unwrap()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_either_revision_lists_and_calls_over_a_pipe() {
    let witness = Witness::start().await;
    let tools = [
        witness
            .tool("look", "read")
            .replace("properties: {what", "properties: {n: {}, what"),
        witness.tool("charge", "once"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let mut client = Piped::start(&fleet, &["--principal", "ann"]);
    client.send(1, "server/discover", "").await;
    let discovered = client.result(1).await;
    assert_eq!(discovered["supportedVersions"][0], "2026-07-28");
    client.send(2, "tools/list", "").await;
    let listed = client.result(2).await;
    let names: Vec<&str> = listed["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["charge", "look", "toolfleet_get"]);
    // Byte for byte.
    let sent = r#"{"what" : "bytes", "n":[9007199254740993, 1.10, 1E2]}"#;
    client.call(3, "look", sent).await;
    let done = client.result(3).await;
    assert_eq!(done["structuredContent"], json!({"done": "bytes"}));
    witness.look(|seen| {
        let body = String::from_utf8(seen.requests[0].body.to_vec()).unwrap();
        assert!(
            body.contains("9007199254740993") && body.contains("1.10"),
            "{body}"
        );
    });
    client.call(4, "look", r#"{"what":"a","what":"b"}"#).await;
    let twice = client.result(4).await;
    assert_eq!(said(&twice)["error"]["code"], "duplicate_key", "{twice}");
    // The same request is the same call, whoever serves it.
    client.call(5, "charge", r#"{"what":"once"}"#).await;
    let first = client.result(5).await;
    let mut again = Piped::start(&fleet, &["--principal", "ann"]);
    // An older client greets first.
    again
        .write("{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"tools/list\"}\n")
        .await;
    assert_eq!(again.error().await, -32_602);
    again
        .write(
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-11-25\"}}\n\
             {\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n\n\
             {\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/call\",\"params\":{\"name\":\"charge\",\"arguments\":{\"what\":\"once\"}}}\n",
        )
        .await;
    let (mut version, mut second) = (Value::Null, Value::Null);
    for _answer in 0..2 {
        let heard = again.hear().await;
        match heard["id"].as_u64() {
            Some(1) => version = heard["result"]["protocolVersion"].clone(),
            _ => second = heard["result"].clone(),
        }
    }
    assert_eq!(version, "2025-11-25");
    assert_eq!(said(&second)["id"], said(&first)["id"]);
    assert_eq!(witness.applied("once"), 1);
    let call: CallId = said(&first)["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(fleet.call(call).await["meta"]["principal"], "ann");
    for mut one in [client, again] {
        drop(one.input.take());
        let (ended, last) = one.ended().await;
        assert_eq!((ended.code(), last.as_str()), (Some(0), ""));
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_message_says_so_and_the_next_one_is_answered() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let mut client = Piped::start(&fleet, &[]);
    for (line, number) in [
        ("{".to_owned(), -32_700),
        ("[]".to_owned(), -32_600),
        (format!("\"{}\"", "a".repeat(400_000)), -32_600),
        ("{}".to_owned(), -32_600),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"1900-01-01"}}}"#
                .to_owned(),
            -32_022,
        ),
    ] {
        client.write(&line).await;
        client.write("\n").await;
        assert_eq!(client.error().await, number);
    }
    client.send(7, "tools/none", "").await;
    assert_eq!(client.error().await, -32_601);
    // One id at a time.
    witness.always("slow", Reply::DoneWhenReleased);
    client.call(8, "look", r#"{"what":"slow"}"#).await;
    witness.until_asked("slow", 1).await;
    client.call(8, "look", r#"{"what":"other"}"#).await;
    assert_eq!(client.error().await, -32_600);
    witness.release("slow");
    client.result(8).await;
    client.call(8, "look", r#"{"what":"other"}"#).await;
    client.result(8).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_many_requests_are_at_work_and_a_further_one_is_overloaded() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read") + "timeout: 60s\n"];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let mut client = Piped::start(&fleet, &[]);
    witness.always("slow", Reply::DoneWhenReleased);
    for id in 1..=64 {
        client.call(id, "look", r#"{"what":"slow"}"#).await;
    }
    client.send(65, "tools/list", "").await;
    let refused = client.hear().await;
    assert_eq!(
        (&refused["id"], &refused["error"]["code"]),
        (&json!(65), &json!(-32_603)),
        "{refused}"
    );
    assert_eq!(refused["error"]["data"]["code"], "overloaded", "{refused}");
    // What is cancelled, and what is answered, is a place again.
    client
        .write("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}\n")
        .await;
    let mut id = 65;
    let listed = loop {
        id += 1;
        client.send(id, "tools/list", "").await;
        let heard = client.hear().await;
        if heard["error"].is_null() {
            break heard;
        }
    };
    assert!(listed["result"]["tools"].is_array(), "{listed}");
    witness.release("slow");
    for _answer in 2..=64 {
        let heard = client.hear().await;
        assert!(heard["error"].is_null(), "{heard}");
    }
    client.send(1_000, "tools/list", "").await;
    client.result(1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_its_client_gives_up_has_its_call_cancelled_and_no_answer() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read") + "timeout: 60s\n"];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let mut client = Piped::start(&fleet, &[]);
    for what in ["given_up", "kept", "hung_up"] {
        witness.always(what, Reply::DoneWhenReleased);
    }
    client.call(1, "look", r#"{"what":"given_up"}"#).await;
    client.call(2, "look", r#"{"what":"kept"}"#).await;
    witness.until_asked("given_up", 1).await;
    witness.until_asked("kept", 1).await;
    client
        .write("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}\n")
        .await;
    fleet
        .until_state(call_of(&witness, "given_up"), "cancelled")
        .await;
    witness.release("kept");
    let kept = client.result(2).await;
    assert_eq!(texts(&kept), [r#"{"done":"kept"}"#]);
    // Who closes its end gives up everything.
    client.call(3, "look", r#"{"what":"hung_up"}"#).await;
    witness.until_asked("hung_up", 1).await;
    drop(client.input.take());
    let (ended, last) = client.ended().await;
    assert_eq!((ended.code(), last.as_str()), (Some(0), ""));
    fleet
        .until_state(call_of(&witness, "hung_up"), "cancelled")
        .await;
    // A quick request is answered all the same.
    let mut quick = Piped::start(&fleet, &[]);
    quick.send(1, "tools/list", "").await;
    drop(quick.input.take());
    let (ended, last) = quick.ended().await;
    assert_eq!(ended.code(), Some(0));
    assert!(last.contains("\"look\""), "{last}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_is_told_to_stop_says_where_its_calls_stand_and_leaves_them_alone() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read") + "timeout: 60s\n"];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let mut client = Piped::start(&fleet, &[]);
    witness.always("slow", Reply::DoneWhenReleased);
    client.call(1, "look", r#"{"what":"slow"}"#).await;
    witness.until_asked("slow", 1).await;
    client.signal(Signal::SIGTERM);
    let standing = client.result(1).await;
    assert!(texts(&standing)[0].contains("Still at work"), "{standing}");
    let (ended, _last) = client.ended().await;
    assert_eq!(ended.code(), Some(0));
    witness.release("slow");
    fleet
        .until_state(call_of(&witness, "slow"), "succeeded")
        .await;
    // Without a fleet it says so, and does not hang.
    let mut alone = Command::new(built("fleet_tests_toolfleet"));
    alone
        .args(["mcp", "serve", "--nats-url", "nats://127.0.0.1:1"])
        .stdin(Stdio::null());
    let ended = timeout(Duration::from_secs(30), alone.status()).await;
    assert_eq!(ended.unwrap().unwrap().code(), Some(69));
    until_so("the call to be over", async || {
        fleet.call(call_of(&witness, "slow")).await["state"] == "succeeded"
    })
    .await;
}
