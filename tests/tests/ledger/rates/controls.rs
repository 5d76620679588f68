//! Controls of the kind `limit`: what makes no sense is refused and changes nothing.

use fleet::store::{
    DecisionError,
    controls::{self, ControlKind, ControlScope, ControlSet, NewControl, Unset, WhichControl},
    retire, starts,
    tools::Applied,
};
use serde_json::json;
use sqlx::{PgConnection, PgPool};

use super::{Scene, applied, try_apply};

const SUBJECT: ControlScope<'_> = ControlScope {
    tool: None,
    queue: None,
    tenant: None,
    pointer: None,
    value: None,
    subject: Some("tool"),
};

const fn limit<'a>(scope: ControlScope<'a>, setting: &'a str) -> NewControl<'a> {
    NewControl {
        kind: ControlKind::Limit,
        scope,
        setting,
        told: None,
        actor: "ada",
        note: "what it bears",
        for_ms: None,
        in_tenant: None,
    }
}

#[tokio::test]
async fn a_limit_that_makes_no_sense_is_refused_with_its_reason_and_the_one_that_is_there_stays() {
    let scene = Scene::with(json!({"calls": 1, "per": "1s"})).await;
    let pool = &scene.ledger.database.pool;
    let connection = &mut scene.ledger.database.connect().await;
    applied(connection, "plain", 1, &json!({})).await;
    // As a release before let it be.
    scene
        .does("ALTER TABLE toolfleet.tool_versions DISABLE TRIGGER refuses_second_name")
        .await;
    for (tool, share) in [("one", "both"), ("two", "bank")] {
        applied(
            connection,
            tool,
            1,
            &json!({"rate_limit": {"share": share}}),
        )
        .await;
    }
    applied(
        connection,
        "both",
        1,
        &json!({"rate_limit": {"calls": 1, "per": "1s"}}),
    )
    .await;
    let good = r#"{"calls": 5, "per_ms": 1000}"#;
    let there = controls::replace(pool, &limit(SUBJECT, good))
        .await
        .unwrap();
    assert!(matches!(there, ControlSet::Set(_)), "{there:?}");
    let of = |subject| ControlScope { subject, ..SUBJECT };
    let acme = "acme".parse().unwrap();
    for (control, why) in [
        (limit(of(None), good), "subject must name a limit"),
        (limit(of(Some("plain")), good), "subject must name a limit"),
        (limit(of(Some("nobody")), good), "subject must name a limit"),
        (limit(of(Some("one")), good), "subject must name a limit"),
        (
            limit(of(Some("both")), good),
            "give the shared one another name",
        ),
        (limit(SUBJECT, "\"wait\""), "setting must be"),
        (limit(SUBJECT, "[5, 1000]"), "setting must be"),
        (limit(SUBJECT, "7"), "setting must be"),
        (
            limit(SUBJECT, r#"{"calls": 5, "per_ms": 1000, "by": 1}"#),
            "setting must be",
        ),
        (
            limit(SUBJECT, r#"{"calls": 1.5, "per_ms": 1000}"#),
            "setting must be",
        ),
        (
            limit(SUBJECT, r#"{"calls": -5, "per_ms": 1000}"#),
            "setting must be",
        ),
        (
            limit(SUBJECT, r#"{"calls": "5", "per_ms": 1000}"#),
            "setting must be",
        ),
        (
            limit(SUBJECT, r#"{"calls": null, "per_ms": 1000}"#),
            "setting must be",
        ),
        (limit(SUBJECT, r#"{"per_ms": 1000}"#), "calls must be"),
        (
            limit(SUBJECT, r#"{"calls": 0, "per_ms": 1000}"#),
            "calls must be",
        ),
        (
            limit(SUBJECT, r#"{"calls": 1000001, "per_ms": 86400000}"#),
            "calls must be",
        ),
        (limit(SUBJECT, r#"{"calls": 5}"#), "per_ms must be"),
        (
            limit(SUBJECT, r#"{"calls": 5, "per_ms": 0}"#),
            "per_ms must be",
        ),
        (
            limit(SUBJECT, r#"{"calls": 5, "per_ms": 86400001}"#),
            "per_ms must be",
        ),
        (
            limit(SUBJECT, r#"{"calls": 101, "per_ms": 1}"#),
            "more than 100 in a millisecond",
        ),
        (
            limit(SUBJECT, r#"{"calls": 5, "per_ms": 1000, "burst": 0}"#),
            "burst must be",
        ),
        (
            limit(SUBJECT, r#"{"calls": 5, "per_ms": 1000, "burst": 10001}"#),
            "burst must be",
        ),
        (
            limit(
                ControlScope {
                    tool: Some("tool"),
                    ..SUBJECT
                },
                good,
            ),
            "a limit has a name, as its subject, and no scope",
        ),
        (
            NewControl {
                told: Some("slowly"),
                ..limit(SUBJECT, good)
            },
            "a limit has a name, as its subject, and no scope",
        ),
        (
            NewControl {
                note: " ",
                ..limit(SUBJECT, good)
            },
            "note must say why",
        ),
        (
            NewControl {
                in_tenant: Some(&acme),
                ..limit(SUBJECT, good)
            },
            "tenant must be named",
        ),
    ] {
        match controls::set(pool, &control).await {
            Err(DecisionError::Invalid(said)) => assert!(said.contains(why), "{control:?}: {said}"),
            other => panic!("{control:?}: {other:?}"),
        }
    }
    // One that replaces is refused with what is there untouched.
    let wrong = controls::replace(pool, &limit(SUBJECT, r#"{"calls": 0, "per_ms": 1}"#)).await;
    assert!(matches!(wrong, Err(DecisionError::Invalid(_))), "{wrong:?}");
    let rows: Vec<(i64, i64)> =
        sqlx::query_as("SELECT control_id, calls FROM toolfleet.limits WHERE name = 'tool'")
            .fetch_all(pool)
            .await
            .unwrap();
    assert_eq!(rows, [(1, 5)]);
    let changes: i64 = sqlx::query_scalar("SELECT count(*) FROM toolfleet.control_log")
        .fetch_one(pool)
        .await
        .unwrap();
    assert_eq!(changes, 1);
    // The same kind and name with other numbers conflicts, unless it replaces.
    let other = r#"{"calls": 6, "per_ms": 1000}"#;
    let conflict = controls::set(pool, &limit(SUBJECT, other)).await.unwrap();
    assert!(matches!(conflict, ControlSet::Conflict(_)), "{conflict:?}");
    let replaced = controls::replace(pool, &limit(SUBJECT, other))
        .await
        .unwrap();
    assert!(matches!(replaced, ControlSet::Changed(_)), "{replaced:?}");
    let again = controls::replace(pool, &limit(SUBJECT, other))
        .await
        .unwrap();
    assert!(matches!(again, ControlSet::Already(_)), "{again:?}");
}

#[tokio::test]
async fn what_waits_for_a_limit_is_counted_and_of_a_mode_nothing_is_known() {
    let scene = Scene::with(json!({"calls": 1, "per": "1s"})).await;
    let pool = &scene.ledger.database.pool;
    let set = limit(SUBJECT, r#"{"calls": 5, "per_ms": 1000}"#);
    controls::set(pool, &set).await.unwrap();
    let mode = "SELECT FROM toolfleet.set_control('mode', '\"off\"', 'ada', 'why', subject => 'rate_limit')";
    sqlx::query(mode).execute(pool).await.unwrap();
    for _ in 0..2 {
        let call = scene.ledger.queued().await;
        let hold =
            "UPDATE toolfleet.open_calls SET held = true, line = 'tool/tool' WHERE call_id = $1";
        scene.ledger.meddle(call, hold).await;
    }
    let waiting = "SELECT waiting FROM toolfleet.controls ORDER BY control_id";
    let waiting: Vec<Option<i64>> = sqlx::query_scalar(waiting).fetch_all(pool).await.unwrap();
    assert_eq!(waiting, [Some(2), None]);
}

/// How many calls in which time hold now; `None`: there are no numbers.
async fn holds(pool: &PgPool) -> Option<(i64, i64)> {
    sqlx::query_as::<_, (Option<i64>, Option<i64>)>(
        "SELECT calls, per_ms FROM toolfleet.rate_of('shares')",
    )
    .fetch_one(pool)
    .await
    .map(|(calls, per_ms)| calls.zip(per_ms))
    .unwrap()
}

#[tokio::test]
async fn a_limit_for_a_time_stands_before_one_without_an_end_which_holds_again_after_it() {
    let scene = Scene::with(json!({"calls": 1, "per": "1s"})).await;
    let pool = &scene.ledger.database.pool;
    let connection = &mut scene.ledger.database.connect().await;
    applied(
        connection,
        "shares",
        1,
        &json!({"rate_limit": {"share": "bank"}}),
    )
    .await;
    let of = |setting, for_ms| NewControl {
        for_ms,
        ..limit(
            ControlScope {
                subject: Some("bank"),
                ..SUBJECT
            },
            setting,
        )
    };
    let (usual, less) = (
        r#"{"calls": 100, "per_ms": 1000}"#,
        r#"{"calls": 5, "per_ms": 1000}"#,
    );
    assert_eq!(holds(pool).await, None);
    controls::replace(pool, &of(usual, None)).await.unwrap();
    let stopgap = controls::replace(pool, &of(less, Some(600_000)))
        .await
        .unwrap();
    assert!(matches!(stopgap, ControlSet::Set(_)), "{stopgap:?}");
    assert_eq!(holds(pool).await, Some((5, 1_000)));
    let over = "UPDATE toolfleet.live_controls SET expires_at = clock_timestamp() WHERE expires_at IS NOT NULL";
    scene.does(over).await;
    assert_eq!(
        holds(pool).await,
        Some((100, 1_000)),
        "before anybody has taken it away"
    );
    controls::expire(pool).await.unwrap();
    assert_eq!(holds(pool).await, Some((100, 1_000)));

    // New numbers without an end are what somebody wants now, and `auto` means all of it.
    controls::replace(pool, &of(less, Some(600_000)))
        .await
        .unwrap();
    controls::replace(pool, &of(r#"{"calls": 50, "per_ms": 1000}"#, None))
        .await
        .unwrap();
    assert_eq!(holds(pool).await, Some((50, 1_000)));
    controls::replace(pool, &of(less, Some(600_000)))
        .await
        .unwrap();
    let scope = ControlScope {
        subject: Some("bank"),
        ..SUBJECT
    };
    let auto = Unset {
        which: WhichControl::Scope(ControlKind::Limit, scope),
        actor: "ada",
        note: "why",
        in_tenant: None,
    };
    assert!(controls::unset(pool, &auto).await.unwrap().is_some());
    assert_eq!(holds(pool).await, None);
    let said: Vec<String> =
        sqlx::query_scalar("SELECT change FROM toolfleet.control_log ORDER BY rev")
            .fetch_all(pool)
            .await
            .unwrap();
    let expected = [
        "set", "set", "expired", "set", "changed", "unset", "set", "unset", "unset",
    ];
    assert_eq!(said, expected);
}

#[tokio::test]
async fn new_numbers_open_what_a_remote_has_closed() {
    let scene = Scene::with(json!({"calls": 1, "per": "1s"})).await;
    let pool = &scene.ledger.database.pool;
    let (tool, tenant) = ("tool".parse().unwrap(), "tenant".parse().unwrap());
    let call = scene.released().await;
    let closed = async || -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM toolfleet.limits WHERE closed_until IS NOT NULL")
            .fetch_one(pool)
            .await
            .unwrap()
    };
    for setting in [
        r#"{"calls": 2, "per_ms": 1000}"#,
        r#"{"calls": 3, "per_ms": 1000}"#,
    ] {
        starts::close(
            pool,
            &tool,
            &tenant,
            call,
            std::time::Duration::from_secs(3_600),
        )
        .await
        .unwrap();
        assert_eq!(closed().await, 1);
        controls::replace(pool, &limit(SUBJECT, setting))
            .await
            .unwrap();
        assert_eq!(closed().await, 0, "{setting}");
    }
    // `calls explain` advises the very command that was given before.
    let same = limit(SUBJECT, r#"{"calls": 3, "per_ms": 1000}"#);
    let again = controls::replace(pool, &same).await.unwrap();
    assert!(matches!(again, ControlSet::Already(_)), "{again:?}");
    starts::close(
        pool,
        &tool,
        &tenant,
        call,
        std::time::Duration::from_secs(3_600),
    )
    .await
    .unwrap();
    let opened = controls::replace(pool, &same).await.unwrap();
    assert!(matches!(opened, ControlSet::Changed(_)), "{opened:?}");
    assert_eq!(closed().await, 0);
}

#[tokio::test]
async fn the_same_numbers_begin_anew_with_an_end_and_without_one_end_those_for_a_time() {
    let scene = Scene::with(json!({"calls": 1, "per": "1s"})).await;
    let pool = &scene.ledger.database.pool;
    let usual = limit(SUBJECT, r#"{"calls": 5, "per_ms": 1000}"#);
    let stopgap = NewControl {
        for_ms: Some(600_000),
        ..limit(SUBJECT, r#"{"calls": 2, "per_ms": 1000}"#)
    };
    controls::replace(pool, &usual).await.unwrap();
    controls::replace(pool, &stopgap).await.unwrap();
    let again = controls::replace(pool, &stopgap).await.unwrap();
    assert!(matches!(again, ControlSet::Changed(_)), "{again:?}");
    let again = controls::replace(pool, &usual).await.unwrap();
    assert!(matches!(again, ControlSet::Changed(_)), "{again:?}");
    let holding: i64 = sqlx::query_scalar("SELECT count(*) FROM toolfleet.live_controls")
        .fetch_one(pool)
        .await
        .unwrap();
    assert_eq!(holding, 1);
}

async fn retire(connection: &mut PgConnection, tool: &str) {
    let tool = tool.parse().unwrap();
    let request = retire::Retire {
        tool: &tool,
        by: "test",
        note: "gone",
    };
    let retired = retire::retire(connection, request).await.unwrap();
    assert!(matches!(retired, retire::Retired::Now(_)), "{retired:?}");
}

#[tokio::test]
async fn a_tool_and_a_shared_limit_do_not_get_the_same_name_until_one_of_them_is_retired() {
    let scene = Scene::with(json!({"calls": 1, "per": "1s"})).await;
    let pool = &scene.ledger.database.pool;
    let connection = &mut scene.ledger.database.connect().await;
    let own = json!({"rate_limit": {"calls": 1, "per": "1s"}});
    let share = |name: &str| json!({"rate_limit": {"share": name}});
    applied(connection, "va", 1, &share("vault")).await;
    let vault = limit(
        ControlScope {
            subject: Some("vault"),
            ..SUBJECT
        },
        r#"{"calls": 1, "per_ms": 2000}"#,
    );
    controls::replace(pool, &vault).await.unwrap();
    // A tool with the name of what others share, and a share with the name of a tool's own limit.
    for (tool, fields) in [("vault", &own), ("other", &share("tool"))] {
        let refused = try_apply(connection, tool, 1, fields).await;
        assert_eq!(refused, Applied::LimitNamedTwice, "{tool}");
    }
    let versions = "SELECT count(*) FROM toolfleet.tool_versions WHERE tool IN ('vault', 'other')";
    let versions: i64 = sqlx::query_scalar(versions).fetch_one(pool).await.unwrap();
    assert_eq!(versions, 0);
    for name in ["vault", "tool"] {
        let subject = ControlScope {
            subject: Some(name),
            ..SUBJECT
        };
        let set = controls::replace(pool, &limit(subject, r#"{"calls": 9, "per_ms": 1000}"#)).await;
        assert!(set.is_ok(), "{name}: {set:?}");
    }
    // Without a limit of its own the name is no limit's, and neither is that of a tool which shares under its own name.
    applied(connection, "vault", 1, &json!({})).await;
    applied(connection, "vault", 2, &share("vault")).await;
    applied(connection, "vault", 3, &json!({})).await;
    let refused = try_apply(connection, "vault", 4, &own).await;
    assert_eq!(refused, Applied::LimitNamedTwice);
    retire(connection, "va").await;
    applied(connection, "vault", 4, &own).await;
    assert!(controls::replace(pool, &vault).await.is_ok());
    let back = try_apply(connection, "va", 2, &share("vault")).await;
    assert_eq!(back, Applied::LimitNamedTwice);
    applied(connection, "va", 2, &share("safe")).await;
}

#[tokio::test]
async fn of_two_that_come_at_once_with_the_same_name_one_is_refused() {
    let scene = Scene::with(json!({"calls": 1, "per": "1s"})).await;
    for round in 0..10 {
        let name = format!("name{round}");
        let (mut one, mut other) = (
            scene.ledger.database.connect().await,
            scene.ledger.database.connect().await,
        );
        let (own, share) = (
            json!({"rate_limit": {"calls": 1, "per": "1s"}}),
            json!({"rate_limit": {"share": &name}}),
        );
        let shares = format!("shares{round}");
        let (one, other) = tokio::join!(
            try_apply(&mut one, &name, 1, &own),
            try_apply(&mut other, &shares, 1, &share)
        );
        let created = [one, other]
            .iter()
            .filter(|one| **one == Applied::Created)
            .count();
        assert_eq!(created, 1, "{one:?} {other:?}");
    }
}

#[tokio::test]
async fn a_retired_tool_locks_no_limit() {
    let scene = Scene::with(json!({"calls": 1, "per": "1s"})).await;
    let pool = &scene.ledger.database.pool;
    let connection = &mut scene.ledger.database.connect().await;
    // As a release before let it be.
    scene
        .does("ALTER TABLE toolfleet.tool_versions DISABLE TRIGGER refuses_second_name")
        .await;
    applied(
        connection,
        "shares",
        1,
        &json!({"rate_limit": {"share": "tool"}}),
    )
    .await;
    let set = limit(SUBJECT, r#"{"calls": 5, "per_ms": 1000}"#);
    let locked = controls::replace(pool, &set).await;
    assert!(
        matches!(locked, Err(DecisionError::Invalid(_))),
        "{locked:?}"
    );
    retire(connection, "shares").await;
    assert!(controls::replace(pool, &set).await.is_ok());
}
