//! Arguments that refer to answers of other calls: the tool gets the answer, everybody else sees the reference.

use fleet::store::controls::{self, ControlKind, ControlScope, ControlSet, NewControl};
use fleet_tests::{
    caller::Answer,
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::{Value, json};
use worker::{
    Worker,
    interceptor::{About, CallView, Carried, Fails, Interceptor, Verdict},
};

/// A program that says of `data` how many characters it has as a text, or else its JSON.
const COUNTS: &str = "import sys, json; data = json.load(sys.stdin)['data']; \
                      print(json.dumps({'count': len(data if isinstance(data, str) else json.dumps(data)), 'kind': type(data).__name__}))";

/// A tool that counts what it gets as `data`, of which the schema says this.
fn counts(name: &str, data: &str) -> String {
    let command = json!(["/usr/bin/python3", "-c", COUNTS]);
    format!(
        "name: {name}\nversion: 1\ndescription: Counts.\neffect: read\n\
         input_schema: {{type: object, properties: {{data: {data}, unit: {{type: string, default: characters}}}}, required: [data]}}\n\
         executor: {{process: {{command: {command}}}}}\n"
    )
}

const LARGE: &str = "output_limit: 8MiB\nlarge_result: {over: 8000 tokens, preview: 2KiB}\n";

/// A fleet with a source of answers and tools that count them.
async fn fleet(more: impl IntoIterator<Item = String>) -> (Witness, Fleet) {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("look", "read") + LARGE,
        counts("count", "{}"),
        counts("count_text", "{type: string, minLength: 3}"),
        counts("count_object", "{type: object}"),
    ];
    let fleet = Fleet::start(Spec::with(tools.into_iter().chain(more))).await;
    (witness, fleet)
}

/// The id of a call that was answered so.
async fn answered(witness: &Witness, fleet: &Fleet, what: &str, body: &Value) -> String {
    witness.always(what, Reply::Body(body.to_string()));
    let answer = fleet.submit("look", &json!({ "what": what })).wait().await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    answer.call_id().to_string()
}

/// Takes the row of a call out of the history, as when its day is dropped.
async fn forget(fleet: &Fleet, call: &str) {
    let forget = format!(
        "SET session_replication_role = replica; \
         DELETE FROM toolfleet.finished_calls WHERE call_id = '{call}'; RESET session_replication_role"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(forget))
        .execute(&fleet.database.pool)
        .await
        .unwrap();
}

async fn count(fleet: &Fleet, tool: &str, data: Value) -> Answer {
    fleet.submit(tool, &json!({ "data": data })).wait().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_gets_the_answer_and_the_history_the_reference() {
    program_gets(500_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "slow: the same with as much as a tool may answer"]
async fn a_program_gets_five_mb_of_chinese() {
    program_gets(5_000_000).await;
}

async fn program_gets(bytes: usize) {
    let (witness, fleet) = fleet([]).await;
    let text = "今天天气晴朗，".repeat(bytes / 21);
    let large = answered(&witness, &fleet, "a", &json!(text)).await;
    let reference = json!({ "$result": large });
    for tool in ["count", "count_text"] {
        let call = fleet.submit(tool, &json!({"data": reference})).key(tool);
        let answer = call.wait().await;
        assert_eq!(
            answer["result"]["count"],
            text.chars().count(),
            "{}",
            *answer
        );
        let row = fleet.call(answer.call_id()).await;
        // A default was filled in; what stands for the answer is stored as it was sent.
        assert_eq!(
            row["args"],
            json!({"data": reference, "unit": "characters"})
        );
        assert_eq!(
            answer["coercions"],
            json!([{"path": "/unit", "rule": "default"}])
        );
        let again = fleet.submit(tool, &json!({"data": reference})).key(tool);
        let again = again.wait().await;
        assert_eq!(again["replayed"], true);
        assert_eq!(again.call_id(), answer.call_id());
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_takes_a_part_and_a_schema_sees_what_the_tool_gets() {
    let (witness, fleet) = fleet([]).await;
    let body = json!({"a/b": [1, {"name": "Ada", "short": "no"}], "number": 1.10});
    let call = answered(&witness, &fleet, "a", &body).await;
    let part = |path: &str| json!({"$result": call, "path": path});

    let name = count(&fleet, "count_text", part("/a~1b/1/name")).await;
    assert_eq!(
        name["result"],
        json!({"count": 3, "kind": "str"}),
        "{}",
        *name
    );
    // Several in one call, inside of other values.
    let list = json!([part("/a~1b/1/name"), {"deep": part("/number")}]);
    let whole = count(&fleet, "count", list).await;
    let expected = r#"["Ada", {"deep": 1.1}]"#.len();
    assert_eq!(whole["result"]["count"], expected, "{}", *whole);
    // A text is no reference, also where it would be mended to an object.
    let text = part("/a~1b/1").to_string();
    let mended = count(&fleet, "count_object", json!(text)).await;
    assert_eq!(mended.code(), "invalid_arguments", "{}", *mended);
    let object = count(&fleet, "count_object", part("/a~1b/1")).await;
    assert_eq!(object["result"]["kind"], "dict", "{}", *object);
    let expected = r#"{"name": "Ada", "short": "no"}"#.len();
    assert_eq!(object["result"]["count"], expected);
    // A tool that takes any text gets it as it is.
    let plain = count(&fleet, "count_text", json!(text)).await;
    assert_eq!(plain["result"]["count"], text.len(), "{}", *plain);

    // Nothing in them is mended: neither a number to a text, nor a text that is too short.
    for path in ["/number", "/a~1b/1/short", ""] {
        let refused = count(&fleet, "count_text", part(path)).await;
        assert_eq!(refused.code(), "invalid_arguments", "{path} {}", *refused);
        assert_eq!(refused["error"]["path"], "/data", "{}", *refused);
    }
    // What escapes in the key hide is found all the same.
    let hidden = format!(r#"{{"data": {{"$res\u0075lt": "{call}", "path": "/number"}}}}"#);
    let refused = fleet.submit_bytes("count_text", hidden).wait().await;
    assert_eq!(refused.code(), "invalid_arguments", "{}", *refused);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_there_is_not_is_told_alike() {
    let witness = Witness::start().await;
    let secret = witness.tool("secret", "read") + "sensitive: {pointers: [/what], mode: mask}\n";
    let doubtful = witness.tool("charge", "once") + "timeout: 500ms\n";
    let (_, fleet) = fleet([secret, doubtful]).await;
    let (own, _) = (&witness, ());
    own.always("down", Reply::No("no"));
    own.always("doubt", Reply::DoneThenHang);
    let here = fleet.submit("secret", &json!({"what": "a"})).wait().await;
    assert_eq!(here["state"], "succeeded", "{}", *here);
    let failed = fleet
        .submit("secret", &json!({"what": "down"}))
        .wait()
        .await;
    assert_eq!(failed["state"], "failed", "{}", *failed);
    let doubt = fleet.submit("charge", &json!({"what": "doubt"})).key("d");
    let doubt = doubt.wait().await;
    assert_eq!(doubt["state"], "in_doubt", "{}", *doubt);
    let foreign = fleet.submit("charge", &json!({"what": "b"})).key("f");
    let foreign = foreign.tenant("other").wait().await;
    assert_eq!(foreign["state"], "succeeded", "{}", *foreign);
    let none = [
        json!(here.call_id()),
        json!(failed.call_id()),
        json!(doubt.call_id()),
        json!(foreign.call_id()),
        json!("01a00000-0000-7000-8000-000000000000"),
        json!("yesterday's"),
    ];
    let mut told = Vec::new();
    for id in none {
        let refused = count(&fleet, "count", json!({ "$result": id })).await;
        assert_eq!(refused["state"], "refused", "{}", *refused);
        told.push(refused["error"].clone());
    }
    assert_eq!(told[0]["code"], "invalid_arguments", "{}", told[0]);
    assert_eq!(told[0]["details"]["code"], "not_found");
    assert_eq!(told[0]["suggestion"], "fix_arguments");
    for other in &told {
        assert_eq!(other, &told[0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_reference_or_too_much_is_refused() {
    let (witness, fleet) = fleet([]).await;
    let call = answered(&witness, &fleet, "a", &json!({"part": "x"})).await;
    let large = answered(&witness, &fleet, "b", &json!("x".repeat(600_000))).await;
    let one = json!({ "$result": call });
    let nested = answered(&witness, &fleet, "c", &json!([[[1]]])).await;
    let many = answered(&witness, &fleet, "d", &json!(vec![0; 200_000])).await;
    let deep = (0..61).fold(json!({ "$result": nested }), |inner, _| json!([inner]));
    let cases = [
        (
            json!({"data": {"$result": call, "preview": "…"}}),
            "invalid_arguments",
            "/data",
            Value::Null,
        ),
        (
            json!({"data": {"$result": 7}}),
            "invalid_arguments",
            "/data",
            Value::Null,
        ),
        (
            json!({"data": [{"$result": call, "path": "/no"}]}),
            "invalid_arguments",
            "/data/0",
            json!("no_such_path"),
        ),
        (
            json!({"data": vec![one.clone(); 17]}),
            "invalid_arguments",
            "/data/16",
            Value::Null,
        ),
        (
            json!({"data": vec![json!({"$result": large}); 15]}),
            "payload_too_large",
            "/data/13",
            Value::Null,
        ),
        (
            json!({"data": deep}),
            "invalid_arguments",
            "/data",
            json!("depth_exceeded"),
        ),
        (
            json!({"data": {"$result": many}}),
            "invalid_arguments",
            "/data",
            json!("too_many_nodes"),
        ),
        (one.clone(), "invalid_arguments", "", Value::Null),
    ];
    for (args, code, place, word) in cases {
        let refused = fleet.submit("count", &args).wait().await;
        assert_eq!(refused.code(), code, "{args} {}", *refused);
        let error = &refused["error"];
        assert_eq!(error["details"]["code"], word, "{args} {}", *refused);
        if !place.is_empty() {
            let path = error["path"].as_str().unwrap();
            assert!(path.starts_with(place), "{}", *refused);
        }
    }
    let most = count(&fleet, "count", json!(vec![one; 16])).await;
    assert_eq!(most["state"], "succeeded", "{}", *most);
    invariants::hold(&fleet, &witness).await;
}

/// The door and the gate read the answer on their own: it may be gone in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_gone_before_its_reader_runs_ends_the_reader() {
    let witness = Witness::start().await;
    let once = "name: send\nversion: 1\ndescription: Sends.\neffect: once\nqueue: later\n\
                input_schema: {type: object}\nexecutor: {process: {command: [cat]}}\n";
    let tools = [witness.tool("look", "read"), once.to_owned()];
    let mut fleet = Fleet::start(Spec::with(tools).workers(1, &["--queues", "default"])).await;
    let call = answered(&witness, &fleet, "a", &json!("gone soon")).await;
    let send = fleet.submit("send", &json!({"data": {"$result": call}}));
    let send = send.key("k").asynchronous().await.call_id();
    forget(&fleet, &call).await;
    fleet.add_worker(&["--queues", "later"]).await;
    until_so("the reader to end", async || {
        fleet.call(send).await["state"] == "failed"
    })
    .await;
    let ended = fleet.get(&json!({ "call_id": send })).await;
    assert_eq!(ended.code(), "invalid_arguments", "{}", *ended);
    assert_eq!(ended["effect"], "not_applied");
    assert_eq!(ended["attempts"], 0);
    assert_eq!(ended["error"]["details"]["code"], "not_found");
}

/// Refuses whatever has this word in its arguments.
#[derive(Clone)]
struct Censor;

impl Interceptor for Censor {
    fn about(&self) -> About {
        About::new("censor").fails(Fails::Closed)
    }

    async fn before(&self, call: &CallView<'_>, _: &mut Carried) -> Verdict {
        match call.tool.as_str() == "count" && call.arguments.contains("contraband") {
            true => Verdict::refuse("not that"),
            false => Verdict::Continue,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_gets_round_an_interceptor_by_a_reference() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read"), counts("count", "{}")];
    let mut fleet = Fleet::start(Spec::with(tools).workers(0, &[])).await;
    fleet
        .add_worker_with(Worker::builder().interceptor(Censor), &[])
        .await;
    let bad = answered(&witness, &fleet, "a", &json!({"text": "contraband"})).await;
    let good = answered(&witness, &fleet, "b", &json!({"text": "tea"})).await;
    let refused = count(&fleet, "count", json!({ "$result": bad })).await;
    assert_eq!(refused.code(), "forbidden", "{}", *refused);
    let refused = count(&fleet, "count", json!({"$result": bad, "path": "/text"})).await;
    assert_eq!(refused.code(), "forbidden", "{}", *refused);
    let done = count(&fleet, "count", json!({ "$result": good })).await;
    assert_eq!(done["result"]["kind"], "dict", "{}", *done);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_gets_round_a_pause_by_a_reference() {
    let (witness, fleet) = fleet([]).await;
    let body = json!({"card": "lost-1", "other": "kept-1"});
    let answer = answered(&witness, &fleet, "a", &body).await;
    let scope = ControlScope {
        tool: Some("look"),
        queue: None,
        tenant: None,
        pointer: Some("/what"),
        value: Some("\"lost-1\""),
        subject: None,
    };
    let pause = NewControl {
        kind: ControlKind::Pause,
        scope,
        setting: "\"wait\"",
        told: None,
        actor: "ada",
        note: "the owner has lost the card",
        for_ms: None,
        in_tenant: None,
    };
    let set = controls::set(&fleet.database.pool, &pause).await.unwrap();
    assert!(matches!(set, ControlSet::Set(_)), "{set:?}");
    fleet.ring().await;
    let referring = async |path: &str| {
        let data = json!({"what": {"$result": answer, "path": path}});
        fleet.submit("look", &data).asynchronous().await.call_id()
    };
    until_so("the fleet to know of the pause", async || {
        let data = json!({"what": "lost-1"});
        let call = fleet.submit("look", &data).asynchronous().await.call_id();
        fleet.call(call).await["held_why"] == "pause"
    })
    .await;
    let (paused, free) = (referring("/card").await, referring("/other").await);
    until_so("the call that no pause covers to end", async || {
        fleet.call(free).await["state"] == "succeeded"
    })
    .await;
    until_so("the other one to wait for the pause", async || {
        fleet.call(paused).await["held_why"] == "pause"
    })
    .await;
}

/// A charge that takes an order and hangs, and is asked about by a probe.
fn charge_of_order(witness: &Witness) -> String {
    let probe = "timeout: 1s\nprobe: {tool: look, args: {what: 'order {{args.order.number}}'}, applied_when: result.status == \"paid\"}\n";
    (witness.tool("charge", "once") + probe).replace(
        "properties: {what: {type: string}}",
        "properties: {what: {type: string}, order: {type: object}}",
    )
}

/// A probe's template sees what the tool got.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_asks_about_the_answer_that_was_referred_to() {
    let witness = Witness::start().await;
    let charge = charge_of_order(&witness);
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read"), charge])).await;
    let order = answered(&witness, &fleet, "a", &json!({"number": "o-7"})).await;
    witness.always("charge it", Reply::DoneThenClose);
    witness.always(
        "order o-7",
        Reply::Body(json!({"status": "paid"}).to_string()),
    );
    let args = json!({"what": "charge it", "order": {"$result": order}});
    let call = fleet.submit("charge", &args).key("k");
    let call = call.asynchronous().await.call_id();
    until_so("the probe to settle the doubt", async || {
        fleet.call(call).await["state"] == "succeeded"
    })
    .await;
    assert_eq!(witness.asked("order o-7"), 1);
    invariants::hold(&fleet, &witness).await;
}

/// Asked about less than the tool got, a probe would find nothing, and a charge that was made would be settled as not applied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_concludes_nothing_where_the_answer_is_gone() {
    let witness = Witness::start().await;
    let charge = charge_of_order(&witness);
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read"), charge])).await;
    let order = answered(&witness, &fleet, "a", &json!({"number": "o-7"})).await;
    witness.always("charge it", Reply::DoneThenHang);
    let args = json!({"what": "charge it", "order": {"$result": order}});
    let call = fleet.submit("charge", &args).key("k");
    let call = call.asynchronous().await.call_id();
    witness
        .until("the charge", |seen| seen.applied("charge it") == 1)
        .await;
    forget(&fleet, &order).await;
    until_so("the probe to say why it cannot ask", async || {
        let events = fleet.events(call).await;
        events.iter().any(|event| {
            let text = event.to_string();
            text.contains("an answer that the arguments refer to is no longer kept")
        })
    })
    .await;
    assert_eq!(fleet.call(call).await["state"], "in_doubt");
    assert_eq!(witness.look(|seen| seen.requests.len()), 2);
}

/// The key that is made of the arguments does not depend on the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_answered_where_the_answer_is_gone() {
    let witness = Witness::start().await;
    let wide = |manifest: String| {
        manifest.replace(
            "properties: {what: {type: string}}",
            "properties: {what: {type: string}, order: {type: object}, unit: {type: string, default: each}}",
        )
    };
    let tools = [
        witness.tool("look", "read"),
        wide(witness.tool("derive", "once") + "key: from_arguments\n"),
        wide(witness.tool("charge", "once")),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let order = answered(&witness, &fleet, "a", &json!({"number": "o-7"})).await;
    let sent = format!(r#"{{"what": "b", "order": {{"$result": "{order}"}}}}"#);
    let otherwise =
        format!(r#"{{ "order": {{"$result": "{order}"}}, "what": "b", "unit": "each" }}"#);
    let call = async |tool: &str, body: &String| {
        let call = fleet.submit_bytes(tool, body.clone());
        match tool {
            "derive" => call.wait().await,
            _ => call.key("k").wait().await,
        }
    };
    for tool in ["derive", "charge"] {
        let first = call(tool, &sent).await;
        assert_eq!(first["state"], "succeeded", "{}", *first);
        let again = call(tool, &otherwise).await;
        assert_eq!(again["replayed"], true, "{tool} {}", *again);
    }
    forget(&fleet, &order).await;
    for tool in ["derive", "charge"] {
        for body in [&sent, &otherwise] {
            let again = call(tool, body).await;
            assert_eq!(again["replayed"], true, "{tool} {}", *again);
        }
    }
    assert_eq!(witness.applied("b"), 2);
}
