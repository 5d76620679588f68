//! Every error that a call can end with, and every layer: what came back.

use std::fmt::Write as _;

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::{Value, json};

use super::{ask, control, until_forced};

/// The layers, by the end of the names of their tools.
const LAYERS: [(&str, &str); 4] = [
    ("other", "{tool: {name: other, args: {what: other}}}"),
    ("stale", "{stale: {max_age: 1h}}"),
    ("stub", "{stub: {from: stub}}"),
    // Nothing is there.
    ("none", "{stale: {max_age: 1h}}"),
];

/// How a tool is tried, by the beginning of its name.
const TRIED: [(&str, &str); 3] = [
    ("once", "retry: {strategy: none}\n"),
    (
        "twice",
        "retry: {strategy: fixed, max_attempts: 2, base: 10ms}\n",
    ),
    (
        "late",
        "retry: {strategy: fixed, base: 30s}\ndeadline: 20s\n",
    ),
];

/// How the tool behaves, how it is tried, the code that comes of it, and the reason of what stands in, if something may.
fn cases() -> Vec<(Reply, &'static str, &'static str, Option<&'static str>)> {
    let large = format!("\"{}\"", "x".repeat(3_000));
    vec![
        (Reply::Hang, "once", "timeout", Some("timeout")),
        (
            Reply::Status(503),
            "once",
            "unavailable",
            Some("unavailable"),
        ),
        (
            Reply::Status(500),
            "once",
            "unavailable",
            Some("unavailable"),
        ),
        (
            Reply::Status(503),
            "twice",
            "retries_exhausted",
            Some("unavailable"),
        ),
        (Reply::Hang, "twice", "retries_exhausted", Some("timeout")),
        (
            Reply::Status(503),
            "late",
            "deadline_exceeded",
            Some("unavailable"),
        ),
        (Reply::No("no"), "once", "tool_error", None),
        (Reply::No("no"), "twice", "tool_error", None),
        (
            Reply::Body("no JSON".to_owned()),
            "once",
            "output_invalid",
            None,
        ),
        (Reply::Body("[]".to_owned()), "once", "output_invalid", None),
        (Reply::Body(large), "once", "output_too_large", None),
    ]
}

fn tools(witness: &Witness) -> Vec<String> {
    let mut tools = vec![witness.tool("other", "read")];
    for (tried, retry) in TRIED {
        for (layer, fallback) in LAYERS {
            let read = witness.tool(&format!("{tried}_{layer}"), "read");
            tools.push(format!(
                "{read}{retry}timeout: 500ms\noutput_limit: 2KiB\noutput_schema: {{type: object}}\nbreaker: {{calls: 1000}}\n\
                 cache: {{ttl: 1ms}}\nfallback: {fallback}\n"
            ));
        }
    }
    tools
}

/// A program that answers once and crashes from then on.
fn crashing(layer: &str, fallback: &str, flag: &std::path::Path) -> String {
    let flag = flag.display();
    let script = format!(
        "cat > /dev/null; if [ -e {flag} ]; then exit 3; fi; echo '{{\"from\": \"live\"}}'"
    );
    format!(
        "{}\nfallback: {fallback}\n",
        format_args!(
            "name: crash_{layer}\nversion: 1\ndescription: Crashes.\neffect: read\nretry: {{strategy: none}}\n\
             input_schema: {{type: object, properties: {{what: {{type: string}}}}}}\ncache: {{ttl: 1ms}}\n\
             executor: {{process: {{command: [sh, -c, {}]}}}}",
            json!(script)
        )
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_error_code_and_every_layer() {
    let witness = Witness::start().await;
    let flags = tempfile::tempdir().unwrap();
    let flag = flags.path().join("crash");
    let mut tools = tools(&witness);
    tools.extend(LAYERS.map(|(layer, fallback)| crashing(layer, fallback, &flag)));
    let fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("other", Reply::Body("{\"from\": \"other\"}".to_owned()));
    let mut table = String::new();
    let mut row = |code: &str, reason: Option<&str>, layer: &str, answer: &Value| {
        let stood_in = reason.filter(|_| layer != "none");
        let (outcome, source) = match stood_in {
            Some(_) => ("fallback", layer),
            None if code == "tool_error" => ("business_error", "live"),
            None => ("system_error", "error"),
        };
        let result = match (stood_in, layer) {
            (None, _) => Value::Null,
            (Some(_), "stale") => json!({"from": "live"}),
            (Some(_), layer) => json!({"from": layer}),
        };
        let degraded = &answer["degraded"];
        writeln!(
            table,
            "{code:<18} {layer:<6} {:<15} {:<6} {:<13} {}",
            answer["outcome"].as_str().unwrap(),
            answer["source"].as_str().unwrap(),
            degraded["reason"].as_str().unwrap_or("-"),
            answer["result"]
        )
        .unwrap();
        assert_eq!(answer["error"]["code"], code, "{layer}: {answer}");
        assert_eq!(
            (&answer["state"], &answer["outcome"], &answer["source"]),
            (&json!("failed"), &json!(outcome), &json!(source)),
            "{code} {layer}: {answer}"
        );
        assert_eq!(answer["result"], result, "{code} {layer}: {answer}");
        assert_eq!(
            degraded["reason"].as_str(),
            stood_in,
            "{code} {layer}: {answer}"
        );
        assert_eq!(answer["is_error"], stood_in.is_none(), "{code} {layer}");
    };
    for (n, (reply, tried, code, reason)) in cases().into_iter().enumerate() {
        for (layer, _) in LAYERS {
            let (tool, what) = (format!("{tried}_{layer}"), format!("{n} {layer}"));
            if layer == "stale" {
                witness.first(&what, [Reply::Body("{\"from\": \"live\"}".to_owned())]);
                assert_eq!(ask(&fleet, &tool, &what).wait().await["source"], "live");
            }
            witness.always(&what, reply.clone());
            let answer = ask(&fleet, &tool, &what).wait().await;
            row(code, reason, layer, &answer);
        }
    }
    let primed = ask(&fleet, "crash_stale", "x").wait().await;
    assert_eq!(primed["source"], "live", "{}", *primed);
    std::fs::write(&flag, "").unwrap();
    for (layer, _) in LAYERS {
        let answer = ask(&fleet, &format!("crash_{layer}"), "x").wait().await;
        row("tool_crashed", Some("tool_crashed"), layer, &answer);
    }
    witness.first("shut", [Reply::Body("{\"from\": \"live\"}".to_owned())]);
    assert_eq!(
        ask(&fleet, "once_stale", "shut").wait().await["source"],
        "live"
    );
    for (layer, _) in LAYERS {
        let tool = format!("once_{layer}");
        control(
            &fleet,
            json!({"do": "breaker", "tool": tool, "position": "open"}),
        )
        .await;
        until_forced(&fleet, &tool, true).await;
        let answer = ask(&fleet, &tool, "shut").wait().await;
        row("circuit_open", Some("circuit_open"), layer, &answer);
    }
    // What ends without its tool's word about the target has no layer at all.
    for (layer, _) in LAYERS {
        let tool = format!("twice_{layer}");
        let what = format!("cancelled {layer}");
        witness.always(&what, Reply::Hang);
        let call = ask(&fleet, &tool, &what).asynchronous().await.call_id();
        witness.until_asked(&what, 1).await;
        fleet
            .ask("toolfleet.v1.default.cancel", &json!({"call_id": call}))
            .await;
        let ended = fleet
            .get(&json!({"call_id": call, "wait_ms": 20_000}))
            .await;
        assert_eq!(
            (&ended["state"], &ended["degraded"]),
            (&json!("cancelled"), &Value::Null)
        );
        let refused = fleet.submit(&tool, &json!({})).wait().await;
        assert_eq!(
            (refused.code(), &refused["degraded"]),
            ("invalid_arguments", &Value::Null)
        );
    }
    println!("{table}");
    assert_eq!(table.lines().count(), 4 * 13);
    // A call whose time is over before any attempt expires.
    let pause = control(&fleet, json!({"do": "pause", "tool": "late_stub"})).await;
    until_so("the pause to be known", async || {
        let call = ask(&fleet, "late_stub", "expired").deadline(std::time::Duration::from_secs(1));
        let answer = call.wait().await;
        answer["state"] == "expired" && answer["degraded"].is_null()
    })
    .await;
    control(
        &fleet,
        json!({"do": "resume", "control_id": pause["control_id"]}),
    )
    .await;
    invariants::hold(&fleet, &witness).await;
}
