//! Goal: one call, followed by its trace from the caller through dispatcher and worker to the tool and into history.
//!
//! One test, because spans of a process are set up once.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

#[path = "../../fleet/tests/collector/mod.rs"]
mod collector;

use collector::Collector;
use fleet::telemetry::{self, TelemetryOptions};
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    witness::{Reply, Witness},
};
use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::json;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const OTHER: &str = "1af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_one_trace_from_its_caller_to_its_tool() {
    let collector = Collector::start();
    let options = TelemetryOptions {
        log: "off".to_owned(),
        otlp_endpoint: Some(collector.endpoint().to_owned()),
        ..TelemetryOptions::default()
    };
    let telemetry = telemetry::start("fleet", &options).unwrap();

    let witness = Witness::start().await;
    let retry = "retry: {strategy: fixed, max_attempts: 2, base: 10ms}\n";
    let trusted = Witness::start().await;
    let tools = [
        witness.tool("look", "read") + retry,
        trusted.tool("listen", "read") + "baggage: true\n",
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let submit = async |what: &str| {
        let call = fleet.submit("look", &json!({"what": what}));
        let call = call.header("traceparent", &format!("00-{TRACE}-{CALLER}-01"));
        call.header("tracestate", "vendor=1")
            .header("baggage", "user=42")
            .wait()
            .await
    };
    let answer = submit("a").await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    witness.first("again", [Reply::Status(503)]);
    let again = submit("again").await;
    assert_eq!(again["attempts"], 2, "{}", *again);
    for call in [answer.call_id(), again.call_id()] {
        assert_eq!(fleet.call(call).await["trace_id"], TRACE);
    }
    let call = fleet.submit("listen", &json!({"what": "a"}));
    let call = call.header("traceparent", &format!("00-{OTHER}-{CALLER}-01"));
    let answer = call.header("baggage", "user=42").wait().await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    trusted.look(|seen| assert_eq!(seen.requests[0].header("baggage"), "user=42"));
    invariants::hold(&fleet, &witness).await;
    drop(fleet);
    tokio::task::spawn_blocking(|| telemetry.shutdown())
        .await
        .unwrap();
    assert_eq!(collector.service(), "toolfleet-fleet");

    let spans = collector.spans();
    let of_call = |name: &str| -> Vec<&Span> {
        let named = spans.iter().filter(|span| span.name == name);
        named
            .filter(|span| hex::encode(&span.trace_id) == TRACE)
            .collect()
    };
    // Two calls; the second attempt of one of them has a trace of its own.
    for step in [
        "accept", "validate", "commit", "publish", "attempt", "gate", "claim", "ack", "execute",
        "complete", "reply",
    ] {
        let found = of_call(step).len();
        let expected = if step == "reply" { 1..=2 } else { 2..=2 };
        assert!(
            expected.contains(&found),
            "{found} spans {step} in {:?}",
            names(&spans)
        );
    }
    for accept in of_call("accept") {
        assert_eq!(hex::encode(&accept.parent_span_id), CALLER);
    }
    let of_other = |span: &&Span| hex::encode(&span.trace_id) == OTHER;
    let attempts = spans.iter().filter(|span| span.name == "attempt");
    let attempts: Vec<&Span> = attempts.filter(|span| !of_other(span)).collect();
    assert_eq!(attempts.len(), 3, "{:?}", names(&spans));
    let apart: Vec<_> = attempts
        .iter()
        .filter(|span| hex::encode(&span.trace_id) != TRACE)
        .collect();
    let [retried] = apart.as_slice() else {
        panic!("{apart:?}")
    };
    assert_eq!(hex::encode(&retried.links[0].trace_id), TRACE);

    let told = witness.look(|seen| {
        let headers = seen.requests.iter().map(|request| {
            let told = request.header("traceparent").to_owned();
            // The state belongs to the caller's trace. The baggage goes only to a tool whose manifest wants it.
            let state = if told.contains(TRACE) { "vendor=1" } else { "" };
            assert_eq!(request.header("tracestate"), state);
            assert_eq!(request.header("baggage"), "");
            told
        });
        headers.collect::<Vec<_>>()
    });
    for (told, trace) in told
        .iter()
        .zip([TRACE, TRACE, &hex::encode(&retried.trace_id)])
    {
        let tool = spans.iter().filter(|span| span.name == "execute_tool look");
        let mut parents = tool.map(|span| {
            format!(
                "00-{}-{}-01",
                hex::encode(&span.trace_id),
                hex::encode(&span.span_id)
            )
        });
        assert!(
            told.contains(trace) && parents.any(|parent| parent == *told),
            "{told}"
        );
    }
}

fn names(spans: &[Span]) -> Vec<&str> {
    spans.iter().map(|span| span.name.as_str()).collect()
}
