//! A gateway that stops, and callers that go away: calls stay, unless their caller wants it otherwise.

use std::time::{Duration, Instant};

use fleet::ids::CallId;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    web::Web,
    witness::{Reply, Witness},
};
use futures_util::StreamExt;
use tokio::{io::AsyncReadExt, net::TcpStream};

use crate::calls::{call, head};

/// The call that the witness was asked about.
fn call_of(witness: &Witness, what: &str) -> CallId {
    witness.look(|seen| {
        let asked = seen.requests.iter().find(|request| request.what == what);
        asked.unwrap().header("toolfleet-call-id").parse().unwrap()
    })
}

#[tokio::test]
async fn requests_that_wait_are_told_where_their_calls_stand_and_no_call_is_cancelled() {
    let witness = Witness::start().await;
    let tools = [witness.tool("look", "read"), witness.tool("charge", "once")];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let (mut other, elsewhere) = fleet.gateway(&[]).await;
    for what in ["keyed", "keyless", "leaving"] {
        witness.always(what, Reply::DoneWhenReleased);
    }
    // A look at a call is the second question of a request that waits.
    let mut looks = fleet
        .client
        .subscribe("toolfleet.v1.default.get")
        .await
        .unwrap();
    fleet.client.flush().await.unwrap();
    let key = ("Idempotency-Key", "keyed");
    let leaving = ("Toolfleet-On-Disconnect", "cancel");
    let stop = async {
        for what in ["keyed", "keyless", "leaving"] {
            witness.until_asked(what, 1).await;
        }
        for _ in 0..3 {
            looks.next().await.unwrap();
        }
        // One that has asked its first question only.
        let began = Instant::now();
        gateway.ask_to_stop();
        gateway.until_left().await;
        began.elapsed()
    };
    let (keyed, keyless, last, took) = tokio::join!(
        call(web, "charge", "keyed", &[key]),
        call(web, "look", "keyless", &[]),
        call(web, "look", "leaving", &[leaving]),
        stop,
    );
    assert!(took < Duration::from_secs(5), "{took:?}");
    for (what, answer) in [("keyed", keyed), ("keyless", keyless), ("leaving", last)] {
        assert_eq!(
            head(&answer),
            (202, ["call", "running", ""]),
            "{}",
            answer.text()
        );
        let id = answer.json()["call_id"].as_str().unwrap().to_owned();
        assert_eq!(id, call_of(&witness, what).to_string());
        assert_eq!(answer.header("Location"), format!("/v1/calls/{id}"));
        witness.release(what);
        let path = format!("/v1/calls/{id}?wait_ms=20000");
        let ended = elsewhere.get(&path).send().await;
        assert_eq!(head(&ended), (200, ["call", "succeeded", "success"]));
    }
    assert!(web.get("/v1/tools").try_send().await.is_none());
    invariants::hold(&fleet, &witness).await;
    other.drain().await;
}

#[tokio::test]
async fn a_request_that_has_just_begun_is_told_where_its_call_stands_too() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    witness.always("a", Reply::DoneWhenReleased);
    let stop = async {
        witness.until_asked("a", 1).await;
        let began = Instant::now();
        gateway.drain().await;
        began.elapsed()
    };
    let (answer, took) = tokio::join!(call(web, "look", "a", &[]), stop);
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(
        head(&answer),
        (202, ["call", "running", ""]),
        "{}",
        answer.text()
    );
    witness.release("a");
    let call: CallId = answer.header("Toolfleet-Call-Id").parse().unwrap();
    fleet.until_state(call, "succeeded").await;
    invariants::hold(&fleet, &witness).await;
}

/// A request whose caller will go away.
async fn leaving(web: Web, what: &str, on_disconnect: Option<&str>) -> TcpStream {
    let request = web.post("/v1/call/look", format!("{{\"what\":\"{what}\"}}"));
    let request = request.header("Prefer", "wait=60");
    match on_disconnect {
        Some(value) => {
            request
                .header("Toolfleet-On-Disconnect", value)
                .open()
                .await
        }
        None => request.open().await,
    }
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_its_call_alone_unless_it_said_otherwise() {
    let witness = Witness::start().await;
    let tool = witness.tool("look", "read") + "timeout: 60s\n";
    let fleet = Fleet::start(Spec::with([tool])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let mut looks = fleet
        .client
        .subscribe("toolfleet.v1.default.get")
        .await
        .unwrap();
    fleet.client.flush().await.unwrap();
    for (what, on_disconnect, looked) in [
        ("kept", None, true),
        ("kept-too", Some("keep"), false),
        ("gone-early", Some("cancel"), false),
        ("gone-late", Some("cancel"), true),
    ] {
        witness.always(what, Reply::DoneWhenReleased);
        let connection = leaving(web, what, on_disconnect).await;
        witness.until_asked(what, 1).await;
        if looked {
            looks.next().await.unwrap();
        }
        drop(connection);
        let call = call_of(&witness, what);
        if on_disconnect == Some("cancel") {
            let row = fleet.until_state(call, "cancelled").await;
            assert_eq!(row["state"], "cancelled", "{row}");
            let events = fleet.events(call).await;
            let asked = events
                .iter()
                .find(|event| event["details"]["reason"] == "its caller went away");
            assert!(asked.is_some(), "{events:?}");
        } else {
            witness.release(what);
            fleet.until_state(call, "succeeded").await;
        }
    }
    // Who stays gets the result, whatever it said.
    let stayed = call(
        web,
        "look",
        "stayed",
        &[("Toolfleet-On-Disconnect", "cancel")],
    )
    .await;
    assert_eq!(head(&stayed), (200, ["call", "succeeded", "success"]));
    invariants::hold(&fleet, &witness).await;
    gateway.drain().await;
}

#[tokio::test]
async fn a_connection_serves_one_request_after_the_other_until_the_gateway_stops() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let request = format!(
        "GET /v1/tools/look HTTP/1.1\r\nHost: {}\r\n\r\n",
        web.address
    );
    let mut connection = web.open(request.repeat(3).as_bytes()).await;
    let mut told = Vec::new();
    let mut piece = [0; 4096];
    while String::from_utf8_lossy(&told)
        .matches("HTTP/1.1 200")
        .count()
        < 3
    {
        let read = connection.read(&mut piece).await.unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&told));
        told.extend_from_slice(&piece[..read]);
    }
    let began = Instant::now();
    gateway.drain().await;
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "nothing is waited for"
    );
    connection.read_to_end(&mut told).await.unwrap();
}
