//! The doctor, on servers that are well and on servers that are not.

use std::{fs, net::TcpListener, process::Command, sync::Arc, time::Instant};

use async_nats::jetstream::{
    self,
    stream::{Config, RetentionPolicy},
};
use fleet::store::{
    accept::Accept,
    lane::{Locks, Statement},
    migrate::migrate,
    rights, tools,
};
use serde_json::{Value, json};
use sqlx::PgConnection;
use toolfleet::servers::free_ports;

use crate::{
    calls::call,
    decisions::Where,
    support::{Ran, folder, ledger, nats, postgres, program, run},
};

const NO_NATS: &str = "nats://127.0.0.1:1";
const STREAM: &str = "TOOLFLEET_JOBS";

fn doctor(database_url: &str, nats_url: &str, flags: &[&str]) -> Command {
    let mut command = program(&[&["doctor"], flags].concat());
    command.env("DATABASE_URL", database_url);
    command.env("NATS_URL", nats_url);
    command
}

/// What it says about one thing, each as `status: found`.
pub(crate) fn said(ran: &Ran, check: &str) -> Vec<String> {
    let report = ran.json();
    let checks = report["checks"].as_array().unwrap().iter();
    let checks = checks.filter(|one| one["check"] == check);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    checks
        .map(|one| format!("{}: {}", text(&one["status"]), text(&one["found"])))
        .collect()
}

async fn accept(connection: &mut PgConnection, calls: usize) {
    let calls = (0..calls).map(|_| Arc::new(call("look", "default", "{}")));
    let calls: Vec<_> = calls.collect();
    let accepted = Accept.run(connection, &calls, Locks::Wait).await.unwrap();
    assert!(accepted.iter().all(Option::is_some));
}

#[tokio::test]
async fn a_stream_that_was_changed_is_found_and_rebuilt_from_postgres() {
    let folder = folder();
    let (postgres, nats) = (
        postgres(folder.path(), true).await,
        nats(folder.path()).await,
    );
    let examine = |flags: &[&str]| run(doctor(&postgres.url(), &nats.url(), flags));
    let ran = examine(&[]);
    assert_eq!(ran.code, 64, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("run `toolfleet migrate`"), "{}", ran.out);

    let ledger = ledger(&postgres.url());
    migrate(&ledger).await.unwrap();
    let mut connection = ledger.connect().await.unwrap();
    // Servers for a fleet that was not started yet.
    let ran = examine(&["--json"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert_eq!(ran.json()["status"], "warn");
    assert!(said(&ran, "postgres")[0].starts_with("ok: PostgreSQL "));
    assert!(said(&ran, "nats")[0].starts_with("ok: nats-server "));
    for (check, expected) in [
        ("schema", "ok: as this program knows it"),
        ("ground", "ok: a new ledger, which the first process adopts"),
        ("partitions", "ok: made ahead, and nothing lies outside"),
        ("clock", "ok: this machine and Postgres agree"),
        ("stream", "warn: there is no stream TOOLFLEET_JOBS"),
        ("dispatchers", "warn: none answers"),
        ("in_doubt", "ok: no call"),
        ("tool_role", "ok: none, and no tool needs one"),
    ] {
        assert_eq!(said(&ran, check), [expected], "{}", ran.out);
    }

    let client = async_nats::connect(nats.url()).await.unwrap();
    let jetstream = jetstream::new(client);
    let changed = Config {
        name: STREAM.to_owned(),
        subjects: vec!["toolfleet.jobs.>".to_owned()],
        retention: RetentionPolicy::Limits,
        ..Config::default()
    };
    jetstream.create_stream(changed).await.unwrap();
    accept(&mut connection, 5).await;
    let ran = examine(&["--json"]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    let stream = &said(&ran, "stream")[0];
    for setting in ["retention", "discard", "max_msgs_per_subject"] {
        assert!(
            stream.starts_with("fail: ") && stream.contains(setting),
            "{stream}"
        );
    }
    assert_eq!(
        said(&ran, "consumers"),
        ["warn: queue default has no consumer"]
    );
    assert_eq!(
        said(&ran, "pointers"),
        ["warn: 0 in the stream for 5 calls that may run: 5 lost"]
    );
    assert!(said(&ran, "workers")[0].starts_with("warn: queue default has no worker"));

    let rebuilt = |out: &str| (0, out.to_owned());
    let all = "TOOLFLEET_JOBS was made anew with 1 consumer; 5 calls published\n";
    for _ in 0..2 {
        let ran = examine(&["--rebuild-stream"]);
        assert_eq!((ran.code, ran.out), rebuilt(all), "{}", ran.err);
    }
    let ran = examine(&["--json"]);
    assert_eq!(ran.code, 0, "{}", ran.out);
    for (check, expected) in [
        ("stream", "ok: TOOLFLEET_JOBS is as wanted"),
        ("consumers", "ok: 1 consumer as wanted"),
        ("pointers", "ok: 5 in the stream for 5 calls that may run"),
    ] {
        assert_eq!(said(&ran, check), [expected], "{}", ran.out);
    }
    nats.stop().await;
    postgres.stop().await;
}

#[tokio::test]
async fn below_17_autovacuum_has_to_look_often_once_dispatchers_do_not_own_the_tables() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let ledger = ledger(&postgres.url());
    migrate(&ledger).await.unwrap();
    let examine = || {
        let ran = run(doctor(&postgres.url(), NO_NATS, &["--json"]));
        said(&ran, "autovacuum")
    };
    // Dispatchers are the owner, as far as is known.
    assert_eq!(examine(), ["ok: on"]);
    rights::grant(&ledger).await.unwrap();
    let version = "SELECT current_setting('server_version_num')::integer";
    let mut connection = ledger.connect().await.unwrap();
    let version: i32 = sqlx::query_scalar(version)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    let found = examine();
    if version < 170_000 {
        let expected = "warn: it looks every 60 s, and below PostgreSQL 17";
        assert!(found[0].starts_with(expected), "{found:?}");
    } else {
        assert_eq!(found, ["ok: on"]);
    }
    postgres.stop().await;
}

#[tokio::test]
async fn lost_writes_are_explained_and_no_command_writes_before_they_are_dealt_with() {
    let folder = folder();
    let (postgres, nats) = (
        postgres(folder.path(), true).await,
        nats(folder.path()).await,
    );
    let ledger = ledger(&postgres.url());
    migrate(&ledger).await.unwrap();
    let mut connection = ledger.connect().await.unwrap();
    let restored =
        "UPDATE toolfleet.fleet SET system_identifier = '7001', timeline = 3, wal_lsn = '0/500'";
    sqlx::query(restored)
        .execute(&mut connection)
        .await
        .unwrap();
    let ran = run(doctor(&postgres.url(), &nats.url(), &["--json"]));
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    let found = said(&ran, "ground");
    for part in [
        "fail: ",
        "restored into another cluster",
        "timeline 3",
        "NATS remembers nothing",
    ] {
        assert!(found[0].contains(part), "{part}: {found:?}");
    }
    let tool = folder.path().join("tool.yaml");
    let manifest = "name: look\nversion: 1\ndescription: Looks.\neffect: read\ninput_schema: {type: object}\n\
                    executor: {http: {method: GET, url: \"http://127.0.0.1:1/\"}}\n";
    fs::write(&tool, manifest).unwrap();
    let mut apply = program(&["tools", "apply", tool.to_str().unwrap()]);
    apply.env("DATABASE_URL", postgres.url());
    let ran = run(apply);
    assert_eq!(ran.code, 64, "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("lost writes"), "{}", ran.err);
    nats.stop().await;
    postgres.stop().await;
}

#[tokio::test]
async fn a_prefix_of_another_ledger_is_found_left_alone_and_taken_only_by_word() {
    let folder = folder();
    let (postgres, nats) = (
        postgres(folder.path(), true).await,
        nats(folder.path()).await,
    );
    let ledger = ledger(&postgres.url());
    migrate(&ledger).await.unwrap();
    let ours = ledger.name().await.unwrap();
    let examine = |flags: &[&str]| run(doctor(&postgres.url(), &nats.url(), flags));
    let ran = examine(&["--json"]);
    let free = format!("ok: toolfleet is no ledger's yet; the first process takes it for {ours}");
    assert_eq!(said(&ran, "prefix"), [free], "{}", ran.out);
    let ran = examine(&["--take-prefix", "--note", "it was a trial"]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (
            0,
            "prefix toolfleet is no ledger's; the next process takes it\n"
        ),
        "{}",
        ran.err
    );

    // As a dispatcher of another ledger left it.
    let theirs = "11111111-2222-4333-8444-555555555555 (db.example:5432/other)";
    let watermark = json!({
        "ledger_id": "11111111-2222-4333-8444-555555555555", "place": "db.example:5432/other",
        "system_identifier": "7001", "timeline": 9, "quarantines": 3, "wal_lsn": "FF/0",
    });
    let jetstream = jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let stream = Config {
        name: "TOOLFLEET_GROUND".to_owned(),
        subjects: vec!["toolfleet.ground".to_owned()],
        max_messages_per_subject: 1,
        ..Config::default()
    };
    jetstream.create_stream(stream).await.unwrap();
    let leaving = jetstream.publish("toolfleet.ground", watermark.to_string().into());
    leaving.await.unwrap().await.unwrap();

    let ran = examine(&["--json"]);
    assert_eq!(ran.code, 64, "{}{}", ran.out, ran.err);
    let foreign =
        format!("fail: toolfleet belongs to ledger {theirs}, and DATABASE_URL names ledger {ours}");
    assert_eq!(said(&ran, "prefix"), [foreign], "{}", ran.out);
    assert_eq!(
        said(&ran, "ground"),
        ["ok: a new ledger, which the first process adopts"],
        "what another ledger left is not held against this one"
    );
    let stream = format!(
        "warn: the stream, the consumers and the pointers under prefix toolfleet are of ledger {theirs}, so nothing of them is looked at"
    );
    assert_eq!(said(&ran, "stream"), [stream], "{}", ran.out);
    for unseen in ["consumers", "pointers", "events"] {
        assert!(said(&ran, unseen).is_empty(), "{}", ran.out);
    }
    let ran = examine(&["--rebuild-stream"]);
    assert_eq!((ran.code, ran.out.as_str()), (64, ""), "{}", ran.err);
    for part in [theirs, &ours.to_string(), "--take-prefix"] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    let ran = examine(&["--take-prefix"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
    assert!(ran.err.contains("--note"), "{}", ran.err);

    let taking = [
        "--take-prefix",
        "--by",
        "ada",
        "--note",
        "it was a trial",
        "--json",
    ];
    let ran = examine(&taking);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert_eq!(ran.json()["result"], "taken");
    let kept = "SELECT prefix, former_ledger_id::text, former_place, taken_by, note, taken_at >= asked_at \
                FROM toolfleet.prefix_takeovers";
    let kept: (String, String, String, String, String, bool) = sqlx::query_as(kept)
        .fetch_one(&mut ledger.connect().await.unwrap())
        .await
        .unwrap();
    let text = str::to_owned;
    let expected = (
        text("toolfleet"),
        text("11111111-2222-4333-8444-555555555555"),
        text("db.example:5432/other"),
        text("ada"),
        text("it was a trial"),
        true,
    );
    assert_eq!(kept, expected);
    let ran = examine(&taking);
    assert_eq!(ran.json()["result"], "ours", "{}", ran.err);
    let ran = examine(&["--json"]);
    assert_eq!(ran.code, 0, "{}", ran.out);
    let own = format!("ok: toolfleet belongs to this ledger, {ours}");
    assert_eq!(said(&ran, "prefix"), [own], "{}", ran.out);
    nats.stop().await;
    postgres.stop().await;
}

#[tokio::test]
async fn dispatchers_of_another_ledger_are_not_counted_as_ours() {
    let (folder, other) = (folder(), folder());
    let theirs = postgres(other.path(), true).await;
    let (ours, nats) = (
        postgres(folder.path(), true).await,
        nats(folder.path()).await,
    );
    for url in [theirs.url(), ours.url()] {
        migrate(&ledger(&url)).await.unwrap();
    }
    let there = Where {
        database: theirs.url(),
        nats: nats.url(),
    };
    let dispatcher = there.dispatcher();
    let name = ledger(&theirs.url()).name().await.unwrap();
    let ran = run(doctor(&ours.url(), &nats.url(), &["--json"]));
    assert_eq!(ran.code, 64, "{}{}", ran.out, ran.err);
    let heard = format!(
        "warn: none of this ledger; callers there are answered by 1 dispatcher of ledger {name}, which has the prefix"
    );
    assert_eq!(said(&ran, "dispatchers"), [heard], "{}", ran.out);
    assert!(
        said(&ran, "connections")[0].contains("0 dispatchers and 0 workers"),
        "{}",
        ran.out
    );
    // To the ledger that has the prefix it is its own.
    let ran = run(doctor(&theirs.url(), &nats.url(), &["--json"]));
    assert_eq!(
        said(&ran, "dispatchers"),
        ["ok: 1 dispatcher heard"],
        "{}",
        ran.out
    );
    drop(dispatcher);
    nats.stop().await;
    ours.stop().await;
    theirs.stop().await;
}

#[tokio::test]
async fn an_unsafe_server_is_explained_with_what_to_do_and_the_rest_is_looked_at_all_the_same() {
    let folder = folder();
    let postgres = postgres(folder.path(), false).await;
    let ran = run(doctor(&postgres.url(), NO_NATS, &[]));
    assert_eq!((ran.code, ran.err.as_str()), (64, ""), "{}", ran.out);
    let line = |begin: &str| ran.out.lines().find(|line| line.starts_with(begin));
    let found = line("FAIL  postgres").unwrap();
    assert!(
        found.contains("fsync is off") && found.contains("Set fsync = on"),
        "{found}"
    );
    // Nothing listens there.
    assert!(line("FAIL  nats").unwrap().contains("correct NATS_URL"));
    assert!(line("ok    clock").is_some(), "{}", ran.out);
    postgres.stop().await;
}

#[test]
fn a_server_that_hangs_is_a_finding_and_not_a_hang() {
    // They take connections and never say a word.
    let silent = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (postgres, nats) = (silent(), silent());
    let port = |server: &TcpListener| server.local_addr().unwrap().port();
    let database_url = format!("postgres://u:hunter2@127.0.0.1:{}/d", port(&postgres));
    let nats_url = format!("nats://u:hunter2@127.0.0.1:{}", port(&nats));
    let began = Instant::now();
    let ran = run(doctor(&database_url, &nats_url, &["--json"]));
    assert!(began.elapsed().as_secs() < 40, "{:?}", began.elapsed());
    assert_eq!(ran.code, 69, "{}", ran.out);
    for server in ["postgres", "nats"] {
        assert!(said(&ran, server)[0].starts_with("fail: "), "{}", ran.out);
    }
    assert!(!ran.out.contains("hunter2"), "{}", ran.out);
}

#[test]
fn nothing_is_looked_at_with_settings_that_cannot_be_read() {
    let ran = run(doctor("mysql://u:hunter2@h/d", "nats://a b", &[]));
    assert_eq!((ran.code, ran.out.as_str()), (64, ""), "{}", ran.err);
    assert!(
        ran.err.contains("DATABASE_URL") && ran.err.contains("NATS_URL"),
        "{}",
        ran.err
    );
    let port = free_ports(1).unwrap()[0];
    let away = format!("postgres://nobody@127.0.0.1:{port}/nowhere");
    let ran = run(doctor(&away, NO_NATS, &["--rebuild-stream"]));
    assert_eq!((ran.code, ran.out.as_str()), (69, ""), "{}", ran.err);
}

#[tokio::test]
async fn what_keeps_calls_from_running_is_a_warning_with_what_to_do() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let ledger = ledger(&postgres.url());
    migrate(&ledger).await.unwrap();
    let mut connection = ledger.connect().await.unwrap();
    for (name, lines) in [
        ("open", "rate_limit: {share: safe}\n"),
        ("look", "rate_limit: {calls: 50, per: 1s}\nbreaker: {}\n"),
    ] {
        let manifest = format!(
            "name: {name}\nversion: 1\ndescription: Looks up.\neffect: read\ninput_schema: {{type: object}}\n\
             executor: {{process: {{command: [\"true\"]}}}}\n{lines}"
        );
        let manifest = fleet::manifest::parse(&manifest).unwrap();
        tools::apply(&mut connection, &manifest, "test")
            .await
            .unwrap();
    }
    let brakes = || {
        said(
            &run(doctor(&postgres.url(), NO_NATS, &["--json"])),
            "brakes",
        )
    };
    assert!(brakes()[0].starts_with("ok: "), "{:?}", brakes());

    let pause = "SELECT (control->>'control_id')::bigint FROM toolfleet.set_control( \
        'pause', '\"wait\"', 'ada', 'why', tool => 'look')";
    let id: i64 = sqlx::query_scalar(pause)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    for sql in [
        "UPDATE toolfleet.live_controls SET set_at = set_at - interval '30 minutes'",
        "SELECT toolfleet.close_bucket('look', 'default', 30000)",
        "INSERT INTO toolfleet.breaker_states (breaker_id, tool, target, state) VALUES (1, 'look', 'https://a.example', 'open')",
    ] {
        sqlx::query(sql).execute(&mut connection).await.unwrap();
    }
    assert!(brakes()[0].starts_with("ok: "), "{:?}", brakes());

    let lines = [
        ("open", "tool/open".to_owned()),
        ("look", "breaker/1".to_owned()),
        ("look", format!("pause/{id}")),
    ];
    for (tool, line) in lines {
        let mut held = call(tool, "default", "{}");
        held.held = true;
        let id = held.call_id;
        let accepted = Accept
            .run(&mut connection, &[Arc::new(held)], Locks::Wait)
            .await
            .unwrap();
        assert!(accepted[0].is_some());
        let line_of = "UPDATE toolfleet.open_calls SET held = true, line = $2 WHERE call_id = $1";
        sqlx::query(line_of)
            .bind(id.0)
            .bind(line)
            .execute(&mut connection)
            .await
            .unwrap();
    }
    let found = brakes().remove(0);
    for expected in [
        "warn: calls do not run: the shared limit safe has no numbers and keeps 1 call waiting",
        "the breaker of look at https://a.example is open and keeps 1 call waiting",
    ] {
        assert!(found.contains(expected), "{found}");
    }
    // A pause of half an hour, and a bucket that opens within a minute.
    assert!(
        !found.contains("pause") && !found.contains("closed"),
        "{found}"
    );

    let older = "UPDATE toolfleet.live_controls SET set_at = set_at - interval '31 minutes'";
    let open = "DELETE FROM toolfleet.breaker_states";
    let close = "SELECT toolfleet.close_bucket('look', 'default', 600000)";
    for sql in [older, open, close] {
        sqlx::query(sql).execute(&mut connection).await.unwrap();
    }
    let found = brakes().remove(0);
    for expected in [
        "a remote has closed the limit look until ",
        &format!("pause {id} lasts since "),
    ] {
        assert!(found.contains(expected), "{found}");
    }
    postgres.stop().await;
}
