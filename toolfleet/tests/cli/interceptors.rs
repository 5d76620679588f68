//! Interceptors from the command line: what `tools apply` says of tools that demand some, and which there are.

use std::{fs, process::Command};

use fleet::{
    ids::WorkerId,
    store::{
        interceptors::{self, InterceptorCounts},
        migrate::migrate,
        workers::{self, InterceptorRow, WorkerRow},
    },
};
use serde_json::json;

use crate::support::{Ran, folder, ledger, postgres, program, run};

const TOOL: &str = "name: charge\nversion: 1\ndescription: Charges an account.\neffect: once\ninterceptors: [ceiling, audit]\n\
    policy: {after: [charge_again], never_after: [read_secrets]}\n\
    input_schema: {type: object}\nexecutor: {process: {command: [\"true\"]}}\n";

/// A worker of the default queue with this interceptor.
fn worker(name: &str, interceptor: &str, order: u16) -> WorkerRow {
    WorkerRow {
        worker_id: WorkerId::generate(),
        name: name.to_owned(),
        host: "host".to_owned(),
        pid: 1,
        queues: vec!["default".parse().unwrap()],
        concurrency: 1,
        sandbox: json!({}),
        interceptors: vec![InterceptorRow {
            name: interceptor.to_owned(),
            order,
            mandatory: true,
            fails: "closed",
            budget_ms: 1_000,
        }],
    }
}

#[tokio::test]
async fn a_tool_that_no_worker_can_guard_is_told_of_and_the_interceptors_are_listed() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let ledger = ledger(&postgres.url());
    migrate(&ledger).await.unwrap();
    let file = folder.path().join("charge.yaml");
    fs::write(&file, TOOL).unwrap();
    let ask = |arguments: &[&str]| -> Ran {
        let mut command: Command = program(arguments);
        command.env("DATABASE_URL", postgres.url());
        command.env("NATS_URL", "nats://127.0.0.1:1");
        let ran = run(command);
        assert_eq!(ran.code, 0, "{arguments:?}: {}{}", ran.out, ran.err);
        ran
    };
    let apply = || ask(&["tools", "apply", file.to_str().unwrap()]).err;
    let says = "charge: no live worker of the queue default has the interceptor";
    let said = apply();
    assert!(
        said.contains(&format!("{says} ceiling, audit, so its calls wait; ")),
        "{said}"
    );
    let unknown =
        "charge: its policy names charge_again, read_secrets, and no such tool was ever applied";
    assert!(said.contains(unknown), "{said}");
    assert_eq!(
        ask(&["control", "interceptors", "--json"]).json(),
        json!([])
    );

    let mut connection = ledger.connect().await.unwrap();
    let first = worker("w1", "ceiling", 200);
    let others = [worker("w2", "ceiling", 300), worker("w3", "audit", 400)];
    for row in [&first].into_iter().chain(&others) {
        workers::register(&mut connection, row).await.unwrap();
        assert_eq!(apply().contains(says), row.name != "w3", "{}", row.name);
    }
    let counts = InterceptorCounts {
        name: "ceiling".to_owned(),
        calls: 4,
        continued: 1,
        refused: 2,
        errors: 1,
        own_us: 2_000,
        last_error: Some("before: it panicked: as asked".to_owned()),
        last_error_age_ms: Some(3_600_000),
        ..InterceptorCounts::default()
    };
    let pool = ledger.pool(1);
    for _ in 0..2 {
        // Again changes nothing.
        interceptors::record(&pool, first.worker_id, std::slice::from_ref(&counts))
            .await
            .unwrap();
    }
    let listed = ask(&["control", "interceptors", "--json"]).json();
    let row = &listed[0];
    assert_eq!(
        (&row["name"], &row["order"]),
        (&json!("ceiling"), &json!(200))
    );
    assert_eq!((&row["workers"], &row["differ"]), (&json!(2), &json!(true)));
    assert_eq!((&row["calls"], &row["refused"]), (&json!(4), &json!(2)));
    assert_eq!(
        (&row["mean_ms"], &row["lacking"]),
        (&json!(0.5), &json!(["w3"]))
    );
    let table = ask(&["control", "interceptors"]).out;
    for part in [
        "before: it panicked: as asked",
        "workers say different things of it; not on w3",
        "not on w1, w2",
    ] {
        assert!(table.contains(part), "{part}\n{table}");
    }
}

#[tokio::test]
async fn an_optional_one_is_switched_off_and_a_mandatory_one_is_not() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let ledger = ledger(&postgres.url());
    migrate(&ledger).await.unwrap();
    let mut connection = ledger.connect().await.unwrap();
    let mut optional = worker("w1", "audit", 200);
    optional.interceptors[0].mandatory = false;
    for row in [&optional, &worker("w2", "ceiling", 300)] {
        workers::register(&mut connection, row).await.unwrap();
    }
    let control = |code: i32, arguments: &[&str]| -> Ran {
        let note = ["--note", "its target is down", "--actor", "ada"];
        let mut command: Command = program(&[&["control"], arguments, &note[..]].concat());
        command.env("DATABASE_URL", postgres.url());
        command.env("NATS_URL", "nats://127.0.0.1:1");
        let ran = run(command);
        assert_eq!(ran.code, code, "{arguments:?}: {}{}", ran.out, ran.err);
        ran
    };
    let refused = control(1, &["set", "ceiling", "off"]).err;
    assert!(
        refused.contains("the interceptor is mandatory"),
        "{refused}"
    );
    let unknown = control(1, &["set", "audits", "off"]).err;
    assert!(
        unknown.contains("no worker has an interceptor of this name"),
        "{unknown}"
    );
    control(2, &["set", "audit", "on"]);

    let set = control(
        0,
        &[
            "set", "audit", "off", "--tenant", "acme", "--for", "10m", "--json",
        ],
    );
    let set = set.json();
    assert_eq!(
        (&set["result"], &set["control"]["setting"]),
        (&json!("set"), &json!("off"))
    );
    let said = control(
        0,
        &["set", "audit", "off", "--tenant", "acme", "--for", "10m"],
    )
    .out;
    assert!(
        said.contains("was set before: mode off for tenant acme, interceptor audit, until"),
        "{said}"
    );
    let other = control(1, &["set", "audit", "observe", "--tenant", "acme"]).err;
    assert!(other.contains("say --replace to change it"), "{other}");
    let only = control(0, &["only", "audit,ceiling"]).out;
    assert!(
        only.contains("is set: only audit, ceiling for every call"),
        "{only}"
    );

    let list = |arguments: &[&str]| {
        let mut command: Command = program(&[&["control"], arguments].concat());
        command.env("DATABASE_URL", postgres.url());
        run(command).out
    };
    assert!(list(&["interceptors"]).contains("off (tenant acme)"));
    let listed = list(&["list"]);
    assert!(
        listed.contains("tenant acme, interceptor audit"),
        "{listed}"
    );
    assert!(listed.contains("audit, ceiling  every call"), "{listed}");
    let unset = control(0, &["unset", "1"]).out;
    assert_eq!(
        unset,
        "control 1 is taken away: mode off for tenant acme, interceptor audit\n"
    );
    assert!(
        control(1, &["unset", "1"])
            .err
            .contains("there is no such control")
    );
}
