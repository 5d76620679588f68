//! What the pure part of a call's path may allocate: the door, a pointer, an envelope, an error.
//!
//! `cargo test -p fleet --test allocations -- --nocapture` prints what each allocates. The ledger's part is in
//! `tests/tests/allocations.rs`.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

#[path = "../benches/door/bodies.rs"]
mod bodies;
mod counting;

use fleet::{
    arguments::{Coercing, Level, Limits, Schema, parse},
    call::{CallOutcome, EffectKnown, Language, Priority, Source, State},
    canonical,
    ids::CallId,
    wire::{
        code::Code,
        envelope::{EncodedEnvelope, Envelope, EnvelopeState, Timing, no_coercions},
        error::ErrorBody,
        headers::RequestHeaders,
        message::Message,
        pointer::Pointer,
        trace::TraceContext,
    },
};
use serde_json::{Value, value::RawValue};
use sha2::{Digest, Sha256};

use self::{
    bodies::Body,
    counting::{Count, Counter, Stored, TIMES, judge},
};

/// What each allocated when it was last looked at. The limit is a tenth above.
const STORED: [Stored; 9] = [
    Stored::new("the door, 60 B", 9, 1175),
    Stored::new("the door, 1 KiB", 98, 8086),
    Stored::new("the door, 64 KiB", 2774, 335_918),
    Stored::new("headers read", 5, 152),
    // One for the tenant, which shares slots among tenants before the claim without a read; two more to read it.
    Stored::new("a pointer encoded", 3, 1551),
    Stored::new("a pointer read", 7, 1173),
    Stored::new("an envelope encoded", 1, 1538),
    Stored::new("an envelope handed on", 0, 0),
    Stored::new("a refusal made and encoded", 19, 2022),
];

const READ: Coercing<'_> = Coercing {
    level: Level::Read,
    tool: "place_order",
};

#[test]
fn the_pure_path_allocates_no_more_than_is_stored() {
    // First of all: nothing of the other test is counted here.
    let counter = Counter::start();
    let bodies = bodies::all();
    let door: Vec<_> = ["60 B", "1 KiB", "64 KiB"]
        .map(|name| bodies.iter().find(|body| body.name == name).unwrap())
        .into_iter()
        .map(|body| (compiled(body), body.text.as_bytes()))
        .collect();
    let call = CallId::generate();
    let pointer = pointer(call);
    let message = pointer.to_bytes();
    let envelope = envelope(call);
    let answer = bytes::Bytes::from(envelope.to_bytes());

    let counted = [
        count(&counter, || at_the_door(&door[0].0, door[0].1)),
        count(&counter, || at_the_door(&door[1].0, door[1].1)),
        count(&counter, || at_the_door(&door[2].0, door[2].1)),
        count(&counter, || RequestHeaders::read(&HEADERS).ok().unwrap()),
        count(&counter, || pointer.to_bytes()),
        count(&counter, || Pointer::read(&message).unwrap()),
        count(&counter, || envelope.to_bytes()),
        count(&counter, || EncodedEnvelope::read(answer.clone()).unwrap()),
        count(&counter, refusal),
    ];
    let named: Vec<_> = STORED
        .iter()
        .map(|stored| stored.what)
        .zip(counted)
        .collect();
    judge(&STORED, &named);
}

#[test]
fn what_reads_a_body_once_more_than_it_needs_to_exceeds_its_limit() {
    let counter = Counter::start();
    let bodies = bodies::all();
    let body = bodies.iter().find(|body| body.is_the_case).unwrap();
    let (schema, bytes) = (compiled(body), body.text.as_bytes());
    let stored = &STORED[1];
    assert_eq!(stored.what, "the door, 1 KiB");
    let as_it_is = count(&counter, || at_the_door(&schema, bytes));
    let wasteful = count(&counter, || {
        (
            at_the_door(&schema, bytes),
            parse(bytes, &Limits::DEFAULT).unwrap(),
        )
    });
    assert_eq!(stored.verdict(as_it_is), None);
    let verdict = stored.verdict(wasteful).unwrap();
    assert!(
        verdict.contains("Find out what allocates more"),
        "{verdict}"
    );
    assert!(verdict.contains(&wasteful.to_string()), "{verdict}");
    // What became much cheaper is told, too: its limit bounds nothing any more.
    let verdict = stored.verdict(Count::of(as_it_is.blocks / 3, as_it_is.bytes));
    assert!(verdict.unwrap().contains("less than half"));
}

/// The least of a few counts.
fn count<T>(counter: &Counter, work: impl Fn() -> T) -> Count {
    let once = || {
        let before = counter.now();
        let made = std::hint::black_box(work());
        let count = counter.since(before);
        drop(made);
        count
    };
    // What is made once and kept is made before.
    once();
    (0..TIMES).map(|_time| once()).reduce(Count::least).unwrap()
}

fn compiled(body: &Body) -> Schema {
    let schema: Value = serde_json::from_str(body.schema).unwrap();
    Schema::compile_input(&schema).unwrap()
}

/// As the dispatcher does it.
fn at_the_door(schema: &Schema, bytes: &[u8]) -> (String, [u8; 32], [u8; 32]) {
    let args = parse(bytes, &Limits::DEFAULT).unwrap();
    let original_hash = <[u8; 32]>::from(Sha256::digest(bytes));
    let args = schema.fit(args, READ).unwrap().args;
    let text = canonical::to_text(&args);
    let hash = canonical::hash_text(&text);
    (text, hash, original_hash)
}

const HEADERS: [(&str, &str); 6] = [
    ("Idempotency-Key", "order-4711-line-3"),
    ("Prefer", "wait=30"),
    ("Toolfleet-Deadline-Ms", "60000"),
    ("Toolfleet-Session", "session-17"),
    ("Toolfleet-Run", "run-42"),
    (
        "traceparent",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ),
];

/// A KiB of JSON.
fn a_kib() -> Box<RawValue> {
    let text = format!("{{\"note\":\"{}\"}}", "x".repeat(1024 - 11));
    RawValue::from_string(text).unwrap()
}

fn pointer(call_id: CallId) -> Pointer {
    Pointer {
        call_id,
        tool: "place_order".parse().unwrap(),
        tool_version: 1,
        args_hash: "0".repeat(64),
        args: Some(a_kib()),
        tenant: Some("acme".parse().unwrap()),
        language: Some(Language::En),
        priority: Some(Priority::Normal),
        rev: Some(0),
        is_probe: false,
        trace: TraceContext {
            traceparent: Some(HEADERS[5].1.to_owned()),
            ..TraceContext::default()
        },
        attempts: 0,
    }
}

fn envelope(call: CallId) -> Envelope {
    Envelope {
        call_id: Some(call),
        tool: "place_order".to_owned(),
        tool_version: Some(1),
        state: EnvelopeState::Of(State::Succeeded),
        outcome: CallOutcome::Success,
        is_error: false,
        source: Source::Live,
        effect: EffectKnown::Applied,
        result: Some(a_kib()),
        error: None,
        degraded: None,
        coercions: no_coercions(),
        attempts: 1,
        replayed: false,
        timing: Some(Timing {
            queued_ms: 2,
            run_ms: 5,
        }),
        settled_by: None,
    }
}

fn refusal() -> Vec<u8> {
    let what = Message::fixed("there is no tool of this name", "没有这个名字的工具");
    let error = ErrorBody::refused(Code::UnknownTool, &what, Language::En);
    Envelope::refused("place_order", error).to_bytes()
}
