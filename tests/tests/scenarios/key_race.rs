//! Many callers, one key: sixty-four of them for every key, at two dispatchers, while the calls are run.

use std::time::Instant;

use fleet_tests::{
    caller::{Answer, Submission},
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::Witness,
};
use serde_json::json;
use tokio::task::JoinSet;

const CALLERS: usize = 64;
/// Keys that are raced for at a time.
const KEYS_AT_ONCE: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_callers_of_each_of_many_keys_make_one_call_of_it() {
    race(200).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "64,000 submissions take a minute or more; `make prove` runs it"]
async fn sixty_four_callers_of_each_of_a_thousand_keys_make_one_call_of_it() {
    race(1_000).await;
}

/// Every other key is a caller's own; the others the tool makes of the arguments.
#[expect(clippy::print_stdout, reason = "whoever runs it wants the counts")]
async fn race(keys: usize) {
    let witness = Witness::start().await;
    let tool = witness.tool("charge", "once") + "key: from_arguments\n";
    let mut fleet = Fleet::start(Spec::with([tool]).dispatchers(2).workers(0, &[])).await;
    let began = Instant::now();
    for from in (0..keys).step_by(KEYS_AT_ONCE) {
        let mut races = JoinSet::new();
        for key in from..keys.min(from + KEYS_AT_ONCE) {
            races.spawn(race_for_one_key(callers(&fleet, key)));
        }
        races.join_all().await;
        if from == 0 {
            // From here on, callers also meet calls that run and that are over.
            fleet.add_worker(&[]).await;
            fleet.add_worker(&[]).await;
        }
    }
    let raced = began.elapsed();
    let heard = fleet.calls_heard().await;
    let shares = heard.iter().filter(|calls| **calls > 10 * keys as u64);
    assert_eq!(
        shares.count(),
        2,
        "not both dispatchers took part: {heard:?}"
    );
    let expected = i64::try_from(keys).unwrap();
    until_so("every call to be over", async || {
        let over = "SELECT count(*) FROM toolfleet.finished_calls WHERE state = 'succeeded'";
        fleet.count(over).await == expected
    })
    .await;
    let calls = "SELECT count(*) FROM toolfleet.calls";
    let named = "SELECT count(*) FROM toolfleet.idempotency_keys";
    assert_eq!(
        (fleet.count(calls).await, fleet.count(named).await),
        (expected, expected)
    );
    for key in 0..keys {
        assert_eq!(witness.asked(&what(key)), 1, "key {key}");
    }
    assert_eq!(witness.look(|seen| seen.requests.len()), keys);
    invariants::hold(&fleet, &witness).await;
    println!(
        "{CALLERS} callers for each of {keys} keys: {} submissions in {raced:.1?} to dispatchers {heard:?}, \
         {keys} calls, {keys} effects",
        CALLERS * keys
    );
}

fn what(key: usize) -> String {
    format!("effect-{key}")
}

/// The callers of one key. They do not agree on how to spell their arguments.
fn callers(fleet: &Fleet, key: usize) -> Vec<Submission> {
    let what = what(key);
    let plain = fleet.submit("charge", &json!({"what": what, "key": key}));
    let spelled = format!("{{ \"key\" : {key} , \"wh\\u0061t\" : \"{what}\" }}");
    let spelled = fleet.submit_bytes("charge", spelled);
    let both = [plain, spelled].map(|call| match key % 2 {
        0 => call.key(&format!("key-{key}")),
        _ => call,
    });
    both.into_iter().cycle().take(CALLERS).collect()
}

async fn race_for_one_key(callers: Vec<Submission>) {
    let mut race = JoinSet::new();
    for caller in callers {
        race.spawn(caller.asynchronous());
    }
    let answers: Vec<Answer> = race.join_all().await;
    let call = answers[0].call_id();
    for answer in &answers {
        assert_eq!(answer.call_id(), call, "{:?}", **answer);
    }
    let new = answers.iter().filter(|answer| answer["replayed"] == false);
    assert_eq!(new.count(), 1, "call {call}");
}
