//! Goal: what an operator's collector receives from one call with a retry, read back from the wire.
//!
//! One test, because logs and spans of a process are set up once.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod collector;

use collector::Collector;
use fleet::{
    ids::{CallId, ToolName, WorkerId},
    telemetry::{
        self, TelemetryOptions, fields,
        spans::{self, Step},
        trace::{self, Relation},
    },
    wire::{code::Code, trace::TraceContext},
};
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use tokio::runtime::Builder;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

#[test]
fn a_call_and_its_retry_reach_the_collector() {
    let collector = Collector::start();
    let came = TraceContext {
        traceparent: Some(format!("00-{TRACE}-b7ad6b7169203331-01")),
        tracestate: Some("vendor=1".to_owned()),
        baggage: Some("user=42".to_owned()),
    };
    let options = TelemetryOptions {
        otlp_endpoint: Some(collector.endpoint().to_owned()),
        ..TelemetryOptions::default()
    };

    // Inside a runtime, because that is where a blocking HTTP client would panic, when made or when dropped.
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let told = runtime.block_on(async {
        let telemetry = telemetry::start("test", &options).unwrap();
        let told = live(&came);
        let again = telemetry::start("test", &options);
        assert!(matches!(
            again,
            Err(telemetry::TelemetryError::AlreadyStarted)
        ));
        assert!(
            telemetry
                .metrics_text()
                .contains("target_info{service_name=\"toolfleet-test\"")
        );
        telemetry.shutdown();
        told
    });

    let spans = collector.spans();
    let named = |name: &str| -> &Span {
        let mut found = spans.iter().filter(|span| span.name == name);
        let span = found
            .next()
            .unwrap_or_else(|| panic!("no span {name} in {:?}", names(&spans)));
        assert!(found.next().is_none(), "two spans are named {name}");
        span
    };
    assert_eq!(collector.service(), "toolfleet-test");

    let accept = named("accept");
    assert_eq!(hex::encode(&accept.trace_id), TRACE);
    assert_eq!(hex::encode(&accept.parent_span_id), "b7ad6b7169203331");
    assert_eq!(attribute(accept, fields::STEP), "accept");
    assert_eq!(accept.trace_state, "vendor=1");

    let commit = named("commit");
    assert_eq!(commit.parent_span_id, accept.span_id);

    let publish = named("publish toolfleet.jobs.default");
    assert_eq!(publish.parent_span_id, accept.span_id);
    assert_eq!(publish.kind, SpanKind::Producer as i32);
    assert_eq!(attribute(publish, fields::MESSAGING_SYSTEM), "nats");
    assert_eq!(
        attribute(publish, fields::MESSAGING_DESTINATION_NAME),
        "toolfleet.jobs.default"
    );

    let attempts: Vec<&Span> = spans.iter().filter(|span| span.name == "attempt").collect();
    let [first, second] = attempts.as_slice() else {
        panic!("{:?}", names(&spans))
    };
    assert_eq!(attribute(first, fields::ATTEMPT), "1");
    assert_eq!(attribute(first, fields::CALL_ID).len(), 36);
    assert_eq!(attribute(first, fields::WORKER_ID).len(), 36);
    assert_eq!(first.parent_span_id, publish.span_id);
    assert!(first.links.is_empty());

    assert_eq!(attribute(second, fields::ATTEMPT), "2");
    assert_ne!(
        hex::encode(&second.trace_id),
        TRACE,
        "a retry has a trace of its own"
    );
    assert!(second.parent_span_id.is_empty());
    let [link] = second.links.as_slice() else {
        panic!("{:?}", second.links)
    };
    assert_eq!(
        (&link.trace_id, &link.span_id),
        (&publish.trace_id, &publish.span_id)
    );

    let tool = named("execute_tool get_weather");
    assert_eq!(tool.parent_span_id, first.span_id);
    assert_eq!(
        attribute(tool, fields::GEN_AI_OPERATION_NAME),
        "execute_tool"
    );
    assert_eq!(attribute(tool, fields::GEN_AI_TOOL_NAME), "get_weather");
    assert_eq!(
        attribute(tool, fields::GEN_AI_TOOL_CALL_ID),
        attribute(first, fields::CALL_ID)
    );
    assert_eq!(attribute(tool, fields::ERROR_TYPE), "timeout");
    assert_eq!(tool.status.as_ref().unwrap().code, StatusCode::Error as i32);

    let expected = format!("00-{TRACE}-{}-01", hex::encode(&tool.span_id));
    assert_eq!(
        told.traceparent.as_deref(),
        Some(expected.as_str()),
        "what the tool was told"
    );
    assert_eq!(told.tracestate, came.tracestate);
    assert_eq!(told.baggage, came.baggage);

    let library = spans.iter().find(|span| span.name == "of a library");
    assert!(library.is_none(), "spans of libraries stay here");
}

/// A call in small, with the spans of a real one. Returns the context that the tool was told.
fn live(came: &TraceContext) -> TraceContext {
    let call = CallId::generate();
    let tool: ToolName = "get_weather".parse().unwrap();
    let worker = WorkerId::generate();

    let accept = spans::step(Step::Accept);
    trace::set_parent(&accept, came);
    let made_in = accept.in_scope(|| {
        spans::identify(&accept, call);
        spans::step(Step::Commit).in_scope(|| {});
        let publish = spans::publish(|| "toolfleet.jobs.default.>".to_owned());
        trace::context_of(&publish, came)
    });
    drop(accept);
    assert_eq!(made_in.trace_id(), Some(TRACE));

    let attempt = |number: u32| {
        let span = spans::attempt(call, &tool, worker);
        trace::relate(&span, &made_in, Relation::of(number, true));
        spans::numbered(&span, number);
        span
    };
    let told = attempt(1).in_scope(|| {
        let execute = spans::execute_tool(call, &tool);
        spans::failed(&execute, Code::Timeout);
        execute.in_scope(|| trace::current_context(&made_in))
    });
    attempt(2)
        .in_scope(|| tracing::info_span!(target: "sqlx::query", "of a library").in_scope(|| {}));
    told
}

fn attribute(span: &Span, name: &str) -> String {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    let found = span
        .attributes
        .iter()
        .find(|attribute| attribute.key == name);
    let value = found
        .and_then(|attribute| attribute.value.as_ref())
        .and_then(|value| value.value.as_ref());
    match value {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("{name} of {} is {other:?}", span.name),
    }
}

fn names(spans: &[Span]) -> Vec<&str> {
    spans.iter().map(|span| span.name.as_str()).collect()
}
