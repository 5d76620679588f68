//! Controls: who may set which, what is wrong with others, and what the log says afterwards.

mod again;
mod tenants;
mod values;

use fleet::{
    controls::ControlId,
    manifest,
    registry::Registry,
    store::{
        DecisionError,
        controls::{
            self, ControlKind, ControlScope, ControlSet, NewControl, Unset, WhichControl, covered,
        },
        rights::Duty,
        session::Postgres,
        tools,
    },
};
use fleet_tests::postgres::Database;
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::support::{Ledger, new_call};

const TENANT: ControlScope<'_> = ControlScope {
    tool: None,
    queue: None,
    tenant: Some("acme"),
    pointer: None,
    value: None,
    subject: None,
};
const TOOL: ControlScope<'_> = ControlScope {
    tool: Some("charge"),
    tenant: None,
    ..TENANT
};
const PLACE: ControlScope<'_> = ControlScope {
    pointer: Some("/account/id"),
    value: Some("\"7\""),
    ..TOOL
};

const fn pause(scope: ControlScope<'_>) -> NewControl<'_> {
    NewControl {
        kind: ControlKind::Pause,
        scope,
        setting: "\"wait\"",
        told: None,
        actor: "ada",
        note: "why",
        for_ms: None,
        in_tenant: None,
    }
}

const fn unset(which: WhichControl<'_>) -> Unset<'_> {
    Unset {
        which,
        actor: "ada",
        note: "why",
        in_tenant: None,
    }
}

/// A ledger with a tool whose card numbers are sensitive.
async fn with_a_tool() -> Database {
    let database = Database::fresh().await;
    let manifest = json!({
        "name": "charge", "version": 1, "description": "Charges an account.", "effect": "once", "queue": "payments",
        "input_schema": {"type": "object"}, "sensitive": {"pointers": ["/card/number", "/people/*/name"], "mode": "mask"},
        "executor": {"http": {"method": "GET", "url": "https://api.example.com/v1"}},
    });
    let manifest = manifest::parse(&manifest.to_string()).unwrap();
    let mut connection = database.connect().await;
    tools::apply(&mut connection, &manifest, "test")
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

async fn count(pool: &PgPool) -> (i64, i64, i64) {
    let counts = "SELECT (SELECT count(*) FROM toolfleet.live_controls), (SELECT count(*) FROM toolfleet.control_log), \
        (SELECT control_rev FROM toolfleet.fleet)";
    sqlx::query_as(counts).fetch_one(pool).await.unwrap()
}

fn read(control: &str) -> Value {
    serde_json::from_str(control).unwrap()
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_with_its_reason_and_changes_nothing() {
    let database = with_a_tool().await;
    let pool = &database.pool;
    let (long, many) = ("x".repeat(201), "x".repeat(2_001));
    let large = format!("\"{}\"", "x".repeat(1_023));
    let deep = "/a".repeat(600);
    let acme = "acme".parse().unwrap();
    let told = |told| NewControl {
        setting: "\"refuse\"",
        told: Some(told),
        ..pause(TENANT)
    };
    let at = |pointer| {
        pause(ControlScope {
            pointer: Some(pointer),
            ..PLACE
        })
    };
    let holds = |value| {
        pause(ControlScope {
            value: Some(value),
            ..PLACE
        })
    };
    let lasts = |for_ms| NewControl {
        for_ms: Some(for_ms),
        ..pause(TENANT)
    };
    let of = |scope| NewControl {
        in_tenant: Some(&acme),
        ..pause(scope)
    };
    let rows = [
        (pause(ControlScope::default()), "a pause needs a scope"),
        (
            NewControl {
                setting: "\"sleep\"",
                ..pause(TENANT)
            },
            "setting must be",
        ),
        (
            NewControl {
                setting: "{}",
                ..pause(TENANT)
            },
            "setting must be",
        ),
        (
            pause(ControlScope {
                subject: Some("cache"),
                ..TENANT
            }),
            "a pause has no subject",
        ),
        (
            pause(ControlScope {
                tool: Some("absent"),
                ..TENANT
            }),
            "there is no such tool",
        ),
        (
            pause(ControlScope {
                queue: Some("absent"),
                ..TENANT
            }),
            "no tool has this queue",
        ),
        (
            pause(ControlScope {
                queue: Some("default"),
                ..TOOL
            }),
            "no version of the tool has this queue",
        ),
        (
            pause(ControlScope {
                tenant: Some("a.b"),
                ..TENANT
            }),
            "tenant must be 1 to 64",
        ),
        (
            pause(ControlScope {
                value: None,
                ..PLACE
            }),
            "pointer and value belong together",
        ),
        (
            pause(ControlScope {
                pointer: None,
                ..PLACE
            }),
            "pointer and value belong together",
        ),
        (
            pause(ControlScope {
                tool: None,
                tenant: Some("acme"),
                ..PLACE
            }),
            "a pointer needs a tool",
        ),
        (at("account"), "pointer must be a JSON pointer"),
        (at(""), "pointer must be a JSON pointer"),
        (at("/a~2b"), "pointer must be a JSON pointer"),
        (at(&deep), "pointer must be a JSON pointer"),
        (at("/card/number"), "pointer is sensitive"),
        (at("/card"), "pointer is sensitive"),
        (at("/people/7/name/first"), "pointer is sensitive"),
        (holds(&large), "value may have 1024 bytes"),
        (
            holds("\"\\u0000\""),
            "value must not hold the character NUL",
        ),
        (holds("{"), "invalid input syntax"),
        (lasts(0), "for_ms must be"),
        (lasts(-1), "for_ms must be"),
        (lasts(2_592_000_001), "for_ms must be"),
        (
            NewControl {
                actor: "",
                ..pause(TENANT)
            },
            "actor must say",
        ),
        (
            NewControl {
                actor: " ",
                ..pause(TENANT)
            },
            "actor must say",
        ),
        (
            NewControl {
                actor: &long,
                ..pause(TENANT)
            },
            "actor must say",
        ),
        (
            NewControl {
                note: "",
                ..pause(TENANT)
            },
            "note must say why",
        ),
        (
            NewControl {
                note: &many,
                ..pause(TENANT)
            },
            "note must say why",
        ),
        (told(&long), "told may have 1 to 200"),
        (told(" "), "told may have 1 to 200"),
        (told("a\nb"), "told must not have control characters"),
        (told("a\u{9b}2J"), "told must not have control characters"),
        (
            told("pay\u{200b}ment"),
            "told must not have invisible characters",
        ),
        (
            NewControl {
                actor: "ada\u{202e}",
                ..pause(TENANT)
            },
            "actor must not have invisible characters",
        ),
        (
            NewControl {
                note: "why\u{2066}",
                ..pause(TENANT)
            },
            "note must not have invisible characters",
        ),
        (
            NewControl {
                told: Some("x"),
                ..pause(TENANT)
            },
            "told is what refused callers read",
        ),
        (
            of(ControlScope {
                tenant: Some("beta"),
                ..TENANT
            }),
            "tenant is another one",
        ),
        (of(TOOL), "tenant must be named"),
    ];
    for (control, expected) in &rows {
        let why = why_not(pool, control).await;
        assert!(why.contains(expected), "{control:?}: {why}");
    }
    assert_eq!(count(pool).await, (0, 0, 0));
    let kind = "SELECT toolfleet.set_control('forever', '\"off\"', 'ada', 'why', tool => 'charge')";
    let unknown = sqlx::query(kind).execute(pool).await.unwrap_err();
    assert!(
        unknown
            .to_string()
            .contains("kind must be a kind of control"),
        "{unknown}"
    );
    assert_eq!(count(pool).await, (0, 0, 0));
}

#[tokio::test]
async fn a_control_is_set_once_found_again_and_taken_away_once() {
    let database = with_a_tool().await;
    let pool = &database.pool;
    let ControlSet::Set(set) = controls::set(pool, &pause(PLACE)).await.unwrap() else {
        panic!("it is new")
    };
    let set = read(&set);
    assert_eq!(
        (&set["control_id"], &set["value"]),
        (&json!(1), &json!("7"))
    );
    assert_eq!(set["role"], database.user());
    let again = controls::set(pool, &pause(PLACE)).await.unwrap();
    assert!(
        matches!(&again, ControlSet::Already(there) if read(there) == set),
        "{again:?}"
    );
    for other in [
        NewControl {
            setting: "\"refuse\"",
            ..pause(PLACE)
        },
        NewControl {
            for_ms: Some(1_000),
            ..pause(PLACE)
        },
    ] {
        let conflict = controls::set(pool, &other).await.unwrap();
        assert!(
            matches!(&conflict, ControlSet::Conflict(there) if read(there) == set),
            "{conflict:?}"
        );
    }
    assert_eq!(count(pool).await, (1, 1, 1));
    // Another scope is another control.
    let (acme, beta) = ("acme".parse().unwrap(), "beta".parse().unwrap());
    let of_acme = NewControl {
        in_tenant: Some(&acme),
        ..pause(TENANT)
    };
    let tenant = controls::set(pool, &of_acme).await.unwrap();
    assert!(matches!(tenant, ControlSet::Set(_)));
    let by_id = WhichControl::Id(ControlId(2));
    let foreign = Unset {
        in_tenant: Some(&beta),
        ..unset(by_id)
    };
    assert_eq!(controls::unset(pool, &foreign).await.unwrap(), None);
    let own = Unset {
        in_tenant: Some(&acme),
        ..unset(by_id)
    };
    assert!(controls::unset(pool, &own).await.unwrap().is_some());
    let by_scope = unset(WhichControl::Scope(ControlKind::Pause, PLACE));
    assert_eq!(
        read(&controls::unset(pool, &by_scope).await.unwrap().unwrap()),
        set
    );
    assert_eq!(controls::unset(pool, &by_scope).await.unwrap(), None);
    for wrong in [
        Unset {
            actor: " ",
            ..by_scope
        },
        Unset {
            note: "",
            ..by_scope
        },
        Unset {
            actor: "a\u{200b}da",
            ..by_scope
        },
        Unset {
            note: "w\u{202e}hy",
            ..by_scope
        },
    ] {
        let why = controls::unset(pool, &wrong).await.unwrap_err();
        assert!(matches!(why, DecisionError::Invalid(_)), "{why}");
    }
    let log: Vec<(String, i64)> =
        sqlx::query_as("SELECT change, control_id FROM toolfleet.control_log ORDER BY rev")
            .fetch_all(pool)
            .await
            .unwrap();
    let said = |change: &str, id| (change.to_owned(), id);
    assert_eq!(
        log,
        [
            said("set", 1),
            said("set", 2),
            said("unset", 2),
            said("unset", 1)
        ]
    );
    for change in [
        "UPDATE toolfleet.control_changes SET note = 'x'",
        "DELETE FROM toolfleet.control_changes",
    ] {
        let refused = sqlx::query(change).execute(pool).await.unwrap_err();
        assert!(refused.to_string().contains("does not change"), "{refused}");
    }
}

#[tokio::test]
async fn what_is_over_does_not_hold_and_its_end_is_logged_once() {
    let database = with_a_tool().await;
    let pool = &database.pool;
    let short = NewControl {
        for_ms: Some(1),
        ..pause(TENANT)
    };
    assert!(matches!(
        controls::set(pool, &short).await.unwrap(),
        ControlSet::Set(_)
    ));
    let held = controls::holding(pool).await.unwrap();
    assert!(held.are_none() && held.have_expired(), "{held:?}");
    // A new one of the same scope is not in conflict with it.
    assert!(matches!(
        controls::set(pool, &pause(TENANT)).await.unwrap(),
        ControlSet::Set(_)
    ));
    let held = controls::holding(pool).await.unwrap();
    assert!(!held.are_none() && !held.have_expired(), "{held:?}");
    assert_eq!(controls::expire(pool).await.unwrap(), 0);
    let expired = "SELECT count(*) FROM toolfleet.control_log WHERE change = 'expired' AND actor = 'toolfleet'";
    let expired: i64 = sqlx::query_scalar(expired).fetch_one(pool).await.unwrap();
    assert_eq!(expired, 1);
    assert_eq!(count(pool).await, (1, 3, 3));
}

#[tokio::test]
async fn a_kind_of_a_newer_release_is_left_alone() {
    let database = with_a_tool().await;
    let newer = "INSERT INTO toolfleet.live_controls (control_id, kind, subject, setting, actor, note, role, set_at) \
        VALUES (7, 'mode', 'cache', '\"off\"', 'ada', 'why', 'x', now())";
    sqlx::query(newer).execute(&database.pool).await.unwrap();
    let held = controls::holding(&database.pool).await.unwrap();
    assert!(held.are_none() && !held.have_expired(), "{held:?}");
}

#[tokio::test]
async fn the_rows_are_read_only_when_their_number_has_moved() {
    let database = with_a_tool().await;
    database.grant_roles().await;
    let pool = &database.pool;
    let url = database.url_of(Duty::Worker.role()).into();
    let worker = Postgres::new(&url, "toolfleet")
        .unwrap()
        .pool_for_reading(1);
    let may = async |sql: &'static str| {
        sqlx::query(sql).execute(pool).await.unwrap();
    };
    may("REVOKE SELECT ON toolfleet.live_controls FROM toolfleet_worker").await;
    let registry = Registry::default();
    for _ in 0..3 {
        registry.refresh(&worker).await.unwrap();
    }
    controls::set(pool, &pause(TENANT)).await.unwrap();
    assert!(registry.refresh(&worker).await.is_err(), "they have moved");
    may("GRANT SELECT ON toolfleet.live_controls TO toolfleet_worker").await;
    registry.refresh(&worker).await.unwrap();
    assert!(!registry.controls().are_none());
    may("REVOKE SELECT ON toolfleet.live_controls FROM toolfleet_worker").await;
    registry.refresh(&worker).await.unwrap();
}

#[tokio::test]
async fn a_tenants_operators_undo_only_what_was_set_on_its_subject_and_set_a_hundred() {
    let database = with_a_tool().await;
    let pool = &database.pool;
    let acme = "acme".parse().unwrap();
    // The fleet's operators have paused the tenant.
    controls::set(pool, &pause(TENANT)).await.unwrap();
    let by_scope = Unset {
        in_tenant: Some(&acme),
        ..unset(WhichControl::Scope(ControlKind::Pause, TENANT))
    };
    assert_eq!(controls::unset(pool, &by_scope).await.unwrap(), None);
    let filled = "INSERT INTO toolfleet.live_controls (control_id, kind, tenant, subject, setting, actor, note, role, set_in, set_at) \
        SELECT n, 'pause', 'acme', n::text, '\"wait\"', 'ada', 'why', 'x', 'acme', now() FROM generate_series(1002, 1100) n";
    sqlx::query(filled).execute(pool).await.unwrap();
    let of_acme = |scope| NewControl {
        in_tenant: Some(&acme),
        ..pause(scope)
    };
    let with_tool = ControlScope {
        tenant: Some("acme"),
        ..TOOL
    };
    let last = controls::set(pool, &of_acme(with_tool)).await.unwrap();
    assert!(matches!(last, ControlSet::Set(_)), "{last:?}");
    let with_place = ControlScope {
        tenant: Some("acme"),
        ..PLACE
    };
    let why = why_not(pool, &of_acme(with_place)).await;
    assert!(why.contains("this tenant has 100 controls"), "{why}");
    let of_the_fleet = controls::set(pool, &pause(with_place)).await.unwrap();
    assert!(
        matches!(of_the_fleet, ControlSet::Set(_)),
        "{of_the_fleet:?}"
    );
}

#[tokio::test]
async fn the_thousand_and_first_is_refused() {
    let database = with_a_tool().await;
    let pool = &database.pool;
    let filled = "INSERT INTO toolfleet.live_controls (control_id, kind, tenant, setting, actor, note, role, set_at) \
        SELECT n, 'pause', 't' || n, '\"wait\"', 'ada', 'why', 'x', now() FROM generate_series(2, 1000) n";
    sqlx::query(filled).execute(pool).await.unwrap();
    assert!(matches!(
        controls::set(pool, &pause(TENANT)).await.unwrap(),
        ControlSet::Set(_)
    ));
    let why = why_not(pool, &pause(TOOL)).await;
    assert!(why.contains("there are 1000 controls"), "{why}");
    assert_eq!(count(pool).await, (1_000, 1, 1));
}

#[tokio::test]
async fn the_last_hundred_are_for_the_operators_of_the_fleet() {
    let database = with_a_tool().await;
    let pool = &database.pool;
    let filled = "INSERT INTO toolfleet.live_controls (control_id, kind, tenant, setting, actor, note, role, set_in, set_at) \
        SELECT n, 'pause', 't' || n, '\"wait\"', 'ada', 'why', 'x', 't' || n % 10, now() FROM generate_series(2, 901) n";
    sqlx::query(filled).execute(pool).await.unwrap();
    let acme = "acme".parse().unwrap();
    let of_acme = NewControl {
        in_tenant: Some(&acme),
        ..pause(TENANT)
    };
    let why = why_not(pool, &of_acme).await;
    assert!(
        why.contains("the last hundred are for the operators of the fleet"),
        "{why}"
    );
    let of_the_fleet = controls::set(pool, &pause(TOOL)).await.unwrap();
    assert!(
        matches!(of_the_fleet, ControlSet::Set(_)),
        "{of_the_fleet:?}"
    );
}

#[tokio::test]
async fn another_persons_control_is_not_taken_for_the_first_ones_and_is_changed_in_its_place() {
    let database = with_a_tool().await;
    let pool = &database.pool;
    let ControlSet::Set(first) = controls::set(pool, &pause(TOOL)).await.unwrap() else {
        panic!("nothing was there")
    };
    let bobs = NewControl {
        actor: "bob",
        note: "do not resume: data corruption",
        ..pause(TOOL)
    };
    let conflict = controls::set(pool, &bobs).await.unwrap();
    assert_eq!(conflict, ControlSet::Conflict(first.clone()));
    let longer = NewControl {
        for_ms: Some(60_000),
        setting: "\"refuse\"",
        told: Some("later"),
        ..bobs
    };
    let ControlSet::Changed(changed) = controls::replace(pool, &longer).await.unwrap() else {
        panic!("it was another one")
    };
    let (first, changed) = (read(&first), read(&changed));
    assert_eq!(
        changed["control_id"], first["control_id"],
        "what waits for it waits on"
    );
    assert_eq!(
        (&changed["actor"], &changed["setting"], &changed["told"]),
        (&json!("bob"), &json!("refuse"), &json!("later"))
    );
    assert_eq!(count(pool).await, (1, 2, 2));
    // A tenant's operators change nothing that the fleet's have set, and an id of another kind is not found.
    let acme = "acme".parse().unwrap();
    controls::set(pool, &pause(TENANT)).await.unwrap();
    let of_acme = NewControl {
        in_tenant: Some(&acme),
        setting: "\"refuse\"",
        ..pause(TENANT)
    };
    let theirs = controls::replace(pool, &of_acme).await.unwrap();
    assert!(matches!(theirs, ControlSet::Conflict(_)), "{theirs:?}");
    let id = ControlId(first["control_id"].as_i64().unwrap());
    let as_a_limit = unset(WhichControl::IdOf(ControlKind::Limit, id));
    assert_eq!(controls::unset(pool, &as_a_limit).await.unwrap(), None);
    let as_a_pause = unset(WhichControl::IdOf(ControlKind::Pause, id));
    assert!(controls::unset(pool, &as_a_pause).await.unwrap().is_some());
}

#[tokio::test]
async fn what_a_scope_covers_is_counted() {
    let ledger = Ledger::fresh().await;
    for (tenant, args) in [
        ("acme", r#"{"account":{"id":"7"}}"#),
        ("acme", r#"{"account":{"id":7}}"#),
        ("beta", r#"{"account":{"id":"7"}}"#),
    ] {
        let mut call = new_call();
        call.tenant = tenant.parse().unwrap();
        call.args = args.into();
        ledger.accepted(call).await;
    }
    let of_tool = ControlScope {
        tool: Some("tool"),
        ..PLACE
    };
    for (scope, expected) in [
        (ControlScope::default(), 3),
        (TENANT, 2),
        (of_tool, 2),
        (
            ControlScope {
                tenant: Some("acme"),
                ..of_tool
            },
            1,
        ),
        (
            ControlScope {
                queue: Some("other"),
                ..TENANT
            },
            0,
        ),
    ] {
        let covers = covered(&ledger.database.pool, &scope).await.unwrap();
        assert_eq!(covers, expected, "{scope:?}");
    }
}
