//! What is told when an attempt is over and another may follow; and the stream that keeps what is told.

use async_nats::jetstream;
use fleet::{
    bus::{connect::Bus, events::widen},
    config::BusArgs,
};
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::{Value, json};

use crate::events::{follow, heard, kinds};

fn retrying(events: &[Value]) -> Vec<Value> {
    let told = events.iter().filter(|event| event["kind"] == "retrying");
    let told = told.map(|event| json!([event["attempt"], event["code"]]));
    told.collect()
}

#[tokio::test]
async fn each_attempt_that_is_followed_by_another_is_told_of() {
    let witness = Witness::start().await;
    let tool = witness.tool("look", "read") + "retry: {max_attempts: 3, base: 10ms, cap: 10ms}\n";
    let fleet = Fleet::start(Spec::with([tool])).await;
    let mut events = follow(&fleet).await;
    witness.first("a", [Reply::Status(503), Reply::Status(503)]);
    let call = fleet.submit("look", &json!({"what": "a"}));
    let answer = call.header("Toolfleet-Session", "s").wait().await;
    let told = heard(&mut events, answer.call_id()).await;
    let expected = [
        "accepted", "started", "retrying", "started", "retrying", "started", "finished",
    ];
    assert_eq!(kinds(&told), expected);
    assert_eq!(
        retrying(&told),
        [json!([1, "unavailable"]), json!([2, "unavailable"])]
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn the_sweep_tells_of_an_attempt_whose_worker_is_lost() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let mut events = follow(&fleet).await;
    witness.first("a", [Reply::Hang]);
    let call = fleet.submit("look", &json!({"what": "a"}));
    let call = call.header("Toolfleet-Session", "s").asynchronous().await;
    witness.until_asked("a", 1).await;
    let lost = fleet.workers.pop().unwrap();
    lost.kill().await;
    fleet
        .sql("UPDATE toolfleet.worker_processes SET state = 'dead', ended_at = now(), ended_by = 'test'")
        .await;
    fleet.add_worker(&[]).await;
    let told = heard(&mut events, call.call_id()).await;
    assert_eq!(
        kinds(&told),
        ["accepted", "started", "retrying", "started", "finished"]
    );
    assert_eq!(told[2]["attempt"], 1, "{told:?}");
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_stream_of_an_earlier_release_is_widened_and_one_with_a_limit_of_its_own_is_not() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let jetstream = jetstream::new(fleet.client.clone());
    let limit = async || {
        let stream = jetstream.get_stream("TOOLFLEET_EVENTS").await.ok()?;
        Some(stream.cached_info().config.max_messages_per_subject)
    };
    until_so("the stream to be made", async || {
        limit().await == Some(36_000)
    })
    .await;
    let limited_to = async |most| {
        let stream = jetstream.get_stream("TOOLFLEET_EVENTS").await.unwrap();
        let mut config = stream.cached_info().config.clone();
        config.max_messages_per_subject = most;
        jetstream.update_stream(config).await.unwrap();
    };
    limited_to(1_000).await;
    fleet.add_dispatcher().await;
    until_so("the stream to be widened", async || {
        limit().await == Some(36_000)
    })
    .await;
    // What a dispatcher does once.
    limited_to(500).await;
    let args = BusArgs::at(fleet.nats_url().into());
    let bus = Bus::connect(&args, "test").await.unwrap();
    widen(&bus).await.unwrap();
    assert_eq!(limit().await, Some(500));
    invariants::hold(&fleet, &witness).await;
}
