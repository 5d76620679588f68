//! `admin.control`: a tenant's subject reaches its own controls and no others, the fleet's reaches all.

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::Witness,
};
use serde_json::{Value, json};

const ACME: &str = "toolfleet.v1.acme.admin.control";
const BETA: &str = "toolfleet.v1.beta.admin.control";
const ALL: &str = "toolfleet.admin.control";

fn with(body: &Value, more: &Value) -> Value {
    let mut body = body.clone();
    let more = more.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(more);
    body
}

async fn ids(fleet: &Fleet, subject: &'static str) -> Vec<i64> {
    let listed = fleet.ask(subject, &json!({"do": "list"})).await;
    let controls = listed["controls"].as_array().unwrap().iter();
    controls
        .map(|control| control["control_id"].as_i64().unwrap())
        .collect()
}

#[tokio::test]
async fn a_tenants_subject_pauses_its_own_calls_and_the_fleets_those_of_all() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")]).roles()).await;
    let who = json!({"actor": "ada", "note": "why"});
    let pause = with(
        &json!({"do": "pause", "tool": "look", "tenant": "acme"}),
        &who,
    );
    let set = fleet.ask(ACME, &pause).await;
    assert_eq!(
        (&set["result"], &set["control"]["setting"]),
        (&json!("set"), &json!("wait")),
        "{}",
        *set
    );
    assert_eq!(set["control"]["actor"], "ada (_INBOX)");
    let id = set["control"]["control_id"].clone();
    assert_eq!(fleet.ask(ACME, &pause).await["result"], "already_set");
    let conflict = fleet
        .ask(ACME, &with(&pause, &json!({"setting": "refuse"})))
        .await;
    assert_eq!(conflict.code(), "conflict");
    assert_eq!(conflict["error"]["details"]["control"]["control_id"], id);

    for (subject, more, why) in [
        (BETA, json!({}), "tenant is another one"),
        (BETA, json!({"tenant": null}), "tenant must be named"),
        (ALL, json!({"tool": "absent"}), "there is no such tool"),
        (ALL, json!({"queue": "absent"}), "no tool has this queue"),
        (
            ALL,
            json!({"tool": null, "tenant": null}),
            "a pause needs a scope",
        ),
        (
            ALL,
            json!({"pointer": "what", "value": 1}),
            "pointer must be a JSON pointer",
        ),
        (
            ALL,
            json!({"pointer": "/what", "value": "x".repeat(1_023)}),
            "value may have 1024 bytes",
        ),
        (ALL, json!({"for_ms": 0}), "for_ms must be"),
        (ALL, json!({"for_ms": 2_592_000_001_u64}), "for_ms must be"),
        (ALL, json!({"actor": ""}), "actor must say"),
        (ALL, json!({"note": null}), "note must say why"),
        (
            ALL,
            json!({"setting": "refuse", "told": "x".repeat(201)}),
            "told may have 1 to 200",
        ),
        (ALL, json!({"do": "stop"}), "do must be"),
        (ALL, json!({"forever": true}), "the body must have the form"),
    ] {
        let refused = fleet.ask(subject, &with(&pause, &more)).await;
        assert_eq!(refused.code(), "invalid_arguments", "{more}: {}", *refused);
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(
            message.to_lowercase().contains(&why.to_lowercase()),
            "{more}: {message}"
        );
    }
    assert_eq!(
        fleet
            .count("SELECT count(*) FROM toolfleet.control_log")
            .await,
        1
    );

    until_so("calls of acme to wait", async || {
        let call = fleet.submit("look", &json!({"what": "a"})).tenant("acme");
        let call = call.asynchronous().await.call_id();
        fleet.call(call).await["held_why"] == "pause"
    })
    .await;
    // What the other tenant asks for does not reach it.
    let resume = with(&json!({"do": "resume", "control_id": id}), &who);
    assert_eq!(fleet.ask(BETA, &resume).await["result"], "not_found");
    assert_eq!(
        (ids(&fleet, ACME).await.len(), ids(&fleet, BETA).await.len()),
        (1, 0)
    );
    let refuse = json!({"do": "pause", "tool": "look", "tenant": "beta", "setting": "refuse", "told": "ask later"});
    assert_eq!(fleet.ask(ALL, &with(&refuse, &who)).await["result"], "set");
    assert_eq!(
        (ids(&fleet, ALL).await.len(), ids(&fleet, BETA).await.len()),
        (2, 1)
    );
    let by_scope = json!({"do": "resume", "tool": "look", "tenant": "beta"});
    assert_eq!(
        fleet.ask(ALL, &with(&by_scope, &who)).await["result"],
        "unset"
    );
    assert_eq!(fleet.ask(ALL, &resume).await["result"], "unset");
    until_so("every call to be over", async || {
        fleet
            .count("SELECT count(*) FROM toolfleet.open_calls")
            .await
            == 0
    })
    .await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn interceptors_are_switched_over_nats_and_those_of_a_tenant_for_it_alone() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let who = json!({"actor": "ada", "note": "why"});
    let off = with(
        &json!({"do": "set", "interceptor": "audit", "mode": "off", "tenant": "acme"}),
        &who,
    );
    let unknown = fleet.ask(ACME, &off).await;
    assert_eq!(unknown.code(), "invalid_arguments", "{}", *unknown);
    let has = "UPDATE toolfleet.worker_processes SET interceptors = \
        '[{\"name\": \"audit\", \"order\": 100, \"mandatory\": false, \"fails\": \"open\", \"budget_ms\": 10}]'";
    sqlx::query(has)
        .execute(&fleet.database.pool)
        .await
        .unwrap();
    let set = fleet.ask(ACME, &off).await;
    assert_eq!(set["result"], "set", "{}", *set);
    let observed = with(&off, &json!({"mode": "observe"}));
    assert_eq!(fleet.ask(ACME, &observed).await.code(), "conflict");
    assert_eq!(fleet.ask(BETA, &off).await.code(), "invalid_arguments");
    let only = with(&json!({"do": "only", "interceptors": ["audit"]}), &who);
    assert_eq!(fleet.ask(ACME, &only).await.code(), "invalid_arguments");
    let listed = fleet.ask(ALL, &only).await;
    assert_eq!(
        listed["control"]["setting"],
        json!(["audit"]),
        "{}",
        *listed
    );
    let id = set["control"]["control_id"].clone();
    let unset = with(&json!({"do": "unset", "control_id": id}), &who);
    assert_eq!(fleet.ask(BETA, &unset).await["result"], "not_found");
    assert_eq!(fleet.ask(ACME, &unset).await["result"], "unset");
}

#[tokio::test]
async fn what_the_fleets_operator_has_changed_no_tenants_operator_undoes_or_reads() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")]).roles()).await;
    let who = json!({"actor": "tina", "note": "why"});
    let pause = with(
        &json!({"do": "pause", "tool": "look", "tenant": "acme", "pointer": "/what", "value": 7}),
        &who,
    );
    let set = fleet.ask(ACME, &pause).await;
    assert_eq!(set["result"], "set", "{}", *set);
    let id = set["control"]["control_id"].clone();
    let legal = json!({"setting": "refuse", "replace": true, "actor": "ada", "note": "LEGAL", "value": 7.0});
    let changed = fleet.ask(ALL, &with(&pause, &legal)).await;
    assert_eq!(
        (&changed["result"], &changed["control"]["control_id"]),
        (&json!("changed"), &id),
        "{}",
        *changed
    );
    let away = json!({"replace": true, "setting": "wait", "for_ms": 1});
    let refused = fleet.ask(ACME, &with(&pause, &away)).await;
    assert_eq!(refused.code(), "conflict", "{}", *refused);
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("only they change it"), "{message}");
    let hidden = "set by the fleet's operators";
    assert_eq!(
        refused["error"]["details"]["control"]["note"], hidden,
        "{}",
        *refused
    );
    let listed = fleet.ask(ACME, &json!({"do": "list"})).await;
    assert_eq!(listed["controls"][0]["note"], hidden, "{}", *listed);
    for undoing in [
        json!({"do": "unset", "control_id": id}),
        json!({"do": "resume", "control_id": id}),
        json!({"do": "resume", "tool": "look", "tenant": "acme", "pointer": "/what", "value": 7}),
    ] {
        let undone = fleet.ask(ACME, &with(&undoing, &who)).await;
        assert_eq!(undone["result"], "not_found", "{undoing}: {}", *undone);
    }
    let listed = fleet.ask(ALL, &json!({"do": "list"})).await;
    let there = &listed["controls"][0];
    assert_eq!(
        (&there["note"], &there["setting"]),
        (&json!("LEGAL"), &json!("refuse"))
    );
    // The time of one with an end begins anew with the same request.
    let end = with(&pause, &with(&legal, &json!({"for_ms": 60_000})));
    let first = fleet.ask(ALL, &end).await["control"]["expires_at"].clone();
    let again = fleet.ask(ALL, &end).await;
    assert_eq!(again["result"], "changed", "{}", *again);
    assert_ne!(again["control"]["expires_at"], first);
    let hidden = with(&pause, &json!({"value": 8, "note": "w\u{200b}hy"}));
    let refused = fleet.ask(ACME, &hidden).await;
    assert_eq!(refused.code(), "invalid_arguments", "{}", *refused);
}
