//! A Postgres that has lost writes: which process notices, what is put in doubt, and that it is done once.

use fleet::{
    call::{CallOutcome, Effect, EffectKnown, Source, State},
    ids::CallId,
    lost_writes::{Comparison, Watermark},
    outcome::OutcomeWord,
    store::{
        PgConnection, StoreError,
        accept::NewCall,
        complete::{Decision, EndedAttempt, Ending, EndingKind, Guard},
        quarantine,
        session::Postgres,
        watermark,
    },
};
use secrecy::SecretString;
use sqlx::Connection;

use crate::support::{
    Ledger, Worker, claim_of, doubted, ending, new_call, repeated, succeeded, until_blocked,
};

/// A process that has asked what the fleet remembers outside Postgres.
fn process(ledger: &Ledger, remembers: Option<Watermark>) -> Postgres {
    let url = SecretString::from(ledger.database.url.clone());
    let postgres = Postgres::new(&url, "process").unwrap();
    postgres.recalled(remembers);
    postgres
}

async fn connects(postgres: &Postgres) -> Watermark {
    let mut connection = postgres.connect().await.unwrap();
    watermark::read(&mut connection).await.unwrap().unwrap()
}

/// As if the ledger had been written by another server.
async fn moved(ledger: &Ledger) {
    let moved = "UPDATE toolfleet.fleet SET timeline = timeline + 1";
    let moved = sqlx::query(moved).execute(&ledger.database.pool).await;
    assert_eq!(moved.unwrap().rows_affected(), 1);
}

/// As if everything since this watermark had been lost.
async fn set_back(ledger: &Ledger, watermark: &Watermark) {
    let back = "UPDATE toolfleet.fleet SET wal_lsn = $1::pg_lsn, quarantines = $2";
    let back = sqlx::query(back)
        .bind(watermark.wal_lsn.to_string())
        .bind(watermark.quarantines);
    back.execute(&ledger.database.pool).await.unwrap();
}

async fn queued(ledger: &Ledger, effect: Effect) -> CallId {
    ledger
        .accepted(NewCall {
            effect,
            ..new_call()
        })
        .await
}

async fn running(ledger: &Ledger, worker: &Worker, effect: Effect) -> CallId {
    let call = queued(ledger, effect).await;
    worker.claims(call).await;
    call
}

/// State, revision, `quarantined`, `effect_unknown`, whether its key's time runs, attempts that ended.
type Told = (String, i32, bool, bool, bool, i64);

async fn told(ledger: &Ledger, call: CallId) -> Told {
    let sql = "SELECT state::text, rev, quarantined, effect_unknown, first_started_at IS NOT NULL, \
                      (SELECT count(*) FROM toolfleet.ended_attempts a WHERE a.call_id = o.call_id AND NOT over) \
               FROM toolfleet.open_calls o WHERE call_id = $1";
    let told = sqlx::query_as(sql).bind(call.0);
    told.fetch_one(&ledger.database.pool).await.unwrap()
}

#[tokio::test]
async fn what_may_have_run_unseen_is_in_doubt_and_nothing_else() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    connects(&process(&ledger, None)).await;
    let finished = running(&ledger, &worker, Effect::Once).await;
    let attempt = ledger.find(finished).await.attempt_id().unwrap();
    ledger.ends(succeeded(finished, attempt)).await;
    let (doubted, _) = ledger.in_doubt(&worker).await;
    let mut open = Vec::new();
    for effect in [
        Effect::Read,
        Effect::Idempotent,
        Effect::Once,
        Effect::Transaction,
    ] {
        let queued = queued(&ledger, effect).await;
        open.push((effect, queued, running(&ledger, &worker, effect).await));
    }

    moved(&ledger).await;
    let watermark = connects(&process(&ledger, None)).await;

    assert_eq!(watermark.quarantines, 1);
    let doubt = "in_doubt".to_owned();
    for (effect, queued, running) in open {
        let (queued, running) = (told(&ledger, queued).await, told(&ledger, running).await);
        let (state, claimed) = ("queued".to_owned(), "running".to_owned());
        let expected: (Told, Told) = match effect {
            Effect::Read | Effect::Transaction => (
                (state, 0, false, false, false, 0),
                (claimed, 1, false, false, true, 0),
            ),
            Effect::Idempotent => (
                (state.clone(), 1, true, true, true, 0),
                (state, 2, true, true, true, 1),
            ),
            Effect::Once => (
                (doubt.clone(), 1, true, false, false, 0),
                (doubt.clone(), 2, true, false, true, 1),
            ),
        };
        assert_eq!((queued, running), expected, "{effect}");
    }
    assert_eq!(
        told(&ledger, doubted).await,
        (doubt, 2, false, false, true, 0)
    );
    assert_eq!(ledger.state(finished).await, State::Succeeded);
}

#[tokio::test]
async fn a_call_put_in_doubt_says_why_and_is_never_fenced() {
    let ledger = Ledger::fresh().await;
    connects(&process(&ledger, None)).await;
    let call = queued(&ledger, Effect::Once).await;
    moved(&ledger).await;
    connects(&process(&ledger, None)).await;
    let sql = "SELECT why, quarantined, worker_fenced, error->>'code', error->>'suggestion', \
                      (SELECT actor || ' ' || reason || ' ' || from_state || ' ' || to_state || ' ' || details::text \
                       FROM toolfleet.call_events e WHERE e.call_id = d.call_id AND revision = 1) \
               FROM toolfleet.in_doubt d WHERE call_id = $1";
    let told: (String, bool, bool, String, String, String) = sqlx::query_as(sql)
        .bind(call.0)
        .fetch_one(&ledger.database.pool)
        .await
        .unwrap();
    let event =
        r#"ground quarantine queued in_doubt {"quarantine" : 1, "standing" : "other_timeline"}"#;
    let expected = (
        "lost_writes",
        true,
        false,
        "in_doubt",
        "do_not_repeat",
        event,
    );
    let told = (
        told.0.as_str(),
        told.1,
        told.2,
        told.3.as_str(),
        told.4.as_str(),
        told.5.as_str(),
    );
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_call_that_is_sent_again_is_not_settled_as_not_applied_without_its_lost_attempts() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    connects(&process(&ledger, None)).await;
    // Its first attempt may run at this moment: only the claim was lost.
    let cancelled = queued(&ledger, Effect::Idempotent).await;
    let exhausted = queued(&ledger, Effect::Idempotent).await;
    moved(&ledger).await;
    connects(&process(&ledger, None)).await;
    sqlx::query("SELECT toolfleet.cancel($1, 'ann')")
        .bind(cancelled.0)
        .execute(&ledger.database.pool)
        .await
        .unwrap();
    let attempt = worker.claims(exhausted).await;
    ledger.ends(doubted(exhausted, attempt)).await;
    for call in [cancelled, exhausted] {
        assert_eq!(ledger.state(call).await, State::InDoubt);
        let settled: String = sqlx::query_scalar(
            "SELECT verdict FROM toolfleet.settle($1, 'not_applied', 'ann', 'not there')",
        )
        .bind(call.0)
        .fetch_one(&ledger.database.pool)
        .await
        .unwrap();
        assert_eq!(settled, "worker_not_fenced");
    }
}

#[tokio::test]
async fn a_call_that_is_sent_again_ends_by_what_its_tool_says() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    connects(&process(&ledger, None)).await;
    let call = queued(&ledger, Effect::Idempotent).await;
    moved(&ledger).await;
    connects(&process(&ledger, None)).await;
    let attempt = |outcome| EndedAttempt {
        outcome,
        effect: EffectKnown::NotApplied,
        error: None,
        has_stopped: true,
    };
    // At the gate nothing is known of an attempt that was lost.
    let rev = ledger.find(call).await.rev;
    let refused = ending(call, Guard::Queued(rev), failed_without_effect());
    let refused = ledger
        .completing
        .complete(&refused, fleet_tests::wait::LONG);
    assert!(refused.await.unwrap().is_none());
    let first = worker.claims(call).await;
    ledger
        .ends(Ending {
            attempt: Some(attempt(OutcomeWord::DefiniteFailure)),
            ..repeated(call, first)
        })
        .await;
    let second = worker.claims(call).await;
    ledger
        .ends(Ending {
            attempt: Some(attempt(OutcomeWord::NotStarted)),
            ..ending(call, Guard::Attempt(second), failed_without_effect())
        })
        .await;
    assert_eq!(ledger.state(call).await, State::Failed);
}

#[tokio::test]
async fn many_who_find_it_at_once_do_it_once() {
    let ledger = Ledger::fresh().await;
    let processes: Vec<Postgres> = (0..8).map(|_| process(&ledger, None)).collect();
    for process in &processes {
        connects(process).await;
    }
    let call = queued(&ledger, Effect::Once).await;
    moved(&ledger).await;
    let watermarks = futures_util::future::join_all(processes.iter().map(connects)).await;
    assert!(
        watermarks
            .iter()
            .all(|watermark| watermark.quarantines == 1),
        "{watermarks:?}"
    );
    assert_eq!(told(&ledger, call).await.1, 1, "moved once");
}

#[tokio::test]
async fn an_old_copy_is_noticed_by_whoever_remembers_more_and_accepted_by_all_others() {
    let ledger = Ledger::fresh().await;
    let (before, after) = (process(&ledger, None), process(&ledger, None));
    let copied = connects(&before).await;
    let call = queued(&ledger, Effect::Once).await;
    let mut connection = ledger.database.connect().await;
    let reached = advanced(&mut connection).await;
    assert!(reached.is_after(&copied), "{reached} after {copied}");
    after.remember(reached.clone());

    set_back(&ledger, &copied).await;
    assert_eq!(connects(&before).await.quarantines, 0, "nobody told it");
    assert_eq!(ledger.state(call).await, State::Queued);
    assert_eq!(connects(&after).await.quarantines, 1);
    assert_eq!(ledger.state(call).await, State::InDoubt);
    assert_eq!(connects(&before).await.quarantines, 1);
    // A process that starts later and recalls what was known before the loss finds that it has been dealt with.
    assert_eq!(
        connects(&process(&ledger, Some(reached))).await.quarantines,
        1
    );
}

#[tokio::test]
async fn a_watermark_that_moves_while_somebody_connects_is_not_taken_for_a_loss() {
    let ledger = Ledger::fresh().await;
    let process = process(&ledger, None);
    connects(&process).await;
    let mut connection = ledger.database.connect().await;
    let moving = async {
        for _ in 0..2_000 {
            process.remember(advanced(&mut connection).await);
        }
    };
    let connecting = async {
        for _ in 0..25 {
            futures_util::future::join_all((0..8).map(|_| process.connect())).await;
        }
    };
    tokio::join!(moving, connecting);
    assert_eq!(connects(&process).await.quarantines, 0);
}

async fn advanced(connection: &mut PgConnection) -> Watermark {
    watermark::advance(connection).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_ledger_in_another_cluster_is_noticed_without_any_memory() {
    let ledger = Ledger::fresh().await;
    connects(&process(&ledger, None)).await;
    let call = queued(&ledger, Effect::Once).await;
    let restored = "UPDATE toolfleet.fleet SET system_identifier = 'another'";
    let restored = sqlx::query(restored).execute(&ledger.database.pool).await;
    restored.unwrap();
    let mut connection = ledger.database.connect().await;
    assert!(
        watermark::advance(&mut connection).await.unwrap().is_none(),
        "no connection advances the watermark of a server that was not checked"
    );
    assert_eq!(connects(&process(&ledger, None)).await.quarantines, 1);
    assert_eq!(ledger.state(call).await, State::InDoubt);
}

#[tokio::test]
async fn another_ledger_in_the_place_of_the_known_one_is_refused_and_nothing_is_put_in_doubt() {
    let ledger = Ledger::fresh().await;
    let known = process(&ledger, None);
    let here = connects(&known).await;
    let call = queued(&ledger, Effect::Once).await;
    // Another database behind the same address, behind what was reached in the first one.
    let replaced = "UPDATE toolfleet.fleet SET ledger_id = gen_random_uuid()";
    let replaced = sqlx::query(replaced).execute(&ledger.database.pool).await;
    replaced.unwrap();
    set_back(&ledger, &here).await;
    let refused = known.connect().await.unwrap_err();
    let expected = here.ledger_id.unwrap().to_string();
    assert!(
        matches!(&refused, StoreError::UnsafeServer(why) if why.contains("another ledger") && why.contains(&expected)),
        "{refused}"
    );
    assert!(known.refuses());
    assert_eq!(ledger.state(call).await, State::Queued);
    // One that starts anew works with what is there.
    assert_eq!(connects(&process(&ledger, None)).await.quarantines, 0);
    assert_eq!(ledger.state(call).await, State::Queued);
}

#[tokio::test]
async fn whoever_cannot_know_what_the_fleet_remembers_refuses_and_changes_nothing() {
    let ledger = Ledger::fresh().await;
    let command = ledger.database.postgres.clone();
    command.connect().await.unwrap();
    let watermark = watermark::read(&mut ledger.database.connect().await).await;
    assert_eq!(watermark.unwrap(), None, "a command adopts nothing");
    connects(&process(&ledger, None)).await;
    let call = queued(&ledger, Effect::Once).await;
    moved(&ledger).await;
    let refused = command.connect().await.unwrap_err();
    assert!(
        matches!(&refused, StoreError::UnsafeServer(why) if why.contains("lost writes")),
        "{refused}"
    );
    assert!(command.refuses());
    assert_eq!(ledger.state(call).await, State::Queued);
    connects(&process(&ledger, None)).await;
    command.connect().await.unwrap();
    assert!(!command.refuses());
}

#[tokio::test]
async fn a_pool_gives_out_no_connection_to_a_server_that_lost_writes() {
    let ledger = Ledger::fresh().await;
    let process = process(&ledger, None);
    connects(&process).await;
    moved(&ledger).await;
    let pool = process.pool(1);
    assert!(pool.acquire().await.is_err());
    assert!(process.refuses());
    connects(&process).await;
    pool.acquire().await.unwrap();
}

#[tokio::test]
async fn the_attempt_that_is_still_running_settles_its_call_by_what_it_did_and_not_by_what_it_did_not()
 {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    connects(&process(&ledger, None)).await;
    let (done, applied) = ledger.running(&worker).await;
    let (idle, not_started) = ledger.running(&worker).await;
    moved(&ledger).await;
    connects(&process(&ledger, None)).await;

    // The lost writes may have held another attempt, which followed the one that never started.
    let never_started = EndedAttempt {
        outcome: OutcomeWord::NotStarted,
        effect: EffectKnown::NotApplied,
        error: None,
        has_stopped: true,
    };
    let failed = Ending {
        attempt: Some(never_started),
        ..ending(idle, Guard::Attempt(not_started), failed_without_effect())
    };
    let settled = ledger
        .completing
        .complete(&failed, fleet_tests::wait::LONG)
        .await;
    assert!(settled.unwrap().is_none());
    assert_eq!(ledger.state(idle).await, State::InDoubt);

    ledger.ends(succeeded(done, applied)).await;
    assert_eq!(ledger.state(done).await, State::Succeeded);
}

fn failed_without_effect() -> EndingKind {
    EndingKind::End(Decision {
        state: State::Failed,
        outcome: CallOutcome::SystemError,
        source: Source::Error,
        effect: EffectKnown::NotApplied,
        result: None,
        error: None,
        preview: None,
        degraded: None,
    })
}

#[tokio::test]
async fn nobody_writes_while_calls_are_put_in_doubt() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    connects(&process(&ledger, None)).await;
    let call = queued(&ledger, Effect::Once).await;
    let mut judge = ledger.database.connect().await;
    let seen = watermark::look(&mut judge).await.unwrap().unwrap();
    let mut quarantine = judge.begin().await.unwrap();
    let done = quarantine::doubt_open_calls(&mut quarantine, &seen, None, Comparison::Behind).await;
    assert_eq!(done.unwrap(), Some(1));
    let committing = async {
        until_blocked(&ledger.database, 1).await;
        quarantine.commit().await.unwrap();
    };
    let (claimed, ()) = tokio::join!(worker.claiming.claim(claim_of(call)), committing);
    assert!(!matches!(claimed, Ok(Some(_))), "{claimed:?}");
    assert_eq!(ledger.state(call).await, State::InDoubt);
}
