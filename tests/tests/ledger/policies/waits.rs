//! Calls that wait for somebody, and calls that a person or nobody ends: what of them has happened.

use fleet::{
    approval::ApprovalWanted,
    call::{Effect, State},
    ids::{AttemptId, CallId},
    input::Asked,
    manifest::AtMostPer::Run,
    outcome::OutcomeWord,
    store::{
        accept::{FirstWait, HandOver, NewCall},
        approvals::{self, RulingVerdict},
        cancel::{self, Cancellation},
        park::{self, Parked, Parking},
        policies::BrokenRule,
        settle::{self, SettledAs, Settlement, Verdict},
    },
};
use serde_json::{json, value::RawValue};

use super::{Came, Scene, of};
use crate::support::{approval, wanted};

impl Scene {
    /// Whether a mail of this run would come after the secrets were read.
    async fn is_told(&self, run: &str) -> bool {
        let tool = "secrets".parse().unwrap();
        match self.broken(of("mail", run, "")).await {
            None => false,
            Some(rule) => {
                assert_eq!(rule, BrokenRule::NeverAfter { tool });
                true
            }
        }
    }

    async fn parks(&self, call: CallId, attempt: AttemptId, parking: Parking<'_>) {
        let parked = park::park(
            &self.ledger.database.pool,
            (call, attempt),
            parking,
            "worker x",
        );
        let parked = parked.await.unwrap();
        assert!(matches!(parked, Parked::Waits { .. }), "{parked:?}");
    }

    async fn approves(&self, call: CallId) -> State {
        let ruled = approvals::rule(&self.ledger.database.pool, &approval(call, "ann")).await;
        match ruled.unwrap() {
            RulingVerdict::Decided { state, .. } => state,
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
        let cancelled = cancel::cancel(&self.ledger.database.pool, &withdrawing).await;
        assert!(cancelled.unwrap().is_some());
    }

    /// A call in doubt that a person has decided about.
    async fn settled(&self, call: NewCall, finding: SettledAs) {
        let call = self.came(call, Came::InDoubt).await;
        let past = "UPDATE toolfleet.open_calls SET attempt_until = now() - interval '1 second' WHERE call_id = $1";
        self.ledger.meddle(call, past).await;
        let settlement = Settlement {
            call,
            tenant: None,
            finding,
            actor: "ann",
            note: "looked",
            result: (finding == SettledAs::Applied).then_some("{}"),
            by_time_only: false,
        };
        let verdict = settle::settle(&self.ledger.database.pool, &settlement).await;
        let verdict = verdict.unwrap();
        assert!(matches!(verdict, Verdict::Settled { .. }), "{verdict:?}");
    }
}

fn to_approve(run: &str, wanted: ApprovalWanted) -> NewCall {
    NewCall {
        waits: Some(FirstWait::Approval {
            expires_ms: 60_000,
            wanted: Box::new(wanted),
        }),
        ..of("secrets", run, "")
    }
}

fn handed(run: &str, effect: Effect) -> NewCall {
    let attempt = AttemptId::generate();
    NewCall {
        effect,
        waits: Some(FirstWait::Client(HandOver {
            attempt,
            timeout_ms: 60_000,
        })),
        ..of("secrets", run, "")
    }
}

#[tokio::test]
async fn a_call_that_waits_for_a_yes_has_not_happened() {
    let scene = Scene::with(json!({"never_after": ["secrets"]})).await;
    let call = scene.ledger.accepted(to_approve("r", wanted())).await;
    assert!(!scene.is_told("r").await);
    assert_eq!(scene.approves(call).await, State::Queued);
    assert!(!scene.is_told("r").await);
    let run = "UPDATE toolfleet.open_calls SET held = false WHERE call_id = $1";
    scene.ledger.meddle(call, run).await;
    scene.starts(call).await;
    assert!(scene.is_told("r").await);

    // A yes may hand it to the program of its caller.
    let by_client = ApprovalWanted {
        client_ms: Some(60_000),
        ..wanted()
    };
    let call = scene.ledger.accepted(to_approve("r-2", by_client)).await;
    assert!(!scene.is_told("r-2").await);
    assert_eq!(scene.approves(call).await, State::AwaitingClient);
    assert!(scene.is_told("r-2").await);
}

#[tokio::test]
async fn a_tool_that_answers_later_has_begun_and_one_that_asks_has_not() {
    let scene = Scene::with(json!({"never_after": ["secrets"]})).await;
    let call = scene.ledger.accepted(of("secrets", "r", "")).await;
    let attempt = scene.starts(call).await;
    let asked = Asked {
        round: 1,
        requests: RawValue::from_string("{}".to_owned()).unwrap(),
        state: None,
        input: None,
    };
    scene.parks(call, attempt, Parking::Input(&asked)).await;
    assert!(!scene.is_told("r").await);
    let given = park::give_input(&scene.ledger.database.pool, call, 2, "{}", "caller").await;
    assert!(given.unwrap());
    assert!(!scene.is_told("r").await);

    let later = Parking::Completion { wait_ms: 60_000 };
    let call = scene.ledger.accepted(of("secrets", "r-2", "")).await;
    let attempt = scene.starts(call).await;
    scene.parks(call, attempt, later).await;
    assert!(scene.is_told("r-2").await);
    // It is in doubt from here on.
    scene.cancels(call).await;
    assert!(scene.is_told("r-2").await);
}

#[tokio::test]
async fn what_the_callers_program_was_given_has_happened_unless_it_says_otherwise() {
    let scene = Scene::with(json!({"never_after": ["secrets"]})).await;
    // In its own time nothing is heard, and it is cancelled: it may have read them.
    let cancelled = scene.ledger.accepted(handed("r", Effect::Read)).await;
    assert!(scene.is_told("r").await);
    scene.cancels(cancelled).await;
    assert_eq!(scene.ledger.state(cancelled).await, State::Cancelled);
    assert!(scene.is_told("r").await);
    let write = scene
        .ledger
        .accepted(handed("r-2", Effect::Idempotent))
        .await;
    scene.cancels(write).await;
    assert_eq!(scene.ledger.state(write).await, State::InDoubt);
    assert!(scene.is_told("r-2").await);
    // It was never given to it.
    let waiting = scene.ledger.accepted(to_approve("r-3", wanted())).await;
    scene.cancels(waiting).await;
    let queued = scene.ledger.accepted(of("secrets", "r-3", "")).await;
    scene.cancels(queued).await;
    assert!(!scene.is_told("r-3").await);
}

/// They are ended by `toolfleet.finish`.
#[tokio::test]
async fn a_doubt_counts_as_a_person_settles_it() {
    let scene = Scene::with(json!({"after": ["confirm"], "never_after": ["secrets"]})).await;
    scene
        .settled(of("confirm", "r", ""), SettledAs::Applied)
        .await;
    assert!(!scene.is_told("r").await, "it has succeeded");
    let not_yet = BrokenRule::After {
        tool: "confirm".parse().unwrap(),
        per: Run,
    };
    scene
        .settled(of("confirm", "r-2", ""), SettledAs::NotApplied)
        .await;
    assert_eq!(scene.broken(of("mail", "r-2", "")).await, Some(not_yet));
    scene
        .settled(of("secrets", "r", ""), SettledAs::NotApplied)
        .await;
    assert!(!scene.is_told("r").await);
    scene
        .settled(of("secrets", "r", ""), SettledAs::Applied)
        .await;
    assert!(scene.is_told("r").await);
}

#[tokio::test]
async fn a_call_that_is_cancelled_between_attempts_counts_by_what_is_known_of_them() {
    let scene = Scene::with(json!({"never_after": ["secrets"]})).await;
    for (outcome, told) in [
        (OutcomeWord::NotStarted, false),
        (OutcomeWord::Unknown, true),
    ] {
        let run = outcome.to_string();
        let call = scene
            .came(of("secrets", &run, ""), Came::Again(outcome))
            .await;
        scene.cancels(call).await;
        assert_eq!(scene.is_told(&run).await, told, "{run}");
    }
}

/// It may have run, and the ledger has lost that.
#[tokio::test]
async fn what_is_in_doubt_because_of_lost_writes_may_have_happened() {
    let scene = Scene::with(json!({"at_most": {"calls": 1, "per": "run"}})).await;
    let once = NewCall {
        effect: Effect::Once,
        ..of("mail", "r", "")
    };
    let mail = scene.ledger.accepted(once).await;
    assert_eq!(scene.broken(of("mail", "r", "")).await, None);
    let lost = "SELECT * FROM toolfleet.quarantine((SELECT quarantines FROM toolfleet.fleet), 7, '1', 1, 'test', \
                '{\"en\": {\"code\": \"in_doubt\"}, \"zh\": {\"code\": \"in_doubt\"}}')";
    sqlx::query(lost)
        .execute(&scene.ledger.database.pool)
        .await
        .unwrap();
    assert_eq!(scene.ledger.state(mail).await, State::InDoubt);
    let broken = BrokenRule::AtMost { calls: 1, per: Run };
    assert_eq!(scene.broken(of("mail", "r", "")).await, Some(broken));
}
