//! What operators may say of interceptors, and what is refused with its reason.

use fleet::{
    modes::InterceptMode,
    store::{
        DecisionError, PgPool,
        controls::{self, ControlKind, ControlScope, ControlSet, NewControl},
        workers::{self, InterceptorRow, WorkerRow},
    },
};
use fleet_tests::postgres::Database;
use tokio::time::Instant;

use crate::support::worker_row;

const AUDIT: ControlScope<'_> = ControlScope {
    tool: None,
    queue: None,
    tenant: None,
    pointer: None,
    value: None,
    subject: Some("audit"),
};

const fn mode<'a>(scope: ControlScope<'a>, setting: &'a str) -> NewControl<'a> {
    NewControl {
        kind: ControlKind::Mode,
        scope,
        setting,
        told: None,
        actor: "ada",
        note: "why",
        for_ms: None,
        in_tenant: None,
    }
}

const fn only(setting: &str) -> NewControl<'_> {
    NewControl {
        kind: ControlKind::Only,
        ..mode(
            ControlScope {
                subject: None,
                ..AUDIT
            },
            setting,
        )
    }
}

/// A ledger with a worker that has an optional interceptor and a mandatory one.
async fn with_interceptors() -> Database {
    let database = Database::fresh().await;
    let interceptor = |name: &str, order, mandatory| InterceptorRow {
        name: name.to_owned(),
        order,
        mandatory,
        fails: "closed",
        budget_ms: 1_000,
    };
    let row = WorkerRow {
        interceptors: vec![
            interceptor("audit", 100, false),
            interceptor("ceiling", 200, true),
        ],
        ..worker_row()
    };
    workers::register(&mut database.connect().await, &row)
        .await
        .unwrap();
    database
}

async fn why_not(pool: &PgPool, control: &NewControl<'_>) -> String {
    match controls::set(pool, control).await {
        Err(DecisionError::Invalid(why)) => why,
        other => panic!("{control:?}: {other:?}"),
    }
}

#[tokio::test]
async fn what_makes_no_sense_of_an_interceptor_is_refused_with_its_reason() {
    let database = with_interceptors().await;
    let pool = &database.pool;
    let of = |subject| ControlScope {
        subject: Some(subject),
        ..AUDIT
    };
    let without = ControlScope {
        subject: None,
        ..AUDIT
    };
    let acme = "acme".parse().unwrap();
    let many = format!("[{}\"audit\"]", "\"audit\",".repeat(16));
    let rows = [
        (mode(without, "\"off\""), "subject must name an interceptor"),
        (
            mode(of("audits"), "\"off\""),
            "no worker has an interceptor of this name",
        ),
        (mode(of("pause"), "\"off\""), "pause is mandatory"),
        (mode(of("policy"), "\"off\""), "policy is mandatory"),
        (mode(of("policy"), "\"observe\""), "policy is mandatory"),
        (
            mode(of("ceiling"), "\"off\""),
            "the interceptor is mandatory",
        ),
        (
            mode(of("ceiling"), "\"observe\""),
            "the interceptor is mandatory",
        ),
        (mode(AUDIT, "\"on\""), "setting must be"),
        (mode(AUDIT, "true"), "setting must be"),
        (
            mode(
                ControlScope {
                    tool: Some("absent"),
                    ..AUDIT
                },
                "\"off\"",
            ),
            "there is no such tool",
        ),
        (
            mode(
                ControlScope {
                    queue: Some("default"),
                    ..AUDIT
                },
                "\"off\"",
            ),
            "a mode is about an interceptor",
        ),
        (
            mode(
                ControlScope {
                    tenant: Some("a b"),
                    ..AUDIT
                },
                "\"off\"",
            ),
            "tenant must be",
        ),
        (
            NewControl {
                told: Some("x"),
                ..mode(AUDIT, "\"off\"")
            },
            "a mode has none",
        ),
        (
            NewControl {
                note: " ",
                ..mode(AUDIT, "\"off\"")
            },
            "note must say why",
        ),
        (
            NewControl {
                for_ms: Some(0),
                ..mode(AUDIT, "\"off\"")
            },
            "for_ms must be",
        ),
        (
            NewControl {
                in_tenant: Some(&acme),
                ..mode(AUDIT, "\"off\"")
            },
            "tenant must be named",
        ),
        (only("\"audit\""), "setting must be a list"),
        (only("[7]"), "setting must be a list"),
        (
            only("[\"audits\"]"),
            "no worker has an interceptor of this name",
        ),
        (only(&many), "setting may have 16 names"),
        (
            NewControl {
                scope: AUDIT,
                ..only("[]")
            },
            "a list of the only interceptors is about all calls",
        ),
    ];
    for (control, why) in rows {
        let said = why_not(pool, &control).await;
        assert!(said.contains(why), "{control:?}: {said}");
    }
    let count: i64 = sqlx::query_scalar("SELECT count(*) FROM toolfleet.control_log")
        .fetch_one(pool)
        .await
        .unwrap();
    assert_eq!(count, 0);
    // A mandatory one may be told what holds anyway.
    for control in [mode(of("ceiling"), "\"enforce\""), only("[\"ceiling\"]")] {
        let set = controls::set(pool, &control).await.unwrap();
        assert!(matches!(set, ControlSet::Set(_)), "{set:?}");
    }
}

#[tokio::test]
async fn a_process_reads_the_modes_that_hold() {
    let database = with_interceptors().await;
    let pool = &database.pool;
    let of_tenant = ControlScope {
        tenant: Some("acme"),
        ..AUDIT
    };
    let soon = NewControl {
        for_ms: Some(600_000),
        ..mode(of_tenant, "\"off\"")
    };
    for control in [mode(AUDIT, "\"observe\""), soon] {
        let set = controls::set(pool, &control).await.unwrap();
        assert!(matches!(set, ControlSet::Set(_)), "{set:?}");
        let again = controls::set(pool, &control).await.unwrap();
        assert!(matches!(again, ControlSet::Already(_)), "{again:?}");
    }
    let other = controls::set(pool, &mode(AUDIT, "\"off\"")).await.unwrap();
    assert!(matches!(other, ControlSet::Conflict(_)), "{other:?}");
    let holding = controls::holding(pool).await.unwrap();
    assert!(holding.are_none(), "no call is paused");
    assert!(holding.next_end().is_some());
    let of = |tenant: &str| {
        let (tool, tenant) = ("look".parse().unwrap(), tenant.parse().unwrap());
        let modes = holding.modes();
        modes.of("audit", &tool, &tenant, Instant::now())
    };
    assert_eq!(of("acme"), InterceptMode::Off);
    assert_eq!(of("beta"), InterceptMode::Observe);
}
