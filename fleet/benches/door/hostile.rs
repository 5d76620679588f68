//! Inputs that mean harm, at one, two and four times a size: refused or accepted, at a cost per byte that does not grow.

use fleet::arguments::{Limits, Schema, parse};
use serde_json::{Value, json};

use crate::{
    READ, keep, say,
    timing::{Work, measure},
};

/// By how much the cost of a byte may grow over four times the size; what is quadratic grows by four.
const GROWTH_MAX: f64 = 2.0;

/// A kind of input.
struct Hostile {
    name: &'static str,
    /// What it is held against.
    schema: Value,
    /// The body of about this many bytes.
    body: fn(usize) -> Vec<u8>,
    /// The largest it is tried at.
    bytes: usize,
}

/// Prints the table of all kinds; whether none grows.
pub(crate) fn table(rounds: usize) -> bool {
    say("Inputs that mean harm, ns per byte at n, 2n and 4n\n");
    say("| input | 4n, bytes | n | 2n | 4n | growth | answer at 4n |");
    say("|---|--:|--:|--:|--:|--:|---|");
    let grown: Vec<&str> = kinds()
        .iter()
        .filter(|kind| grows(kind, rounds))
        .map(|kind| kind.name)
        .collect();
    match grown.as_slice() {
        [] => say("\nNone grows."),
        some => say(&format!("\nGROWING: {}", some.join(", "))),
    }
    grown.is_empty()
}

/// Whether it does each of three times: what another process did is over by then, what our code does is not.
fn grows(kind: &Hostile, rounds: usize) -> bool {
    (0..3).all(|_time| row(kind, rounds) > GROWTH_MAX)
}

/// Prints the row of an input and answers its growth.
fn row(kind: &Hostile, rounds: usize) -> f64 {
    let schema = Schema::compile_input(&kind.schema).expect("the schema is fine");
    let bodies = [kind.bytes / 4, kind.bytes / 2, kind.bytes].map(kind.body);
    let answer = answer(&schema, &bodies[2]);
    let mut works: Vec<Work<'_>> = bodies
        .iter()
        .map(|body| -> Work<'_> { Box::new(|| keep(self::answer(&schema, body))) })
        .collect();
    let samples = measure(&mut works, rounds);
    #[expect(clippy::cast_precision_loss, reason = "a few hundred thousand bytes")]
    let per_byte: Vec<f64> = (0..3)
        .map(|at| samples.median(at) / bodies[at].len() as f64)
        .collect();
    let growth = per_byte[2] / per_byte[0];
    say(&format!(
        "| {} | {} | {:.3} | {:.3} | {:.3} | {growth:.2} | {answer} |",
        kind.name,
        bodies[2].len(),
        per_byte[0],
        per_byte[1],
        per_byte[2],
    ));
    growth
}

/// The code with which it is refused, or `accepted`.
fn answer(schema: &Schema, body: &[u8]) -> &'static str {
    match parse(body, &Limits::DEFAULT) {
        Err(error) => error.code.as_str(),
        Ok(args) => match schema.fit(args, READ) {
            Err(violations) => {
                keep(violations);
                "invalid_arguments"
            }
            Ok(fitted) => {
                keep(fitted);
                "accepted"
            }
        },
    }
}

const WHOLE: usize = Limits::DEFAULT.bytes;

fn kinds() -> Vec<Hostile> {
    let any = || json!({"type": "object"});
    let of = |schema: Value| json!({"type": "object", "properties": {"a": schema}});
    let kind = |name, schema, body, bytes| Hostile {
        name,
        schema,
        body,
        bytes,
    };
    vec![
        kind("only `[`", any(), |n| vec![b'['; n], WHOLE),
        kind(
            "only `{\"a\":`",
            any(),
            |n| br#"{"a":"#.repeat(n / 5),
            WHOLE,
        ),
        kind("10,000 values", any(), numbers, 9_998 * 26),
        kind(
            "10,000 values, wrong everywhere",
            numbers_wanted(),
            strings,
            9_998 * 26,
        ),
        kind("1,000 keys", any(), keys, 1_000 * 254),
        kind(
            "1,000 keys, none of them known",
            closed(),
            keys,
            1_000 * 254,
        ),
        kind("a key 1,000 times", any(), same_key, 1_000 * 254),
        kind(
            "a key twice, at the end",
            any(),
            last_key_twice,
            1_000 * 254,
        ),
        kind(
            "one string",
            any(),
            |n| string(&"x".repeat(n - 8)),
            128 * 1024,
        ),
        kind(
            "one string of Chinese",
            any(),
            |n| string(&"调".repeat(n / 3 - 3)),
            128 * 1024,
        ),
        kind(
            "one string of escapes",
            any(),
            |n| string(&"\\u00e9".repeat(n / 6 - 2)),
            WHOLE,
        ),
        kind(
            "one string of line ends",
            any(),
            |n| string(&"\\n".repeat(n / 2 - 4)),
            WHOLE,
        ),
        kind("one number", any(), |n| value(&"1".repeat(n - 6)), WHOLE),
        kind("only spaces", any(), |n| vec![b' '; n], WHOLE),
        kind(
            "not UTF-8 at the end",
            any(),
            |n| spoilt(n, b"\xff\"]}"),
            WHOLE,
        ),
        kind(
            "half a surrogate at the end",
            any(),
            |n| spoilt(n, b"\\ud800\"]}"),
            WHOLE,
        ),
        kind("cut off at the end", any(), |n| spoilt(n, b""), WHOLE),
        kind(
            "pattern `^(a+)+$`",
            of(json!({"type": "string", "pattern": "^(a+)+$"})),
            almost,
            64 * 1024,
        ),
        kind(
            "JSON in strings in strings",
            of(json!({"type": "object"})),
            onion,
            128 * 1024,
        ),
        kind(
            "the text of 9,000 numbers",
            of(json!({"type": "array", "items": {"type": "integer"}})),
            quoted,
            9_000 * 12,
        ),
        kind(
            "a union of five, fitting none",
            of(union()),
            |n| string(&"[".repeat(n - 8)),
            128 * 1024,
        ),
    ]
}

fn numbers_wanted() -> Value {
    json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "integer"}}}})
}

fn closed() -> Value {
    json!({"type": "object", "additionalProperties": false, "properties": {"known": {"type": "integer"}}})
}

fn union() -> Value {
    json!({"anyOf": [
        {"type": "integer"}, {"type": "boolean"}, {"type": "null"}, {"type": "array"}, {"type": "object"},
    ]})
}

fn value(text: &str) -> Vec<u8> {
    format!(r#"{{"a":{text}}}"#).into_bytes()
}

fn string(text: &str) -> Vec<u8> {
    value(&format!("\"{text}\""))
}

fn array(items: &[String]) -> Vec<u8> {
    value(&format!("[{}]", items.join(",")))
}

/// Values of 26 bytes.
fn numbers(bytes: usize) -> Vec<u8> {
    array(&vec!["0.12345678901234567890123".to_owned(); bytes / 26])
}

fn strings(bytes: usize) -> Vec<u8> {
    array(&vec!["\"abcdefghijklmnopqrstuvw\"".to_owned(); bytes / 26])
}

/// Entries of 254 bytes.
fn entries(bytes: usize, key: impl Fn(usize) -> String) -> Vec<u8> {
    let entries: Vec<String> = (0..bytes / 254)
        .map(|at| format!("\"{}\":1", key(at)))
        .collect();
    format!("{{{}}}", entries.join(",")).into_bytes()
}

fn keys(bytes: usize) -> Vec<u8> {
    entries(bytes, |at| format!("{at:k>249}"))
}

fn same_key(bytes: usize) -> Vec<u8> {
    entries(bytes, |_| "k".repeat(249))
}

fn last_key_twice(bytes: usize) -> Vec<u8> {
    let last = bytes / 254 - 1;
    entries(bytes, |at| format!("{:k>249}", at.min(last - 1)))
}

/// An array of strings that ends so.
fn spoilt(bytes: usize, end: &[u8]) -> Vec<u8> {
    let mut body = br#"{"a":["#.to_vec();
    while body.len() + 1_100 < bytes {
        body.extend_from_slice(&[b"\"", "xé".repeat(300).as_bytes(), b"\","].concat());
    }
    body.push(b'"');
    body.resize(bytes - end.len(), b'x');
    body.extend_from_slice(end);
    body
}

/// Fits the pattern but for its last letter.
fn almost(bytes: usize) -> Vec<u8> {
    string(&format!("{}!", "a".repeat(bytes - 9)))
}

/// The text of an object in a string of an object, and again, as often as it fits: each layer doubles the backslashes.
fn onion(bytes: usize) -> Vec<u8> {
    let mut text = "1".to_owned();
    loop {
        let next = json!({ "a": text }).to_string();
        let fill = (bytes - 8).saturating_sub(text.len());
        if next.len() + 8 > bytes {
            return json!({"a": text + &" ".repeat(fill)})
                .to_string()
                .into_bytes();
        }
        text = next;
    }
}

fn quoted(bytes: usize) -> Vec<u8> {
    let numbers = vec!["12345678901"; bytes / 12];
    json!({"a": format!("[{}]", numbers.join(","))})
        .to_string()
        .into_bytes()
}
