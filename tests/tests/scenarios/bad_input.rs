//! The table of bad input through the real endpoint: what is refused is refused with its code, leaves nothing behind, and
//! its key is free. And what looks odd but is good arrives at the tool as it was sent.
//!
//! Not here: what a NATS client cannot send (compressed and chunked bodies, tokens: those are HTTP), schemas that are
//! refused when a tool is applied (`fleet`'s tests of `arguments::schema`), calls that expire (`errors`), a dispatcher that
//! has too much in hand (`backpressure`), a Postgres that is away (`nats`, `silence`).

mod table;

use fleet_tests::{
    caller::{Answer, Submission},
    fleet::{Fleet, Spec},
    invariants,
    witness::Witness,
};
use serde_json::{Value, json};

use self::table::Bad;

const CALLS: &str = "SELECT count(*) FROM toolfleet.calls";
const KEYS: &str = "SELECT count(*) FROM toolfleet.idempotency_keys";
const BATCH: &str = "toolfleet.v1.default.batch";

/// A write that is particular about its arguments.
fn charge(witness: &Witness) -> String {
    json!({
        "name": "charge", "version": 1, "description": "Leaves a trace at the witness.", "effect": "once",
        "input_schema": {
            "type": "object", "additionalProperties": false, "required": ["what"],
            "properties": {
                "what": {"type": "string", "minLength": 1},
                "unit": {"enum": ["km", "mile"]},
                "count": {"type": "integer", "minimum": 1, "maximum": 10},
                "on": {"type": "string", "format": "date"},
                "slow": {"type": "string", "pattern": "^(a+)+$"},
                "more": true,
            },
        },
        "executor": {"http": {"method": "POST", "url": witness.url()}},
    })
    .to_string()
}

fn submission(fleet: &Fleet, bad: &Bad, key: &str) -> Submission {
    let call = fleet
        .submit_bytes(&bad.tool, bad.body.clone())
        .tenant(&bad.tenant);
    let call = if bad.keyed { call.key(key) } else { call };
    bad.headers.iter().fold(call, |call, (name, value)| {
        call.one_more_header(name, value)
    })
}

/// What is wrong with the refusal; `None` where nothing is.
fn complaint(error: &Value, answer: &Value, code: &str) -> Option<String> {
    let says = |text: &Value| text.as_str().is_some_and(|text| !text.is_empty());
    let right = answer["state"] == "refused"
        && answer["call_id"].is_null()
        && answer["is_error"] == true
        && answer["effect"] == "none"
        && error["code"] == code
        && says(&error["message"])
        && says(&error["suggestion"]);
    (!right).then(|| format!("{code} expected, answered {answer}"))
}

/// Whether the headers say it too, for tools that know only NATS services.
fn service_error(answer: &Answer) -> Option<&str> {
    let headers = answer.headers.as_ref()?;
    headers.get("Nats-Service-Error")?;
    Some(headers.get("Nats-Service-Error-Code")?.as_str())
}

fn status(code: &str) -> &'static str {
    match code {
        "unknown_tool" | "unknown_tool_version" => "404",
        "payload_too_large" => "413",
        _other => "400",
    }
}

#[tokio::test]
async fn every_bad_call_is_refused_with_its_code_and_its_key_is_free() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([charge(&witness)])).await;
    let rows = table::all();
    let mut wrong = Vec::new();
    for (number, bad) in rows.iter().enumerate() {
        let sent = submission(&fleet, bad, &format!("key-{number}"));
        let answer = sent.try_wait().await;
        let answer = answer.unwrap_or_else(|| panic!("nobody hears of {}", bad.name));
        if let Some(complaint) = complaint(&answer["error"], &answer, bad.code) {
            wrong.push(format!("{}: {complaint}", bad.name));
        }
        let told = service_error(&answer);
        if told != Some(status(bad.code)) {
            wrong.push(format!("{}: the headers say {told:?}", bad.name));
        }
        let stored = (fleet.count(CALLS).await, fleet.count(KEYS).await);
        assert_eq!(stored, (0, 0), "{} left something behind", bad.name);
    }
    assert!(
        wrong.is_empty(),
        "{} are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );

    let keyed = (0..rows.len()).filter(|number| rows[*number].keyed);
    let mut free = 0;
    for number in keyed {
        let good = fleet.submit("charge", &json!({"what": "good"}));
        let answer = good.key(&format!("key-{number}")).asynchronous().await;
        let new = answer["replayed"] == false && answer["call_id"].is_string();
        assert!(new, "the key of {}: {}", rows[number].name, *answer);
        free += 1;
    }
    println!(
        "{} bad calls refused, nothing stored, {free} keys free",
        rows.len()
    );
    assert_eq!(fleet.count(CALLS).await, free);
    invariants::hold(&fleet, &witness).await;
    assert_eq!(witness.asked("bad"), 0);
}

#[tokio::test]
async fn a_bad_item_of_a_batch_is_refused_alone() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([charge(&witness)])).await;
    let rows: Vec<Bad> = table::all().into_iter().filter(Bad::fits_a_batch).collect();
    assert!(rows.len() >= 30, "only {} rows can be items", rows.len());
    let mut wrong = Vec::new();
    for (number, bad) in rows.iter().enumerate() {
        let args = std::str::from_utf8(&bad.body).unwrap();
        let good = |place: &str| {
            let key = format!("{place}-{number}");
            json!({"tool": "charge", "args": {"what": key}, "idempotency_key": key}).to_string()
        };
        let item = format!(r#"{{"tool":"charge","args":{args},"idempotency_key":"bad-{number}"}}"#);
        let batch = format!(
            r#"{{"calls":[{},{item},{}]}}"#,
            good("before"),
            good("after")
        );
        let answer = fleet.ask_bytes(BATCH, batch).await.expect("an answer");
        let items = answer["items"].as_array().map_or(&[][..], Vec::as_slice);
        let [before, refused, after] = items else {
            wrong.push(format!("{}: {}", bad.name, *answer));
            continue;
        };
        if let Some(complaint) = complaint(&refused["error"], refused, bad.code) {
            wrong.push(format!("{}: {complaint}", bad.name));
        }
        for neighbour in [before, after] {
            if neighbour["replayed"] != false || !neighbour["call_id"].is_string() {
                wrong.push(format!("beside {}: {neighbour}", bad.name));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    let accepted = i64::try_from(rows.len() * 2).unwrap();
    assert_eq!(
        (fleet.count(CALLS).await, fleet.count(KEYS).await),
        (accepted, accepted)
    );
    for (number, bad) in rows.iter().enumerate() {
        let good = fleet.submit("charge", &json!({"what": "good"}));
        let answer = good.key(&format!("bad-{number}")).asynchronous().await;
        assert_eq!(answer["replayed"], false, "the key of {}", bad.name);
    }
    invariants::hold(&fleet, &witness).await;
    assert_eq!(witness.asked("bad"), 0);
}

#[tokio::test]
async fn what_only_looks_odd_reaches_the_tool_as_it_was_sent() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let deep = format!("{}1{}", "[".repeat(63), "]".repeat(63));
    let long = format!("\"{}\"", "x".repeat(128 * 1024));
    let many = format!("[{}1]", "1,".repeat(9_996));
    // In the form in which arguments are handed over, so that bytes can be compared.
    let odd = [
        "9007199254740993",
        "18446744073709551615",
        "-9223372036854775808",
        "[-0,1.0,1,1e2,1E+2,0.10,1e308,1e-308]",
        "0.1234567890123456789012345678901234567890",
        "{\"e\u{301}\":1,\"é\":2}",
        r#"{"__proto__":{"admin":true},"constructor":1,"toString":null}"#,
        "\"\u{202e}drowssap\u{200b}\u{2066}\u{feff}\u{7f}\"",
        r#""\u001b[2J\r\n\t\"\\""#,
        r#""'; DROP TABLE calls; -- $(reboot) {{ 7 * 7 }} ${jndi:x}""#,
        r#""{\"what\":\"other\"}""#,
        &deep,
        &long,
        &many,
    ];
    for (number, text) in odd.iter().enumerate() {
        let what = format!("n{number}");
        let body = format!(r#"{{"more":{text},"what":"{what}"}}"#);
        let answer = fleet.submit_bytes("look", body.clone()).wait().await;
        assert_eq!(answer["state"], "succeeded", "{text:.80}: {}", *answer);
        assert_eq!(answer["coercions"], json!([]), "{text:.80}");
        let got = witness.look(|seen| seen.requests.last().unwrap().body.clone());
        assert_eq!(String::from_utf8_lossy(&got), body, "{text:.80}");
    }
    let odd_trace = fleet.submit("look", &json!({"what": "trace"}));
    let answer = odd_trace.header("traceparent", "00-nonsense").wait().await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    let all = i64::try_from(odd.len() + 1).unwrap();
    assert_eq!(fleet.count(CALLS).await, all);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_key_says_the_same_only_of_the_same_arguments() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read"), charge(&witness)])).await;
    let call = |args: &str| fleet.submit_bytes("look", args.to_owned()).key("k").wait();
    let first = call(r#"{"what":"a","n":1}"#).await;
    for (args, same) in [
        (r#" { "n" : 1 , "wh\u0061t" : "a" } "#, true),
        (r#"{"what":"a","n":1.0}"#, false),
        (r#"{"what":"a","n":1e0}"#, false),
        (r#"{"what":"a","n":2}"#, false),
        (r#"{"what":"a"}"#, false),
    ] {
        let answer = call(args).await;
        if same {
            assert_eq!(
                (&answer["replayed"], answer.call_id()),
                (&json!(true), first.call_id()),
                "{args}"
            );
        } else {
            assert_eq!(
                complaint(&answer["error"], &answer, "idempotency_key_reused"),
                None,
                "{args}"
            );
        }
    }
    let other = fleet
        .submit("charge", &json!({"what": "a"}))
        .key("k")
        .wait()
        .await;
    assert_eq!(other.code(), "idempotency_key_reused", "{}", *other);
    assert_eq!((fleet.count(CALLS).await, fleet.count(KEYS).await), (1, 1));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn what_is_asked_about_a_call_is_answered_with_its_code() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([charge(&witness)])).await;
    let call = fleet
        .submit("charge", &json!({"what": "a"}))
        .key("k")
        .wait()
        .await;
    let over = call["call_id"].as_str().unwrap();
    let nobody = fleet::ids::CallId::generate().to_string();
    let settled = |call: &str| json!({"call_id": call, "outcome": "applied", "actor": "tester", "note": "seen", "result": 1});
    let ids = [
        "",
        "x",
        "1",
        "00000000-0000-0000-0000-000000000000",
        "9f1c6a34-6f3d-4a0e-9a3b-0c9e6b1d2f30",
        "' OR 1=1",
    ];
    for id in ids {
        let bare = json!({"call_id": id});
        for (subject, body) in [
            ("toolfleet.v1.default.get", &bare),
            ("toolfleet.v1.default.cancel", &bare),
            ("toolfleet.v1.default.admin.settle", &settled(id)),
        ] {
            let answer = fleet.ask(subject, body).await;
            assert_eq!(answer.code(), "invalid_id", "{subject} {id:?}: {}", *answer);
        }
    }
    // Another tenant's call is told apart from none by nothing.
    for (theirs, ours, body) in [
        (
            "toolfleet.v1.other.get",
            "toolfleet.v1.default.get",
            json!({"call_id": over}),
        ),
        (
            "toolfleet.v1.other.cancel",
            "toolfleet.v1.default.cancel",
            json!({"call_id": over}),
        ),
        (
            "toolfleet.v1.other.admin.settle",
            "toolfleet.v1.default.admin.settle",
            settled(over),
        ),
    ] {
        let foreign = fleet.ask(theirs, &body).await;
        let mut of_nobody = body;
        of_nobody["call_id"] = json!(nobody);
        let unknown = fleet.ask(ours, &of_nobody).await;
        assert_eq!(foreign.code(), "not_found", "{theirs}: {}", *foreign);
        let foreign = String::from_utf8_lossy(&foreign.bytes).replace(over, "ID");
        let unknown = String::from_utf8_lossy(&unknown.bytes).replace(&nobody, "ID");
        assert_eq!(foreign, unknown);
    }
    let cancelled = fleet
        .ask("toolfleet.v1.default.cancel", &json!({"call_id": over}))
        .await;
    assert_eq!(
        (&cancelled["result"], &cancelled["state"]),
        (&json!("already_terminal"), &json!("succeeded"))
    );
    let settled = fleet
        .ask("toolfleet.v1.default.admin.settle", &settled(over))
        .await;
    assert_eq!(settled.code(), "conflict", "{}", *settled);
    invariants::hold(&fleet, &witness).await;
}
