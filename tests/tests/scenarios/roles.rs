//! A whole fleet under the roles of `deploy/postgres/roles.sql`: each process has its role and no other.

use fleet::store::{
    rights::{self, Duty},
    tools::{self, Applied},
};
use fleet_tests::{
    fleet::{Fleet, Spec, built},
    invariants,
    witness::{Reply, Witness},
};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use tokio::process::Command;

/// What the program prints for an operator at Postgres and NATS.
async fn operator(fleet: &Fleet, words: &[&str]) -> Value {
    let mut command = Command::new(built("fleet_tests_toolfleet"));
    command.args(words).arg("--json");
    command.env("DATABASE_URL", fleet.database.url_of(Duty::Operator.role()));
    command.env("NATS_URL", fleet.nats_url());
    let output = command.output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn a_fleet_works_under_the_shipped_roles() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("look", "read") + "retry: {strategy: fixed, max_attempts: 5, base: 10ms}\n",
        witness.tool("charge", "once"),
        witness.tool("narrow", "once") + "concurrency: 1\n",
    ];
    let spec = Spec::with(tools).roles().dispatchers(2).workers(2, &[]);
    let mut fleet = Fleet::start(spec).await;
    for duty in Duty::ALL {
        let url = fleet.database.url_of(duty.role());
        let mut connection = PgConnection::connect(&url).await.unwrap();
        let beyond = rights::beyond(&mut connection, duty).await.unwrap();
        assert!(beyond.is_empty(), "{duty:?}: {beyond:?}");
    }
    // Calls of each way: at once, again, one at a time, and one that is repeated.
    witness.first("wobbly", [Reply::Status(503), Reply::Done]);
    for (tool, what) in [
        ("look", "a"),
        ("look", "wobbly"),
        ("charge", "b"),
        ("narrow", "c"),
    ] {
        let submission = fleet.submit(tool, &json!({"what": what})).key(what);
        let answer = submission.clone().wait().await;
        assert_eq!(answer["state"], "succeeded", "{}", *answer);
        let again = submission.wait().await;
        assert_eq!(again["replayed"], true, "{}", *again);
    }
    let many = (0..20).map(|n| {
        let what = format!("n{n}");
        fleet
            .submit("narrow", &json!({"what": what}))
            .key(&what)
            .wait()
    });
    for answer in futures_util::future::join_all(many).await {
        assert_eq!(answer["state"], "succeeded", "{}", *answer);
    }
    // A doubt, which a person settles over NATS, and one that a late answer of its attempt settles.
    witness.first("lost", [Reply::Status(503)]);
    let doubt = fleet
        .submit("charge", &json!({"what": "lost"}))
        .key("d")
        .wait()
        .await;
    assert_eq!(doubt["state"], "in_doubt", "{}", *doubt);
    let wish =
        json!({"call_id": doubt.call_id(), "outcome": "applied", "actor": "me", "note": "seen"});
    let settled = fleet.ask("toolfleet.v1.default.admin.settle", &wish).await;
    assert_eq!(settled["state"], "succeeded", "{}", *settled);
    // What is taken back, and a worker that leaves in order.
    fleet.workers[0].drain().await;
    fleet.workers[1].drain().await;
    let call = fleet
        .submit("charge", &json!({"what": "x"}))
        .key("x")
        .asynchronous()
        .await
        .call_id();
    let cancelled = fleet
        .ask("toolfleet.v1.default.cancel", &json!({"call_id": call}))
        .await;
    assert_eq!(cancelled["result"], "cancelled", "{}", *cancelled);
    let left = "SELECT count(*) FROM toolfleet.workers WHERE state = 'left'";
    assert_eq!(fleet.count(left).await, 2);
    fleet.add_worker(&[]).await;

    // People at the command line.
    let mut connection = PgConnection::connect(&fleet.database.url_of(Duty::Operator.role()))
        .await
        .unwrap();
    let manifest = witness.tool("second", "read");
    let manifest = fleet::manifest::parse(&manifest).unwrap();
    let applied = tools::apply(&mut connection, &manifest, "me")
        .await
        .unwrap();
    assert_eq!(applied, Applied::Created);
    for words in [
        &["calls", "list"][..],
        &["tools", "list"],
        &["workers", "list"],
    ] {
        let said = operator(&fleet, words).await;
        assert!(!said.is_null(), "{words:?}");
    }
    let doctor = operator(&fleet, &["doctor"]).await;
    let checks = doctor["checks"].as_array().unwrap();
    assert!(
        checks.iter().all(|check| check["status"] != "fail"),
        "{doctor}"
    );
    let routes = checks.iter().find(|check| check["check"] == "model_routes");
    assert_eq!(routes.unwrap()["status"], "ok", "{doctor}");
    invariants::hold(&fleet, &witness).await;
}
