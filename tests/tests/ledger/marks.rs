//! Marks of calls that are over, and the dead letters that have none.

use fleet::{
    ids::CallId,
    mcp,
    store::{
        DecisionError,
        marks::{self, CallMark, MarkVerdict, Marked, NewMarks},
        reservations::{ReserveVerdict, Reserver, release, reserve},
    },
};
use sqlx::PgPool;
use uuid::Uuid;

use crate::support::Ledger;

/// A call of a tool that ended so, with what is known of its effect; returns its id.
async fn ended(pool: &PgPool, state: &str, outcome: &str, known: &str, probe: bool) -> CallId {
    ended_by("tool", pool, state, outcome, known, probe).await
}

/// The same of this tool.
async fn ended_by(
    tool: &str,
    pool: &PgPool,
    state: &str,
    outcome: &str,
    known: &str,
    probe: bool,
) -> CallId {
    let call = CallId::generate();
    sqlx::query(
        "INSERT INTO toolfleet.finished_calls (call_id, rev, from_state, state, outcome, source, effect_known, tenant, tool, \
             tool_version, effect, queue, priority, key_retention_ms, args, args_hash, error, language, accepted_at, deadline_at, \
             finished_at, queued_ms, run_ms, attempts, probe_of, actor, reason) \
         SELECT $1, 1, 'queued', $2::toolfleet.call_state, $3::toolfleet.call_outcome, 'error', $4::toolfleet.effect_known, 'tenant', \
             $6, 1, 'once', 'default', 1, 0, '{}', '', '{\"code\": \"timeout\"}', 'en', at, at, at, 0, 0, 0, $5, 'test', 'test' \
         FROM toolfleet.uuid_instant($1) at",
    )
    .bind(call.0)
    .bind(state)
    .bind(outcome)
    .bind(known)
    .bind(probe.then(Uuid::now_v7))
    .bind(tool)
    .execute(pool)
    .await
    .unwrap();
    call
}

async fn dead(pool: &PgPool) -> Vec<CallId> {
    let found: Vec<Uuid> =
        sqlx::query_scalar("SELECT call_id FROM toolfleet.dead_letters ORDER BY call_id")
            .fetch_all(pool)
            .await
            .unwrap();
    found.into_iter().map(CallId).collect()
}

async fn mark(pool: &PgPool, what: CallMark, calls: &[(CallId, Option<CallId>)]) -> Vec<Marked> {
    let marks = NewMarks {
        what,
        actor: "ann",
        note: Some("why"),
        bulk_name: None,
        calls,
    };
    marks::mark(pool, &marks).await.unwrap()
}

async fn verdict(pool: &PgPool, what: CallMark, call: CallId, new: Option<CallId>) -> MarkVerdict {
    mark(pool, what, &[(call, new)]).await[0].verdict
}

#[tokio::test]
async fn only_what_failed_by_the_system_without_an_effect_is_dead() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    let letter = ended(pool, "failed", "system_error", "none", false).await;
    let not_applied = ended(pool, "failed", "system_error", "not_applied", false).await;
    for (state, outcome, known, probe) in [
        ("failed", "system_error", "unknown", false),
        ("failed", "system_error", "applied", false),
        ("failed", "system_error", "none", true),
        ("failed", "business_error", "none", false),
        ("succeeded", "success", "applied", false),
        ("cancelled", "system_error", "none", false),
        ("expired", "system_error", "none", false),
    ] {
        let other = ended(pool, state, outcome, known, probe).await;
        let told = verdict(pool, CallMark::Discarded, other, None).await;
        assert_eq!(told, MarkVerdict::NotDead, "{state} {outcome} {known}");
    }
    assert_eq!(dead(pool).await, [letter, not_applied]);
}

#[tokio::test]
async fn a_look_at_an_mcp_server_is_no_dead_letter_however_it_failed() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    let mut letters = Vec::new();
    for tool in [
        "mcp_discover",
        "mcp_discover_eu_1",
        "mcp_discovery",
        "mcp_discover1",
        "mcp-discover_a",
        "my_mcp_discover",
    ] {
        let call = ended_by(tool, pool, "failed", "system_error", "none", false).await;
        // One rule, here and in the ledger.
        if !mcp::is_for_operators(tool) {
            letters.push(call);
            continue;
        }
        let told = verdict(pool, CallMark::Discarded, call, None).await;
        assert_eq!(told, MarkVerdict::NotDead, "{tool}");
    }
    assert_eq!(letters.len(), 4);
    assert_eq!(dead(pool).await, letters);
}

#[tokio::test]
async fn a_mark_is_made_once_and_never_changes() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    let (one, other) = (
        ended(pool, "failed", "system_error", "none", false).await,
        ended(pool, "failed", "system_error", "none", false).await,
    );
    let new = CallId::generate();
    for _ in 0..2 {
        assert_eq!(
            verdict(pool, CallMark::Discarded, one, None).await,
            MarkVerdict::Marked
        );
        assert_eq!(
            verdict(pool, CallMark::Retried, other, Some(new)).await,
            MarkVerdict::Marked
        );
    }
    // Of a call that was made again, nothing is left to give up.
    assert_eq!(
        verdict(pool, CallMark::Discarded, other, None).await,
        MarkVerdict::NotDead
    );
    assert_eq!(dead(pool).await, []);
    let marks: Vec<(Uuid, String, Option<Uuid>)> =
        sqlx::query_as("SELECT call_id, what, new_call_id FROM toolfleet.marks ORDER BY call_id")
            .fetch_all(pool)
            .await
            .unwrap();
    let expected = [
        (one.0, "discarded".to_owned(), None),
        (other.0, "retried".to_owned(), Some(new.0)),
    ];
    assert_eq!(marks, expected);
    for change in [
        "UPDATE toolfleet.call_marks SET actor = 'you'",
        "DELETE FROM toolfleet.call_marks",
        "TRUNCATE toolfleet.call_marks",
    ] {
        assert!(sqlx::query(change).execute(pool).await.is_err(), "{change}");
    }
}

#[tokio::test]
async fn what_is_open_or_nowhere_or_makes_no_sense_gets_no_mark() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    let open = ledger.queued().await;
    let nowhere = CallId::generate();
    for what in [CallMark::Discarded, CallMark::Retried] {
        let new = (what == CallMark::Retried).then(CallId::generate);
        assert_eq!(verdict(pool, what, open, new).await, MarkVerdict::NotOver);
        assert_eq!(
            verdict(pool, what, nowhere, new).await,
            MarkVerdict::NotFound
        );
    }
    let letter = ended(pool, "failed", "system_error", "none", false).await;
    let asked = |actor, note| NewMarks {
        what: CallMark::Discarded,
        actor,
        note,
        bulk_name: None,
        calls: &[],
    };
    for wrong in [
        asked(" ", Some("why")),
        asked("ann", None),
        asked("ann", Some(" ")),
    ] {
        let calls = [(letter, None)];
        let refused = marks::mark(
            pool,
            &NewMarks {
                calls: &calls,
                ..wrong
            },
        )
        .await;
        assert!(
            matches!(refused, Err(DecisionError::Invalid(_))),
            "{refused:?}"
        );
    }
    assert_eq!(dead(pool).await, [letter]);
}

/// An attempt of the call says late that it did it.
async fn proven_late(pool: &PgPool, call: CallId) {
    sqlx::query(
        "INSERT INTO toolfleet.ended_attempts (call_id, attempt_id, number, worker_id, started_at, timeout_ms, outcome, effect_known, \
             over, late) \
         VALUES ($1, gen_random_uuid(), 1, gen_random_uuid(), now(), 1000, 'applied', 'applied', true, true)",
    )
    .bind(call.0)
    .execute(pool)
    .await
    .unwrap();
}

const fn reserver(name: Option<&str>, retry: u128, run: u128) -> Reserver<'_> {
    Reserver {
        name,
        retry: Uuid::from_u128(retry),
        run: Uuid::from_u128(run),
    }
}

/// What each of these calls is told, in their order.
async fn reserved(pool: &PgPool, by: Reserver<'_>, calls: &[CallId]) -> Vec<ReserveVerdict> {
    let mut connection = pool.acquire().await.unwrap();
    let told = reserve(&mut connection, by, calls).await.unwrap();
    assert_eq!(told.len(), calls.len());
    let of = |call: &CallId| told.iter().find(|one| one.call_id == *call).unwrap();
    calls.iter().map(|call| of(call).verdict).collect()
}

async fn age(pool: &PgPool) {
    sqlx::query("UPDATE toolfleet.retry_reservations SET at = at - interval '23 h'")
        .execute(pool)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_late_proof_makes_a_failed_write_no_dead_letter() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    let letter = ended(pool, "failed", "system_error", "not_applied", false).await;
    let happened = ended(pool, "failed", "system_error", "not_applied", false).await;
    assert_eq!(dead(pool).await, [letter, happened]);
    proven_late(pool, happened).await;
    assert_eq!(dead(pool).await, [letter]);
    assert_eq!(
        verdict(pool, CallMark::Discarded, happened, None).await,
        MarkVerdict::NotDead
    );
}

#[tokio::test]
async fn a_call_is_reserved_for_one_retry_and_not_where_it_was_dealt_with_since() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    let mut letters = Vec::new();
    for _ in 0..4 {
        letters.push(ended(pool, "failed", "system_error", "not_applied", false).await);
    }
    let [free, discarded, retried, happened] = letters[..] else {
        panic!("there are four");
    };
    mark(pool, CallMark::Discarded, &[(discarded, None)]).await;
    mark(
        pool,
        CallMark::Retried,
        &[(retried, Some(CallId::generate()))],
    )
    .await;
    proven_late(pool, happened).await;
    let (open, nowhere) = (ledger.queued().await, CallId::generate());
    let asked = [free, discarded, retried, happened, open, nowhere];
    let (monday, tuesday) = (
        reserver(Some("monday"), 1, 1),
        reserver(Some("tuesday"), 2, 2),
    );
    let told = |free| {
        [
            free,
            ReserveVerdict::DiscardedBefore,
            ReserveVerdict::RetriedBefore,
            ReserveVerdict::EffectHappened,
            ReserveVerdict::NotOver,
            ReserveVerdict::NotFound,
        ]
    };
    for (by, expected) in [
        (monday, ReserveVerdict::Held),
        (tuesday, ReserveVerdict::UnderWay),
        (monday, ReserveVerdict::Held),
        // The name was forgotten, and used again.
        (reserver(Some("monday"), 3, 3), ReserveVerdict::UnderWay),
        (reserver(None, 4, 4), ReserveVerdict::UnderWay),
    ] {
        assert_eq!(reserved(pool, by, &asked).await, told(expected), "{by:?}");
    }
    // Nobody gives up what is being made again, and what was given up is not made again.
    assert_eq!(
        verdict(pool, CallMark::Discarded, free, None).await,
        MarkVerdict::UnderWay
    );
    assert_eq!(dead(pool).await, [free]);
    // So long after, nobody knows, and a person decides.
    age(pool).await;
    for by in [monday, tuesday, reserver(None, 4, 4)] {
        let told = reserved(pool, by, &[free]).await;
        assert_eq!(told, [ReserveVerdict::Unsure], "{by:?}");
    }
    assert_eq!(
        verdict(pool, CallMark::Discarded, free, None).await,
        MarkVerdict::Marked
    );
}

#[tokio::test]
async fn a_reservation_is_taken_back_by_the_only_process_that_had_it() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    let letter = ended(pool, "failed", "system_error", "none", false).await;
    let (monday, again) = (
        reserver(Some("monday"), 1, 1),
        reserver(Some("monday"), 1, 2),
    );
    let tuesday = reserver(Some("tuesday"), 2, 3);
    let one = [letter];
    let mut connection = pool.acquire().await.unwrap();
    assert_eq!(reserved(pool, monday, &one).await, [ReserveVerdict::Held]);
    for other in [again, tuesday] {
        release(&mut connection, other, &one).await.unwrap();
        let told = reserved(pool, tuesday, &one).await;
        assert_eq!(told, [ReserveVerdict::UnderWay], "{other:?}");
    }
    release(&mut connection, monday, &one).await.unwrap();
    assert_eq!(reserved(pool, tuesday, &one).await, [ReserveVerdict::Held]);
    release(&mut connection, tuesday, &one).await.unwrap();
    // Two processes of one retry: what one of them may have sent, the other does not take back.
    for by in [monday, again] {
        assert_eq!(reserved(pool, by, &one).await, [ReserveVerdict::Held]);
    }
    for by in [monday, again] {
        release(&mut connection, by, &one).await.unwrap();
        let told = reserved(pool, tuesday, &one).await;
        assert_eq!(told, [ReserveVerdict::UnderWay], "{by:?}");
    }
}

#[tokio::test]
async fn eight_retries_at_once_have_each_call_once() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    let mut letters = Vec::new();
    for _ in 0..50 {
        letters.push(ended(pool, "failed", "system_error", "none", false).await);
    }
    let mut asking = tokio::task::JoinSet::new();
    for n in 0..8 {
        let (pool, mut letters) = (pool.clone(), letters.clone());
        if n % 2 == 0 {
            letters.reverse();
        }
        asking.spawn(async move {
            let told = reserved(&pool, reserver(Some("name"), n, n), &letters).await;
            let held = told.iter().filter(|told| **told == ReserveVerdict::Held);
            held.count()
        });
    }
    assert_eq!(asking.join_all().await.iter().sum::<usize>(), 50);
}
