//! What a key means, row by row of the table in `docs/idempotency.md`; what other scenarios show is not shown again.
//!
//! ```text
//! a new key                    life_of_a_call: a_caller_who_does_not_wait_asks_later
//! open: attached               life_of_a_call: callers_with_one_key_at_two_dispatchers_share_one_call
//! decided: the same bytes      here, and life_of_a_call: a_replay_differs_from_the_first_answer_in_one_word
//! in doubt: never again        here, and in_doubt: a_write_without_an_answer_is_in_doubt_and_stays_so
//! other tool, other arguments  here
//! the same arguments           here; schemas/canonical.json
//! refused: key still free      errors: what_is_refused_at_the_door_leaves_no_trace
//! no key on a once tool        errors, the same; here, where the tool makes keys of the arguments
//! lapsed: a new call           here; for races ledger: a_lapsed_key_is_taken_over_once
//! another tenant               life_of_a_call: a_key_names_one_tool_and_one_set_of_arguments_within_its_tenant
//! ```

use std::time::Duration;

use fleet_tests::{
    caller::Answer,
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::json;

const CALLS: &str = "SELECT count(*) FROM toolfleet.calls";
const KEYS: &str = "SELECT count(*) FROM toolfleet.idempotency_keys";

fn same_but_replayed(replay: &Answer, first: &Answer) {
    assert_eq!(replay["replayed"], true, "{}", **replay);
    assert_eq!(replay.first_bytes(), first.first_bytes());
}

#[tokio::test]
async fn failures_are_replayed_like_successes() {
    let witness = Witness::start().await;
    let once = "retry: {strategy: none}\n";
    let tools = [
        witness.tool("look", "read") + once,
        witness.tool("charge", "once") + "not_applied_statuses: [503]\n" + once,
    ];
    let mut fleet = Fleet::start(Spec::with(tools)).await;
    witness.first("no", [Reply::No("not today")]);
    witness.first("busy", [Reply::Status(503)]);
    witness.first("nonsense", [Reply::Body("no JSON".to_owned())]);
    let mut calls = Vec::new();
    for (tool, what, code) in [
        ("charge", "no", "tool_error"),
        ("charge", "busy", "unavailable"),
        ("look", "nonsense", "output_invalid"),
    ] {
        let call = fleet.submit(tool, &json!({"what": what})).key(what);
        let answer = call.clone().wait().await;
        assert_eq!(
            (&answer["state"], answer.code()),
            (&json!("failed"), code),
            "{}",
            *answer
        );
        calls.push((call, answer));
    }
    fleet.workers[0].drain().await;
    let late = fleet.submit("charge", &json!({"what": "late"})).key("late");
    let late = late.deadline(Duration::from_millis(200));
    let answer = late.clone().wait().await;
    assert_eq!(answer["state"], "expired", "{}", *answer);
    calls.push((late, answer));

    // Now each of them would go well.
    fleet.add_worker(&[]).await;
    for (call, first) in calls {
        same_but_replayed(&call.clone().wait().await, &first);
        same_but_replayed(&call.asynchronous().await, &first);
    }
    assert_eq!(fleet.count(CALLS).await, 4);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_key_in_doubt_outlives_its_retention() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    witness.first("a", [Reply::DoneThenClose]);
    let call = fleet.submit("charge", &json!({"what": "a"})).key("k");
    let doubt = call.clone().wait().await;
    assert_eq!(doubt["state"], "in_doubt", "{}", *doubt);
    let aged = "UPDATE toolfleet.open_calls SET key_retention_ms = 0, accepted_at = accepted_at - interval '400 days', \
                doubt_since = doubt_since - interval '400 days', deadline_at = deadline_at - interval '400 days'";
    assert_eq!(fleet.sql(aged).await, 1);
    let replay = call.clone().wait().await;
    assert_eq!(
        (&replay["call_id"], &replay["state"], &replay["replayed"]),
        (&doubt["call_id"], &json!("in_doubt"), &json!(true))
    );
    let other = fleet.submit("charge", &json!({"what": "b"})).key("k");
    assert_eq!(other.wait().await.code(), "idempotency_key_reused");
    assert_eq!((witness.asked("a"), witness.asked("b")), (1, 0));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_key_used_for_something_else_is_refused_whatever_its_call_is_doing() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read"), witness.tool("charge", "once")];
    let fleet = Fleet::start(Spec::with(tools)).await;
    witness.always("running", Reply::DoneWhenReleased);
    witness.always("doubt", Reply::DoneThenClose);
    for what in ["done", "doubt", "running"] {
        let call = fleet.submit("charge", &json!({"what": what})).key(what);
        if what == "running" {
            call.asynchronous().await;
            witness.until_asked(what, 1).await;
        } else {
            call.wait().await;
        }
        for (tool, args) in [
            ("look", json!({"what": what})),
            ("charge", json!({"what": "else"})),
            ("charge", json!({"what": what, "more": null})),
            // What would be refused anyway: the key comes first.
            ("nothing", json!({"what": what})),
            ("charge", json!({"what": 1})),
        ] {
            let other = fleet.submit(tool, &args).key(what).wait().await;
            assert_eq!(
                (other.code(), &other["state"], &other["call_id"]),
                ("idempotency_key_reused", &json!("refused"), &json!(null)),
                "{what}, {tool} {args}"
            );
        }
    }
    assert_eq!((fleet.count(CALLS).await, fleet.count(KEYS).await), (3, 3));
    assert_eq!(witness.asked("else"), 0);
    witness.release("running");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn equal_arguments_are_equal_however_they_are_spelled_and_to_the_digit() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let charge = |body: &str| fleet.submit_bytes("charge", body.to_owned()).key("k");
    let first = charge(r#"{"what":"é","cents":9007199254740993,"rate":1.0}"#)
        .wait()
        .await;
    assert_eq!(first["state"], "succeeded", "{}", *first);
    for same in [
        r#"{"rate":1.0,"cents":9007199254740993,"what":"é"}"#,
        "{\n\t\"cents\": 9007199254740993, \"wh\\u0061t\": \"\\u00E9\",\r\n\"rate\": 1.0 }",
    ] {
        same_but_replayed(&charge(same).wait().await, &first);
    }
    for other in [
        r#"{"what":"é","cents":9007199254740992,"rate":1.0}"#,
        r#"{"what":"é","cents":9007199254740993,"rate":1}"#,
        r#"{"what":"é","cents":9007199254740993,"rate":1.00}"#,
        "{\"what\":\"e\u{301}\",\"cents\":9007199254740993,\"rate\":1.0}",
        r#"{"what":"é","cents":"9007199254740993","rate":1.0}"#,
    ] {
        let refused = charge(other).wait().await;
        assert_eq!(refused.code(), "idempotency_key_reused", "{other}");
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn equal_bytes_are_equal_even_if_they_would_mean_something_else_today() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let call = fleet.submit("charge", &json!({"what": "a"})).key("k");
    let first = call.clone().wait().await;
    // As if the version it was accepted with had filled in a default that the one of today does not have.
    let moved = "UPDATE toolfleet.idempotency_keys SET args_hash = sha256('other')";
    assert_eq!(fleet.sql(moved).await, 1);
    same_but_replayed(&call.wait().await, &first);
    let spelled = fleet.submit_bytes("charge", r#"{ "what": "a" }"#).key("k");
    assert_eq!(spelled.wait().await.code(), "idempotency_key_reused");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_known_key_is_answered_where_a_new_call_would_be_refused() {
    let witness = Witness::start().await;
    let tool = witness.tool("charge", "once");
    let fleet = Fleet::start(Spec::with([tool.clone()])).await;
    let call = fleet.submit("charge", &json!({"what": "a"}));
    let first = call.clone().key("k").wait().await;
    let stricter = tool
        .replace("version: 1", "version: 2")
        .replace("required: [what]", "required: [what, why]");
    fleet.apply(&stricter).await;
    until_so("the dispatcher to know the stricter version", async || {
        let new = call.clone().key("new");
        let new = new.header("Toolfleet-Tool-Version", "2").wait().await;
        new.code() == "invalid_arguments"
    })
    .await;
    same_but_replayed(&call.clone().key("k").wait().await, &first);

    let over = call.header("Toolfleet-Run-Deadline", "2020-01-01T00:00:00Z");
    same_but_replayed(&over.clone().key("k").wait().await, &first);
    assert_eq!(over.key("l").wait().await.code(), "deadline_invalid");
    invariants::hold(&fleet, &witness).await;
}

/// Lets every key of a decided call lapse. The history refuses it unless it is forced.
async fn lapse(fleet: &Fleet) {
    fleet
        .sql("ALTER TABLE toolfleet.finished_calls DISABLE TRIGGER insert_only")
        .await;
    fleet
        .sql("UPDATE toolfleet.finished_calls SET key_retention_ms = 0")
        .await;
    fleet
        .sql("ALTER TABLE toolfleet.finished_calls ENABLE TRIGGER insert_only")
        .await;
}

#[tokio::test]
async fn a_lapsed_key_is_a_new_key() {
    let witness = Witness::start().await;
    let by_arguments = witness.tool("send", "once") + "key: from_arguments\n";
    let tools = [witness.tool("charge", "once"), by_arguments];
    let fleet = Fleet::start(Spec::with(tools).dispatchers(2)).await;
    let charge = fleet.submit("charge", &json!({"what": "a"})).key("k");
    let send = fleet.submit("send", &json!({"what": "b"}));
    let olds = [charge.clone().wait().await, send.clone().wait().await];
    lapse(&fleet).await;

    let by_key = json!({"tool": "charge", "idempotency_key": "k"});
    assert_eq!(fleet.get(&by_key).await.code(), "not_found");
    for (call, old) in [charge, send].into_iter().zip(olds) {
        let new = call.clone().wait().await;
        assert_eq!(
            (&new["state"], &new["replayed"]),
            (&json!("succeeded"), &json!(false))
        );
        assert_ne!(new["call_id"], old["call_id"]);
        // The old call stays what it was, and the key is the new one's.
        let kept = fleet.get(&json!({"call_id": old["call_id"]})).await;
        assert_eq!(kept.bytes, old.bytes);
        same_but_replayed(&call.wait().await, &new);
    }
    // A lapsed key may name other arguments, too.
    lapse(&fleet).await;
    let other = fleet.submit("charge", &json!({"what": "c"})).key("k");
    assert_eq!(other.wait().await["replayed"], false);
    assert_eq!(
        (
            witness.applied("a"),
            witness.applied("b"),
            witness.applied("c")
        ),
        (2, 2, 1)
    );
    assert_eq!(fleet.count(KEYS).await, 2);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn several_keys_are_looked_up_in_one_question() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("charge", "once"),
        witness.tool("refund", "once"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let done = fleet.submit("charge", &json!({"what": "a"})).key("k-0");
    let done = done.wait().await;
    witness.first("no", [Reply::No("not today")]);
    let refused = fleet.submit("charge", &json!({"what": "no"})).key("k-1");
    let refused = refused.wait().await;
    fleet
        .submit("refund", &json!({"what": "r"}))
        .key("k-2")
        .wait()
        .await;

    let keys = ["k-3", "k-1", "k-0", "k-2"];
    let asked = json!({"tool": "charge", "idempotency_keys": keys});
    let told = fleet.get(&asked).await;
    let expected = json!([
        {"idempotency_key": "k-1", "call_id": refused["call_id"], "state": "failed", "outcome": refused["outcome"],
         "effect": refused["effect"], "code": refused.code()},
        {"idempotency_key": "k-0", "call_id": done["call_id"], "state": "succeeded", "outcome": "success", "effect": "applied"},
    ]);
    assert_eq!(told["calls"], expected);
    // Another tenant has none of them.
    let foreign = fleet.ask("toolfleet.v1.other.get", &asked).await;
    assert_eq!(foreign["calls"], json!([]));
    lapse(&fleet).await;
    assert_eq!(fleet.get(&asked).await["calls"], json!([]));
    for wrong in [
        json!({"tool": "charge", "idempotency_keys": []}),
        json!({"tool": "charge", "idempotency_keys": vec!["k"; 17]}),
        json!({"tool": "charge", "idempotency_keys": ["k"], "wait_ms": 1}),
        json!({"tool": "charge", "idempotency_keys": ["k"], "idempotency_key": "k"}),
        json!({"idempotency_keys": ["k"]}),
    ] {
        assert_eq!(
            fleet.get(&wrong).await.code(),
            "invalid_arguments",
            "{wrong}"
        );
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_tool_can_take_its_keys_from_the_arguments() {
    let witness = Witness::start().await;
    let effects = ["read", "idempotent", "once"];
    let tool = |effect: &&str| witness.tool(effect, effect) + "key: from_arguments\n";
    let fleet = Fleet::start(Spec::with(effects.iter().map(tool))).await;
    for effect in effects {
        let what = format!("{effect}-a");
        let call = fleet.submit(effect, &json!({"what": what}));
        let first = call.clone().wait().await;
        assert_eq!(
            (&first["state"], &first["replayed"]),
            (&json!("succeeded"), &json!(false))
        );
        same_but_replayed(&call.clone().wait().await, &first);
        let spelled = fleet.submit_bytes(effect, format!("{{ \"wh\\u0061t\" : \"{what}\" }}"));
        same_but_replayed(&spelled.wait().await, &first);
        assert_eq!(witness.applied(&what), 1);

        // A caller who means it again says so with a key, or with arguments that tell the two apart.
        let again = call.clone().key("again").wait().await;
        assert_eq!(again["replayed"], false);
        assert_eq!(call.clone().key("again").wait().await["replayed"], true);
        let other = fleet.submit(effect, &json!({"what": what, "line": 2}));
        assert_eq!(other.wait().await["replayed"], false);
        assert_eq!(call.tenant("acme").wait().await["replayed"], false);
        assert_eq!(witness.applied(&what), 4);
        // What was sent with a key of its own is bound by that.
        let reused = fleet.submit(effect, &json!({"what": "b"})).key("again");
        assert_eq!(reused.wait().await.code(), "idempotency_key_reused");
        fleet.sql("DELETE FROM toolfleet.idempotency_keys").await;
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_key_is_found_in_the_history_by_its_hash() {
    let witness = Witness::start().await;
    let tool = witness.tool("send", "once") + "key: from_arguments\n";
    let fleet = Fleet::start(Spec::with([tool])).await;
    let send = fleet.submit("send", &json!({"what": "a"})).tenant("acme");
    let with_key = send.clone().key("order-1").wait().await;
    let without = send.wait().await;
    let own = "SELECT call_id FROM toolfleet.calls WHERE call_id = $1 AND idempotency_key_hash = \
               encode(sha256('acme'::bytea || '\\x00'::bytea || 'order-1'::bytea), 'hex')";
    let made = "SELECT call_id FROM toolfleet.calls WHERE call_id = $1 AND idempotency_key_hash = \
                encode(sha256('acme'::bytea || '\\x0001'::bytea || 'send'::bytea || '\\x00'::bytea \
                              || sha256('{\"what\":\"a\"}')), 'hex')";
    assert_eq!(fleet.rows(own, with_key.call_id()).await.len(), 1);
    assert_eq!(fleet.rows(made, without.call_id()).await.len(), 1);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_tool_applied_anew_does_not_do_again_what_its_old_version_did() {
    let witness = Witness::start().await;
    let tool = witness.tool("charge", "once") + "key: from_arguments\n";
    let fleet = Fleet::start(Spec::with([tool.clone()])).await;
    witness.first("doubt", [Reply::DoneThenClose]);
    let done = fleet.submit("charge", &json!({"what": "done"}));
    let doubt = fleet.submit("charge", &json!({"what": "doubt"}));
    let firsts = [done.clone().wait().await, doubt.clone().wait().await];
    assert_eq!(firsts[1]["state"], "in_doubt", "{}", *firsts[1]);

    fleet.apply(&tool.replace("version: 1", "version: 2")).await;
    let mut tries = 0;
    until_so("the dispatcher to know the new version", async || {
        tries += 1;
        let asked = json!({"what": "probe", "try": tries});
        let answer = fleet.submit("charge", &asked).wait().await;
        answer["tool_version"] == 2
    })
    .await;
    for (call, first) in [done, doubt].into_iter().zip(&firsts) {
        same_but_replayed(&call.clone().wait().await, first);
        let pinned = call.header("Toolfleet-Tool-Version", "2").wait().await;
        same_but_replayed(&pinned, first);
    }
    assert_eq!((witness.asked("done"), witness.asked("doubt")), (1, 1));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_key_made_of_arguments_is_met_by_whatever_becomes_these_arguments() {
    let witness = Witness::start().await;
    let schema = |version: u8, days: &str| {
        let tool = witness.tool("charge", "once") + "key: from_arguments\n";
        tool.replace("version: 1", &format!("version: {version}"))
            .replace(
                "what: {type: string}",
                &format!("what: {{type: string}}, days: {days}"),
            )
    };
    let strict = schema(1, "{type: integer}").replace("[what]", "[what, days]");
    let fleet = Fleet::start(Spec::with([strict])).await;
    let first = fleet.submit("charge", &json!({"what": "a", "days": 5}));
    let first = first.wait().await;
    assert_eq!(first["state"], "succeeded", "{}", *first);

    // The old version would have refused what the new one takes for the same.
    fleet.apply(&schema(2, "{type: integer, default: 5}")).await;
    let mut tries = 0;
    until_so("the dispatcher to know the new version", async || {
        tries += 1;
        let asked = json!({"what": "probe", "days": tries});
        fleet.submit("charge", &asked).wait().await["tool_version"] == 2
    })
    .await;
    let short = fleet.submit("charge", &json!({"what": "a"}));
    same_but_replayed(&short.wait().await, &first);
    assert_eq!(witness.asked("a"), 1);
    invariants::hold(&fleet, &witness).await;
}
