//! What the stream of events has lost: it is said, and the rows make it good.

use std::time::{Duration, Instant};

use async_nats::jetstream;
use fleet_tests::{
    event_source::{Block, EventSource},
    fleet::{Fleet, Spec},
    invariants,
    web::Web,
    witness::Witness,
};
use serde_json::json;

use crate::streams::{behind, call, following};

async fn stream(fleet: &Fleet) -> jetstream::stream::Stream {
    let jetstream = jetstream::new(fleet.client.clone());
    jetstream.get_stream("TOOLFLEET_EVENTS").await.unwrap()
}

/// The events of one call, from the start.
async fn of_one_call(web: Web) -> Vec<Block> {
    let mut follower = EventSource::open(following(web, "s", "?from=start")).await;
    follower.until("finished").await
}

/// A gap with this many snapshots, up to the id behind them.
async fn gap(follower: &mut EventSource, snapshots: usize) -> Vec<Block> {
    let blocks = follower.take(snapshots + 2).await;
    let events: Vec<&str> = blocks.iter().map(|block| block.event.as_str()).collect();
    assert_eq!(events[0], "gap", "{blocks:?}");
    assert!(
        events[1..=snapshots]
            .iter()
            .all(|event| *event == "snapshot")
    );
    assert_eq!(blocks[0].json()["snapshots"], snapshots, "{blocks:?}");
    let last = &blocks[snapshots + 1];
    assert_eq!(last.text, format!("id: {}\n\n", last.id));
    assert_eq!(blocks[0].json()["up_to"], last.id.as_str());
    blocks
}

#[tokio::test]
async fn what_a_purge_has_taken_is_said_and_the_calls_that_are_over_are_told_from_the_rows() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    call(&fleet, "s", "a").await;
    call(&fleet, "other", "x").await;
    let told = of_one_call(web).await;
    let mut live = EventSource::open(following(web, "s", "")).await;
    stream(&fleet).await.purge().await.unwrap();

    let last = &told[0].id;
    let mut again = behind(web, "s", last).await;
    let blocks = gap(&mut again, 1).await;
    let said = blocks[0].json();
    assert_eq!(
        (&said["why"], &said["behind"]),
        (&"dropped".into(), &last.as_str().into())
    );
    let (snapshot, event) = (blocks[1].json(), told.last().unwrap().json());
    for field in ["call_id", "state", "outcome", "attempts"] {
        assert_eq!(snapshot[field], event[field], "{snapshot}");
    }
    let mut start = EventSource::open(following(web, "s", "?from=start")).await;
    let from_start = gap(&mut start, 1).await;
    assert_eq!(from_start[0].json()["why"], "older");
    // Behind the gap nothing is missing, and what comes now comes to all.
    let mut behind_it = behind(web, "s", &blocks[2].id).await;
    call(&fleet, "s", "b").await;
    for follower in [&mut live, &mut again, &mut start, &mut behind_it] {
        let blocks = follower.until("finished").await;
        assert_eq!(blocks[0].event, "accepted", "{blocks:?}");
    }
    // Nothing of this session was before it.
    let mut fresh = EventSource::open(following(web, "fresh", "?from=start")).await;
    call(&fleet, "fresh", "c").await;
    assert_eq!(fresh.take(1).await[0].event, "accepted");
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn ids_of_another_stream_are_a_gap_and_ids_of_the_future_are_refused() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    call(&fleet, "s", "a").await;
    let told = of_one_call(web).await;
    let (epoch, last) = told.last().unwrap().id.split_once('-').unwrap();
    for other in ["7-1", "99999999999999999999-1"] {
        let request = following(web, "s", "").header("Last-Event-ID", other);
        if other.len() > 19 {
            assert_eq!(request.send().await.status, 400, "it is no number");
            continue;
        }
        let mut follower = EventSource::open(request).await;
        let blocks = gap(&mut follower, 1).await;
        assert_eq!(blocks[0].json()["why"], "epoch");
        // And then everything that this stream has.
        let rest = follower.take(told.len()).await;
        assert_eq!(rest, told);
    }
    let future = format!("{epoch}-{}", last.parse::<u64>().unwrap() + 1_000);
    let refused = following(web, "s", "").header("Last-Event-ID", &future);
    let refused = refused.send().await;
    assert_eq!(
        (refused.status, refused.code()),
        (400, "header_invalid".to_owned())
    );
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn streams_outlive_nats_and_say_what_was_lost_with_it() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let mut follower = EventSource::open(following(web, "s", "?from=start")).await;
    call(&fleet, "s", "a").await;
    let told = follower.until("finished").await;
    let began = Instant::now();
    fleet.stop_nats().await;
    // Nothing comes through it, and it stays.
    assert_eq!(follower.take(1).await[0].text, ": keep\n\n");
    let took = began.elapsed();
    assert!(took > Duration::from_secs(10), "{took:?}");
    // A new one cannot be opened meanwhile.
    let refused = following(web, "s", "").send().await;
    assert_eq!(
        (refused.status, refused.code()),
        (503, "unavailable".to_owned())
    );
    fleet.start_nats().await;
    let blocks = gap(&mut follower, 1).await;
    let said = blocks[0].json();
    assert_eq!(said["why"], "epoch", "{said}");
    assert_eq!(blocks[1].json()["call_id"], told[0].json()["call_id"]);
    call(&fleet, "s", "b").await;
    let after = follower.until("finished").await;
    assert_eq!(after[0].event, "accepted", "{after:?}");
    // The old id is one of a stream that is gone.
    let mut again = behind(web, "s", &told[0].id).await;
    assert_eq!(gap(&mut again, 2).await[0].json()["why"], "epoch");
    assert_eq!(again.take(after.len()).await, after);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn calls_of_a_hidden_tool_are_not_told_from_their_rows_either() {
    let witness = Witness::start().await;
    let hidden = witness.tool("peek", "read") + "visibility: hidden\n";
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read"), hidden])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let peek = |session: &str| {
        let call = fleet.submit("peek", &json!({"what": "h"}));
        call.header("Toolfleet-Session", session).wait()
    };
    call(&fleet, "s", "a").await;
    let told = of_one_call(web).await;
    peek("s").await;
    peek("hidden").await;
    stream(&fleet).await.purge().await.unwrap();
    let mut again = behind(web, "s", &told[0].id).await;
    let blocks = gap(&mut again, 1).await;
    assert_eq!(blocks[1].json()["tool"], "look", "{blocks:?}");
    // Of a session that has nothing to tell nothing is missing.
    let mut nothing = EventSource::open(following(web, "hidden", "?from=start")).await;
    call(&fleet, "hidden", "b").await;
    assert_eq!(nothing.take(1).await[0].event, "accepted");
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
