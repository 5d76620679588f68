//! Late evidence: kept once, only where it is late, and held against what the call ended as.

use fleet::{
    call::{EffectKnown, State},
    ids::{AttemptId, CallId},
    outcome::OutcomeWord,
    store::{
        complete::{EndedAttempt, EndingKind, Guard},
        late::{self, LateOutcome, LateReport},
        read::CallState,
    },
};
use time::macros::datetime;

use crate::support::{
    Ledger, Worker, doubted, end_in, ending, repeated, run, succeeded, until_blocked,
};

const KEPT: LateOutcome = LateOutcome::Kept { contradicts: false };
const ALARM: LateOutcome = LateOutcome::Kept { contradicts: true };

fn evidence(
    worker: &Worker,
    call: CallId,
    attempt: AttemptId,
    outcome: OutcomeWord,
    actor: &str,
) -> LateReport {
    LateReport {
        call_id: call,
        attempt_id: attempt,
        number: 1,
        worker: worker.id,
        actor: actor.to_owned(),
        attempt_until: datetime!(2026-11-20 12:00 UTC),
        timeout_ms: 60_000,
        ended: EndedAttempt {
            outcome,
            effect: EffectKnown::Unknown,
            error: Some("{\"code\":\"timeout\"}".to_owned()),
            has_stopped: true,
        },
    }
}

/// The late rows of a call: outcome and whether the worker has seen the attempt end.
async fn kept(ledger: &Ledger, call: CallId) -> Vec<(String, bool)> {
    sqlx::query_as(
        "SELECT outcome::text, over FROM toolfleet.ended_attempts WHERE call_id = $1 AND late",
    )
    .bind(call.0)
    .fetch_all(&ledger.database.pool)
    .await
    .unwrap()
}

#[tokio::test]
async fn evidence_is_kept_once_wherever_the_call_stands() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    for state in [
        State::Queued,
        State::Running,
        State::InDoubt,
        State::Succeeded,
    ] {
        let (call, attempt) = ledger.running(&worker).await;
        // Another one, "test", takes it away.
        ledger.ends(repeated(call, attempt)).await;
        if state != State::Queued {
            let next = worker.claims(call).await;
            match state {
                State::InDoubt => ledger.ends(doubted(call, next)).await,
                State::Succeeded => ledger.ends(succeeded(call, next)).await,
                _ => {}
            }
        }
        let rev = ledger.find(call).await.rev;
        let late = evidence(&worker, call, attempt, OutcomeWord::Applied, "worker");
        for _ in 0..2 {
            let told = late::keep(&ledger.database.pool, &late).await.unwrap();
            assert_eq!(told, KEPT, "{state}");
        }
        assert_eq!(
            kept(&ledger, call).await,
            [("applied".to_owned(), true)],
            "{state}"
        );
        let row = ledger.find(call).await;
        assert_eq!(
            (row.state(), row.rev),
            (state, rev),
            "evidence moves nothing"
        );
    }
}

#[tokio::test]
async fn a_call_of_which_an_attempt_says_too_late_that_it_did_it_cannot_end_as_if_nothing_had_happened()
 {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    for evidence_first in [true, false] {
        let (call, lost) = ledger.running(&worker).await;
        ledger.ends(repeated(call, lost)).await;
        let next = worker.claims(call).await;
        // The tool says no, and will be asked again: what was unknown before would be settled by that.
        let mut no = repeated(call, next);
        if let Some(attempt) = no.attempt.as_mut() {
            attempt.outcome = OutcomeWord::DefiniteFailure;
        }
        let late = evidence(&worker, call, lost, OutcomeWord::Applied, "worker");
        if evidence_first {
            late::keep(&ledger.database.pool, &late).await.unwrap();
            ledger.ends(no).await;
        } else {
            ledger.ends(no).await;
            late::keep(&ledger.database.pool, &late).await.unwrap();
        }
        // Who ends a waiting call looks at this: then it goes in doubt, and is not refused for ever.
        let row = ledger.find(call).await;
        let unknown = matches!(
            row.state,
            CallState::Queued {
                effect_unknown: true,
                ..
            }
        );
        assert!(unknown, "evidence first: {evidence_first}, {row:?}");
    }
}

#[tokio::test]
async fn what_the_worker_recorded_itself_is_not_late() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    for end in [repeated, doubted, succeeded] {
        let (call, attempt) = ledger.running(&worker).await;
        ledger.ends(end(call, attempt)).await;
        let again = evidence(&worker, call, attempt, OutcomeWord::Unknown, "test");
        let told = late::keep(&ledger.database.pool, &again).await.unwrap();
        assert_eq!(told, LateOutcome::Recorded);
        assert!(kept(&ledger, call).await.is_empty());
    }
}

#[tokio::test]
async fn only_an_effect_that_was_denied_raises_the_alarm() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    for (effect, state) in [
        (EffectKnown::NotApplied, State::Failed),
        (EffectKnown::NotApplied, State::Cancelled),
        (EffectKnown::Applied, State::Succeeded),
        (EffectKnown::None, State::Failed),
    ] {
        for word in OutcomeWord::ALL {
            let (call, attempt) = ledger.running(&worker).await;
            let mut kind = end_in(state);
            if let EndingKind::End(end) = &mut kind {
                end.effect = effect;
            }
            ledger
                .ends(ending(call, Guard::Attempt(attempt), kind))
                .await;
            let late = evidence(&worker, call, attempt, *word, "worker");
            let told = late::keep(&ledger.database.pool, &late).await.unwrap();
            let denied = *word == OutcomeWord::Applied && effect == EffectKnown::NotApplied;
            let expected = if denied { ALARM } else { KEPT };
            assert_eq!(told, expected, "{word} of a call that ended with {effect}");
        }
    }
}

#[tokio::test]
async fn evidence_that_comes_while_the_effect_is_denied_raises_the_alarm() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, attempt) = ledger.in_doubt(&worker).await;
    ledger
        .meddle(
            call,
            "UPDATE toolfleet.open_calls SET attempt_until = now() - interval '1 second' WHERE call_id = $1",
        )
        .await;
    // It has looked for evidence and has not committed.
    let mut settling = ledger.database.connect().await;
    run(&mut settling, "BEGIN").await;
    sqlx::query("SELECT toolfleet.settle($1, 'not_applied', 'ann', 'not there', NULL, true)")
        .bind(call.0)
        .execute(&mut settling)
        .await
        .unwrap();
    let late = evidence(&worker, call, attempt, OutcomeWord::Applied, "worker");
    let committing = async {
        until_blocked(&ledger.database, 1).await;
        run(&mut settling, "COMMIT").await;
    };
    let (told, ()) = tokio::join!(late::keep(&ledger.database.pool, &late), committing);
    assert_eq!(told.unwrap(), ALARM);
}

#[tokio::test]
async fn evidence_about_no_call_is_not_kept() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, attempt) = (CallId::generate(), AttemptId::generate());
    let late = evidence(&worker, call, attempt, OutcomeWord::Applied, "worker");
    let told = late::keep(&ledger.database.pool, &late).await.unwrap();
    assert_eq!(told, LateOutcome::NoCall);
    assert!(kept(&ledger, call).await.is_empty());
}
