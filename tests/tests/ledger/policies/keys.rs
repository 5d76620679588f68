//! A call that a caller of another run is answered with, by its key.

use fleet::{
    call::{EffectKnown, State},
    ids::CallId,
    manifest::AtMostPer::Run,
    store::policies::{self, BrokenRule},
};
use serde_json::json;

use super::{Came, Scene, of};
use crate::support::{end_in, ending};

fn label(text: &str) -> Option<fleet::ids::Label> {
    (!text.is_empty()).then(|| text.parse().unwrap())
}

async fn ask(scene: &Scene, call: CallId, run: &str, session: &str) {
    let pool = &scene.ledger.database.pool;
    let (run, session) = (label(run), label(session));
    for _twice in 0..2 {
        let noted = policies::note_asked(pool, call, run.as_ref(), session.as_ref()).await;
        assert!(noted.unwrap());
    }
}

fn never_after(tool: &str) -> Option<BrokenRule> {
    let tool = tool.parse().unwrap();
    Some(BrokenRule::NeverAfter { tool })
}

#[tokio::test]
async fn an_answer_that_another_run_has_got_counts_in_the_run_that_asks_for_it() {
    let scene = Scene::with(json!({"after": ["confirm"], "never_after": ["secrets"]})).await;
    let confirmed = scene.succeeded(of("confirm", "r-1", "")).await;
    let tool = "confirm".parse().unwrap();
    let early = Some(BrokenRule::After { tool, per: Run });
    assert_eq!(scene.broken(of("mail", "r-2", "")).await, early);
    ask(&scene, confirmed, "r-2", "").await;
    assert_eq!(scene.broken(of("mail", "r-2", "")).await, None);
    let read = scene.succeeded(of("secrets", "r-1", "")).await;
    assert_eq!(scene.broken(of("mail", "r-2", "")).await, None);
    ask(&scene, read, "", "s").await;
    assert_eq!(scene.broken(of("mail", "r-2", "")).await, None);
    assert_eq!(
        scene.broken(of("mail", "r-2", "s")).await,
        never_after("secrets")
    );
}

/// Whoever asked while it waited or ran gets what becomes of it.
#[tokio::test]
async fn what_becomes_of_a_call_counts_for_all_that_asked_for_it() {
    let scene = Scene::with(json!({"never_after": ["secrets"]})).await;
    let call = scene.ledger.accepted(of("secrets", "r-1", "")).await;
    ask(&scene, call, "r-2", "").await;
    let broken = async |run| scene.broken(of("mail", run, "")).await;
    assert_eq!(broken("r-2").await, None, "it has not happened");
    let attempt = scene.starts(call).await;
    ask(&scene, call, "r-3", "").await;
    for run in ["r-1", "r-2", "r-3"] {
        assert_eq!(broken(run).await, never_after("secrets"), "{run}");
    }
    // It had no effect after all.
    let failed = Came::Ended(State::Failed, EffectKnown::None);
    scene.ends_as(call, attempt, failed).await;
    for run in ["r-1", "r-2", "r-3"] {
        assert_eq!(broken(run).await, None, "{run}");
    }
}

/// Whatever moves the call writes a row for each that waits, in a statement that calls of all tenants share.
#[tokio::test]
async fn only_so_many_runs_wait_for_one_call() {
    let scene = Scene::with(json!({"never_after": ["secrets"]})).await;
    let pool = &scene.ledger.database.pool;
    let call = scene.ledger.accepted(of("secrets", "r", "s")).await;
    let asks = async |n: u32| {
        let (run, session) = (label(&format!("r-{n}")), label(&format!("s-{n}")));
        let noted = policies::note_asked(pool, call, run.as_ref(), session.as_ref()).await;
        noted.unwrap()
    };
    for n in 0..16 {
        assert!(asks(n).await, "{n}");
    }
    assert!(!asks(16).await);
    // Who waits already may ask again, and when it is over everybody may.
    assert!(asks(3).await);
    let attempt = scene.starts(call).await;
    assert!(!asks(16).await);
    let succeeded = Came::Ended(State::Succeeded, EffectKnown::Applied);
    scene.ends_as(call, attempt, succeeded).await;
    for n in 16..64 {
        assert!(asks(n).await, "{n}");
    }
    for run in ["r-0", "r-63"] {
        assert_eq!(
            scene.broken(of("mail", run, "")).await,
            never_after("secrets")
        );
    }
}

#[tokio::test]
async fn success_counts_for_all_that_asked_before_it() {
    let scene = Scene::with(json!({"after": ["confirm"]})).await;
    let call = scene.ledger.accepted(of("confirm", "r-1", "")).await;
    ask(&scene, call, "r-2", "").await;
    let attempt = scene.starts(call).await;
    assert_ne!(scene.broken(of("mail", "r-2", "")).await, None);
    let kind = end_in(State::Succeeded);
    let guard = fleet::ending::Guard::Attempt(attempt);
    scene.ledger.ends(ending(call, guard, kind)).await;
    assert_eq!(scene.broken(of("mail", "r-2", "")).await, None);
}

/// It is one call, in its own run.
#[tokio::test]
async fn an_answer_by_a_key_is_no_further_call() {
    let scene = Scene::with(json!({"at_most": {"calls": 1, "per": "run"}})).await;
    let mailed = scene.succeeded(of("mail", "r-1", "")).await;
    ask(&scene, mailed, "r-2", "").await;
    assert_eq!(scene.broken(of("mail", "r-2", "")).await, None);
    assert_ne!(scene.broken(of("mail", "r-1", "")).await, None);
}

/// Its own run or session is none, so nothing was noted of it before.
#[tokio::test]
async fn what_a_call_of_no_run_does_counts_where_it_was_asked_for() {
    let scene = Scene::with(json!({"never_after": ["secrets"]})).await;
    let call = scene.ledger.accepted(of("secrets", "", "")).await;
    ask(&scene, call, "r", "").await;
    let broken = async || scene.broken(of("mail", "r", "")).await;
    assert_eq!(broken().await, None, "it has not happened");
    let attempt = scene.starts(call).await;
    assert_eq!(broken().await, never_after("secrets"));
    scene
        .ends_as(
            call,
            attempt,
            Came::Ended(State::Succeeded, EffectKnown::Applied),
        )
        .await;
    assert_eq!(broken().await, never_after("secrets"));
    // And one that runs already.
    let call = scene.ledger.accepted(of("secrets", "", "")).await;
    scene.starts(call).await;
    ask(&scene, call, "", "s").await;
    assert_eq!(
        scene.broken(of("mail", "", "s")).await,
        never_after("secrets")
    );
}

#[tokio::test]
async fn a_repetition_in_its_own_run_notes_nothing() {
    let scene = Scene::with(json!({"never_after": ["secrets"]})).await;
    let call = scene.ledger.accepted(of("secrets", "r", "s")).await;
    let noted = async || -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM toolfleet.happenings")
            .fetch_one(&scene.ledger.database.pool)
            .await
            .unwrap()
    };
    ask(&scene, call, "r", "").await;
    ask(&scene, call, "r", "s").await;
    assert_eq!(noted().await, 0);
    ask(&scene, call, "r-2", "s").await;
    assert_eq!(noted().await, 1);
    // Who asked does not matter any more once it is over without an effect.
    let attempt = scene.starts(call).await;
    assert_eq!(noted().await, 4);
    let failed = Came::Ended(State::Failed, EffectKnown::None);
    scene.ends_as(call, attempt, failed).await;
    assert_eq!(noted().await, 0);
}
