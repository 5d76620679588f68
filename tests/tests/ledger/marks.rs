//! Marks of calls that are over, and the dead letters that have none.

use fleet::{
    ids::CallId,
    store::{
        DecisionError,
        marks::{self, CallMark, MarkVerdict, Marked, NewMarks},
    },
};
use sqlx::PgPool;
use uuid::Uuid;

use crate::support::Ledger;

/// A call that ended so, with what is known of its effect; returns its id.
async fn ended(pool: &PgPool, state: &str, outcome: &str, known: &str, probe: bool) -> CallId {
    let call = CallId::generate();
    sqlx::query(
        "INSERT INTO toolfleet.finished_calls (call_id, rev, from_state, state, outcome, source, effect_known, tenant, tool, \
             tool_version, effect, queue, priority, key_retention_ms, args, args_hash, error, language, accepted_at, deadline_at, \
             finished_at, queued_ms, run_ms, attempts, probe_of, actor, reason) \
         SELECT $1, 1, 'queued', $2::toolfleet.call_state, $3::toolfleet.call_outcome, 'error', $4::toolfleet.effect_known, 'tenant', \
             'tool', 1, 'once', 'default', 1, 0, '{}', '', '{\"code\": \"timeout\"}', 'en', at, at, at, 0, 0, 0, $5, 'test', 'test' \
         FROM toolfleet.uuid_instant($1) at",
    )
    .bind(call.0)
    .bind(state)
    .bind(outcome)
    .bind(known)
    .bind(probe.then(Uuid::now_v7))
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
