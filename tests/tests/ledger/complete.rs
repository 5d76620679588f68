//! Completing: an ending moves a call exactly when its guard holds, and one of several that race.

use fleet::{
    call::State,
    ids::{AttemptId, CallId},
    store::{
        complete::{Decision, EndedAttempt, Ending, EndingKind, Guard},
        lane::Reply,
        ledger::Completing,
        read,
    },
};
use futures_util::future::join_all;

use crate::support::{
    Ledger, Worker, again, doubt, doubted, end_in, ending, holding, repeated, succeeded,
};

/// The states in which an ending may find a call.
const STATES: [State; 4] = [
    State::Queued,
    State::Running,
    State::InDoubt,
    State::Succeeded,
];

#[tokio::test]
async fn an_ending_moves_a_call_exactly_when_its_guard_holds() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let kinds = [
        end_in(State::Succeeded),
        end_in(State::Failed),
        again(),
        doubt(),
    ];
    for state in STATES {
        for kind in &kinds {
            for by in By::ALL {
                let (call, attempt) = in_state(&ledger, &worker, state).await;
                let what = format!("{} of a {state} call by {by:?}", kind.word());
                let before = everything(&ledger, call).await;
                let guard = by.guard(ledger.find(call).await.rev, attempt);
                let reply = ledger
                    .completing
                    .complete_once(ending(call, guard, kind.clone()))
                    .await;
                let expected = expected(state, kind, by);
                match (reply, expected) {
                    (Reply::Done(ended), Some(to)) => {
                        assert_eq!(ended.state, to, "{what}");
                        assert_eq!(ledger.state(call).await, to, "{what}");
                    }
                    (Reply::Undecided, None) => {
                        assert_eq!(
                            everything(&ledger, call).await,
                            before,
                            "{what} changed something"
                        );
                    }
                    (reply, expected) => panic!("{what}: {reply:?}, expected {expected:?}"),
                }
            }
        }
    }
}

/// What a guard names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    ItsAttempt,
    AnotherAttempt,
    ItsRevision,
    AnotherRevision,
}

impl By {
    const ALL: [Self; 4] = [
        Self::ItsAttempt,
        Self::AnotherAttempt,
        Self::ItsRevision,
        Self::AnotherRevision,
    ];

    fn guard(self, rev: i32, attempt: AttemptId) -> Guard {
        match self {
            Self::ItsAttempt => Guard::Attempt(attempt),
            Self::AnotherAttempt => Guard::Attempt(AttemptId::generate()),
            Self::ItsRevision => Guard::Queued(rev),
            Self::AnotherRevision => Guard::Queued(rev - 1),
        }
    }
}

fn expected(state: State, kind: &EndingKind, by: By) -> Option<State> {
    let attempted = by == By::ItsAttempt && matches!(state, State::Running | State::InDoubt);
    let unmoved = by == By::ItsRevision && state == State::Queued;
    match kind {
        EndingKind::End(end) => (attempted || unmoved).then_some(end.state),
        EndingKind::Again { .. } => (attempted && state == State::Running).then_some(State::Queued),
        EndingKind::Doubt(_) => {
            (unmoved || attempted && state == State::Running).then_some(State::InDoubt)
        }
    }
}

/// A call in this state, and the attempt that it is in, was in, or lost when it was queued again.
async fn in_state(ledger: &Ledger, worker: &Worker, state: State) -> (CallId, AttemptId) {
    let (call, attempt) = ledger.running(worker).await;
    match state {
        State::Queued => ledger.ends(repeated(call, attempt)).await,
        State::InDoubt => ledger.ends(doubted(call, attempt)).await,
        State::Succeeded => ledger.ends(succeeded(call, attempt)).await,
        _ => {}
    }
    assert_eq!(ledger.state(call).await, state);
    (call, attempt)
}

/// Every row about a call, as text.
async fn everything(ledger: &Ledger, call: CallId) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT row_to_json(o)::text FROM toolfleet.open_calls o WHERE call_id = $1 UNION ALL \
         SELECT row_to_json(f)::text FROM toolfleet.finished_calls f WHERE call_id = $1 UNION ALL \
         SELECT row_to_json(a)::text FROM toolfleet.ended_attempts a WHERE call_id = $1 UNION ALL \
         SELECT row_to_json(n)::text FROM toolfleet.call_notes n WHERE call_id = $1 ORDER BY 1",
    )
    .bind(call.0)
    .fetch_all(&ledger.database.pool)
    .await
    .unwrap()
}

#[tokio::test]
async fn a_repeated_completion_finds_its_own_attempt() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, attempt) = ledger.running(&worker).await;
    let ending = succeeded(call, attempt);
    ledger.ends(ending.clone()).await;
    let repeated = ledger.completing.complete_once(ending).await;
    assert!(matches!(repeated, Reply::Undecided), "{repeated:?}");
    assert_eq!(ledger.find(call).await.attempt_id(), Some(attempt));
}

#[tokio::test]
async fn a_call_that_waits_again_belongs_to_no_attempt() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, attempt) = ledger.running(&worker).await;
    let pause = EndingKind::Again {
        pause_ms: 60_000,
        cost: fleet::store::complete::AttemptCost::Lost,
    };
    ledger
        .ends(ending(call, Guard::Attempt(attempt), pause))
        .await;
    let row = ledger.find(call).await;
    assert_eq!(
        (row.state(), row.attempt_id(), row.attempts),
        (State::Queued, None, 1)
    );
    let (due, waits, n, lost): (bool, bool, i32, i32) = sqlx::query_as(
        "SELECT due_at = not_before, not_before > now() + interval '50 seconds', publish_n, lost_attempts \
         FROM toolfleet.open_calls WHERE call_id = $1",
    )
    .bind(call.0)
    .fetch_one(&ledger.database.pool)
    .await
    .unwrap();
    assert!(due && waits);
    assert_eq!((n, lost), (2, 1));
    assert!(worker.tries(call).await.is_none(), "it waits");
}

#[tokio::test]
async fn a_call_that_was_asked_to_stop_is_not_queued_again() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, attempt) = ledger.running(&worker).await;
    ledger
        .meddle(
            call,
            "UPDATE toolfleet.open_calls SET cancel_requested = true WHERE call_id = $1",
        )
        .await;
    let reply = ledger
        .completing
        .complete_once(repeated(call, attempt))
        .await;
    assert!(matches!(reply, Reply::Undecided), "{reply:?}");
    let cancelled = ending(call, Guard::Attempt(attempt), end_in(State::Cancelled));
    ledger.ends(cancelled).await;
    assert_eq!(ledger.state(call).await, State::Cancelled);
}

#[tokio::test]
async fn doubt_is_resolved_by_the_attempt_that_caused_it() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, attempt) = ledger.in_doubt(&worker).await;
    let asked = read::decided(&ledger.database.pool, &[call]).await.unwrap();
    assert_eq!(asked.len(), 1, "waiters are told of doubt");
    ledger.ends(succeeded(call, attempt)).await;
    assert_eq!(ledger.state(call).await, State::Succeeded);
}

#[tokio::test]
async fn a_doubt_is_not_cancelled_and_a_quarantined_one_ends_only_by_success() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, attempt) = ledger.in_doubt(&worker).await;
    let end = |state| ending(call, Guard::Attempt(attempt), end_in(state));
    let reply = ledger.completing.complete_once(end(State::Cancelled)).await;
    assert!(matches!(reply, Reply::Undecided), "{reply:?}");
    let quarantine = "UPDATE toolfleet.open_calls SET quarantined = true WHERE call_id = $1";
    ledger.meddle(call, quarantine).await;
    let reply = ledger.completing.complete_once(end(State::Failed)).await;
    assert!(matches!(reply, Reply::Undecided), "{reply:?}");
    ledger.ends(end(State::Succeeded)).await;
}

#[tokio::test]
async fn an_illegal_end_is_refused_and_its_neighbours_move() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let mut endings = Vec::new();
    for _ in 0..20 {
        let (call, attempt) = ledger.in_doubt(&worker).await;
        endings.push(succeeded(call, attempt));
    }
    let (doubtful, attempt) = ledger.in_doubt(&worker).await;
    endings.push(ending(
        doubtful,
        Guard::Attempt(attempt),
        end_in(State::Expired),
    ));
    let (odd, attempt) = ledger.running(&worker).await;
    let mut unreadable = succeeded(odd, attempt);
    if let EndingKind::End(end) = &mut unreadable.kind {
        end.result = Some("{\"nul\":\"\0\"}".into());
    }
    endings.push(unreadable);
    let replies = join_all(
        endings
            .into_iter()
            .map(|e| ledger.completing.complete_once(e)),
    )
    .await;
    let done = replies
        .iter()
        .filter(|r| matches!(r, Reply::Done(_)))
        .count();
    let refused = replies
        .iter()
        .filter(|r| matches!(r, Reply::Refused(_)))
        .count();
    assert_eq!((done, refused), (20, 2));
    assert_eq!(ledger.state(doubtful).await, State::InDoubt);
    assert_eq!(ledger.state(odd).await, State::Running);
}

#[tokio::test]
async fn of_a_worker_and_a_sweep_that_race_one_ends_the_attempt() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let sweep = Completing::start(&ledger.database.postgres, &mut ledger.lanes);
    let calls = ledger.many_queued(1_000).await;
    let attempts = join_all(calls.iter().map(|call| worker.claims(*call))).await;
    let rounds: Vec<(CallId, AttemptId)> = calls.into_iter().zip(attempts).collect();
    let by_worker = rounds
        .iter()
        .map(|(call, attempt)| succeeded(*call, *attempt));
    // Backwards, so that the two batches meet in the middle.
    let by_sweep = rounds
        .iter()
        .enumerate()
        .rev()
        .map(|(index, (call, attempt))| {
            let lost = match index % 2 {
                0 => EndingKind::Again {
                    pause_ms: 0,
                    cost: fleet::store::complete::AttemptCost::Lost,
                },
                _ => end_in(State::Failed),
            };
            (*call, ending(*call, Guard::Attempt(*attempt), lost))
        });
    let (by_worker, by_sweep) = tokio::join!(
        join_all(by_worker.map(|ending| ledger.completing.complete_once(ending))),
        join_all(by_sweep.map(async |(call, ending)| (call, sweep.complete_once(ending).await))),
    );
    let by_sweep: std::collections::HashMap<_, _> = by_sweep.into_iter().collect();
    for ((call, _), by_worker) in rounds.iter().zip(&by_worker) {
        let state = ledger.state(*call).await;
        match (by_worker, &by_sweep[call]) {
            (Reply::Done(_), Reply::Undecided) => assert_eq!(state, State::Succeeded),
            (Reply::Undecided, Reply::Done(ended)) => assert_eq!(state, ended.state),
            both => panic!("{both:?}"),
        }
    }
    let elsewhere: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM toolfleet.open_calls JOIN toolfleet.finished_calls USING (call_id)",
    )
    .fetch_one(&ledger.database.pool)
    .await
    .unwrap();
    assert_eq!(elsewhere, 0, "a call is in one place");
}

#[tokio::test]
async fn a_locked_call_comes_back_undecided_and_its_neighbours_move() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let mut rounds = Vec::new();
    for _ in 0..20 {
        rounds.push(ledger.running(&worker).await);
    }
    let locked = rounds[7];
    let holder = holding(&ledger.database, locked.0).await;
    let endings = rounds
        .iter()
        .map(|(call, attempt)| succeeded(*call, *attempt));
    let replies = join_all(endings.map(|e| ledger.completing.complete_once(e))).await;
    for ((call, _), reply) in rounds.iter().zip(&replies) {
        match reply {
            Reply::Done(_) => assert_ne!(*call, locked.0),
            Reply::Undecided => assert_eq!(*call, locked.0),
            other => panic!("{other:?}"),
        }
    }
    drop(holder);
    ledger.ends(succeeded(locked.0, locked.1)).await;
}

#[tokio::test]
async fn results_are_given_back_byte_for_byte() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let large = format!("[\"{}\",1.10]", "0123456789abcde\u{e9}".repeat(64 * 1024));
    assert!(large.len() > 1024 * 1024);
    for text in [
        large.as_str(),
        r#"{"n":1e131071,"m":-0.0,"z":123456789012345678901234567890}"#,
        r#"{"b":1,"a":{"a":2,"b":"\u00e9\/ \ud83d\ude00"}}"#,
        "null",
        "\"\"",
    ] {
        let (call, attempt) = ledger.running(&worker).await;
        let mut end = succeeded(call, attempt);
        if let EndingKind::End(end) = &mut end.kind {
            end.result = Some(text.to_owned());
        }
        ledger.ends(end).await;
        let envelope = ledger.find(call).await.envelope(false).unwrap().unwrap();
        assert_eq!(envelope.result.as_deref().map(|raw| raw.get()), Some(text));
    }
}

#[tokio::test]
async fn an_error_is_told_as_it_was_stored() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let error = r#"{"code":"timeout","message":"m","retryable":false,"retry_after_ms":null,"suggestion":"ask_user"}"#;
    let (ended, attempt) = ledger.running(&worker).await;
    let mut end: Ending = ending(ended, Guard::Attempt(attempt), end_in(State::Failed));
    if let EndingKind::End(end) = &mut end.kind {
        end.error = Some(error.into());
    }
    ledger.ends(end).await;
    let (doubtful, attempt) = ledger.running(&worker).await;
    let doubt = EndingKind::Doubt(Decision::doubt(Some(error.into())));
    ledger
        .ends(ending(doubtful, Guard::Attempt(attempt), doubt))
        .await;
    for call in [ended, doubtful] {
        let envelope = ledger.find(call).await.envelope(false).unwrap().unwrap();
        let told: serde_json::Value = serde_json::to_value(envelope.error).unwrap();
        assert_eq!(told["code"], "timeout");
        assert!(envelope.is_error);
    }
}

#[tokio::test]
async fn an_attempt_that_failed_keeps_its_own_account() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, attempt) = ledger.running(&worker).await;
    let mut failed = repeated(call, attempt);
    failed.attempt = Some(EndedAttempt {
        outcome: fleet::outcome::OutcomeWord::DefiniteFailure,
        effect: fleet::call::EffectKnown::NotApplied,
        error: Some("{\"code\":\"unavailable\"}".into()),
        has_stopped: true,
    });
    ledger.ends(failed).await;
    let (outcome, effect, error): (String, String, String) = sqlx::query_as(
        "SELECT outcome, effect, error::text FROM toolfleet.attempts WHERE attempt_id = $1",
    )
    .bind(attempt.0)
    .fetch_one(&ledger.database.pool)
    .await
    .unwrap();
    assert_eq!(
        (outcome.as_str(), effect.as_str(), error.as_str()),
        (
            "definite_failure",
            "not_applied",
            "{\"code\":\"unavailable\"}"
        )
    );
}
