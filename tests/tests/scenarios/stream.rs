//! Whatever becomes of the stream under load, every call ends as it would have, only later.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use async_nats::jetstream;
use clap::Parser;
use fleet::{
    bus::{
        connect::Bus,
        orphans::{self, Repair},
    },
    config::BusArgs,
    hold::ALLOWANCE_UNKNOWN,
};
use fleet_tests::{
    caller::Submission,
    fleet::{Fleet, Spec},
    invariants,
    run_folder::RunFolder,
    wait::{LONG, until_so, until_within},
    witness::{Reply, Witness},
};
use secrecy::SecretString;
use serde_json::json;
use tokio::{sync::Semaphore, task::JoinSet, time::timeout};
use toolfleet::commands::Program;

const STREAM: &str = "TOOLFLEET_JOBS";
/// Calls that are being submitted at a time.
const CALLERS: usize = 64;

async fn two_workers(witness: &Witness) -> Fleet {
    let tools = [witness.tool("charge", "once"), witness.tool("look", "read")];
    Fleet::start(Spec::with(tools).workers(2, &["--concurrency", "8"])).await
}

/// Callers who submit these calls, half of them to a `once` tool; who gets no answer sends again with the same key.
fn submit(fleet: &Fleet, witness: &Witness, calls: std::ops::Range<usize>) -> JoinSet<()> {
    let mut callers = JoinSet::new();
    let turns = Arc::new(Semaphore::new(CALLERS));
    for call in calls {
        let (what, turns) = (call.to_string(), Arc::clone(&turns));
        witness.always(&what, Reply::DoneAfter(Duration::from_millis(20)));
        let tool = if call % 2 == 0 { "charge" } else { "look" };
        let submission = fleet.submit(tool, &json!({"what": what})).key(&what);
        let submission = submission
            .header("Prefer", "respond-async")
            .patience(Duration::from_secs(2));
        callers.spawn(async move {
            let _turn = turns.acquire().await.unwrap();
            let accepted = async { while !sent(&submission).await {} };
            timeout(LONG, accepted).await.unwrap();
        });
    }
    callers
}

/// Whether a connection was accepted.
async fn sent(submission: &Submission) -> bool {
    let answer = submission.clone().try_wait().await;
    answer.is_some_and(|answer| answer["call_id"].is_string())
}

/// Waits until so many calls have been asked of the witness.
async fn until_asked(witness: &Witness, calls: usize) {
    witness
        .until("calls to run", |seen| seen.requests.len() >= calls)
        .await;
}

/// Waits until all of these have succeeded, each with one attempt and one effect.
async fn all_ran_once(fleet: &Fleet, witness: &Witness, mut callers: JoinSet<()>, calls: usize) {
    while let Some(accepted) = callers.join_next().await {
        accepted.unwrap();
    }
    let open = "SELECT count(*) FROM toolfleet.open_calls";
    until_within(4 * LONG, "every call to be terminal", async || {
        (fleet.count(open).await == 0).then_some(())
    })
    .await;
    let otherwise =
        "SELECT count(*) FROM toolfleet.calls WHERE state <> 'succeeded' OR attempts <> 1";
    assert_eq!(fleet.count(otherwise).await, 0);
    assert_eq!(fleet.accepted().len(), calls);
    let asked = witness.look(|seen| {
        let mut asked: HashMap<String, usize> = HashMap::new();
        for request in &seen.requests {
            *asked.entry(request.what.clone()).or_default() += 1;
        }
        asked
    });
    let expected = (0..calls).map(|call| (call.to_string(), 1)).collect();
    assert_eq!(asked, expected);
    invariants::hold(fleet, witness).await;
}

async fn the_store_is_wiped_under(calls: usize) {
    let witness = Witness::start().await;
    let mut fleet = two_workers(&witness).await;
    let callers = submit(&fleet, &witness, 0..calls);
    until_asked(&witness, calls / 3).await;
    fleet.stop_nats().await;
    fleet.wipe_nats();
    fleet.start_nats().await;
    all_ran_once(&fleet, &witness, callers, calls).await;
}

/// The copy holds what the stream may hold of a third of the calls, which have all run when it comes back in the place of
/// the second.
async fn the_store_is_rolled_back_under(calls: usize) {
    let witness = Witness::start().await;
    let tools = [witness.tool("charge", "once"), witness.tool("look", "read")];
    let mut fleet = Fleet::start(Spec::with(tools).workers(0, &[])).await;
    let mut callers = submit(&fleet, &witness, 0..calls / 3);
    // A look at the stream may not see what is on its way to it: then it holds more than its allowance.
    let in_stream = ALLOWANCE_UNKNOWN.min(calls as u64 / 3);
    until_within(LONG, "a third of the calls to wait", async || {
        let waiting = fleet
            .count("SELECT count(*) FROM toolfleet.open_calls")
            .await;
        (waiting as usize == calls / 3 && fleet.pointers().await? >= in_stream).then_some(())
    })
    .await;
    let copy = RunFolder::create().unwrap();
    fleet.stop_nats().await;
    copy_folder(&fleet.nats_files(), copy.path());
    fleet.start_nats().await;
    for _ in 0..2 {
        fleet.add_worker(&["--concurrency", "8"]).await;
    }
    let rest = submit(&fleet, &witness, calls / 3..calls);
    until_asked(&witness, calls / 2).await;
    fleet.stop_nats().await;
    put_back(copy.path(), &fleet.nats_files());
    fleet.start_nats().await;
    while let Some(accepted) = callers.join_next().await {
        accepted.unwrap();
    }
    all_ran_once(&fleet, &witness, rest, calls).await;
}

#[tokio::test]
async fn a_store_that_is_wiped_under_load_costs_time_only() {
    the_store_is_wiped_under(300).await;
}

#[tokio::test]
#[ignore = "slow: the same under 2,000 calls"]
async fn a_store_that_is_wiped_under_thousands_costs_time_only() {
    the_store_is_wiped_under(2_000).await;
}

#[tokio::test]
async fn a_store_that_is_rolled_back_under_load_costs_time_only() {
    the_store_is_rolled_back_under(300).await;
}

#[tokio::test]
#[ignore = "slow: the same under 2,000 calls"]
async fn a_store_that_is_rolled_back_under_thousands_costs_time_only() {
    the_store_is_rolled_back_under(2_000).await;
}

#[tokio::test]
async fn a_stream_that_is_deleted_under_load_costs_time_only() {
    let witness = Witness::start().await;
    let fleet = two_workers(&witness).await;
    let callers = submit(&fleet, &witness, 0..300);
    until_asked(&witness, 100).await;
    let jetstream = jetstream::new(fleet.client.clone());
    jetstream.delete_stream(STREAM).await.unwrap();
    all_ran_once(&fleet, &witness, callers, 300).await;
}

#[tokio::test]
async fn a_stream_that_is_rebuilt_under_load_costs_time_only() {
    let witness = Witness::start().await;
    let fleet = two_workers(&witness).await;
    let callers = submit(&fleet, &witness, 0..300);
    for asked in [50, 100, 150] {
        until_asked(&witness, asked).await;
        let (nats_url, database_url) = (fleet.nats_url(), &fleet.database.url);
        let arguments = [
            "toolfleet",
            "doctor",
            "--rebuild-stream",
            "--nats-url",
            &nats_url,
            "--database-url",
            database_url,
        ];
        let program = Program::try_parse_from(arguments).unwrap();
        let done = Box::pin(program.command.run()).await.unwrap();
        assert_eq!(done, ExitCode::SUCCESS);
    }
    all_ran_once(&fleet, &witness, callers, 300).await;
}

#[tokio::test]
async fn a_consumer_that_is_deleted_under_load_costs_time_only() {
    let witness = Witness::start().await;
    let fleet = two_workers(&witness).await;
    let callers = submit(&fleet, &witness, 0..300);
    until_asked(&witness, 100).await;
    let stream = fleet.stream().await.unwrap();
    stream.delete_consumer("q_default").await.unwrap();
    all_ran_once(&fleet, &witness, callers, 300).await;
}

/// The consumer remembers a future that the stream has lost: it takes for acknowledged what is published next.
#[tokio::test]
async fn messages_that_no_worker_would_get_are_purged_and_published_again() {
    let witness = Witness::start().await;
    let mut fleet = two_workers(&witness).await;
    let (early, late) = (RunFolder::create().unwrap(), RunFolder::create().unwrap());
    fleet.stop_nats().await;
    copy_folder(&fleet.nats_files(), early.path());
    fleet.start_nats().await;
    all_ran_once(&fleet, &witness, submit(&fleet, &witness, 0..60), 60).await;
    for worker in &mut fleet.workers {
        worker.drain().await;
    }
    fleet.stop_nats().await;
    copy_folder(&fleet.nats_files(), late.path());
    put_back(early.path(), &fleet.nats_files());
    fleet.start_nats().await;
    let callers = submit(&fleet, &witness, 60..100);
    until_so("forty calls to wait", async || {
        fleet.pointers().await == Some(40)
    })
    .await;
    fleet.stop_nats().await;
    let consumers = format!("$G/streams/{STREAM}/obs");
    put_back(
        &late.path().join(&consumers),
        &fleet.nats_files().join(&consumers),
    );
    fleet.start_nats().await;
    let stream = fleet.stream().await.unwrap();
    let info = stream.consumer_info("q_default").await.unwrap();
    // This is what the test is about: the messages are there, and no worker would ever get them.
    assert_eq!((info.num_pending, info.num_ack_pending), (0, 0));
    assert_eq!(fleet.pointers().await, Some(40));
    fleet.add_worker(&[]).await;
    all_ran_once(&fleet, &witness, callers, 100).await;
}

#[tokio::test]
async fn a_consumer_that_is_made_anew_delivers_everything_and_doubles_nothing() {
    let witness = Witness::start().await;
    let fleet = two_workers(&witness).await;
    let callers = submit(&fleet, &witness, 0..100);
    until_asked(&witness, 30).await;
    let args = BusArgs::at(SecretString::from(fleet.nats_url()));
    let bus = Bus::connect(&args, "test");
    let (bus, queue) = (bus.await.unwrap(), "default".parse().unwrap());
    let before = fleet.stream().await.unwrap();
    let before = before.consumer_info("q_default").await.unwrap();
    let purged = orphans::repair(&bus, &queue, Repair::Remake).await.unwrap();
    assert_eq!(purged, 0);
    let after = fleet.stream().await.unwrap();
    let after = after.consumer_info("q_default").await.unwrap();
    assert!(after.created > before.created);
    assert_eq!(after.config.filter_subject, before.config.filter_subject);
    all_ran_once(&fleet, &witness, callers, 100).await;
}

/// Puts a copy in the place of what is there.
pub(crate) fn put_back(copy: &Path, place: &Path) {
    fs::remove_dir_all(place).unwrap();
    copy_folder(copy, place);
}

pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let entries: BTreeSet<_> = fs::read_dir(from)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    for name in entries {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            copy_folder(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}
