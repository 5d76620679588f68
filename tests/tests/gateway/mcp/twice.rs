//! Never twice, of clients that know of no keys: what is sent again is the same call, and what did nothing may be asked for again.

use fleet::ids::CallId;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::{Value, json};

use super::{legacy, modern, result, said, texts};

fn id(result: &Value) -> CallId {
    said(result)["id"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_lost_answer_that_is_asked_for_again_is_one_effect() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("charge", "once"),
        witness.tool("send", "idempotent"),
        witness.tool("look", "read"),
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let (mut other, elsewhere) = fleet.gateway(&[]).await;
    for (tool, what) in [("charge", "a"), ("send", "b")] {
        // Its answer is lost: it comes, and nobody reads it.
        let arguments = json!({ "what": what }).to_string();
        let lost = legacy(web)
            .calling_as("1", tool, &arguments, "")
            .send()
            .await;
        // Another id, another spelling, another gateway, another revision.
        let spelled = format!("{{ \"what\" : \"\\u00{:02x}\" }}", what.as_bytes()[0]);
        let again = modern(elsewhere)
            .calling_as("2", tool, &spelled, "")
            .send()
            .await;
        let (first, again) = (result(&lost), result(&again));
        assert_eq!(id(&first), id(&again), "{again}");
        assert_eq!(again["structuredContent"], first["structuredContent"]);
        assert_eq!(said(&again)["replayed"], true);
        assert!(
            texts(&again)
                .last()
                .unwrap()
                .contains("nothing was run again"),
            "{again}"
        );
        assert_eq!((witness.asked(what), texts(&first).len()), (1, 1));
    }
    // A read goes without a key: it is looked anew.
    let (one, two) = (
        modern(web).call("look", "c").await,
        modern(web).call("look", "c").await,
    );
    assert_ne!(id(&one), id(&two));
    assert_eq!(witness.asked("c"), 2);

    // At once, at two gateways.
    witness.always("d", Reply::DoneAfter(std::time::Duration::from_millis(300)));
    let calls = (0..16).map(|number| {
        let client = if number % 2 == 0 {
            modern(web)
        } else {
            modern(elsewhere)
        };
        client.call("charge", "d")
    });
    let results = futures_util::future::join_all(calls).await;
    assert!(results.iter().all(|one| id(one) == id(&results[0])));
    assert_eq!(witness.asked("d"), 1);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
    other.drain().await;
}

#[tokio::test]
async fn the_same_on_purpose_has_a_key_of_its_own() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let client = modern(web);
    let by = async |argument: Option<&str>, meta: Option<&str>| {
        let mut arguments = json!({"what": "a"});
        if let Some(key) = argument {
            arguments["idempotency_key"] = json!(key);
        }
        let meta = meta.map(|key| format!(r#""io.toolfleet/idempotency-key":"{key}""#));
        let request = client.calling("charge", &arguments.to_string(), &meta.unwrap_or_default());
        result(&request.send().await)
    };
    let first = by(None, None).await;
    let second = by(Some("again"), None).await;
    let third = by(None, Some("once-more")).await;
    assert_eq!(witness.asked("a"), 3);
    for (argument, meta, same) in [
        (None, None, &first),
        // What stands for nothing is nothing.
        (Some(""), None, &first),
        (Some("again"), None, &second),
        // The client's word goes before the model's.
        (Some("other"), Some("once-more"), &third),
        (Some("once-more"), None, &third),
    ] {
        let again = by(argument, meta).await;
        assert_eq!(id(&again), id(same), "{argument:?} {meta:?}");
        assert!(
            texts(&again)
                .last()
                .unwrap()
                .contains("nothing was run again"),
            "{again}"
        );
    }
    assert_eq!(witness.asked("a"), 3);
    // A key is one call: with other arguments it is refused.
    let other = client.calling("charge", r#"{"what":"b","idempotency_key":"again"}"#, "");
    let other = result(&other.send().await);
    assert_eq!(said(&other)["error"]["code"], "idempotency_key_reused");
    for (meta, number) in [
        (
            r#""io.toolfleet/idempotency-key":""#.to_owned() + &"x".repeat(256) + "\"",
            -32_602,
        ),
        (r#""io.toolfleet/idempotency-key":7"#.to_owned(), -32_602),
    ] {
        let answer = client
            .calling("charge", r#"{"what":"c"}"#, &meta)
            .send()
            .await;
        assert_eq!(super::error(&answer), (200, number));
    }
    let of_a_turn = client.calling("charge", r#"{"what":"c","idempotency_key":"turn_1"}"#, "");
    let of_a_turn = result(&of_a_turn.send().await);
    assert_eq!(said(&of_a_turn)["error"]["code"], "invalid_idempotency_key");
    assert_eq!((witness.asked("b"), witness.asked("c")), (0, 0));
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn what_did_nothing_may_be_asked_for_again_and_what_may_have_may_not() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([
        witness.tool("charge", "once") + "timeout: 500ms\n"
    ]))
    .await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let client = legacy(web);
    witness.first("no", [Reply::No("not now"), Reply::No("not now")]);
    for expected in ["failed", "failed", "succeeded", "succeeded"] {
        let told = client.call("charge", "no").await;
        assert_eq!(said(&told)["state"], expected, "{told}");
    }
    assert_eq!((witness.asked("no"), witness.applied("no")), (3, 1));

    witness.always("doubt", Reply::DoneThenHang);
    let first = client.call("charge", "doubt").await;
    assert_eq!(said(&first)["state"], "in_doubt");
    let again = client.call("charge", "doubt").await;
    assert_eq!(id(&first), id(&again));
    assert!(texts(&again)[0].contains("do not repeat it"), "{again}");
    assert_eq!(witness.asked("doubt"), 1);
    // Known not to have happened, it may be asked for again.
    let path = format!("/v1/calls/{}/settle", id(&first));
    let settling =
        json!({"outcome": "not_applied", "note": "n", "actor": "ada", "by_time_only": true})
            .to_string();
    until_so("the doubt to be settled", async || {
        let settled = web.post(&path, settling.clone()).send().await;
        settled.status == 200
    })
    .await;
    witness.always("doubt", Reply::Done);
    let third = client.call("charge", "doubt").await;
    assert_eq!(said(&third)["state"], "succeeded", "{third}");
    assert_ne!(id(&third), id(&first));

    // So often, and then with a key.
    witness.always("never", Reply::No("no"));
    for _ in 0..8 {
        assert_eq!(
            said(&client.call("charge", "never").await)["state"],
            "failed"
        );
    }
    let ninth = client.call("charge", "never").await;
    assert_eq!(said(&ninth)["state"], "refused", "{ninth}");
    assert!(texts(&ninth)[0].contains("idempotency_key"), "{ninth}");
    assert_eq!(witness.asked("never"), 8);
    let keyed = client.calling("charge", r#"{"what":"never","idempotency_key":"k"}"#, "");
    assert_eq!(said(&result(&keyed.send().await))["state"], "failed");
    assert_eq!(witness.asked("never"), 9);
    gateway.drain().await;
}

#[tokio::test]
async fn an_earlier_call_is_found_though_the_key_before_it_has_lapsed() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    witness.first("a", [Reply::No("not now")]);
    let client = modern(web);
    let failed = client.call("charge", "a").await;
    let done = client.call("charge", "a").await;
    assert_eq!(
        (
            said(&failed)["state"].as_str(),
            said(&done)["state"].as_str()
        ),
        (Some("failed"), Some("succeeded"))
    );
    // A day later, as far as the first is concerned.
    for statement in [
        "ALTER TABLE toolfleet.finished_calls DISABLE TRIGGER insert_only",
        "UPDATE toolfleet.finished_calls SET key_retention_ms = 0 WHERE state = 'failed'",
        "ALTER TABLE toolfleet.finished_calls ENABLE TRIGGER insert_only",
    ] {
        fleet.sql(statement).await;
    }
    let again = client.call("charge", "a").await;
    assert_eq!(id(&again), id(&done), "{again}");
    assert_eq!(witness.applied("a"), 1);
    gateway.drain().await;
}

#[tokio::test]
async fn who_asks_is_part_of_what_is_the_same() {
    use fleet::tokens::Scope;

    use crate::tokens::{known, token, with};

    let witness = Witness::start().await;
    let tools = [
        witness.tool("charge", "once"),
        witness.tool("invoice", "once") + "key: from_arguments\n",
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let ann = token(&fleet, "ann", "default", &[Scope::Call], "*").await;
    let bob = token(&fleet, "bob", "default", &[Scope::Call], "*").await;
    let acme = token(&fleet, "ann", "acme", &[Scope::Call], "*").await;
    for held in [&ann, &bob, &acme] {
        known(web, held).await;
        for _ in 0..2 {
            let request = modern(web).calling("charge", r#"{"what":"a"}"#, "");
            result(&with(request, held).send().await);
            // The tool itself says that equal arguments are one call, whoever asks.
            let request = modern(web).calling("invoice", r#"{"what":"b"}"#, "");
            result(&with(request, held).send().await);
        }
    }
    assert_eq!((witness.asked("a"), witness.asked("b")), (3, 2));
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
