//! Calls whose tool answers later, or has asked for something: what puts them there, what leads out, and who wins.

use fleet::{
    call::{Awaiting, Effect, Language, State},
    ending::{EndedAttempt, Ending, Fact, Guard, Known, LaterAnswer},
    ids::{AttemptId, CallId},
    input::Asked,
    outcome::{OutcomeWord, ToolFailure},
    store::{
        accept::NewCall,
        awaiting,
        cancel::{self, Cancellation},
        complete::EndingKind,
        park::{self, Parked, Parking},
        read::CallState,
    },
    wire::{code::Code, message::Message, token::HandedAs},
};
use serde_json::value::RawValue;

use crate::support::{Ledger, Worker, doubted, new_call, repeated, succeeded};

const WAIT_MS: i64 = 60_000;

impl Ledger {
    async fn runs(&self, worker: &Worker, effect: Effect) -> (CallId, AttemptId) {
        let call = NewCall {
            effect,
            ..new_call()
        };
        let call = self.accepted(call).await;
        (call, worker.claims(call).await)
    }

    async fn parks(&self, of: (CallId, AttemptId), parking: Parking<'_>) -> Parked {
        park::park(&self.database.pool, of, parking, "worker x")
            .await
            .unwrap()
    }

    /// A call whose tool answers later.
    async fn later(&self, worker: &Worker, effect: Effect) -> (CallId, AttemptId) {
        let of = self.runs(worker, effect).await;
        let wait_ms = WAIT_MS;
        let parked = self.parks(of, Parking::Completion { wait_ms }).await;
        assert!(matches!(parked, Parked::Waits { rev: 2, .. }), "{parked:?}");
        of
    }

    /// A call whose tool asks, and the revision of the question.
    async fn asks(&self, worker: &Worker, effect: Effect) -> (CallId, i32) {
        let of = self.runs(worker, effect).await;
        match self.parks(of, Parking::Input(&question())).await {
            Parked::Waits { rev, .. } => (of.0, rev),
            other => panic!("{other:?}"),
        }
    }

    async fn cancels(&self, call: CallId) {
        let withdrawing = Cancellation {
            call,
            tenant: None,
            actor: "caller",
            reason: None,
        };
        let cancelled = cancel::cancel(&self.database.pool, &withdrawing).await;
        assert!(cancelled.unwrap().is_some());
    }

    async fn loses_writes(&self) {
        let lost = "SELECT * FROM toolfleet.quarantine((SELECT quarantines FROM toolfleet.fleet), 7, '1', 1, 'test', \
                    '{\"en\": {\"code\": \"in_doubt\"}, \"zh\": {\"code\": \"in_doubt\"}}')";
        sqlx::query(lost)
            .execute(&self.database.pool)
            .await
            .unwrap();
    }

    async fn attempts_of(&self, call: CallId) -> Vec<(String, bool)> {
        sqlx::query_as(
            "SELECT outcome::text, worker_id IS NOT NULL FROM toolfleet.ended_attempts WHERE call_id = $1 ORDER BY number",
        )
        .bind(call.0)
        .fetch_all(&self.database.pool)
        .await
        .unwrap()
    }
}

fn question() -> Asked {
    let json = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
    Asked {
        round: 1,
        // As it is written, it comes back.
        requests: json("{\"question\":  1.50}"),
        state: Some(json("[1e2]")),
        input: None,
    }
}

fn known(effect: Effect) -> Known {
    Known {
        effect,
        language: Language::En,
        cancelled: false,
        earlier_unknown: false,
        applied_late: false,
    }
}

/// As the door states it.
fn answered(of: (CallId, AttemptId), from: State, effect: Effect, answer: &LaterAnswer) -> Ending {
    let fact = Fact::Submitted {
        from,
        by: Awaiting::Completion,
        answer,
    };
    let ended = EndedAttempt::of(effect, answer.word(), answer.failure(), true, Language::En);
    let guard = Guard::Attempt(of.1);
    Ending::by(
        &fact,
        &known(effect),
        of.0,
        guard,
        Some(ended),
        "tool".into(),
    )
}

fn did() -> LaterAnswer {
    LaterAnswer::Did("{\"paid\":1}".to_owned())
}

#[tokio::test]
async fn a_call_waits_once_for_its_attempt_and_a_repeated_statement_says_the_same() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let of = ledger.later(&worker, Effect::Once).await;
    let wait_ms = WAIT_MS;
    let again = ledger.parks(of, Parking::Completion { wait_ms }).await;
    assert!(matches!(again, Parked::Waits { rev: 2, .. }), "{again:?}");
    let row = ledger.find(of.0).await;
    let CallState::Awaiting(waiting) = &row.state else {
        panic!("{row:?}")
    };
    assert_eq!(waiting.handed.awaiting, Awaiting::Completion);
    assert_eq!(waiting.handed.turn, HandedAs::Attempt(of.1));
    // The attempt does not run any more, so nothing it says later is taken for its outcome, and no worker has lost it.
    let stranger = (of.0, AttemptId::generate());
    assert_eq!(
        ledger
            .parks(stranger, Parking::Completion { wait_ms })
            .await,
        Parked::NotNow
    );
    ledger
        .ends(answered(of, State::AwaitingClient, Effect::Once, &did()))
        .await;
    assert!(matches!(
        ledger.parks(of, Parking::Completion { wait_ms }).await,
        Parked::Waits { .. }
    ));
}

#[tokio::test]
async fn an_answer_before_the_word_later_ends_the_call_and_the_word_finds_it_over() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let of = ledger.runs(&worker, Effect::Once).await;
    ledger
        .ends(answered(of, State::Running, Effect::Once, &did()))
        .await;
    let wait_ms = WAIT_MS;
    assert_eq!(
        ledger.parks(of, Parking::Completion { wait_ms }).await,
        Parked::Over
    );
    assert_eq!(ledger.state(of.0).await, State::Succeeded);
}

#[tokio::test]
async fn what_is_cancelled_decided_or_taken_over_does_not_begin_to_wait() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let cancelled = ledger.runs(&worker, Effect::Once).await;
    ledger.cancels(cancelled.0).await;
    let doubtful = ledger.runs(&worker, Effect::Once).await;
    ledger.ends(doubted(doubtful.0, doubtful.1)).await;
    let repeated_one = ledger.runs(&worker, Effect::Read).await;
    ledger.ends(repeated(repeated_one.0, repeated_one.1)).await;
    let ended = ledger.runs(&worker, Effect::Once).await;
    ledger.ends(succeeded(ended.0, ended.1)).await;
    for of in [cancelled, doubtful, repeated_one, ended] {
        let wait_ms = WAIT_MS;
        let state = ledger.state(of.0).await;
        assert_eq!(
            ledger.parks(of, Parking::Completion { wait_ms }).await,
            Parked::NotNow
        );
        assert_eq!(
            ledger.parks(of, Parking::Input(&question())).await,
            Parked::NotNow
        );
        assert_eq!(ledger.state(of.0).await, state);
    }
}

#[tokio::test]
async fn a_question_ends_its_attempt_as_not_started_and_the_next_one_has_the_answer() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, rev) = ledger.asks(&worker, Effect::Once).await;
    assert_eq!(
        ledger.attempts_of(call).await,
        [("not_started".to_owned(), true)]
    );
    let pool = &ledger.database.pool;
    let input = "{\"people\": 4.0}";
    // Of another question, or once more: nothing moves.
    assert!(
        !park::give_input(pool, call, rev - 1, input, "client")
            .await
            .unwrap()
    );
    assert!(
        park::give_input(pool, call, rev, input, "client")
            .await
            .unwrap()
    );
    assert!(
        !park::give_input(pool, call, rev, input, "client")
            .await
            .unwrap()
    );
    let row = ledger.find(call).await;
    assert_eq!(
        (row.state(), row.told.as_deref()),
        (State::Queued, Some(input))
    );
    assert!(
        ledger.is_held(call).await,
        "a dispatcher releases it in its line's turn"
    );
    ledger
        .meddle(
            call,
            "UPDATE toolfleet.open_calls SET held = false WHERE call_id = $1",
        )
        .await;
    let claimed = worker.tries(call).await.expect("it may run");
    assert_eq!((claimed.attempt, claimed.unspent_attempts), (2, 1));
    let asked = claimed.asked.expect("it has asked");
    assert_eq!(asked.round, 1);
    assert_eq!(asked.requests.get(), "{\"question\":  1.50}");
    assert_eq!(asked.state.unwrap().get(), "[1e2]");
    assert_eq!(asked.input.unwrap().get(), input);
    let handed = park::handed(pool, call).await.unwrap();
    assert!(
        handed
            .iter()
            .any(|handed| handed.turn == HandedAs::Revision(rev)),
        "{handed:?}"
    );
}

#[tokio::test]
async fn lost_writes_leave_a_doubt_where_an_answer_may_be_among_them() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let mut later = Vec::new();
    let mut asking = Vec::new();
    for effect in [Effect::Read, Effect::Idempotent, Effect::Once] {
        later.push((effect, ledger.later(&worker, effect).await.0));
        asking.push((effect, ledger.asks(&worker, effect).await.0));
    }
    ledger.loses_writes().await;
    for (effect, call) in later {
        let expected = match effect {
            Effect::Read => State::AwaitingClient,
            Effect::Idempotent => State::Queued,
            Effect::Once | Effect::Transaction => State::InDoubt,
        };
        assert_eq!(ledger.state(call).await, expected, "{effect}");
        let ended = ledger.attempts_of(call).await.len();
        assert_eq!(ended, usize::from(effect != Effect::Read), "{effect}");
    }
    for (effect, call) in asking {
        let expected = match effect {
            Effect::Read | Effect::Idempotent => State::AwaitingClient,
            Effect::Once | Effect::Transaction => State::InDoubt,
        };
        assert_eq!(ledger.state(call).await, expected, "{effect}");
    }
}

/// What the sweep finds has what it needs to decide.
#[tokio::test]
async fn the_sweep_finds_what_nobody_came_for() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (later, attempt) = ledger.later(&worker, Effect::Idempotent).await;
    let (asking, rev) = ledger.asks(&worker, Effect::Once).await;
    let pool = ledger.database.pool.clone();
    assert!(awaiting::over(&pool).await.unwrap().is_empty());
    for call in [later, asking] {
        ledger
            .meddle(
                call,
                "UPDATE toolfleet.open_calls SET due_at = now() WHERE call_id = $1",
            )
            .await;
    }
    let mut over = awaiting::over(&pool).await.unwrap();
    over.sort_by_key(|call| call.call_id);
    let [first, second] = over.as_slice() else {
        panic!("{over:?}")
    };
    assert_eq!(
        (first.call_id, first.attempt_id, first.spent),
        (later, Some(attempt), 1)
    );
    assert!(first.remaining.as_secs() > 500, "{first:?}");
    assert_eq!(
        (second.call_id, second.attempt_id, second.rev),
        (asking, None, rev)
    );
    assert_eq!(first.awaiting, Awaiting::Completion);
    assert_eq!(second.awaiting, Awaiting::Input);
    // Too late for it, even before the sweep has come.
    assert!(
        !park::give_input(&pool, asking, rev, "{}", "client")
            .await
            .unwrap()
    );
}

const RACES: usize = 100;
const MANY_RACES: usize = 1_000;

#[tokio::test]
async fn of_an_answer_and_the_word_later_at_once_the_answer_counts_once() {
    answer_and_word(RACES).await;
}

#[tokio::test]
#[ignore = "slow: a thousand races"]
async fn of_a_thousand_answers_and_words_later_each_answer_counts_once() {
    answer_and_word(MANY_RACES).await;
}

async fn answer_and_word(races: usize) {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let mut answer_first = 0;
    for _ in 0..races {
        let of = ledger.runs(&worker, Effect::Once).await;
        let wait_ms = WAIT_MS;
        let answering = async {
            // As the door and whoever sends it again do it: a row that another statement has does not move.
            loop {
                let state = ledger.state(of.0).await;
                let ending = answered(of, state, Effect::Once, &did());
                let told = ledger
                    .completing
                    .complete(&ending, fleet_tests::wait::LONG)
                    .await;
                if told.unwrap().is_some() {
                    return;
                }
            }
        };
        let (parked, ()) =
            tokio::join!(ledger.parks(of, Parking::Completion { wait_ms }), answering);
        assert_ne!(parked, Parked::NotNow);
        answer_first += u32::from(parked == Parked::Over);
        assert_eq!(ledger.state(of.0).await, State::Succeeded, "{parked:?}");
    }
    println!(
        "{races} races of an answer with the word later: the answer was first {answer_first} times"
    );
}

#[tokio::test]
async fn of_an_answer_and_the_end_of_its_time_at_once_nothing_is_lost() {
    answer_and_silence(RACES).await;
}

#[tokio::test]
#[ignore = "slow: a thousand races"]
async fn of_a_thousand_answers_and_ends_of_their_time_nothing_is_lost() {
    answer_and_silence(MANY_RACES).await;
}

async fn answer_and_silence(races: usize) {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let mut silent_first = 0;
    for _ in 0..races {
        let of = ledger.later(&worker, Effect::Once).await;
        let silent = Ending {
            reason: "completion_silent".into(),
            ..doubted(of.0, of.1)
        };
        let answering = async {
            // A row that another statement has does not move.
            loop {
                let state = ledger.state(of.0).await;
                let ending = answered(of, state, Effect::Once, &did());
                let told = ledger
                    .completing
                    .complete(&ending, fleet_tests::wait::LONG)
                    .await;
                if told.unwrap().is_some() {
                    return;
                }
            }
        };
        let (ended, ()) = tokio::join!(
            ledger.completing.complete(&silent, fleet_tests::wait::LONG),
            answering,
        );
        // A doubt of the same attempt is settled by it as well.
        silent_first += u32::from(ended.unwrap().is_some());
        assert_eq!(ledger.state(of.0).await, State::Succeeded);
    }
    println!("the end of the wait was first {silent_first} times");
}

#[tokio::test]
async fn of_an_input_and_a_cancel_at_once_the_call_ends_cancelled_and_never_runs() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let mut told_first = 0;
    for _ in 0..RACES {
        let (call, rev) = ledger.asks(&worker, Effect::Once).await;
        let telling = park::give_input(&ledger.database.pool, call, rev, "{}", "client");
        let (told, ()) = tokio::join!(telling, ledger.cancels(call));
        told_first += u32::from(told.unwrap());
        assert_eq!(ledger.state(call).await, State::Cancelled);
    }
    println!("the input was first {told_first} times");
}

#[tokio::test]
async fn an_error_that_is_no_proof_leaves_the_effect_unknown() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    for (not_done, known) in [(false, "unknown"), (true, "not_applied")] {
        let of = ledger.later(&worker, Effect::Once).await;
        let answer = LaterAnswer::Failed {
            failure: ToolFailure::new(Code::ToolError, Message::verbatim("no")),
            not_done,
        };
        let ending = answered(of, State::AwaitingClient, Effect::Once, &answer);
        assert!(matches!(ending.kind, EndingKind::End(_)));
        assert_eq!(answer.word() == OutcomeWord::Unknown, !not_done);
        ledger.ends(ending).await;
        let envelope = ledger.find(of.0).await.envelope(false).unwrap().unwrap();
        assert_eq!(envelope.effect.to_string(), known);
        assert_eq!(ledger.state(of.0).await, State::Failed);
    }
}
