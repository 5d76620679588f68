//! Calls that are put aside: which, once, and back only when Postgres says that the pause is over.

use fleet::{
    call::Priority,
    controls::ControlId,
    hold::Line,
    ids::CallId,
    store::{
        accept::NewCall,
        controls::{self, ControlKind, ControlScope, ControlSet, NewControl, Unset, WhichControl},
        figures,
        pauses::{self, LineMove, held_behind, left_behind, move_held, put_aside},
    },
};

use crate::support::{Ledger, new_call};

async fn paused(ledger: &Ledger) -> Line {
    let pause = NewControl {
        kind: ControlKind::Pause,
        scope: ControlScope {
            tenant: Some("tenant"),
            ..ControlScope::default()
        },
        setting: "\"wait\"",
        told: None,
        actor: "ada",
        note: "why",
        for_ms: None,
        in_tenant: None,
    };
    let set = controls::set(&ledger.database.pool, &pause).await.unwrap();
    assert!(matches!(set, ControlSet::Set(_)), "{set:?}");
    Line::Pause(ControlId(1))
}

async fn resume(ledger: &Ledger) {
    let unset = Unset {
        which: WhichControl::Id(ControlId(1)),
        actor: "ada",
        note: "why",
        in_tenant: None,
    };
    let was = controls::unset(&ledger.database.pool, &unset)
        .await
        .unwrap();
    assert!(was.is_some());
}

async fn line_of(ledger: &Ledger, call: CallId) -> String {
    sqlx::query_scalar("SELECT line FROM toolfleet.open_calls WHERE call_id = $1")
        .bind(call.0)
        .fetch_one(&ledger.database.pool)
        .await
        .unwrap()
}

fn held() -> NewCall {
    NewCall {
        held: true,
        priority: Priority::Low,
        ..new_call()
    }
}

fn to(call: CallId, from: &str, line: &Line) -> LineMove {
    LineMove {
        call,
        from: from.to_owned(),
        to: line.clone(),
    }
}

#[tokio::test]
async fn only_a_published_call_is_put_aside_and_no_pointer_claims_it_then() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let line = paused(&ledger).await;
    let published = ledger.queued().await;
    let pool = ledger.database.pool.clone();
    let put = async |call| put_aside(&pool, call, &line).await.unwrap();
    assert!(put(published).await);
    assert!(!put(published).await, "once");
    assert_eq!(line_of(&ledger, published).await, "pause/1");
    assert!(ledger.is_held(published).await);
    assert!(worker.tries(published).await.is_none());
    let (running, _attempt) = ledger.running(&worker).await;
    assert!(!put(running).await, "what runs goes on");
    let postponed = ledger.queued().await;
    ledger
        .meddle(
            postponed,
            "UPDATE toolfleet.open_calls SET due_at = now() WHERE call_id = $1",
        )
        .await;
    assert!(
        !put(postponed).await,
        "its pause before the next attempt is not over"
    );
    assert!(!put(CallId::generate()).await);
}

#[tokio::test]
async fn paused_calls_are_counted_and_have_no_age() {
    let ledger = Ledger::fresh().await;
    let line = paused(&ledger).await;
    let call = ledger.queued().await;
    let figures = async || {
        let figures = figures::figures(&ledger.database.pool).await.unwrap();
        (figures.held, figures.paused, figures.oldest_age.len())
    };
    assert_eq!(figures().await, (0, 0, 1));
    assert!(put_aside(&ledger.database.pool, call, &line).await.unwrap());
    assert_eq!(figures().await, (1, 1, 0));
    // Nor has one that waits for a breaker, or for its tool's limit; one that waits for room has.
    for (to, ages) in [
        (
            "UPDATE toolfleet.open_calls SET line = 'breaker/1' WHERE call_id = $1",
            0,
        ),
        (
            "UPDATE toolfleet.open_calls SET line = 'tool/look' WHERE call_id = $1",
            0,
        ),
        (
            "UPDATE toolfleet.open_calls SET line = 'default' WHERE call_id = $1",
            1,
        ),
    ] {
        ledger.meddle(call, to).await;
        assert_eq!(figures().await, (1, 0, ages), "{to}");
    }
}

#[tokio::test]
async fn held_calls_are_walked_over_in_steps_and_moved_from_where_they_were_seen() {
    let ledger = Ledger::fresh().await;
    let line = paused(&ledger).await;
    let pool = &ledger.database.pool;
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(ledger.accepted(held()).await);
    }
    ledger.queued().await;
    calls.sort();
    let seen = held_behind(pool, None, &["tool"]).await.unwrap();
    assert_eq!(seen.iter().map(|held| held.call).collect::<Vec<_>>(), calls);
    assert_eq!(seen[0].args.as_deref(), Some("{}"));
    let rest = held_behind(pool, Some(calls[1]), &[]).await.unwrap();
    assert_eq!(
        (rest.len(), rest[0].call, &rest[0].args),
        (1, calls[2], &None)
    );
    assert!(seen.len() < pauses::STEP);

    let moves = [
        to(calls[0], "default", &line),
        to(calls[1], "elsewhere", &line),
    ];
    assert_eq!(move_held(pool, &moves).await.unwrap(), 1);
    assert_eq!(line_of(&ledger, calls[0]).await, "pause/1");
    assert_eq!(
        line_of(&ledger, calls[1]).await,
        "default",
        "it was not where it was seen"
    );
    // Into the line of a pause that is not there nothing goes.
    let nowhere = Line::Pause(ControlId(9));
    let moved = move_held(pool, &[to(calls[1], "default", &nowhere)]).await;
    assert_eq!(moved.unwrap(), 0);
}

#[tokio::test]
async fn a_call_goes_back_when_the_ledger_says_that_its_pause_is_over() {
    let ledger = Ledger::fresh().await;
    let line = paused(&ledger).await;
    let pool = &ledger.database.pool;
    let call = ledger
        .accepted(NewCall {
            line: line.clone(),
            ..held()
        })
        .await;
    assert!(left_behind(pool, &line, &[]).await.unwrap().is_empty());
    resume(&ledger).await;
    let left = left_behind(pool, &line, &[]).await.unwrap();
    assert_eq!(
        left.iter().map(|held| held.call).collect::<Vec<_>>(),
        [call]
    );
    let own: Line = "default".parse().unwrap();
    let back = [to(call, "pause/1", &own)];
    assert_eq!(move_held(pool, &back).await.unwrap(), 1);
    assert_eq!(move_held(pool, &back).await.unwrap(), 0, "once");
    assert!(ledger.is_held(call).await, "it is released in its turn");
    assert_eq!(line_of(&ledger, call).await, "default");
}
