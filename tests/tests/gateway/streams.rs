//! Following a session over HTTP: what its followers get, together, late, and from another gateway.

use std::time::{Duration, Instant};

use fleet_tests::{
    event_source::{Block, EventSource, text},
    fleet::{Fleet, Spec},
    invariants,
    wait::{until, until_so},
    web::{Web, WebRequest},
    witness::{Reply, Witness},
};
use futures_util::StreamExt;
use serde_json::json;

/// A request to follow a session of the default tenant.
pub(crate) fn following(web: Web, session: &str, query: &str) -> WebRequest {
    web.get(&format!("/v1/sessions/{session}/events{query}"))
}

/// Follows from the event behind this id.
pub(crate) async fn behind(web: Web, session: &str, id: &str) -> EventSource {
    let request = following(web, session, "").header("Last-Event-ID", id);
    EventSource::open(request).await
}

/// Makes a call of the session, and waits until it is over.
pub(crate) async fn call(fleet: &Fleet, session: &str, what: &str) {
    let call = fleet.submit("look", &json!({ "what": what }));
    let answer = call.header("Toolfleet-Session", session).wait().await;
    assert_eq!(answer["state"], "succeeded", "{answer:?}");
}

/// The names of the consumers of the stream of events.
pub(crate) async fn consumers(fleet: &Fleet) -> Vec<String> {
    let jetstream = async_nats::jetstream::new(fleet.client.clone());
    let stream = jetstream.get_stream("TOOLFLEET_EVENTS").await.unwrap();
    let names = stream.consumer_names();
    names.map(Result::unwrap).collect().await
}

/// The ids, without the epoch.
pub(crate) fn sequences(blocks: &[Block]) -> Vec<u64> {
    let sequence = |block: &Block| block.id.split_once('-').unwrap().1.parse().unwrap();
    blocks.iter().map(sequence).collect()
}

#[tokio::test]
async fn every_event_comes_to_every_follower_as_it_was_told() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let subject = "toolfleet.v1.default.event.s.*";
    let mut told = fleet.client.subscribe(subject).await.unwrap();
    fleet.client.flush().await.unwrap();
    let mut followers = Vec::new();
    for query in ["", "?from=now", "?style=raw&from=start"] {
        followers.push(EventSource::open(following(web, "s", query)).await);
    }
    // Of another session, of which nobody here hears.
    call(&fleet, "other", "a").await;
    call(&fleet, "s", "b").await;
    let mut payloads = Vec::new();
    while payloads
        .last()
        .is_none_or(|last: &String| !last.contains("\"finished\""))
    {
        let message = told.next().await.unwrap();
        payloads.push(String::from_utf8(message.payload.to_vec()).unwrap());
    }
    let mut first = String::new();
    for follower in &mut followers {
        let head = &follower.head;
        assert_eq!(head.status, 200, "{head:?}");
        for (name, value) in [
            ("Content-Type", "text/event-stream"),
            ("Cache-Control", "no-store"),
            ("X-Accel-Buffering", "no"),
            ("Toolfleet-Answer", "gateway"),
        ] {
            assert_eq!(head.header(name), value, "{head:?}");
        }
        let blocks = follower.until("finished").await;
        let data: Vec<&str> = blocks.iter().map(|block| block.data.as_str()).collect();
        assert_eq!(data, payloads);
        for block in &blocks {
            assert_eq!(block.json()["kind"], block.event, "{block:?}");
        }
        assert!(sequences(&blocks).is_sorted(), "{blocks:?}");
        let text = text(&blocks);
        if first.is_empty() {
            first.clone_from(&text);
        }
        assert_eq!(text, first);
    }
    assert_eq!(consumers(&fleet).await.len(), 1, "one for all of them");
    drop(followers);
    // Sooner than the server would do it by itself.
    let left = Instant::now();
    until_so("the consumer to be gone", async || {
        consumers(&fleet).await.is_empty()
    })
    .await;
    let took = left.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}");
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn another_gateway_goes_on_behind_the_last_event_with_the_same_bytes() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (first, web) = fleet.gateway(&[]).await;
    let (mut second, other) = fleet.gateway(&[]).await;
    witness.always("b", Reply::DoneWhenReleased);
    let mut whole = EventSource::open(following(other, "s", "?from=start")).await;
    let mut follower = EventSource::open(following(web, "s", "?from=start")).await;
    call(&fleet, "s", "a").await;
    let mut read = follower.until("finished").await;
    let waiting = call(&fleet, "s", "b");
    let kill = async {
        read.extend(follower.until("started").await);
        first.kill().await;
        let rest = follower.rest().await;
        assert!(rest.is_empty() && !follower.is_complete, "it is cut off");
        witness.release("b");
    };
    tokio::join!(waiting, kill);
    let mut all = whole.until("finished").await;
    all.extend(whole.until("finished").await);
    // From the last event, and from each one before it.
    for last in 0..read.len() {
        let mut again = behind(other, "s", &read[last].id).await;
        let rest = again.take(all.len() - last - 1).await;
        assert_eq!(
            text(&rest),
            text(&all[last + 1..]),
            "behind {:?}",
            read[last]
        );
    }
    assert_eq!(text(&read), text(&all[..read.len()]));
    invariants::hold(&fleet, &witness).await;
    second.drain().await;
}

#[tokio::test]
async fn who_comes_later_to_a_followed_session_gets_what_was_before() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    call(&fleet, "s", "a").await;
    call(&fleet, "other", "x").await;
    // Its log begins here.
    let mut now = EventSource::open(following(web, "s", "")).await;
    call(&fleet, "s", "b").await;
    let seen = now.until("finished").await;
    let mut start = EventSource::open(following(web, "s", "?from=start")).await;
    let mut all = start.until("finished").await;
    all.extend(start.until("finished").await);
    assert!(text(&all).ends_with(&text(&seen)) && all.len() > seen.len());
    let mut between = behind(web, "s", &all[0].id).await;
    let between = between.take(all.len() - 1).await;
    assert_eq!(text(&between), text(&all[1..]));
    // And what comes after that.
    call(&fleet, "s", "c").await;
    let (one, two) = (now.until("finished").await, start.until("finished").await);
    assert_eq!(text(&one), text(&two));
    assert_eq!(consumers(&fleet).await.len(), 1);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn a_session_of_another_tenant_is_one_in_which_nothing_happens() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    call(&fleet, "s", "a").await;
    let request = following(web, "s", "?from=start").header("Toolfleet-Tenant", "acme");
    let mut foreign = EventSource::open(request).await;
    assert_eq!(foreign.head.status, 200);
    let of_acme = fleet.submit("look", &json!({ "what": "b" }));
    let of_acme = of_acme.tenant("acme").header("Toolfleet-Session", "s");
    let own = of_acme.wait().await["call_id"].as_str().unwrap().to_owned();
    for block in foreign.until("finished").await {
        assert_eq!(block.json()["call_id"], own.as_str(), "{block:?}");
    }
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn what_is_no_event_of_the_fleets_comes_as_it_is_and_harms_nobody() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let mut follower = EventSource::open(following(web, "s", "")).await;
    for payload in [
        "",
        "nothing",
        "{\"kind\":\"turn\",\"a\":1}",
        "id: 1-1\nevent: x\n\ndata: y",
    ] {
        let subject = "toolfleet.v1.default.event.s.turn";
        fleet.client.publish(subject, payload.into()).await.unwrap();
    }
    let blocks = follower.take(4).await;
    let events: Vec<&str> = blocks.iter().map(|block| block.event.as_str()).collect();
    assert_eq!(events, ["", "", "turn", ""]);
    assert_eq!(blocks[1].data, "nothing");
    assert_eq!(sequences(&blocks).len(), 4);
    call(&fleet, "s", "a").await;
    let last = until("the call's last event", async || {
        follower
            .next()
            .await
            .filter(|block| block.event == "finished")
    });
    assert_eq!(last.await.json()["state"], "succeeded");
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
