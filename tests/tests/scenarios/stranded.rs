//! Pointers that nats-server refuses as duplicates and never delivers: its index still counts a message that it lost or cannot
//! read.

use std::{fs, path::Path, process::ExitCode, time::Duration};

use async_nats::jetstream::{
    self,
    context::PublishErrorKind,
    stream::{LastRawMessageErrorKind, Stream},
};
use clap::Parser;
use fleet::{
    bus::{
        connect::Bus,
        publish::Numbered,
        stranded::{self, PointerLook, Stranded},
    },
    config::BusArgs,
    ids::CallId,
};
use fleet_tests::{
    fleet::{Fleet, Spec, counter},
    invariants,
    run_folder::RunFolder,
    wait::{until_so, until_within},
    witness::{Reply, Witness},
};
use secrecy::SecretString;
use serde_json::json;
use toolfleet::commands::Program;

use crate::stream::{copy_folder, put_back};

const STRANDED: &str = r#"toolfleet_swept_calls_total{pass="stranded_pointer"}"#;
const OPEN: &str = "SELECT count(*) FROM toolfleet.open_calls";
/// A record of a block: four bytes of length, eight of sequence, eight of time, two of the subject's length; then the
/// subject, the message and a checksum.
const RECORD_HEAD: usize = 22;

/// What is done to a message on disk.
#[derive(Debug, Clone, Copy)]
enum Damage {
    /// Its length is wrong: nats-server drops it and everything behind it when it reads the block, and its index of
    /// subjects goes on counting them.
    Length,
    /// Its content is not what its checksum says: nats-server passes over it, and goes on counting it.
    Content,
}

/// Accepts a call for the effect of this number.
async fn accept_one(fleet: &Fleet, what: usize) -> CallId {
    let call = fleet.submit("charge", &json!({"what": what.to_string()}));
    let call = call.key(&what.to_string()).asynchronous().await;
    call.call_id()
}

/// Accepts this many calls for effects `0`, `1`, …, in this order.
async fn accept(fleet: &Fleet, calls: usize) -> Vec<CallId> {
    let mut accepted = Vec::new();
    for what in 0..calls {
        accepted.push(accept_one(fleet, what).await);
    }
    until_so("all pointers to be in the stream", async || {
        fleet.pointers().await == Some(calls as u64)
    })
    .await;
    accepted
}

fn subject(call: CallId) -> String {
    format!("toolfleet.jobs.default.{call}.1")
}

/// Stops nats-server, damages the messages of these calls, and starts it again.
async fn damage(fleet: &mut Fleet, calls: &[CallId], damage: Damage) {
    fleet.stop_nats().await;
    let blocks = fleet
        .nats_files()
        .join("$G/streams/TOOLFLEET_JOBS/msgs/1.blk");
    damage_block(&blocks, calls, damage);
    fleet.start_nats().await;
}

fn damage_block(block: &Path, calls: &[CallId], damage: Damage) {
    let mut bytes = fs::read(block).unwrap();
    for call in calls {
        let subject = subject(*call).into_bytes();
        let mut places = bytes.windows(subject.len());
        let place = places.position(|here| here == subject).unwrap();
        let place = match damage {
            // 2^20 bytes more: further than the block goes.
            Damage::Length => place - RECORD_HEAD + 2,
            Damage::Content => place + subject.len() + 3,
        };
        bytes[place] ^= 0x10;
    }
    fs::write(block, bytes).unwrap();
}

/// This is what these tests are about: the stream refuses the pointer as there, and has no message to give.
async fn is_stranded(fleet: &Fleet, stream: &Stream, call: CallId) {
    let found = stream.get_last_raw_message_by_subject(&subject(call)).await;
    let found = found.map(|message| message.sequence).unwrap_err();
    assert_eq!(found.kind(), LastRawMessageErrorKind::NoMessageFound);
    let jetstream = jetstream::new(fleet.client.clone());
    let published = jetstream.publish(subject(call), "{}".into()).await;
    let refused = published.unwrap().await.unwrap_err();
    assert_eq!(refused.kind(), PublishErrorKind::Other);
    let refused = format!("{refused:?}");
    assert!(
        refused.contains("maximum messages per subject exceeded"),
        "{refused}"
    );
}

/// Waits until each has succeeded, with one attempt and one effect.
async fn each_ran_once(fleet: &Fleet, witness: &Witness, calls: &[CallId]) {
    for (what, call) in calls.iter().enumerate() {
        let row = fleet.until_state(*call, "succeeded").await;
        assert_eq!(row["attempts"], 1);
        assert_eq!(witness.asked(&what.to_string()), 1);
    }
}

async fn rebuild(fleet: &Fleet) {
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

#[tokio::test]
async fn calls_whose_messages_the_stream_lost_and_still_counts_are_run() {
    let witness = Witness::start().await;
    let tools = [witness.tool("charge", "once")];
    let mut fleet = Fleet::start(Spec::with(tools).dispatchers(2).workers(0, &[])).await;
    let calls = accept(&fleet, 9).await;
    damage(&mut fleet, &calls[2..3], Damage::Length).await;
    let before = counter(STRANDED);
    let stream = fleet.stream().await.unwrap();
    // Reading a message is what makes it read the block.
    let first = subject(calls[0]);
    let kept = stream.get_last_raw_message_by_subject(&first).await;
    assert_eq!(kept.unwrap().sequence, 1);
    for call in &calls[2..] {
        is_stranded(&fleet, &stream, *call).await;
    }
    fleet.add_worker(&[]).await;
    each_ran_once(&fleet, &witness, &calls).await;
    assert!(counter(STRANDED) - before >= 7.0);
    invariants::hold(&fleet, &witness).await;
}

/// The worker takes one call at a time, so that the queue never looks empty while the damaged ones wait.
#[tokio::test]
async fn calls_whose_messages_cannot_be_read_are_run_in_a_busy_queue() {
    let witness = Witness::start().await;
    let tools = [witness.tool("charge", "once")];
    let mut fleet = Fleet::start(Spec::with(tools).dispatchers(2).workers(0, &[])).await;
    let busy = |calls: usize| {
        witness.always(
            &calls.to_string(),
            Reply::DoneAfter(Duration::from_millis(100)),
        );
    };
    (0..60).for_each(busy);
    let mut calls = accept(&fleet, 60).await;
    let damaged = [calls[0], calls[8], calls[16]];
    damage(&mut fleet, &damaged, Damage::Content).await;
    let stream = fleet.stream().await.unwrap();
    for call in damaged {
        is_stranded(&fleet, &stream, call).await;
    }
    fleet.add_worker(&["--concurrency", "1"]).await;
    // What would take half a minute: a pointer of a busy queue is looked at when it has waited 24 s, and then not before 192 s. Each
    // comes to that age by itself, however long the steps above took.
    let age = "UPDATE toolfleet.open_calls SET accepted_at = now() - interval '20 seconds', not_before = now() - interval '20 seconds'";
    sqlx::query(age)
        .execute(&fleet.database.pool)
        .await
        .unwrap();
    let before = counter(STRANDED);
    let mut waiting_min = usize::MAX;
    let limit = Duration::from_secs(120);
    until_within(limit, "the damaged ones to have new numbers", async || {
        let asked = witness.look(|seen| seen.requests.len());
        waiting_min = waiting_min.min(calls.len() - asked);
        // However long it takes, the queue stays busy behind the damaged ones.
        while calls.len() < asked + 50 {
            busy(calls.len());
            calls.push(accept_one(&fleet, calls.len()).await);
        }
        (counter(STRANDED) - before >= 3.0).then_some(())
    })
    .await;
    assert!(
        waiting_min > damaged.len(),
        "the queue was busy all the while: {waiting_min}"
    );
    each_ran_once(&fleet, &witness, &calls).await;
    assert_eq!(fleet.count(OPEN).await, 0);
    // What it cannot read it cannot remove either, and counts until its stream is made anew.
    rebuild(&fleet).await;
    invariants::hold(&fleet, &witness).await;
}

/// The consumer remembers a future that the stream has lost, as in `stream`; here only the test looks.
#[tokio::test]
async fn a_message_that_its_consumer_passed_over_is_found_and_removed() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let (early, late) = (RunFolder::create().unwrap(), RunFolder::create().unwrap());
    fleet.stop_nats().await;
    copy_folder(&fleet.nats_files(), early.path());
    fleet.start_nats().await;
    until_so("the dispatcher to hear callers again", async || {
        fleet.dispatchers_heard().await == 1
    })
    .await;
    for what in 0..6 {
        let call = fleet.submit("charge", &json!({"what": what.to_string()}));
        let done = call.key(&what.to_string()).wait().await;
        assert_eq!(done["state"], "succeeded");
    }
    invariants::hold(&fleet, &witness).await;
    fleet.workers[0].drain().await;
    fleet.dispatchers[0].drain().await;
    fleet.stop_nats().await;
    copy_folder(&fleet.nats_files(), late.path());
    put_back(early.path(), &fleet.nats_files());
    fleet.start_nats().await;
    let pointer = || Numbered {
        queue: "default".parse().unwrap(),
        call: CallId::generate(),
        n: 1,
    };
    let passed_over = [pointer(), pointer(), pointer()];
    let jetstream = jetstream::new(fleet.client.clone());
    for pointer in &passed_over {
        let published = jetstream.publish(subject(pointer.call), "{}".into()).await;
        published.unwrap().await.unwrap();
    }
    let args = BusArgs::at(SecretString::from(fleet.nats_url()));
    let bus = Bus::connect(&args, "test");
    let bus = bus.await.unwrap();
    let look = async |pointer: &Numbered| -> PointerLook {
        let looks = stranded::look(&bus, [pointer.clone()]).await.unwrap();
        looks[0].1
    };
    assert_eq!(look(&passed_over[0]).await.doubt(), None, "it waits");
    fleet.stop_nats().await;
    let consumers = "$G/streams/TOOLFLEET_JOBS/obs";
    put_back(
        &late.path().join(consumers),
        &fleet.nats_files().join(consumers),
    );
    fleet.start_nats().await;
    until_so("the connection to stand again", async || {
        stranded::look(&bus, [passed_over[0].clone()]).await.is_ok()
    })
    .await;
    for pointer in &passed_over {
        let (before, now) = (look(pointer).await, look(pointer).await);
        assert_eq!(now.confirms(before), Some(Stranded::PassedOver), "{now:?}");
        stranded::clear(&bus, pointer).await.unwrap();
        stranded::clear(&bus, pointer).await.unwrap();
        assert_eq!(look(pointer).await.message, None);
    }
    assert_eq!(fleet.pointers().await, Some(0));
}
