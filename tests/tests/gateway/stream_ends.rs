//! Where a stream ends, and where there is none: slow readers, revoked tokens, a gateway that stops, too many, and what is asked wrongly.

use std::time::{Duration, Instant};

use fleet::{
    ids::CallId,
    store::tokens::{self, TokenRevoked},
    tokens::Scope,
};
use fleet_tests::{
    event_source::EventSource,
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::Witness,
};

use crate::{
    streams::{behind, call, following, sequences},
    tokens::{known, token, with},
};

/// An event of this session with so many bytes.
async fn publish(fleet: &Fleet, session: &str, number: usize, bytes: usize) {
    let call = CallId::generate();
    let subject = format!("toolfleet.v1.default.event.{session}.{call}");
    let text = "x".repeat(bytes);
    let payload = format!("{{\"kind\":\"output\",\"number\":{number},\"text\":\"{text}\"}}");
    fleet.client.publish(subject, payload.into()).await.unwrap();
}

#[tokio::test]
async fn a_reader_that_takes_too_little_is_cut_off_and_comes_back_where_it_was() {
    const EVENTS: usize = 300;
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let mut slow = EventSource::open(following(web, "s", "")).await;
    let mut quick = EventSource::open(following(web, "s", "")).await;
    let mut all = Vec::new();
    for number in 0..EVENTS {
        publish(&fleet, "s", number, 100_000).await;
        // The quick one is never behind.
        all.extend(quick.take(1).await);
        assert_eq!(all[number].json()["number"], number);
    }
    let mut read = slow.rest().await;
    assert!(!slow.is_complete && read.len() < EVENTS, "{}", read.len());
    let last = read.last().unwrap().id.clone();
    let mut again = behind(web, "s", &last).await;
    read.extend(again.take(EVENTS - read.len()).await);
    assert_eq!(sequences(&read), sequences(&all));
    println!("cut off behind {last}");
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn a_revoked_token_ends_its_streams_within_two_seconds() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let held = token(&fleet, "gone", "default", &[Scope::Read], "*").await;
    let other = token(&fleet, "stays", "default", &[Scope::Read], "*").await;
    for token in [&held, &other] {
        known(web, token).await;
    }
    let mut follower = EventSource::open(with(following(web, "s", ""), &held)).await;
    let mut stays = EventSource::open(with(following(web, "s", ""), &other)).await;
    call(&fleet, "s", "a").await;
    follower.until("finished").await;
    let mut connection = fleet.database.connect().await;
    let revoked = tokens::revoke(&mut connection, held.id(), "ann", "a test").await;
    assert!(matches!(revoked.unwrap(), TokenRevoked::Now(_)));
    let began = Instant::now();
    assert!(follower.rest().await.is_empty());
    assert!(follower.is_complete);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    println!("ended after {took:?}");
    let refused = with(following(web, "s", ""), &held).send().await;
    assert_eq!(refused.status, 401);
    call(&fleet, "s", "b").await;
    stays.until("finished").await;
    stays.until("finished").await;
    gateway.drain().await;
}

#[tokio::test]
async fn a_gateway_that_stops_has_its_followers_come_back() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let (mut other, elsewhere) = fleet.gateway(&[]).await;
    let mut follower = EventSource::open(following(web, "s", "")).await;
    let mut idle = EventSource::open(following(web, "idle", "")).await;
    call(&fleet, "s", "a").await;
    let told = follower.until("finished").await;
    let began = Instant::now();
    gateway.ask_to_stop();
    for stream in [&mut follower, &mut idle] {
        let last = stream.rest().await;
        assert_eq!(last.len(), 1, "{last:?}");
        assert_eq!(last[0].text, "retry: 250\n\n");
        assert!(stream.is_complete);
    }
    gateway.until_left().await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    println!("stopped after {took:?}");
    let mut again = behind(elsewhere, "s", &told.last().unwrap().id).await;
    call(&fleet, "s", "b").await;
    assert_eq!(again.take(1).await[0].event, "accepted");
    invariants::hold(&fleet, &witness).await;
    other.drain().await;
}

#[tokio::test]
async fn a_token_and_a_gateway_have_so_many_streams_and_no_more() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let flags = [
        "--streams-max",
        "3",
        "--streams-each-max",
        "2",
        "--auth",
        "tokens",
    ];
    let (mut gateway, web) = fleet.gateway(&flags).await;
    let one = token(&fleet, "one", "default", &[Scope::Read], "*").await;
    let two = token(&fleet, "two", "default", &[Scope::Read], "*").await;
    for token in [&one, &two] {
        known(web, token).await;
    }
    let first = EventSource::open(with(following(web, "a", ""), &one)).await;
    let _second = EventSource::open(with(following(web, "b", ""), &one)).await;
    let third = with(following(web, "c", ""), &one).send().await;
    assert_eq!(
        (third.status, third.code()),
        (429, "rate_limited".to_owned())
    );
    assert_eq!(third.header("Retry-After"), "1");
    let _of_two = EventSource::open(with(following(web, "a", ""), &two)).await;
    let fourth = with(following(web, "c", ""), &two).send().await;
    assert_eq!(
        (fourth.status, fourth.code()),
        (503, "overloaded".to_owned())
    );
    drop(first);
    until_so("the place to be free", async || {
        let again = EventSource::open(with(following(web, "c", ""), &one)).await;
        again.head.status == 200
    })
    .await;
    gateway.drain().await;
}

#[tokio::test]
async fn what_is_asked_wrongly_is_refused_before_a_stream_begins() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let reader = token(&fleet, "reader", "default", &[Scope::Read], "*").await;
    let caller = token(&fleet, "caller", "default", &[Scope::Call], "*").await;
    let some = token(&fleet, "some", "default", &[Scope::Read], "lo*").await;
    for token in [&reader, &caller, &some] {
        known(web, token).await;
    }
    let long = "s".repeat(65);
    for (path, status, code) in [
        (
            "/v1/sessions/s/events?style=pretty",
            400,
            "invalid_arguments",
        ),
        (
            "/v1/sessions/s/events?from=yesterday",
            400,
            "invalid_arguments",
        ),
        ("/v1/sessions/s/events?form=start", 400, "invalid_arguments"),
        (
            "/v1/sessions/s/events?from=now&from=now",
            400,
            "invalid_arguments",
        ),
        ("/v1/sessions/a.b/events", 400, "invalid_id"),
        ("/v1/sessions/*/events", 400, "invalid_id"),
        ("/v1/sessions/%3E/events", 400, "invalid_id"),
        ("/v1/sessions/s%2Fx/events", 400, "invalid_id"),
        ("/v1/sessions/s%00/events", 400, "invalid_id"),
        ("/v1/sessions/s%ff/events", 400, "invalid_id"),
        (&format!("/v1/sessions/{long}/events"), 400, "invalid_id"),
        ("/v1/sessions//events", 400, "invalid_id"),
        ("/v1/sessions/s", 404, "not_found"),
    ] {
        let answer = with(web.get(path), &reader).send().await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (status, code),
            "{path}"
        );
    }
    for id in [
        "x",
        "",
        "1",
        "1-",
        "-1",
        "1-1.0",
        "01-1",
        "1-1,1-2",
        "1-18446744073709551616",
    ] {
        let request = with(following(web, "s", ""), &reader).header("Last-Event-ID", id);
        let answer = request.send().await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (400, "header_invalid"),
            "{id:?}"
        );
    }
    let posted = with(web.post("/v1/sessions/s/events", "{}"), &reader)
        .send()
        .await;
    assert_eq!(posted.status, 405);
    for (request, status, code) in [
        (following(web, "s", ""), 401, "unauthenticated"),
        (with(following(web, "s", ""), &caller), 403, "forbidden"),
        (with(following(web, "s", ""), &some), 403, "forbidden"),
        (
            with(following(web, "s", ""), &reader).header("Toolfleet-Tenant", "acme"),
            403,
            "forbidden",
        ),
        (
            with(following(web, "s", ""), &reader).header("Host", "evil.example"),
            403,
            "forbidden",
        ),
    ] {
        let answer = request.send().await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (status, code),
            "{answer:?}"
        );
    }
    gateway.drain().await;
}
