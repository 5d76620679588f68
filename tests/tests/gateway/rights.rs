//! A gateway as it is deployed: the user `gateway` of nats-server, the role `toolfleet_gateway` in Postgres, and no more.

use fleet::{store::rights::Duty, tokens::Scope};
use fleet_tests::{
    event_source::EventSource,
    fleet::{Fleet, Spec, built},
    invariants,
    shipped::User,
    wait::until_so,
    web::Web,
    witness::Witness,
};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tokio::process::Command;

use crate::{
    streams::following,
    tokens::{Held, known, token, with},
};

#[tokio::test]
async fn its_user_and_its_role_are_enough_for_everything_and_for_nothing_else() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("look", "read"),
        witness.tool("charge", "once") + "approval: {by: operator}\n",
    ];
    let fleet = Fleet::start(Spec::with(tools).shipped().roles()).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let held = token(&fleet, "ann", "default", Scope::ALL, "*").await;
    known(web, &held).await;
    let done = with(web.post("/v1/call/look", r#"{"what":"a"}"#), &held);
    let done = done.send().await;
    assert_eq!(done.status, 200, "{}", done.text());
    let call = done.header("Toolfleet-Call-Id").to_owned();
    for path in [
        "/v1/tools".to_owned(),
        "/v1/history".to_owned(),
        format!("/v1/history/{call}"),
        format!("/v1/calls/{call}?wait_ms=10"),
    ] {
        let answer = with(web.get(&path), &held).send().await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    }
    let batch = json!({"calls": [{"tool": "look", "args": {"what": "b"}}]}).to_string();
    let waiting = with(web.post("/v1/call/charge", r#"{"what":"c"}"#), &held);
    let waiting = waiting.header("Idempotency-Key", "c").send().await;
    let awaiting = waiting.json()["awaiting"].clone();
    let waits = waiting.header("Toolfleet-Call-Id").to_owned();
    let decision = json!({"args_hash": awaiting["args_hash"], "note": "n"}).to_string();
    for (path, body, status) in [
        ("/v1/batch".to_owned(), batch, 200),
        (format!("/v1/calls/{waits}/deny"), decision, 200),
        (format!("/v1/calls/{call}/cancel"), "{}".to_owned(), 200),
        (
            format!("/v1/calls/{call}/settle"),
            json!({"outcome": "applied", "note": "n"}).to_string(),
            409,
        ),
        (
            format!("/v1/calls/{call}/output"),
            json!({"token": "x.y", "result": 1}).to_string(),
            404,
        ),
        (
            "/v1/completions/x.y".to_owned(),
            json!({"result": 1}).to_string(),
            404,
        ),
    ] {
        let answer = with(web.post(&path, body), &held).send().await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
    }
    follows(&fleet, web, &held).await;
    // The name of the token, and behind it where the dispatcher heard it from.
    let decided = fleet.events(waits.parse().unwrap()).await;
    let actor = decided.last().unwrap()["actor"].as_str().unwrap();
    assert_eq!(actor, "ann (_INBOX_gateway)");

    let url = fleet.database.url_of(Duty::Gateway.role());
    let mut connection = PgConnection::connect(&url).await.unwrap();
    for forbidden in [
        "SELECT * FROM toolfleet.open_calls",
        "SELECT * FROM toolfleet.token_secret",
        "SELECT toolfleet.cancel(NULL, NULL, NULL, NULL)",
        "UPDATE toolfleet.fleet SET registry_rev = registry_rev",
        "INSERT INTO toolfleet.call_notes DEFAULT VALUES",
    ] {
        let refused = sqlx::raw_sql(forbidden).execute(&mut connection).await;
        assert!(refused.is_err(), "{forbidden}");
    }
    doctor_finds_it_well(&fleet).await;
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

/// With the role and the user of the gateway; with those of an operator it says what they lack and have beyond it.
async fn doctor_finds_it_well(fleet: &Fleet) {
    let looks = async |user: User, duty: Duty| {
        let mut command = Command::new(built("fleet_tests_toolfleet"));
        command.args(["doctor", "--gateway", "--json"]).env_clear();
        command.env("DATABASE_URL", fleet.database.url_of(duty.role()));
        command.env("NATS_URL", user.url(fleet.nats_port()));
        command.env("NATS_INBOX", user.inbox());
        let output = command.output().await.unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), said)
    };
    let (code, said) = looks(User::Gateway, Duty::Gateway).await;
    assert_eq!((code, &said["status"]), (Some(0), &json!("ok")), "{said}");
    let checks: Vec<&str> = said["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| check["check"].as_str().unwrap())
        .collect();
    let expected = [
        "postgres",
        "schema",
        "views",
        "rights",
        "nats",
        "nats_rights",
        "events",
        "dispatchers",
    ];
    assert_eq!(checks, expected, "{said}");
    let (code, said) = looks(User::Operator, Duty::Operator).await;
    assert_eq!(code, Some(1), "{said}");
    let found = |name: &str| {
        let mut checks = said["checks"].as_array().unwrap().iter();
        checks.find(|check| check["check"] == name).unwrap().clone()
    };
    let views = found("views");
    assert_eq!(views["status"], "fail", "{said}");
    assert!(views["found"].as_str().unwrap().contains("token_hashes"));
    assert_eq!(found("rights")["status"], "warn", "{said}");
    assert_eq!(found("nats_rights")["status"], "warn", "{said}");
}

/// Follows a session from now on and from its start, and more of it at once than the server sends without a word from its reader.
async fn follows(fleet: &Fleet, web: Web, held: &Held) {
    let made = async |what: &str| {
        let body = json!({ "what": what }).to_string();
        let made = with(web.post("/v1/call/look", body), held).header("Toolfleet-Session", "s");
        assert_eq!(made.send().await.status, 200);
    };
    made("d").await;
    let mut now = EventSource::open(with(following(web, "s", ""), held)).await;
    let mut start = EventSource::open(with(following(web, "s", "?from=start"), held)).await;
    start.until("finished").await;
    made("e").await;
    now.until("finished").await;
    let teller = fleet.client_of(User::Worker).await;
    let payload = format!(
        "{{\"kind\":\"output\",\"text\":\"{}\"}}",
        "x".repeat(50_000)
    );
    for number in 0..200 {
        let subject = format!("toolfleet.v1.default.event.much.{number}");
        let telling = teller.connection().publish(subject, payload.clone().into());
        telling.await.unwrap();
    }
    until_kept(fleet, "toolfleet.v1.default.event.much.199").await;
    let mut much = EventSource::open(with(following(web, "much", "?from=start"), held)).await;
    assert_eq!(much.take(200).await.len(), 200);
    let log = fleet.shipped_log();
    let denied: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("Violation"))
        .collect();
    assert!(denied.is_empty(), "{denied:?}");
}

/// Waits until the stream has an event under this subject: what comes after a reader has begun, the reader has to take
/// as soon as it comes.
async fn until_kept(fleet: &Fleet, subject: &str) {
    let reader = fleet.client_of(User::Gateway).await;
    let jetstream = async_nats::jetstream::new(reader.connection().clone());
    let stream = jetstream.get_stream("TOOLFLEET_EVENTS").await.unwrap();
    until_so("the last event to be kept", async || {
        let kept = stream.get_last_raw_message_by_subject(subject).await;
        kept.is_ok()
    })
    .await;
}
