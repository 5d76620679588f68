//! Breakers: the functions of the ledger against the pure decision, permits over the fleet, reports that are repeated or late.

mod differential;

use std::time::Duration;

use fleet::{
    breaker::{BreakerState, Counted, Passage, PermitVerdict, ReportVerdict},
    ids::{ToolName, WorkerId},
    manifest,
    store::{
        DecisionError,
        breakers::{self, CountedSecond},
        controls::{self, ControlKind, ControlScope, ControlSet, NewControl, Unset, WhichControl},
        release,
        tools::{self, Applied},
    },
};
use fleet_tests::postgres::Database;
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tokio::time::Instant;

use crate::support::Ledger;

const TARGET: &str = "http://127.0.0.1:9";

pub(crate) async fn apply(
    connection: &mut PgConnection,
    name: &str,
    version: i32,
    breaker: &Value,
) {
    try_apply(connection, name, version, breaker).await;
}

async fn try_apply(
    connection: &mut PgConnection,
    name: &str,
    version: i32,
    breaker: &Value,
) -> Applied {
    let mut written = json!({
        "name": name, "version": version, "description": "Looks.", "effect": "read", "input_schema": {"type": "object"},
        "executor": {"http": {"method": "GET", "url": format!("{TARGET}/")}},
    });
    if !breaker.is_null() {
        written["breaker"] = breaker.clone();
    }
    let manifest = manifest::parse(&written.to_string()).unwrap();
    tools::apply(connection, &manifest, "test").await.unwrap()
}

/// A ledger with the tool `look`, whose breaker opens at two failures of two and has two probes.
struct Guarded {
    database: Database,
    connection: PgConnection,
    tool: ToolName,
    second: i64,
}

impl Guarded {
    async fn new(open: &str) -> Self {
        let database = Database::fresh().await;
        let mut connection = breakers::connect(&database.postgres).await.unwrap();
        let breaker =
            json!({"calls": 2, "failures": "50%", "open": open, "open_max": "1h", "probes": 2});
        apply(&mut connection, "look", 1, &breaker).await;
        Self {
            database,
            connection,
            tool: "look".parse().unwrap(),
            second: 0,
        }
    }

    fn counted(&mut self, generation: i64, calls: i64, failures: i64) -> CountedSecond {
        self.second += 1;
        CountedSecond {
            tool: self.tool.clone(),
            target: TARGET.to_owned(),
            generation,
            second: self.second,
            age: Duration::ZERO,
            counted: Counted {
                calls,
                failures,
                slow: 0,
            },
        }
    }

    async fn report(&mut self, worker: WorkerId, seconds: &[CountedSecond]) -> ReportVerdict {
        let told = breakers::report(&mut self.connection, worker, seconds).await;
        let told = told.unwrap();
        assert!(told.len() <= 1, "{told:?}");
        told.first().map_or(ReportVerdict::Stays, |one| one.verdict)
    }

    /// Two workers fail, so it opens.
    async fn open(&mut self) {
        for expected in [ReportVerdict::Stays, ReportVerdict::Opened] {
            let bad = self.counted(0, 1, 1);
            assert_eq!(self.report(WorkerId::generate(), &[bad]).await, expected);
        }
    }

    async fn permit(&self) -> (PermitVerdict, i64) {
        let timeout = Duration::from_secs(30);
        let pool = &self.database.pool;
        let answer = breakers::permit(pool, &self.tool, TARGET, timeout)
            .await
            .unwrap();
        (answer.verdict, answer.generation)
    }

    async fn state(&self) -> (BreakerState, i64) {
        let known = breakers::known(&self.database.pool).await.unwrap();
        let known = known.of(&self.tool, TARGET).unwrap();
        (known.state, known.generation)
    }

    async fn rev(&self) -> i64 {
        tools::revisions(&self.database.pool)
            .await
            .unwrap()
            .breakers
    }
}

#[tokio::test]
async fn a_report_that_is_repeated_counts_once_and_a_late_one_flips_nothing() {
    let mut guarded = Guarded::new("1h").await;
    let worker = WorkerId::generate();
    let one = guarded.counted(0, 1, 1);
    for _ in 0..3 {
        let said = guarded.report(worker, std::slice::from_ref(&one)).await;
        assert_eq!(said, ReportVerdict::Stays);
    }
    // A new row is news; counts are not.
    assert_eq!(
        (guarded.state().await, guarded.rev().await),
        ((BreakerState::Closed, 0), 1)
    );
    let two = guarded.counted(0, 1, 1);
    // It is heard alone; others may not have reported yet. Then another one has.
    assert_eq!(guarded.report(worker, &[two]).await, ReportVerdict::Unsure);
    let other = guarded.counted(0, 1, 1);
    assert_eq!(
        guarded.report(WorkerId::generate(), &[other]).await,
        ReportVerdict::Opened
    );
    assert_eq!(
        (guarded.state().await, guarded.rev().await),
        ((BreakerState::Open, 1), 2)
    );
    // What ran meanwhile is of the generation before.
    for _ in 0..2 {
        let late = guarded.counted(0, 5, 0);
        assert_eq!(guarded.report(worker, &[late]).await, ReportVerdict::Stale);
        assert_eq!(guarded.state().await, (BreakerState::Open, 1));
    }
    assert_eq!(guarded.permit().await, (PermitVerdict::Refused, 1));
}

#[tokio::test]
async fn half_open_admits_its_probes_over_the_fleet_and_what_is_given_back_once_more() {
    let mut guarded = Guarded::new("2s").await;
    let worker = WorkerId::generate();
    guarded.open().await;
    let breakers = breakers::known(&guarded.database.pool).await.unwrap();
    let known = breakers.of(&guarded.tool, TARGET).unwrap();
    assert!(
        matches!(known.passage(2, Instant::now()), Passage::Shut(Some(_))),
        "{known:?}"
    );
    let due = known.until.unwrap() + Duration::from_millis(20);
    assert_eq!(known.passage(2, due), Passage::Ask);
    tokio::time::sleep_until(due).await;
    let asked = join_all((0..12).map(|_| guarded.permit())).await;
    let granted = asked
        .iter()
        .filter(|one| **one == (PermitVerdict::Granted, 2));
    assert_eq!(granted.count(), 2, "{asked:?}");
    // One comes back, once; its round only.
    let (pool, tool) = (guarded.database.pool.clone(), guarded.tool.clone());
    let mut connection = pool.acquire().await.unwrap();
    for (generation, is_back) in [(1, false), (2, true)] {
        let back = breakers::give_back(&mut connection, &tool, TARGET, generation).await;
        assert_eq!(back.unwrap(), is_back);
    }
    assert_eq!(guarded.permit().await, (PermitVerdict::Granted, 2));
    assert_eq!(guarded.permit().await, (PermitVerdict::Refused, 2));
    // One probe is not enough; an old result is none.
    let one = guarded.counted(2, 1, 0);
    assert_eq!(guarded.report(worker, &[one]).await, ReportVerdict::Stays);
    let old = guarded.counted(1, 1, 1);
    assert_eq!(guarded.report(worker, &[old]).await, ReportVerdict::Stale);
    let other = guarded.counted(2, 1, 0);
    assert_eq!(
        guarded.report(WorkerId::generate(), &[other]).await,
        ReportVerdict::Closed
    );
    assert_eq!(guarded.state().await, (BreakerState::Closed, 3));
    assert_eq!(guarded.permit().await, (PermitVerdict::Closed, 3));
}

#[tokio::test]
async fn one_bad_worker_shuts_nothing_and_two_shut_the_target() {
    let mut guarded = Guarded::new("1h").await;
    let workers = [
        WorkerId::generate(),
        WorkerId::generate(),
        WorkerId::generate(),
    ];
    let good = guarded.counted(0, 10, 0);
    assert_eq!(
        guarded.report(workers[0], &[good]).await,
        ReportVerdict::Stays
    );
    let bad = guarded.counted(0, 50, 50);
    let told = breakers::report(&mut guarded.connection, workers[1], &[bad]).await;
    let told = told.unwrap();
    assert_eq!(told[0].verdict, ReportVerdict::Local);
    assert_eq!(told[0].local_for, Some(Duration::from_secs(3600)));
    assert_eq!(guarded.state().await, (BreakerState::Closed, 0));
    let too = guarded.counted(0, 1, 1);
    assert_eq!(
        guarded.report(workers[2], &[too]).await,
        ReportVerdict::Opened
    );
    let why: Value = sqlx::query_scalar("SELECT why FROM toolfleet.breakers")
        .fetch_one(&guarded.database.pool)
        .await
        .unwrap();
    assert_eq!(
        why,
        json!({"was": "closed", "calls": 61, "failures": 51, "slow": 0, "workers": 3})
    );
}

#[tokio::test]
async fn the_newest_version_says_whether_there_is_a_breaker() {
    let mut guarded = Guarded::new("1h").await;
    guarded.open().await;
    let mut connection = guarded.database.postgres.connect().await.unwrap();
    apply(&mut connection, "look", 2, &json!(null)).await;
    assert_eq!(guarded.permit().await.0, PermitVerdict::Unguarded);
    let more = guarded.counted(1, 2, 2);
    assert_eq!(
        guarded.report(WorkerId::generate(), &[more]).await,
        ReportVerdict::Stays
    );
    // Its own calls are put aside under a limit that is the newest one's, too.
    apply(&mut connection, "look", 3, &json!({"probes": 1})).await;
    assert_eq!(guarded.permit().await.0, PermitVerdict::Refused);
}

#[tokio::test]
async fn who_forces_a_breaker_names_a_tool_that_has_one_and_nothing_else() {
    let guarded = Guarded::new("1h").await;
    let pool = &guarded.database.pool;
    let mut connection = guarded.database.postgres.connect().await.unwrap();
    apply(&mut connection, "plain", 1, &json!(null)).await;
    let forced =
        |setting: &'static str, scope: ControlScope<'static>, for_ms: Option<i64>| NewControl {
            kind: ControlKind::Breaker,
            scope,
            setting,
            told: None,
            actor: "ada",
            note: "why",
            for_ms,
            in_tenant: None,
        };
    let of = |tool: &'static str| ControlScope {
        tool: Some(tool),
        ..ControlScope::default()
    };
    let look = of("look");
    for (control, why) in [
        (forced("\"half\"", look, None), "setting must be"),
        (forced("\"wait\"", look, None), "setting must be"),
        (
            forced("\"open\"", ControlScope::default(), None),
            "needs a tool",
        ),
        (forced("\"open\"", of("nowhere"), None), "no such tool"),
        (forced("\"open\"", of("plain"), None), "has no breaker"),
        (
            forced(
                "\"open\"",
                ControlScope {
                    queue: Some("default"),
                    ..look
                },
                None,
            ),
            "of a whole tool",
        ),
        (
            forced(
                "\"open\"",
                ControlScope {
                    tenant: Some("acme"),
                    ..look
                },
                None,
            ),
            "of a whole tool",
        ),
        (
            forced(
                "\"open\"",
                ControlScope {
                    pointer: Some("/a"),
                    value: Some("1"),
                    ..look
                },
                None,
            ),
            "of a whole tool",
        ),
        (
            forced(
                "\"open\"",
                ControlScope {
                    subject: Some("x"),
                    ..look
                },
                None,
            ),
            "no subject",
        ),
        (forced("\"open\"", look, Some(0)), "for_ms"),
        (
            NewControl {
                told: Some("later"),
                ..forced("\"open\"", look, None)
            },
            "told",
        ),
    ] {
        match controls::set(pool, &control).await {
            Err(DecisionError::Invalid(said)) => assert!(said.contains(why), "{why}: {said}"),
            other => panic!("{why}: {other:?}"),
        }
    }
    let holding = controls::holding(pool).await.unwrap();
    assert_eq!(holding.forced_breaker(&guarded.tool), None);
    let set = controls::set(pool, &forced("\"open\"", look, Some(60_000))).await;
    assert!(matches!(set.unwrap(), ControlSet::Set(_)));
    let other = controls::set(pool, &forced("\"closed\"", look, None)).await;
    assert!(matches!(other.unwrap(), ControlSet::Conflict(_)));
    let holding = controls::holding(pool).await.unwrap();
    let forced = holding.forced_breaker(&guarded.tool).unwrap();
    assert!(
        forced.is_open && forced.until == holding.next_end(),
        "{forced:?}"
    );
    assert!(holding.are_none(), "no call is paused by it");
    let unset = Unset {
        which: WhichControl::Scope(ControlKind::Breaker, look),
        actor: "ada",
        note: "why",
        in_tenant: None,
    };
    assert!(controls::unset(pool, &unset).await.unwrap().is_some());
    let holding = controls::holding(pool).await.unwrap();
    assert_eq!(holding.forced_breaker(&guarded.tool), None);
}

#[tokio::test]
async fn the_line_of_a_breaker_is_known_and_says_why_its_calls_are_held() {
    let guarded = Guarded::new("1h").await;
    let mut connection = release::connect(&guarded.database.postgres).await.unwrap();
    let said: Option<String> = sqlx::query_scalar("SELECT toolfleet.held_why(true, 'breaker/3')")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(said.as_deref(), Some("breaker"));
}

#[tokio::test]
async fn a_version_without_a_breaker_does_not_let_go_what_is_forced_open() {
    let guarded = Guarded::new("1h").await;
    let connection = &mut guarded.database.connect().await;
    let mut version = 1;
    for (setting, expected) in [
        (Some(r#""open""#), Applied::BreakerForced),
        (None, Applied::Created),
        (Some(r#""closed""#), Applied::Created),
    ] {
        force(&guarded, setting).await;
        for (breaker, expected) in [(json!(null), expected), (json!({}), Applied::Created)] {
            version += 1;
            let applied = try_apply(connection, "look", version, &breaker).await;
            assert_eq!(applied, expected, "{setting:?}, {breaker}");
        }
    }
}

/// Forces the breaker of `look`, or lets it go.
async fn force(guarded: &Guarded, setting: Option<&str>) {
    let pool = &guarded.database.pool;
    let scope = ControlScope {
        tool: Some("look"),
        ..ControlScope::default()
    };
    let Some(setting) = setting else {
        let unset = Unset {
            which: WhichControl::Scope(ControlKind::Breaker, scope),
            actor: "ada",
            note: "why",
            in_tenant: None,
        };
        assert!(controls::unset(pool, &unset).await.unwrap().is_some());
        return;
    };
    let control = NewControl {
        kind: ControlKind::Breaker,
        scope,
        setting,
        told: None,
        actor: "ada",
        note: "why",
        for_ms: None,
        in_tenant: None,
    };
    let set = controls::set(pool, &control).await.unwrap();
    assert!(matches!(set, ControlSet::Set(_)), "{set:?}");
}

#[tokio::test]
async fn while_a_breaker_is_forced_what_is_counted_decides_nothing_and_it_starts_closed() {
    let mut guarded = Guarded::new("1h").await;
    guarded.open().await;
    let (state, generation) = guarded.state().await;
    assert_eq!(state, BreakerState::Open);
    let rev = guarded.rev().await;
    force(&guarded, Some("\"closed\"")).await;
    assert_eq!(
        guarded.state().await,
        (BreakerState::Closed, generation + 1)
    );
    assert!(guarded.rev().await > rev, "processes read it anew");
    for _ in 0..3 {
        let bad = guarded.counted(generation + 1, 4, 4);
        let said = guarded.report(WorkerId::generate(), &[bad]).await;
        assert_eq!(said, ReportVerdict::Stays);
    }
    force(&guarded, None).await;
    let windows: i64 = sqlx::query_scalar("SELECT count(*) FROM toolfleet.breaker_windows")
        .fetch_one(&guarded.database.pool)
        .await
        .unwrap();
    assert_eq!(windows, 0);
    for (of, expected) in [
        (generation + 1, ReportVerdict::Stale),
        (generation + 2, ReportVerdict::Stays),
    ] {
        let bad = guarded.counted(of, 1, 1);
        let said = guarded.report(WorkerId::generate(), &[bad]).await;
        assert_eq!(said, expected, "one of two");
    }
    assert_eq!(guarded.permit().await.0, PermitVerdict::Closed);
}

/// One that a report had locked when it was forced is closed by the next report.
#[tokio::test]
async fn a_breaker_that_is_still_open_beneath_its_force_is_closed_by_the_next_report() {
    let mut guarded = Guarded::new("1h").await;
    guarded.open().await;
    let mut other = guarded.database.connect().await;
    let mut lock = other.begin().await.unwrap();
    sqlx::query("SELECT FROM toolfleet.breaker_states FOR UPDATE")
        .execute(&mut *lock)
        .await
        .unwrap();
    force(&guarded, Some("\"closed\"")).await;
    lock.rollback().await.unwrap();
    assert_eq!(guarded.state().await.0, BreakerState::Open);
    let bad = guarded.counted(1, 1, 1);
    let said = guarded.report(WorkerId::generate(), &[bad]).await;
    assert_eq!(said, ReportVerdict::Closed);
    assert_eq!(guarded.state().await.0, BreakerState::Closed);
}

#[tokio::test]
async fn a_breaker_is_dropped_unless_a_call_waits_for_it_and_its_control_counts_those() {
    let mut guarded = Guarded::new("1h").await;
    guarded.open().await;
    let Guarded { database, tool, .. } = guarded;
    let shut = breakers::shut(&database.pool).await.unwrap();
    assert_eq!(shut, [(tool.clone(), TARGET.to_owned())]);
    let known = breakers::known(&database.pool).await.unwrap();
    let id = known.of(&tool, TARGET).unwrap().id;
    let ledger = Ledger::on(database);
    let pool = &ledger.database.pool;
    let drop_it = async || {
        let mut connection = ledger.database.connect().await;
        breakers::drop_unused(&mut connection, &[id]).await.unwrap()
    };
    let call = ledger.queued().await;
    let hold = "UPDATE toolfleet.open_calls SET held = true, line = 'breaker/1' WHERE call_id = $1";
    ledger.meddle(call, hold).await;
    assert_eq!(drop_it().await, 0, "a call waits for it");
    let force =
        "SELECT FROM toolfleet.set_control('breaker', '\"open\"', 'ada', 'why', tool => 'look')";
    sqlx::query(force).execute(pool).await.unwrap();
    let waiting = sqlx::query_scalar("SELECT waiting FROM toolfleet.controls").fetch_one(pool);
    let waiting: Option<i64> = waiting.await.unwrap();
    assert_eq!(waiting, Some(1));
    let release =
        "UPDATE toolfleet.open_calls SET held = false, line = 'default' WHERE call_id = $1";
    ledger.meddle(call, release).await;
    let rev = tools::revisions(pool).await.unwrap().breakers;
    assert_eq!(drop_it().await, 1);
    assert!(tools::revisions(pool).await.unwrap().breakers > rev);
    assert!(breakers::shut(pool).await.unwrap().is_empty());
}
