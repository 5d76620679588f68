//! Dispatchers, NATS and gateways that are gone: what callers are told, and what they may do then.

use std::time::{Duration, Instant};

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use futures_util::StreamExt;
use tokio::time::timeout;

use crate::calls::{call, head};

#[tokio::test]
async fn without_a_dispatcher_nothing_is_taken_and_that_is_said_at_once() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("look", "read")]);
    let mut fleet = Fleet::start(spec.dispatchers(0).workers(0, &[])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let began = Instant::now();
    let refused = call(web, "look", "a", &[]).await;
    assert!(began.elapsed() < Duration::from_secs(2));
    assert_eq!(
        head(&refused),
        (503, ["gateway", "", ""]),
        "{}",
        refused.text()
    );
    assert_eq!(refused.code(), "unavailable");
    assert_eq!(refused.header("Retry-After"), "1");
    assert_eq!(refused.json()["error"]["suggestion"], "retry_later");
    for path in ["/v1/tools", "/v1/calls?tool=look&idempotency_key=k"] {
        assert_eq!(web.get(path).send().await.status, 503, "{path}");
    }
    fleet.add_dispatcher().await;
    fleet.add_worker(&[]).await;
    assert_eq!(call(web, "look", "a", &[]).await.status, 200);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn without_nats_callers_are_told_within_seconds_and_with_it_they_are_served_again() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let key = ("Idempotency-Key", "k");
    assert_eq!(call(web, "charge", "a", &[key]).await.status, 200);
    fleet.stop_nats().await;
    // The client notices within moments.
    until_so("the gateway to notice", async || {
        let (status, _) = gateway.get("/readyz").await.unwrap();
        status == 503
    })
    .await;
    let began = Instant::now();
    let refused = call(web, "charge", "a", &[key]).await;
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(
        (refused.status, refused.code()),
        (503, "unavailable".to_owned())
    );
    fleet.start_nats().await;
    until_so("the gateway to serve again", async || {
        call(web, "charge", "a", &[key]).await.status == 200
    })
    .await;
    assert_eq!(witness.asked("a"), 1);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn a_dispatcher_that_says_nothing_leaves_it_open_whether_the_call_was_taken() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("look", "read")]);
    let fleet = Fleet::start(spec.dispatchers(0).workers(0, &[])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let mut silent = fleet.client.subscribe("toolfleet.v1.*.>").await.unwrap();
    // It listens once it hears itself.
    let heard = fleet.client.publish("toolfleet.v1.x.y", "".into()).await;
    heard.unwrap();
    silent.next().await.unwrap();
    let asynchronous = ("Prefer", "respond-async");
    let (keyed, keyless) = tokio::join!(
        call(web, "look", "a", &[asynchronous, ("Idempotency-Key", "k")]),
        call(web, "look", "a", &[asynchronous]),
    );
    for (answer, suggestion) in [(&keyed, "retry_later"), (&keyless, "check_state")] {
        assert_eq!(
            head(answer),
            (504, ["gateway", "", ""]),
            "{}",
            answer.text()
        );
        let said = answer.json();
        assert_eq!(said["error"]["code"], "no_answer");
        assert_eq!(said["error"]["suggestion"], suggestion);
        assert_eq!(said["effect"], "unknown");
    }
    silent.unsubscribe().await.unwrap();
    gateway.drain().await;
}

#[tokio::test]
async fn a_gateway_that_is_killed_takes_no_call_with_it() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let (first, web) = fleet.gateway(&[]).await;
    let (mut second, other) = fleet.gateway(&[]).await;
    witness.always("a", Reply::DoneWhenReleased);
    let key = ("Idempotency-Key", "a");
    let body = r#"{"what":"a"}"#;
    let request = web.post("/v1/call/charge", body).header(key.0, key.1);
    let waiting = async { request.try_send().await };
    let kill = async {
        witness.until_asked("a", 1).await;
        first.kill().await;
        witness.release("a");
    };
    let (answer, ()) = tokio::join!(waiting, kill);
    assert!(answer.is_none(), "the connection ends with the gateway");
    // The same request, to any other.
    let again = timeout(Duration::from_secs(20), call(other, "charge", "a", &[key]));
    let again = again.await.unwrap();
    assert_eq!(head(&again), (200, ["call", "succeeded", "success"]));
    assert_eq!(witness.applied("a"), 1);
    invariants::hold(&fleet, &witness).await;
    second.drain().await;
}
