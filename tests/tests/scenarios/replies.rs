//! Answers go to callers, and to them over a cut: with the configuration and the settings that are shipped.

use fleet_tests::{
    fleet::{Fleet, Spec, counter},
    invariants,
    proxy::Proxy,
    raw::{RawClient, without_headers},
    shipped::User,
    wait::until_so,
    witness::{Reply, Witness},
};
use futures_util::future::join_all;
use serde_json::json;

const REFUSED: &str = "toolfleet_refused_replies_total";
const CALL: &[u8] = b"toolfleet.v1.default.call.look";

/// Where no caller of the tenant `default` may be answered, whatever the setting.
const NOBODYS: [&str; 13] = [
    "tools.charge",
    "toolfleet.jobs.default.0193.1",
    "toolfleet.done.a.b",
    "toolfleet.control.changed",
    "toolfleet.v1.default.call.look",
    "$JS.API.STREAM.DELETE.TOOLFLEET_JOBS",
    "$SYS.REQ.SERVER.PING",
    "$SRV.PING",
    "_INBOX.default.*",
    "_INBOX.default.>",
    "_INBOX.>",
    "_INBOX.default.a\u{a0}b",
    "_INBOX",
];
/// Where none may be answered as shipped.
const OTHERS: [&str; 4] = [
    "_INBOX.acme.x",
    "_INBOX.x.1",
    "_INBOX_agent.x",
    "_INBOX.defaults.x",
];

/// Asks for a call with each of these replies, and hears on `listening` that nothing is published there.
async fn none_is_answered(
    fleet: &Fleet,
    asking: &mut RawClient,
    listening: &mut [RawClient],
    replies: &[&str],
) {
    let before = counter(REFUSED);
    for reply in replies {
        let body = json!({"what": "deputy"}).to_string();
        let bytes = without_headers(CALL, reply.as_bytes(), body.as_bytes());
        asking.send(&bytes).await;
    }
    asking.round_trip().await;
    // The dispatcher takes them in order: when this one is answered, the others were dropped.
    let answer = fleet.submit("look", &json!({"what": "a"})).wait().await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    assert_eq!(counter(REFUSED) - before, replies.len() as f64);
    for client in listening {
        client.heard_nothing().await;
    }
}

#[tokio::test]
async fn the_deputy_is_not_to_be_had_as_shipped() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")]).shipped()).await;
    let port = fleet.nats_port();
    let mut agent = RawClient::connect(port, &User::Agent.login()).await;
    let mut service = RawClient::connect(port, &User::Charge.login()).await;
    service.subscribe("tools.charge").await;
    // The other inboxes are no user's of this account.
    let mut acme = RawClient::connect(port, &User::Acme.login()).await;
    acme.subscribe("_INBOX.acme.>").await;
    let replies = [NOBODYS.as_slice(), OTHERS.as_slice()].concat();
    none_is_answered(&fleet, &mut agent, &mut [service, acme], &replies).await;
    assert_eq!(fleet.count("SELECT count(*) FROM toolfleet.calls").await, 1);
    assert_eq!(witness.asked("deputy"), 0);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn the_deputy_is_not_to_be_had_without_users() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let port = fleet.nats_port();
    let mut asking = RawClient::connect(port, "").await;
    let mut listening = RawClient::connect(port, "").await;
    listening.subscribe("tools.>").await;
    none_is_answered(&fleet, &mut asking, &mut [listening], &NOBODYS).await;
    assert_eq!(fleet.count("SELECT count(*) FROM toolfleet.calls").await, 1);
    // A stock client's inbox.
    asking.subscribe("_INBOX.a1B2.*").await;
    let body = json!({"what": "b"}).to_string();
    let bytes = without_headers(CALL, b"_INBOX.a1B2.7", body.as_bytes());
    asking.send(&bytes).await;
    let answer = asking.next().await;
    assert_eq!(answer.subject, "_INBOX.a1B2.7");
    invariants::hold(&fleet, &witness).await;
}

const WAITERS: usize = 10;

/// The rights that a request gives for its answer go with the connection: the inboxes have to be within the lasting ones.
#[tokio::test]
async fn every_waiter_is_answered_over_a_cut() {
    let witness = Witness::start().await;
    let spec = Spec::with([witness.tool("look", "read")]).shipped();
    let mut fleet = Fleet::start(spec.dispatchers(0).workers(0, &[])).await;
    let wire = Proxy::to(fleet.nats_port()).await;
    let url = fleet.nats_url_at(wire.port());
    fleet.add_dispatcher_with(&["--nats-url", &url]).await;
    fleet.add_worker(&[]).await;
    witness.always("a", Reply::DoneWhenReleased);
    let waiting = (0..WAITERS).map(|_| fleet.submit("look", &json!({"what": "a"})).wait());
    let waiting = join_all(waiting);
    let (answers, ()) = tokio::join!(waiting, async {
        witness.until_asked("a", WAITERS).await;
        wire.cut();
        until_so("the dispatcher to be heard again", async || {
            wire.connections() == 2
                && !fleet
                    .ask_dispatchers("$SRV.PING.toolfleet")
                    .await
                    .is_empty()
        })
        .await;
        witness.release("a");
    });
    for answer in &answers {
        assert_eq!(answer["result"], json!({"done": "a"}), "{}", **answer);
    }
    assert_eq!((answers.len(), wire.connections()), (WAITERS, 2));
    invariants::hold(&fleet, &witness).await;
}
