//! Which rule a call breaks.

use fleet::{
    call::{EffectKnown, State},
    manifest::AtMostPer::{Run, Session},
    outcome::OutcomeWord,
    store::{accept::NewCall, policies::BrokenRule},
};
use serde_json::json;

use super::{Came, Scene, of};

fn at_most(calls: u64) -> Option<BrokenRule> {
    Some(BrokenRule::AtMost { calls, per: Run })
}

fn never_after(tool: &str) -> Option<BrokenRule> {
    let tool = tool.parse().unwrap();
    Some(BrokenRule::NeverAfter { tool })
}

#[tokio::test]
async fn what_may_have_happened_counts_and_what_provably_did_not_does_not() {
    let scene = Scene::with(json!({
        "at_most": {"calls": 1, "per": "run"}, "after": ["confirm"], "never_after": ["secrets"]
    }))
    .await;
    use Came::{Again, Ended, InDoubt, Runs, Waits};
    use EffectKnown::{Applied, NotApplied, Unknown};
    use State::{Cancelled, Expired, Failed, Succeeded};
    let all = [
        (Waits, false),
        (Runs, true),
        (InDoubt, true),
        (Again(OutcomeWord::Unknown), true),
        (Again(OutcomeWord::NotStarted), false),
        (Again(OutcomeWord::DefiniteFailure), false),
        (Ended(Succeeded, Applied), true),
        (Ended(Succeeded, EffectKnown::None), true),
        (Ended(Failed, Applied), true),
        (Ended(Failed, Unknown), true),
        (Ended(Failed, NotApplied), false),
        (Ended(Failed, EffectKnown::None), false),
        (Ended(Cancelled, NotApplied), false),
        (Ended(Expired, NotApplied), false),
    ];
    for (n, (came, counts)) in all.into_iter().enumerate() {
        // A run for each rule.
        let run = |rule: &str| format!("{rule}-{n}");
        for rule in ["at_most", "never_after"] {
            scene.succeeded(of("confirm", &run(rule), "")).await;
        }
        scene.came(of("mail", &run("at_most"), ""), came).await;
        let said = scene.broken(of("mail", &run("at_most"), "")).await;
        assert_eq!(said, counts.then(|| at_most(1).unwrap()), "{came:?}");

        scene
            .came(of("secrets", &run("never_after"), ""), came)
            .await;
        let said = scene.broken(of("mail", &run("never_after"), "")).await;
        assert_eq!(
            said,
            counts.then(|| never_after("secrets").unwrap()),
            "{came:?}"
        );

        scene.came(of("confirm", &run("after"), ""), came).await;
        let said = scene.broken(of("mail", &run("after"), "")).await;
        let has_succeeded = matches!(came, Ended(Succeeded, _));
        let tool = "confirm".parse().unwrap();
        let not_yet = BrokenRule::After { tool, per: Run };
        assert_eq!(said, (!has_succeeded).then_some(not_yet), "{came:?}");
    }
}

#[tokio::test]
async fn a_call_is_counted_in_its_own_tenant_and_label_and_without_itself() {
    let scene = Scene::with(json!({"at_most": {"calls": 2, "per": "run"}})).await;
    let of_another = || NewCall {
        tenant: "other".parse().unwrap(),
        ..of("mail", "r", "")
    };
    for call in [
        of_another(),
        of_another(),
        of("mail", "r-2", "r"),
        of("mail", "r-2", "r"),
        of("quote", "r", ""),
        of("quote", "r", ""),
        of("mail", "r", ""),
    ] {
        scene.came(call, Came::Runs).await;
    }
    assert_eq!(scene.broken(of("mail", "r", "")).await, None);
    // One that runs asks for itself.
    let second = scene.came(of("mail", "r", ""), Came::Runs).await;
    assert_eq!(scene.broken_by(second).await, None);
    assert_eq!(scene.broken(of("mail", "r", "")).await, at_most(2));
    // A call whose effect is unknown is one of those that happened: another attempt of it is no further call.
    let retried = scene
        .came(of("mail", "r", ""), Came::Again(OutcomeWord::Unknown))
        .await;
    assert_eq!(scene.broken_by(retried).await, None);
    assert_eq!(scene.broken(of("mail", "r-3", "")).await, None);
}

#[tokio::test]
async fn a_probe_is_neither_judged_nor_counted() {
    let scene = Scene::with(json!({
        "at_most": {"calls": 1, "per": "run"}, "never_after": ["secrets"]
    }))
    .await;
    let probe = "UPDATE toolfleet.open_calls SET probe_of = gen_random_uuid(), watched = NULL WHERE call_id = $1";
    for tool in ["mail", "secrets"] {
        let call = scene.ledger.accepted(of(tool, "r", "s")).await;
        scene.ledger.meddle(call, probe).await;
        scene.starts(call).await;
    }
    assert_eq!(scene.broken(of("mail", "r", "s")).await, None);
    scene.came(of("secrets", "r", "s"), Came::Runs).await;
    let call = scene.ledger.accepted(of("mail", "r", "s")).await;
    assert_eq!(scene.broken_by(call).await, never_after("secrets"));
    scene.ledger.meddle(call, probe).await;
    assert_eq!(scene.broken_by(call).await, None);
}

#[tokio::test]
async fn after_looks_into_the_run_and_never_after_into_the_session_too() {
    let scene = Scene::with(json!({
        "after": ["confirm", "look"], "never_after": ["secrets", "keys"]
    }))
    .await;
    let after = |tool: &str, per| {
        let tool = tool.parse().unwrap();
        Some(BrokenRule::After { tool, per })
    };
    // A confirmation in the session is none in another run of it.
    scene.succeeded(of("confirm", "r-1", "s")).await;
    assert_eq!(
        scene.broken(of("mail", "r-1", "s")).await,
        after("look", Run)
    );
    scene.succeeded(of("look", "r-1", "")).await;
    assert_eq!(scene.broken(of("mail", "r-1", "s")).await, None);
    assert_eq!(scene.broken(of("mail", "r-1", "")).await, None);
    assert_eq!(
        scene.broken(of("mail", "r-2", "s")).await,
        after("confirm", Run)
    );
    assert_eq!(
        scene.broken(of("mail", "", "s")).await,
        after("look", Session)
    );
    scene.succeeded(of("look", "", "s")).await;
    assert_eq!(scene.broken(of("mail", "", "s")).await, None);

    // What a session has seen it has seen in each of its runs, and what a run has seen in each of its sessions.
    scene.came(of("keys", "r-3", "s"), Came::Runs).await;
    for (run, session) in [("r-1", "s"), ("", "s"), ("r-3", ""), ("r-3", "s-2")] {
        let said = scene.broken(of("mail", run, session)).await;
        assert_eq!(said, never_after("keys"), "{run} {session}");
    }
    assert_eq!(scene.broken(of("mail", "r-1", "")).await, None);
}

#[tokio::test]
async fn a_call_that_does_not_say_of_which_run_or_session_it_is_escapes_no_rule() {
    for (policy, run, session, said) in [
        (
            json!({"at_most": {"calls": 1, "per": "run"}}),
            "",
            "s",
            Some(BrokenRule::Unlabelled(Run)),
        ),
        (
            json!({"at_most": {"calls": 1, "per": "session"}}),
            "r",
            "",
            Some(BrokenRule::Unlabelled(Session)),
        ),
        (
            json!({"at_most": {"calls": 1, "per": "session"}}),
            "",
            "s",
            None,
        ),
        (
            json!({"after": ["confirm"]}),
            "",
            "",
            Some(BrokenRule::WithoutLabels),
        ),
        (
            json!({"never_after": ["secrets"]}),
            "",
            "",
            Some(BrokenRule::WithoutLabels),
        ),
        (json!({"never_after": ["secrets"]}), "r", "", None),
        (json!({"never_after": ["secrets"]}), "", "s", None),
    ] {
        let scene = Scene::with(policy.clone()).await;
        let found = scene.broken(of("mail", run, session)).await;
        assert_eq!(found, said, "{policy} {run} {session}");
    }
}

#[tokio::test]
async fn the_newest_versions_rules_hold_for_calls_of_every_version() {
    let scene = Scene::with(json!({"at_most": {"calls": 1, "per": "run"}})).await;
    scene.succeeded(of("mail", "r", "s")).await;
    // Accepted with the first version, all of them.
    assert_eq!(scene.broken(of("mail", "r", "s")).await, at_most(1));
    let policy = json!({"policy": {"at_most": {"calls": 2, "per": "run"}}});
    scene.apply(2, policy).await;
    assert_eq!(scene.broken(of("mail", "r", "s")).await, None);
    scene.succeeded(of("mail", "r", "s")).await;
    assert_eq!(scene.broken(of("mail", "r", "s")).await, at_most(2));
    scene.apply(3, json!({})).await;
    assert_eq!(scene.broken(of("mail", "r", "s")).await, None);
    let policy = json!({"policy": {"never_after": ["mail_all"]}});
    scene.apply(4, policy).await;
    scene.came(of("mail_all", "r", ""), Came::Runs).await;
    assert_eq!(
        scene.broken(of("mail", "r", "s")).await,
        never_after("mail_all")
    );
}
