use std::{collections::BTreeSet, time::Duration};

use fleet::call::Priority;

use super::*;

fn read_with(defaults: &[(&str, &str)], call: &str) -> Result<Item, Refusal> {
    let raw: &RawValue = serde_json::from_str(call).unwrap();
    let defaults = Defaults::read(defaults).unwrap();
    read(
        7,
        raw,
        &Registry::default(),
        &"acme".parse().unwrap(),
        &defaults,
        &mut Named::default(),
    )
}

fn refused(call: &str) -> (Code, String) {
    let refusal = read_with(&[], call)
        .err()
        .unwrap_or_else(|| panic!("{call} was accepted"));
    let error = refusal.error(Language::En);
    (error.code, error.path.unwrap_or_default())
}

#[test]
fn every_field_is_a_header_in_snake_case() {
    let item = read_with(
        &[],
        r#"{"tool":"look","args":{"n":1.10},"idempotency_key":"k","deadline_ms":1500,"run":"r",
            "run_deadline":"2100-01-31T12:00:00Z","session":"s","priority":"high","tool_version":2,
            "language":"zh","meta":{"a":
            1},"cache_control":"no-store","prefer":"respond-async","baggage":"a=1",
            "traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}"#,
    );
    let item = item.ok().unwrap();
    let headers = &item.submission.headers;
    assert_eq!(headers.key.as_ref().unwrap().as_str(), "k");
    assert_eq!(headers.deadline, Some(Duration::from_millis(1500)));
    assert_eq!(headers.run.as_ref().unwrap().as_str(), "r");
    assert_eq!(headers.run_deadline.unwrap().year(), 2100);
    assert_eq!(headers.session.as_ref().unwrap().as_str(), "s");
    assert_eq!(headers.priority, Priority::High);
    assert_eq!(headers.tool_version, Some(2));
    assert_eq!(headers.language.unwrap().as_str(), "zh");
    assert_eq!(headers.meta.as_ref().unwrap().get(), r#"{"a":1}"#);
    assert_eq!(headers.trace.baggage.as_deref(), Some("a=1"));
    assert!(item.own_trace && headers.trace.traceparent.is_some());
    assert_eq!(headers.prefer, Prefer::RespondAsync);
    assert_eq!(item.submission.sent, r#"{"n":1.10}"#);
}

#[test]
fn the_schema_names_the_fields_that_are_read() {
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/../schemas/batch.json");
    let schema: Value = serde_json::from_slice(&std::fs::read(schema).unwrap()).unwrap();
    let properties = schema.pointer("/$defs/call/properties").unwrap();
    let named: BTreeSet<&str> = properties
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let read = FIELDS
        .iter()
        .map(|(field, ..)| *field)
        .chain(["tool", "args"]);
    assert_eq!(named, read.collect());
}

#[test]
fn what_is_wrong_with_a_call_has_its_code_and_its_place() {
    let long = "x".repeat(256);
    let meta = format!(
        r#"{{"tool":"t","args":{{}},"meta":{{"a":"{}"}}}}"#,
        "x".repeat(4096)
    );
    let key = format!(r#"{{"tool":"t","args":{{}},"idempotency_key":"{long}"}}"#);
    for (call, code, path) in [
        ("7", Code::InvalidArguments, "/calls/7"),
        ("{}", Code::InvalidArguments, "/calls/7/tool"),
        (r#"{"tool":"t"}"#, Code::InvalidArguments, "/calls/7/args"),
        (r#"{"args":{}}"#, Code::InvalidArguments, "/calls/7/tool"),
        (
            r#"{"tool":"T","args":{}}"#,
            Code::InvalidToolName,
            "/calls/7/tool",
        ),
        (
            r#"{"tool":3,"args":{}}"#,
            Code::InvalidToolName,
            "/calls/7/tool",
        ),
        (
            r#"{"tool":"t","args":{},"a/b":1}"#,
            Code::InvalidArguments,
            "/calls/7/a~1b",
        ),
        (
            r#"{"tool":"t","args":{},"args":{}}"#,
            Code::DuplicateKey,
            "/calls/7/args",
        ),
        (
            r#"{"tool":"t","args":{},"run":"a.b"}"#,
            Code::HeaderInvalid,
            "/calls/7/run",
        ),
        (
            r#"{"tool":"t","args":{},"run":1}"#,
            Code::HeaderInvalid,
            "/calls/7/run",
        ),
        (
            r#"{"tool":"t","args":{},"run":"\u0000"}"#,
            Code::NulNotAllowed,
            "/calls/7/run",
        ),
        (
            r#"{"tool":"t","args":{},"session":" s"}"#,
            Code::HeaderInvalid,
            "/calls/7/session",
        ),
        (
            r#"{"tool":"t","args":{},"priority":"urgent"}"#,
            Code::HeaderInvalid,
            "/calls/7/priority",
        ),
        (
            r#"{"tool":"t","args":{},"language":"fr"}"#,
            Code::HeaderInvalid,
            "/calls/7/language",
        ),
        (
            r#"{"tool":"t","args":{},"tool_version":0}"#,
            Code::HeaderInvalid,
            "/calls/7/tool_version",
        ),
        (
            r#"{"tool":"t","args":{},"prefer":"wait=3"}"#,
            Code::HeaderInvalid,
            "/calls/7/prefer",
        ),
        (
            r#"{"tool":"t","args":{},"deadline_ms":0}"#,
            Code::DeadlineInvalid,
            "/calls/7/deadline_ms",
        ),
        (
            r#"{"tool":"t","args":{},"deadline_ms":"5"}"#,
            Code::DeadlineInvalid,
            "/calls/7/deadline_ms",
        ),
        (
            r#"{"tool":"t","args":{},"deadline_ms":1.5}"#,
            Code::DeadlineInvalid,
            "/calls/7/deadline_ms",
        ),
        (
            r#"{"tool":"t","args":{},"run_deadline":"soon"}"#,
            Code::DeadlineInvalid,
            "/calls/7/run_deadline",
        ),
        (
            r#"{"tool":"t","args":{},"idempotency_key":"a b"}"#,
            Code::InvalidIdempotencyKey,
            "/calls/7/idempotency_key",
        ),
        (
            r#"{"tool":"t","args":{},"idempotency_key":"a "}"#,
            Code::InvalidIdempotencyKey,
            "/calls/7/idempotency_key",
        ),
        (
            &key,
            Code::InvalidIdempotencyKey,
            "/calls/7/idempotency_key",
        ),
        (&meta, Code::HeaderInvalid, "/calls/7/meta"),
        (
            r#"{"tool":"t","args":{},"meta":[]}"#,
            Code::HeaderInvalid,
            "/calls/7/meta",
        ),
    ] {
        assert_eq!(refused(call), (code, path.to_owned()), "{call}");
    }
}

#[test]
fn arguments_are_refused_as_those_of_a_single_call_are() {
    for (args, code, path) in [
        ("[]", Code::InvalidArguments, ""),
        (r#"{"a":{"b":1,"b":2}}"#, Code::DuplicateKey, "/a/b"),
        (r#"{"a":1e999}"#, Code::NumberOutOfRange, "/a"),
        (r#"{"a":"\ud800"}"#, Code::InvalidUnicode, "/a"),
        (r#"{"a":"\u0000"}"#, Code::NulNotAllowed, "/a"),
    ] {
        let call = format!(r#"{{"tool":"t","args":{args}}}"#);
        assert_eq!(refused(&call), (code, path.to_owned()), "{args}");
    }
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(64), "]".repeat(64));
    let large = format!("{{\"a\":[\"{0}\",\"{0}\",\"{0}\"]}}", "x".repeat(100_000));
    for (args, code) in [(deep, Code::DepthExceeded), (large, Code::PayloadTooLarge)] {
        assert_eq!(refused(&format!(r#"{{"tool":"t","args":{args}}}"#)).0, code);
    }
}

#[test]
fn the_requests_headers_hold_for_calls_that_do_not_say_otherwise() {
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let defaults = [
        ("toolfleet-session", "s"),
        ("Toolfleet-Priority", "low"),
        ("Prefer", "wait=5"),
        ("traceparent", parent),
        ("X-Other", "ignored"),
    ];
    let plain = read_with(&defaults, r#"{"tool":"t","args":{},"session":null}"#);
    let plain = plain.ok().unwrap();
    assert_eq!(plain.submission.headers.session.unwrap().as_str(), "s");
    assert_eq!(plain.submission.headers.priority, Priority::Low);
    assert_eq!(
        plain.submission.headers.trace.traceparent.as_deref(),
        Some(parent)
    );
    assert_eq!(plain.submission.headers.prefer, Prefer::RespondAsync);
    assert!(!plain.own_trace);
    let own = read_with(&defaults, r#"{"tool":"t","args":{},"session":"mine"}"#);
    let own = own.ok().unwrap().submission.headers;
    assert_eq!(own.session.unwrap().as_str(), "mine");
}

#[test]
fn a_batch_has_no_key_and_its_headers_are_checked() {
    let code = |name, value| Defaults::read(&[(name, value)]).err().unwrap().code;
    assert_eq!(code("Idempotency-Key", "k"), Code::InvalidIdempotencyKey);
    assert_eq!(code("Toolfleet-Session", "a.b"), Code::HeaderInvalid);
}

#[test]
fn the_tool_and_the_language_are_known_whatever_is_wrong() {
    let named = |lines: &[(&str, &str)], call: &str| {
        let raw: &RawValue = serde_json::from_str(call).unwrap();
        let (tenant, defaults) = ("acme".parse().unwrap(), Defaults::read(lines).unwrap());
        let mut named = Named::default();
        assert!(read(0, raw, &Registry::default(), &tenant, &defaults, &mut named).is_err());
        (named.tool, named.language)
    };
    let (own, none) = (
        r#"{"wrong":1,"language":"en","tool":"look","args":{}}"#,
        r#"{"wrong":1,"language":"fr","tool":"look","args":{}}"#,
    );
    let (asked, look) = ([("Toolfleet-Language", "zh")], || "look".to_owned());
    assert_eq!(named(&asked, own), (look(), Some(Language::En)));
    assert_eq!(named(&asked, none), (look(), Some(Language::Zh)));
    assert_eq!(named(&[], none), (look(), None));
    assert_eq!(named(&asked, "7"), (String::new(), Some(Language::Zh)));
}
