//! Messages that are not what they seem. The row is the truth.

use bytes::Bytes;
use fleet::ids::CallId;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::Witness,
};
use serde_json::{Value, json};
use uuid::Uuid;

/// Puts a message into the stream, in the place of a call's first pointer.
async fn forge(fleet: &Fleet, call: CallId, body: impl Into<Bytes>) {
    let subject = format!("toolfleet.jobs.default.{call}.1");
    fleet.client.publish(subject, body.into()).await.unwrap();
    fleet.client.flush().await.unwrap();
}

fn pointer(call: CallId, tool: &str, version: i32, args: Option<Value>) -> String {
    let hash = "00".repeat(32);
    json!({"call_id": call, "tool": tool, "tool_version": version, "args_hash": hash, "args": args})
        .to_string()
}

#[tokio::test]
async fn messages_that_point_nowhere_are_thrown_away() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("charge", "once")])).await;
    let nobody = CallId::generate;
    forge(&fleet, nobody(), "not JSON").await;
    forge(&fleet, nobody(), "").await;
    forge(&fleet, nobody(), vec![b'x'; 100_000]).await;
    forge(
        &fleet,
        nobody(),
        json!({"call_id": "x", "tool": "charge"}).to_string(),
    )
    .await;
    for tool in ["charge", "unknown"] {
        let call = nobody();
        forge(
            &fleet,
            call,
            pointer(call, tool, 1, Some(json!({"what": "a"}))),
        )
        .await;
        let call = nobody();
        forge(&fleet, call, pointer(call, tool, 7, None)).await;
    }
    let answer = fleet
        .submit("charge", &json!({"what": "b"}))
        .key("k")
        .wait()
        .await;
    assert_eq!(answer["state"], "succeeded");
    // Holds only once all of it is gone.
    invariants::hold(&fleet, &witness).await;
    assert_eq!(witness.look(|seen| seen.requests.len()), 1);
}

/// Accepts a call and puts a forged pointer in the place of its own, before any worker can run it.
async fn with_forged(fleet: &Fleet, tool: &str, version: i32, args: Value) -> CallId {
    let call = fleet
        .submit("charge", &json!({"what": "a"}))
        .key("k")
        .asynchronous()
        .await
        .call_id();
    until_so("the pointer to be there", async || {
        fleet.pointers().await == Some(1)
    })
    .await;
    fleet.stream().await.unwrap().purge().await.unwrap();
    forge(fleet, call, pointer(call, tool, version, Some(args))).await;
    call
}

#[tokio::test]
async fn the_arguments_of_the_row_are_used_whatever_a_pointer_says() {
    let witness = Witness::start().await;
    let mut fleet =
        Fleet::start(Spec::with([witness.tool("charge", "once")]).workers(0, &[])).await;
    let call = with_forged(&fleet, "charge", 1, json!({"what": "forged"})).await;
    fleet.add_worker(&[]).await;
    fleet.until_state(call, "succeeded").await;
    assert_eq!((witness.asked("a"), witness.asked("forged")), (1, 0));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn the_tool_of_the_row_is_run_whatever_a_pointer_says() {
    for (tool, version) in [("refund", 1), ("charge", 2), ("charge", 7), ("unknown", 1)] {
        let (witness, other) = (Witness::start().await, Witness::start().await);
        let charge = witness.tool("charge", "once") + "retry: {strategy: none}\n";
        let second = other
            .tool("charge", "once")
            .replace("version: 1", "version: 2");
        let tools = [charge, other.tool("refund", "once")];
        let mut fleet = Fleet::start(Spec::with(tools).workers(0, &[])).await;
        let call = with_forged(&fleet, tool, version, json!({"what": "a"})).await;
        fleet.apply(&second).await;
        fleet.add_worker(&[]).await;
        let row = fleet.until_state(call, "succeeded").await;
        assert_eq!(row["tool_version"], 1, "{tool} {version}");
        assert_eq!(
            (witness.asked("a"), other.asked("a")),
            (1, 0),
            "{tool} {version}"
        );
        invariants::hold(&fleet, &witness).await;
    }
}

#[tokio::test]
async fn nonsense_about_decided_calls_reaches_no_caller() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    witness.always("a", fleet_tests::witness::Reply::DoneWhenReleased);
    let waiting = fleet.submit("look", &json!({"what": "a"})).wait();
    let (answer, ()) = tokio::join!(waiting, async {
        witness.until_asked("a", 1).await;
        let told = witness.look(|seen| seen.requests[0].header("toolfleet-call-id").to_owned());
        let sql = "SELECT dispatcher_id FROM toolfleet.open_calls WHERE call_id = $1";
        let row = fleet.rows(sql, told.parse().unwrap()).await;
        let dispatcher = row[0]["dispatcher_id"].as_str().unwrap();
        let other = CallId::generate().to_string();
        for (call, body) in [
            (told.as_str(), "not JSON".to_owned()),
            (&told, json!({"call_id": told}).to_string()),
            (
                &told,
                json!({"call_id": other, "state": "failed"}).to_string(),
            ),
            ("not-a-call", "{}".to_owned()),
            (&other, "{}".to_owned()),
        ] {
            let subject = format!("toolfleet.done.{dispatcher}.{call}");
            fleet.client.publish(subject, body.into()).await.unwrap();
        }
        fleet.client.flush().await.unwrap();
        witness.release("a");
    });
    assert_eq!(answer["result"], json!({"done": "a"}));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn nobody_is_answered_on_a_subject_of_ours_or_of_the_server() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let call = Uuid::now_v7();
    let body = Bytes::from(json!({"what": "a"}).to_string());
    for reply in [
        format!("toolfleet.jobs.default.{call}.1"),
        "$JS.API.STREAM.DELETE.TOOLFLEET_JOBS".to_owned(),
    ] {
        let asked =
            fleet
                .client
                .publish_with_reply("toolfleet.v1.default.call.look", reply, body.clone());
        asked.await.unwrap();
    }
    // Who expects no answer is not heard either.
    let silent = fleet.client.publish("toolfleet.v1.default.call.look", body);
    silent.await.unwrap();
    // The dispatcher takes them in order: when this one is answered, the others were dropped.
    let answer = fleet.submit("look", &json!({"what": "b"})).wait().await;
    assert_eq!(answer["state"], "succeeded");
    assert_eq!(fleet.count("SELECT count(*) FROM toolfleet.calls").await, 1);
    assert_eq!(witness.asked("a"), 0);
    invariants::hold(&fleet, &witness).await;
}
