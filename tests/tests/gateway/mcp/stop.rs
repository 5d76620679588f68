//! A client that goes away has its call cancelled, and may ask again; a gateway that goes away cancels nothing.

use std::time::{Duration, Instant};

use fleet::ids::CallId;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::json;

use super::{modern, result, said, texts};

fn call_of(witness: &Witness, what: &str) -> CallId {
    witness.look(|seen| {
        let asked = seen.requests.iter().find(|request| request.what == what);
        asked.unwrap().header("toolfleet-call-id").parse().unwrap()
    })
}

#[tokio::test]
async fn a_client_that_hangs_up_cancels_its_call_and_nobody_elses() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("look", "read") + "timeout: 60s\n",
        witness.tool("charge", "once") + "timeout: 60s\n",
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    for (what, wait) in [("early", Duration::ZERO), ("late", Duration::from_secs(3))] {
        witness.always(what, Reply::DoneWhenReleased);
        let arguments = json!({ "what": what }).to_string();
        let connection = modern(web).calling("look", &arguments, "").open().await;
        witness.until_asked(what, 1).await;
        tokio::time::sleep(wait).await;
        drop(connection);
        fleet
            .until_state(call_of(&witness, what), "cancelled")
            .await;
    }
    // One that only looks at a call cancels nothing.
    witness.always("kept", Reply::DoneWhenReleased);
    let made = web
        .post("/v1/call/look", r#"{"what":"kept"}"#)
        .header("Prefer", "respond-async");
    let made: CallId = made
        .send()
        .await
        .header("Toolfleet-Call-Id")
        .parse()
        .unwrap();
    witness.until_asked("kept", 1).await;
    let arguments = json!({ "call_id": made }).to_string();
    let looking = modern(web)
        .calling("toolfleet_get", &arguments, "")
        .open()
        .await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(looking);
    tokio::time::sleep(Duration::from_secs(1)).await;
    witness.release("kept");
    fleet.until_state(made, "succeeded").await;

    // A write that runs may have happened: asked for again, it says so and is not made again.
    witness.always("write", Reply::DoneThenHang);
    let connection = modern(web)
        .calling("charge", r#"{"what":"write"}"#, "")
        .open()
        .await;
    witness.until_asked("write", 1).await;
    drop(connection);
    let call = call_of(&witness, "write");
    until_so("the call to be decided", async || {
        let state = fleet.call(call).await["state"].clone();
        state == "in_doubt" || state == "cancelled" || state == "failed"
    })
    .await;
    let again = modern(web).call("charge", "write").await;
    assert_eq!(said(&again)["id"], json!(call), "{again}");
    assert_eq!(again["isError"], true, "{again}");
    assert!(texts(&again)[0].contains("do not repeat it"), "{again}");
    assert_eq!(witness.asked("write"), 1);
    gateway.drain().await;
}

#[tokio::test]
async fn a_call_that_was_cancelled_by_hanging_up_before_it_ran_runs_when_it_is_asked_for_again() {
    let witness = Witness::start().await;
    let tools = [witness.tool("charge", "once")];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let control = async |wish: serde_json::Value| {
        let answer = web.post("/v1/control", wish.to_string()).send().await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    };
    let paused =
        control(json!({"do": "pause", "tool": "charge", "actor": "ada", "note": "n"})).await;
    let connection = modern(web)
        .calling("charge", r#"{"what":"a"}"#, "")
        .open()
        .await;
    let rows = "SELECT call_id, state FROM toolfleet.calls WHERE tool = 'charge' AND call_id <> $1";
    let nobody = CallId::generate();
    until_so("the call to be queued", async || {
        fleet.rows(rows, nobody).await.len() == 1
    })
    .await;
    drop(connection);
    until_so("the call to be cancelled", async || {
        fleet.rows(rows, nobody).await[0]["state"] == "cancelled"
    })
    .await;
    let resume = json!({"do": "resume", "control_id": paused["control"]["control_id"], "actor": "ada", "note": "n"});
    control(resume).await;
    let done = modern(web).call("charge", "a").await;
    assert_eq!(said(&done)["state"], "succeeded", "{done}");
    assert_eq!(said(&done)["replayed"], false);
    assert_eq!(witness.applied("a"), 1);
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn a_gateway_that_stops_says_where_the_call_stands_and_cancels_nothing() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("look", "read") + "timeout: 60s\n",
        witness.tool("charge", "once") + "timeout: 60s\n",
    ];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let (mut other, elsewhere) = fleet.gateway(&[]).await;
    for what in ["read", "write"] {
        witness.always(what, Reply::DoneWhenReleased);
    }
    let stop = async {
        for what in ["read", "write"] {
            witness.until_asked(what, 1).await;
        }
        // Behind the first question.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let began = Instant::now();
        gateway.ask_to_stop();
        gateway.until_left().await;
        began.elapsed()
    };
    let (read, write, took) = tokio::join!(
        modern(web).calling("look", r#"{"what":"read"}"#, "").send(),
        modern(web)
            .calling("charge", r#"{"what":"write"}"#, "")
            .send(),
        stop,
    );
    assert!(took < Duration::from_secs(5), "{took:?}");
    for (what, answer) in [("read", read), ("write", write)] {
        let told = result(&answer);
        assert!(texts(&told)[0].contains("Still at work"), "{told}");
        let id = said(&told)["id"].as_str().unwrap().to_owned();
        witness.release(what);
        let arguments = json!({ "call_id": id }).to_string();
        let ended = modern(elsewhere)
            .calling("toolfleet_get", &arguments, "")
            .send()
            .await;
        assert_eq!(
            said(&result(&ended))["state"],
            "succeeded",
            "{}",
            ended.text()
        );
    }
    // Sent again elsewhere it is the same call.
    let again = modern(elsewhere).call("charge", "write").await;
    assert_eq!(said(&again)["replayed"], true);
    assert_eq!((witness.asked("read"), witness.asked("write")), (1, 1));
    invariants::hold(&fleet, &witness).await;
    other.drain().await;
}
