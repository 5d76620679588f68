//! Two that decide the same call at one moment, and processes that end in between: one wins, and the other is told.

use std::collections::BTreeMap;

use fleet::store::controls::{self, ControlKind, ControlScope, NewControl};
use futures_util::future::join_all;

use super::*;

/// More show more; these are enough to meet each order.
const RACES: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_answers_one_is_the_calls_and_the_other_a_conflict() {
    let witness = Witness::start().await;
    let tools = [client_tool("shell", "once", "")];
    let fleet = Fleet::start(Spec::with(tools).workers(0, &[]).dispatchers(2)).await;
    let races = (0..RACES).map(async |number| {
        let handed = handed(&fleet, "shell", &format!("n{number}")).await;
        let (one, other) = (json!({"result": 1}), json!({"result": 2}));
        let (one, other) = tokio::join!(
            handed.hands_in(&fleet, &one),
            handed.hands_in(&fleet, &other)
        );
        let mut said = [&one, &other].map(|told| told["state"].as_str().unwrap());
        said.sort_unstable();
        assert_eq!(said, ["refused", "succeeded"], "{} {}", *one, *other);
        let loser = [&one, &other]
            .into_iter()
            .find(|told| told["state"] == "refused");
        assert_eq!(loser.unwrap().code(), "conflict");
    });
    join_all(races).await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_at_the_end_of_the_time_counts_or_its_sender_is_told() {
    answers_and_time(RACES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "slow: a thousand races"]
async fn a_thousand_answers_at_the_end_of_the_time_count_or_their_senders_are_told() {
    answers_and_time(1_000).await;
}

/// How an answer at the end of the time came to count, or not.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Won {
    InTime,
    SettledADoubt,
    TooLate,
}

/// Races answers with the end of their time: some come before it, some before the sweep has looked, some after that.
#[expect(clippy::print_stdout, reason = "a race says how often it was counted")]
async fn answers_and_time(races: usize) {
    let witness = Witness::start().await;
    let short = "timeout: 1s\n";
    let tools = [
        client_tool("look", "read", short),
        client_tool("shell", "once", short),
    ];
    let fleet = Fleet::start(Spec::with(tools).workers(0, &[]).dispatchers(2)).await;
    let mut won: BTreeMap<(&str, Won), usize> = BTreeMap::new();
    for first in (0..races).step_by(RACES) {
        let some = first..races.min(first + RACES);
        let racing = some.map(|number| answer_and_time(&fleet, number));
        for one in join_all(racing).await {
            *won.entry(one).or_default() += 1;
        }
    }
    println!("{races} races of an answer with the end of its time: {won:?}");
    invariants::hold(&fleet, &witness).await;
}

async fn answer_and_time(fleet: &Fleet, number: usize) -> (&'static str, Won) {
    let tool = ["look", "shell"][number % 2];
    let handed = handed(fleet, tool, &format!("n{number}")).await;
    let after = 900 + 20 * u64::try_from(number % RACES).unwrap_or(0);
    tokio::time::sleep(Duration::from_millis(after)).await;
    let told = handed.hands_in(fleet, &json!({"result": number})).await;
    let row = fleet.call(handed.call).await;
    if told["state"] == "succeeded" {
        assert_eq!(row["state"], "succeeded");
        let [from, _, actor] = last_move(fleet, handed.call).await;
        assert_eq!(actor, "client");
        return match from.as_str() {
            "in_doubt" => (tool, Won::SettledADoubt),
            _ => (tool, Won::InTime),
        };
    }
    // A write that was done counts, however late.
    assert_eq!(tool, "look", "{}", *told);
    assert_eq!(told.code(), "already_terminal", "{}", *told);
    assert_eq!(row["state"], "expired");
    (tool, Won::TooLate)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_and_a_cancellation_at_one_moment_have_one_winner() {
    let witness = Witness::start().await;
    let tools = [
        client_tool("look", "read", ""),
        client_tool("shell", "once", ""),
    ];
    let fleet = Fleet::start(Spec::with(tools).workers(0, &[]).dispatchers(2)).await;
    let races = (0..RACES).map(async |number| {
        let tool = ["look", "shell"][number % 2];
        let handed = handed(&fleet, tool, &format!("n{number}")).await;
        let (result, asked) = (json!({"result": 1}), json!({"call_id": handed.call}));
        let (told, cancelled) = tokio::join!(
            handed.hands_in(&fleet, &result),
            fleet.ask("toolfleet.v1.default.cancel", &asked)
        );
        let row = fleet.call(handed.call).await;
        let said = (
            told["state"].as_str().unwrap(),
            cancelled["result"].as_str().unwrap(),
        );
        match (tool, said) {
            (_, ("succeeded", "already_terminal")) | ("shell", ("succeeded", "in_doubt")) => {
                assert_eq!(row["state"], "succeeded");
            }
            ("look", ("refused", "cancelled")) => {
                assert_eq!(
                    (told.code(), &row["state"]),
                    ("already_terminal", &json!("cancelled"))
                );
            }
            other => panic!("{other:?}: {} {}", *told, *cancelled),
        }
    });
    join_all(races).await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_dispatcher_that_is_killed_takes_no_call_from_its_client() {
    let witness = Witness::start().await;
    let tools = [client_tool("shell", "once", "")];
    let mut fleet = Fleet::start(Spec::with(tools).workers(0, &[]).dispatchers(0)).await;
    let mut dispatcher = fleet.real_dispatcher("killed", &[], None);
    dispatcher.ready().await;
    let call = submission(&fleet, "shell", "a");
    let first = call.clone().wait().await;
    dispatcher.kill().await;
    fleet.add_dispatcher().await;
    // Another process makes the same token of the same secret.
    let again = call.wait().await;
    assert_eq!(again.first_bytes().as_bytes(), first.bytes);
    let told = HandedCall::of(&first)
        .hands_in(&fleet, &json!({"result": 1}))
        .await;
    assert_eq!(told["state"], "succeeded", "{}", *told);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_pause_hands_nothing_out_and_takes_the_answers_of_what_was() {
    let witness = Witness::start().await;
    let fleet = fleet_of([client_tool("shell", "once", "")]).await;
    let handed = handed(&fleet, "shell", "a").await;
    let pause = NewControl {
        kind: ControlKind::Pause,
        scope: ControlScope {
            tool: Some("shell"),
            queue: None,
            tenant: None,
            pointer: None,
            value: None,
            subject: None,
        },
        setting: "\"wait\"",
        told: None,
        actor: "ada",
        note: "not today",
        for_ms: None,
        in_tenant: None,
    };
    controls::set(&fleet.database.pool, &pause).await.unwrap();
    fleet.ring().await;
    let mut sent = 0;
    until_so("the pause to be known", async || {
        sent += 1;
        let answer = submission(&fleet, "shell", &format!("b{sent}"))
            .wait()
            .await;
        if answer["state"] == "refused" {
            assert_eq!(answer.code(), "tool_paused", "{}", *answer);
            return true;
        }
        // It came before.
        let told = HandedCall::of(&answer)
            .hands_in(&fleet, &json!({"result": 1}))
            .await;
        assert_eq!(told["state"], "succeeded");
        false
    })
    .await;
    let told = handed.hands_in(&fleet, &json!({"result": 1})).await;
    assert_eq!(told["state"], "succeeded", "{}", *told);
    invariants::hold(&fleet, &witness).await;
}
