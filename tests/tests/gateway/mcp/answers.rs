//! What a gateway answers over MCP is counted, each request once, and what is no success has a line in the log.

use std::{collections::BTreeMap, process::Stdio};

use fleet::{telemetry::metrics_text, tokens::Scope};
use fleet_tests::{
    event_source::EventSource,
    fleet::{Fleet, Spec, built},
    invariants,
    wait::{LONG, until_so},
    web::WebRequest,
    witness::{Reply, Witness},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::Command,
    time::timeout,
};

use super::{
    IN_META, legacy, modern, result, said,
    sessions::{ELICITS, beginning, calling, cancelling},
    tasks::{takes_tasks, task_of},
};
use crate::tokens::{known, token, with};

/// How often this process has answered so, by method and code.
fn counted() -> BTreeMap<(String, String), u64> {
    let text = metrics_text();
    let series = text
        .lines()
        .filter_map(|line| line.strip_prefix("toolfleet_mcp_answers_total{code=\""));
    let read = |line: &str| {
        let (code, rest) = line.split_once("\",method=\"")?;
        let (method, count) = rest.split_once("\"} ")?;
        Some(((method.to_owned(), code.to_owned()), count.parse().ok()?))
    };
    series
        .map(|line| read(line).unwrap_or_else(|| panic!("{line}")))
        .collect()
}

/// What was counted since then.
fn since(before: &BTreeMap<(String, String), u64>) -> Vec<(String, String, u64)> {
    let now = counted().into_iter();
    let more = now.map(|((method, code), count)| {
        let count = count - before.get(&(method.clone(), code.clone())).unwrap_or(&0);
        (method, code, count)
    });
    more.filter(|(_, _, count)| *count > 0).collect()
}

fn once(method: &str, code: &str) -> Vec<(String, String, u64)> {
    vec![(method.to_owned(), code.to_owned(), 1)]
}

/// Sends a request, whose answer is counted under this, and under nothing else.
async fn counts_as(request: WebRequest, method: &str, code: &str) -> Value {
    let before = counted();
    let answer = request.send().await;
    assert_eq!(since(&before), once(method, code), "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn each_answer_is_counted_once_by_its_method_and_what_it_came_to() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("look", "read") + "timeout: 60s\nretry: {max_attempts: 1}\n",
        witness.tool("charge", "once") + "timeout: 500ms\n",
        witness.tool("slow", "read")
            + "timeout: 60s\nretry: {max_attempts: 1}\nmcp: {task: preferred}\n",
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let ann = token(&fleet, "ann", "default", &[Scope::Call, Scope::Read], "*").await;
    let reader = token(&fleet, "reader", "default", &[Scope::Read], "*").await;
    for held in [&ann, &reader] {
        known(web, held).await;
    }
    let (new, old) = (modern(web), legacy(web));
    witness.always("no", Reply::No("the card is blocked"));
    witness.always("doubt", Reply::DoneThenHang);
    let look = |what: &str| new.calling("look", &json!({ "what": what }).to_string(), "");
    let wrong_version = old
        .request("1", "tools/list", "", "")
        .header("MCP-Protocol-Version", "2025-11-25");
    for (request, method, code) in [
        (
            new.request("1", "server/discover", "", ""),
            "server/discover",
            "ok",
        ),
        (beginning(web, "{}"), "initialize", "ok"),
        (old.request("1", "ping", "", ""), "ping", "ok"),
        (new.request("1", "ping", "", ""), "ping", "not_found"),
        (old.request("1", "tools/none", "", ""), "other", "not_found"),
        (new.request("1", "tools/list", "", ""), "tools/list", "ok"),
        (
            new.request("1", "tools/list", r#""cursor":7"#, ""),
            "tools/list",
            "invalid_arguments",
        ),
        (
            new.request("1", "resources/list", "", ""),
            "resources/list",
            "ok",
        ),
        (
            new.request("1", "prompts/list", "", ""),
            "prompts/list",
            "ok",
        ),
        (
            old.request("1", "resources/read", r#""uri":"x://y""#, ""),
            "resources/read",
            "not_found",
        ),
        (
            old.request("1", "prompts/get", r#""name":"none""#, ""),
            "prompts/get",
            "not_found",
        ),
        // A header that stands there twice.
        (wrong_version, "tools/list", "header_invalid"),
        (look("yes"), "tools/call", "ok"),
        (look("no"), "tools/call", "tool_error"),
        (
            new.calling("look", "{}", ""),
            "tools/call",
            "invalid_arguments",
        ),
        (
            new.calling("nothing", "{}", ""),
            "tools/call",
            "unknown_tool",
        ),
        (
            new.calling("charge", r#"{"what":"doubt"}"#, ""),
            "tools/call",
            "in_doubt",
        ),
        (
            new.calling("toolfleet_get", r#"{"call_id":"x"}"#, ""),
            "tools/call",
            "invalid_id",
        ),
        // What is no message, and what was refused before it was read.
        (
            old.request("1", "x", "", "")
                .header("Content-Type", "text/plain"),
            "other",
            "header_invalid",
        ),
        (
            look("yes").header("Toolfleet-Tenant", "beta"),
            "other",
            "forbidden",
        ),
        (look(&"a".repeat(1_200_000)), "other", "payload_too_large"),
    ] {
        counts_as(with(request, &ann), method, code).await;
    }
    let no_json = web
        .post("/mcp", "{]")
        .header("Content-Type", "application/json");
    counts_as(with(no_json, &ann), "other", "malformed_json").await;
    counts_as(with(look("yes"), &reader), "tools/call", "forbidden").await;

    // Who has no token is known to nobody; and what is no request has no answer.
    let before = counted();
    assert_eq!(look("yes").send().await.status, 401);
    let answer = with(beginning(web, ELICITS), &ann).send().await;
    let session = answer.header("Mcp-Session-Id").to_owned();
    assert_eq!(since(&before), once("initialize", "ok"));
    let before = counted();
    let notice = with(cancelling(web, &session, &json!(7)), &ann);
    assert_eq!(notice.send().await.status, 202);
    assert_eq!(since(&before), []);

    // A stream counts with its answer.
    for (what, code) in [("yes", "ok"), ("no", "tool_error")] {
        let before = counted();
        let arguments = json!({ "what": what }).to_string();
        let request = new.calling("look", &arguments, r#""progressToken":"t""#);
        let mut stream = EventSource::open(with(request, &ann)).await;
        let blocks = stream.rest().await;
        assert!(stream.is_complete, "{blocks:?}");
        assert_eq!(since(&before), once("tools/call", code));
    }

    // A call that goes on; and a request that is cancelled, which has no answer.
    witness.always("long", Reply::DoneWhenReleased);
    let before = counted();
    let long = with(calling(web, &session, "look", "long"), &ann);
    let (cancelled, ()) = tokio::join!(long.send(), async {
        witness.until_asked("long", 1).await;
        let call = witness.look(|seen| {
            let mut asked = seen.requests.iter();
            let asked = asked.find(|request| request.what == "long").unwrap();
            asked.header("toolfleet-call-id").to_owned()
        });
        let get = json!({ "call_id": call, "wait_s": 0 }).to_string();
        let get = new.calling("toolfleet_get", &get, "");
        counts_as(with(get, &ann), "tools/call", "open").await;
        with(cancelling(web, &session, &json!(1)), &ann)
            .send()
            .await;
    });
    assert_eq!(cancelled.status, 202);
    assert_eq!(since(&before), once("tools/call", "open"));

    // A task counts by its call once that is over.
    let client = takes_tasks(web);
    let slow = r#""name":"slow","arguments":{"what":"task"}"#;
    let slow = client
        .request("tools/call", slow)
        .header("Mcp-Name", "slow");
    witness.always("task", Reply::StatusWhenReleased(500));
    let created = counts_as(with(slow, &ann), "tools/call", "ok").await;
    let task = task_of(&created["result"]);
    let of_task = |method: &str| {
        let params = json!({ "taskId": task }).to_string();
        let params = params.trim_matches(['{', '}']).to_owned();
        with(
            client.request(method, &params).header("Mcp-Name", &task),
            &ann,
        )
    };
    counts_as(of_task("tasks/get"), "tasks/get", "ok").await;
    witness.release("task");
    fleet.until_state(task.parse().unwrap(), "failed").await;
    let before = counted();
    let failed = result(&of_task("tasks/get").send().await);
    let error = said(&failed)["error"]["code"].as_str().unwrap().to_owned();
    assert_eq!(failed["result"]["isError"], true, "{failed}");
    assert_eq!(since(&before), once("tasks/get", &error));

    // A subscription counts when it begins.
    let before = counted();
    let listen = r#""notifications":{"toolsListChanged":true}"#;
    let listen = new.request("1", "subscriptions/listen", listen, "");
    let stream = EventSource::open(with(listen, &ann)).await;
    assert_eq!(since(&before), once("subscriptions/listen", "ok"));
    drop(stream);
    until_so("the witness to be left alone", async || {
        witness.look(|seen| seen.running == 0)
    })
    .await;
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_success_has_a_line_that_says_whose_it_was_and_nothing_of_what_was_asked() {
    let fleet = Fleet::start(Spec::with([])).await;
    let mut child = Command::new(built("fleet_tests_toolfleet"))
        .args(["mcp", "serve", "--principal", "ann"])
        .args(["--log", "info,gateway::mcp=debug", "--log-format", "json"])
        .env("NATS_URL", fleet.nats_url())
        .env_remove("DATABASE_URL")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // The gateway answers all of them itself.
    for (method, params) in [
        ("server/discover", String::new()),
        (
            "tools/call",
            r#""name":"toolfleet_get","arguments":{"call_id":"hunter2"},"#.to_owned(),
        ),
        ("tools/hunter2", String::new()),
    ] {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":"{method}","method":"{method}","params":{{{params}"_meta":{{{IN_META}}}}}}}"#
        );
        input.write_all(line.as_bytes()).await.unwrap();
        input.write_all(b"\n").await.unwrap();
    }
    input.write_all(b"hunter2\n").await.unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    for _answer in 0..4 {
        let answer = timeout(LONG, answers.next_line()).await;
        assert!(answer.expect("an answer in time").unwrap().is_some());
    }
    drop(input);
    let ended = timeout(LONG, child.wait_with_output()).await;
    let ended = ended.expect("it ends").unwrap();
    assert_eq!(ended.status.code(), Some(0));
    let log = String::from_utf8(ended.stderr).unwrap();
    assert!(!log.contains("hunter2"), "{log}");
    let lines = log.lines().filter_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        (line["target"] == "gateway::mcp::answered").then_some(line)
    });
    let mut lines: Vec<[Value; 5]> = lines
        .map(|line| {
            ["level", "method", "code", "tenant", "principal"].map(|name| line[name].clone())
        })
        .collect();
    lines.sort_by_key(|line| format!("{line:?}"));
    let expected = [
        ("other", "malformed_json"),
        ("other", "not_found"),
        ("tools/call", "invalid_id"),
    ];
    let expected = expected
        .map(|(method, code)| ["DEBUG", method, code, "default", "ann"].map(|word| json!(word)));
    assert_eq!(lines, expected, "{log}");
}
