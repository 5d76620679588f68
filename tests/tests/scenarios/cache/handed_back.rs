//! Calls that follow another one when they are not to get its answer any more: they do not wait for its end.

use super::*;

async fn control(fleet: &Fleet, wish: &Value) -> Answer {
    let mut wish = wish.clone();
    wish["actor"] = json!("ada");
    wish["note"] = json!("its answers are wrong");
    fleet.ask("toolfleet.admin.control", &wish).await
}

async fn state(fleet: &Fleet, call: CallId) -> Value {
    fleet.call(call).await["state"].clone()
}

/// Nine calls follow one that takes its time; then no answer is shared any more, and each asks the tool while that one still does.
async fn run_on_their_own(mode: &str) {
    let witness = Witness::start().await;
    let spec = Spec::with([tool(&witness, "look", "")]);
    let fleet = Fleet::start(spec.dispatchers(2).workers(3, &[])).await;
    witness.first("x", [Reply::DoneWhenReleased]);
    let (leader, answers) = flight(&fleet, "x", 10).await;
    let set = control(
        &fleet,
        &json!({"do": "set", "interceptor": "cache", "mode": mode, "tool": "look"}),
    )
    .await;
    assert_eq!(set["result"], "set", "{}", *set);
    until_so("the others to be over", async || {
        fleet
            .count("SELECT count(*) FROM toolfleet.calls WHERE state = 'succeeded'")
            .await
            == 9
    })
    .await;
    assert_eq!(state(&fleet, leader).await, "running");
    assert_eq!(witness.asked("x"), 10);
    witness.release("x");
    assert_eq!(of_source(&answers.join_all().await, "live"), 10);
    assert_eq!(witness.asked("x"), 10);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_run_on_their_own_when_the_cache_is_switched_off() {
    run_on_their_own("off").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_run_on_their_own_when_the_cache_only_observes() {
    run_on_their_own("observe").await;
}

/// Only the tenant's followers go; those of another one wait on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_of_another_tenant_wait_on_when_one_tenants_cache_is_switched_off() {
    let witness = Witness::start().await;
    let spec = Spec::with([tool(&witness, "look", "")]);
    let fleet = Fleet::start(spec.dispatchers(2).workers(3, &[])).await;
    witness.first("x", [Reply::DoneWhenReleased]);
    let (leader, answers) = flight(&fleet, "x", 4).await;
    witness.first("y", [Reply::DoneWhenReleased]);
    let mut of_acme = JoinSet::new();
    for _ in 0..4 {
        of_acme.spawn(look(&fleet, "y").tenant("acme").wait());
    }
    let follow =
        "SELECT count(*) FROM toolfleet.calls WHERE tenant = 'acme' AND held_why = 'follows'";
    until_so("three to follow", async || fleet.count(follow).await == 3).await;
    let off = json!({"do": "set", "interceptor": "cache", "mode": "off", "tool": "look", "tenant": "acme"});
    assert_eq!(control(&fleet, &off).await["result"], "set");
    witness.until_asked("y", 4).await;
    assert_eq!(held_behind(&fleet, leader).await, 3);
    assert_eq!(witness.asked("x"), 1);
    witness.release("x");
    witness.release("y");
    let answers = answers.join_all().await;
    assert_eq!(
        (of_source(&answers, "live"), of_source(&answers, "cache")),
        (1, 3)
    );
    assert_eq!(of_source(&of_acme.join_all().await, "live"), 4);
    invariants::hold(&fleet, &witness).await;
}

/// Answers are purged while nine calls follow the one that fetches: one of the nine fetches anew, and the others get what it gets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_of_a_purged_question_get_a_new_answer() {
    let witness = Witness::start().await;
    let spec = Spec::with([tool(&witness, "look", "")]);
    let fleet = Fleet::start(spec.dispatchers(2).workers(3, &[])).await;
    let new = json!({"rate": 8});
    witness.first("x", [Reply::DoneWhenReleased, Reply::Body(new.to_string())]);
    let (leader, answers) = flight(&fleet, "x", 10).await;
    let purged = control(&fleet, &json!({"do": "purge", "tool": "look"})).await;
    assert_eq!(purged["result"], "purged", "{}", *purged);
    until_so("the others to be over", async || {
        fleet
            .count("SELECT count(*) FROM toolfleet.calls WHERE state = 'succeeded'")
            .await
            == 9
    })
    .await;
    assert_eq!(state(&fleet, leader).await, "running");
    assert_eq!(witness.asked("x"), 2);
    witness.release("x");
    let answers = answers.join_all().await;
    let (old, others): (Vec<_>, Vec<_>) = answers
        .iter()
        .partition(|answer| answer.call_id() == leader);
    assert_ne!(old[0]["result"], new, "its own caller gets what it got");
    assert!(
        others.iter().all(|answer| answer["result"] == new),
        "{others:?}"
    );
    let sources: Vec<&Value> = others.iter().map(|answer| &answer["source"]).collect();
    let of = |source: &str| sources.iter().filter(|of| **of == source).count();
    assert_eq!((of("live"), of("cache")), (1, 8));
    // What the old leader got is not kept, either.
    assert_eq!(look(&fleet, "x").wait().await["result"], new);
    assert_eq!(witness.asked("x"), 2);
    invariants::hold(&fleet, &witness).await;
}
