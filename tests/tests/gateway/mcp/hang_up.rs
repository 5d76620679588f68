//! Older revisions: a broken connection cancels nothing, and a notification in the session of a request does.

use async_nats::Subscriber;
use fleet::{ids::CallId, tokens::Scope};
use fleet_tests::{
    event_source::EventSource,
    fleet::{Fleet, Spec, counter},
    invariants,
    wait::{LONG, until_so},
    web::WebRequest,
    witness::{Reply, Witness},
};
use futures_util::StreamExt;
use serde_json::json;
use tokio::time::timeout;

use super::{
    error, legacy, modern, result, said,
    sessions::{ELICITS, beginning, begun, calling, cancelling},
    texts,
};
use crate::tokens::{known, token, with};

fn call_of(witness: &Witness, what: &str) -> CallId {
    witness.look(|seen| {
        let asked = seen.requests.iter().find(|request| request.what == what);
        asked.unwrap().header("toolfleet-call-id").parse().unwrap()
    })
}

/// Counts submissions that were answered with the call that their key names, when they are known to be that.
const REPLAYED: &str = r#"toolfleet_replayed_calls_total{key="caller",tool="charge"}"#;

/// The looks at calls from now on.
async fn looks(fleet: &Fleet) -> Subscriber {
    let looks = fleet.client.subscribe("toolfleet.v1.default.get").await;
    fleet.client.flush().await.unwrap();
    looks.unwrap()
}

/// Waits until a gateway looks at this call by its id, which it does when its first question about it was answered.
async fn until_looked_at(looks: &mut Subscriber, call: CallId) {
    let named = format!("\"call_id\":\"{call}\"");
    let heard = async {
        while !String::from_utf8_lossy(&looks.next().await.unwrap().payload).contains(&named) {}
    };
    timeout(LONG, heard).await.expect("a look at the call");
}

/// Makes a call with a request of the newest revision, loses its connection, and waits until the call is cancelled by that.
///
/// What the loss of an earlier connection does to its call has been done by then: a call is cancelled when it is known by its id,
/// which is at the same time after each submission.
async fn until_a_loss_has_cancelled(
    fleet: &Fleet,
    witness: &Witness,
    request: WebRequest,
    what: &str,
) {
    witness.always(what, Reply::DoneWhenReleased);
    let connection = request.open().await;
    witness.until_asked(what, 1).await;
    drop(connection);
    fleet.until_state(call_of(witness, what), "cancelled").await;
}

#[tokio::test]
async fn a_lost_connection_leaves_the_call_going_and_the_same_request_is_about_it() {
    let witness = Witness::start().await;
    let tools = [("charge", "once"), ("look", "read")];
    let tools = tools.map(|(name, effect)| witness.tool(name, effect) + "timeout: 60s\n");
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let mut looks = looks(&fleet).await;
    let session = begun(web, ELICITS).await;
    // Before and behind the first question, with a session and without, and with a stream.
    for (what, is_looked_at, in_session, meta) in [
        ("early", false, false, ""),
        ("late", true, false, ""),
        ("in_session", true, true, ""),
        ("stream", true, true, r#""progressToken":"t""#),
    ] {
        witness.always(what, Reply::DoneWhenReleased);
        let arguments = json!({ "what": what }).to_string();
        let request = legacy(web).calling("charge", &arguments, meta);
        let request = match in_session {
            true => request.header("Mcp-Session-Id", &session),
            false => request,
        };
        let connection = request.open().await;
        witness.until_asked(what, 1).await;
        let call = call_of(&witness, what);
        if is_looked_at {
            until_looked_at(&mut looks, call).await;
        }
        drop(connection);
        let newer = format!("newer-{what}");
        let request = modern(web).calling("look", &json!({ "what": newer }).to_string(), "");
        until_a_loss_has_cancelled(&fleet, &witness, request, &newer).await;
        assert_eq!(fleet.call(call).await["state"], "running", "{what}");
        // Attached while it runs, and told its answer once that is there.
        let before = counter(REPLAYED);
        let (attached, ()) = tokio::join!(legacy(web).call("charge", what), async {
            until_so("the request to be attached", async || {
                counter(REPLAYED) > before
            })
            .await;
            witness.release(what);
        });
        let replayed = legacy(web).call("charge", what).await;
        for told in [attached, replayed] {
            assert_eq!(said(&told)["id"], json!(call), "{told}");
            assert_eq!(
                (&said(&told)["state"], &said(&told)["replayed"]),
                (&json!("succeeded"), &json!(true)),
                "{told}"
            );
            let last = texts(&told).pop().unwrap();
            assert!(last.contains("nothing was run again"), "{told}");
        }
        assert_eq!(witness.asked(what), 1);
    }
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn a_call_is_cancelled_by_the_notification_of_its_session_and_of_no_other() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read") + "timeout: 60s\n"];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let mut looks = looks(&fleet).await;
    let ann = token(&fleet, "ann", "default", &[Scope::Call], "*").await;
    let bob = token(&fleet, "bob", "default", &[Scope::Call], "*").await;
    for held in [&ann, &bob] {
        known(web, held).await;
    }
    let begin = async |held| {
        let answer = with(beginning(web, ELICITS), held).send().await;
        answer.header("Mcp-Session-Id").to_owned()
    };
    let (session, other, bobs) = (begin(&ann).await, begin(&ann).await, begin(&bob).await);
    let cancel = async |session: &str, held, id: serde_json::Value| {
        with(cancelling(web, session, &id), held).send().await
    };

    // What waits for its answer: nobody else's session cancels it, and no other id.
    witness.always("waits", Reply::DoneWhenReleased);
    let waiting = with(calling(web, &session, "look", "waits"), &ann);
    let (answer, ()) = tokio::join!(waiting.send(), async {
        witness.until_asked("waits", 1).await;
        for (session, held, id) in [
            (&other, &ann, json!(1)),
            (&bobs, &bob, json!(1)),
            (&session, &ann, json!("1")),
            (&session, &ann, json!(2)),
            (&session, &ann, json!(null)),
        ] {
            assert_eq!(cancel(session, held, id).await.status, 202);
        }
        let foreign = cancel(&session, &bob, json!(1)).await;
        assert_eq!(error(&foreign), (404, -32_600));
        // Nor a notification outside of every session.
        let alone = web
            .post(
                "/mcp",
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
            )
            .header("Content-Type", "application/json");
        assert_eq!(with(alone, &ann).send().await.status, 202);
        // When a later cancellation of another call in this session is through, they would be.
        witness.always("also", Reply::DoneWhenReleased);
        let also = legacy(web).calling_as("9", "look", r#"{"what":"also"}"#, "");
        let also = with(also.header("Mcp-Session-Id", &session), &ann);
        let (answer, ()) = tokio::join!(also.send(), async {
            witness.until_asked("also", 1).await;
            assert_eq!(cancel(&session, &ann, json!(9)).await.status, 202);
        });
        assert_eq!(answer.status, 202);
        fleet
            .until_state(call_of(&witness, "also"), "cancelled")
            .await;
        let call = call_of(&witness, "waits");
        assert_eq!(fleet.call(call).await["state"], "running");
        assert_eq!(cancel(&session, &ann, json!(1)).await.status, 202);
    });
    // A request that is cancelled has no answer.
    assert_eq!((answer.status, answer.body.len()), (202, 0));
    let call = call_of(&witness, "waits");
    fleet.until_state(call, "cancelled").await;

    // One whose connection is lost can still be cancelled.
    witness.always("lost", Reply::DoneWhenReleased);
    let request = with(calling(web, &session, "look", "lost"), &ann);
    let connection = request.open().await;
    witness.until_asked("lost", 1).await;
    let call = call_of(&witness, "lost");
    until_looked_at(&mut looks, call).await;
    drop(connection);
    let newer = modern(web).calling("look", r#"{"what":"newer"}"#, "");
    until_a_loss_has_cancelled(&fleet, &witness, with(newer, &ann), "newer").await;
    assert_eq!(fleet.call(call).await["state"], "running");
    assert_eq!(cancel(&session, &ann, json!(1)).await.status, 202);
    fleet.until_state(call, "cancelled").await;
    let events = fleet.events(call).await;
    let why = |event: &serde_json::Value| event["details"]["reason"].clone();
    assert!(
        events
            .iter()
            .any(|event| why(event) == "its client cancelled the request"),
        "{events:?}"
    );

    // A stream of one ends without an answer.
    witness.always("stream", Reply::DoneWhenReleased);
    let request = legacy(web).calling("look", r#"{"what":"stream"}"#, r#""progressToken":"t""#);
    let request = with(request.header("Mcp-Session-Id", &session), &ann);
    let mut stream = EventSource::open(request).await;
    witness.until_asked("stream", 1).await;
    assert_eq!(cancel(&session, &ann, json!(1)).await.status, 202);
    let blocks = stream.rest().await;
    assert!(stream.is_complete, "{blocks:?}");
    assert!(
        blocks
            .iter()
            .all(|block| !block.data.contains("\"result\"")),
        "{blocks:?}"
    );
    fleet
        .until_state(call_of(&witness, "stream"), "cancelled")
        .await;

    // One that is answered cannot be cancelled any more.
    let done = with(calling(web, &session, "look", "done"), &ann)
        .send()
        .await;
    assert_eq!(said(&result(&done))["state"], "succeeded");
    assert_eq!(cancel(&session, &ann, json!(1)).await.status, 202);
    until_so("the call to stay what it is", async || {
        fleet.call(call_of(&witness, "done")).await["state"] == "succeeded"
    })
    .await;
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}
