//! An executor over kept connections to a server that is not there, comes, goes, and dies over a call.

use std::{path::Path, process::Stdio};

use example_tcp::Tcp;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::until_so,
    witness::Witness,
};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
    process::{Child, Command},
};
use worker::Worker;

/// The manifest of the example, which an operator applies.
const PRINT_LABEL: &str = include_str!("../../../examples/tcp/print_label.yaml");

/// The server of the example; it ends when it is dropped.
async fn printer(port: u16) -> Child {
    let server = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/tcp/server.py");
    let mut command = Command::new("python3");
    command.arg(server).env("PORT", port.to_string());
    let mut child = command
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut says = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(says.next_line().await.unwrap().unwrap().contains("port"));
    child
}

#[tokio::test]
async fn a_once_call_over_a_kept_connection_is_tried_again_only_before_it_was_sent() {
    let witness = Witness::start().await;
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let spec = Spec::with([PRINT_LABEL.to_owned()]).workers(0, &[]);
    let mut fleet = Fleet::start(spec).await;
    let builder = Worker::builder().executor("tcp", Tcp::new(&address.to_string()));
    fleet.add_worker_with(builder, &["--queues", "tcp"]).await;
    let submit = |key: &str, text: &str| {
        let call = fleet.submit("print_label", &json!({"text": text}));
        call.key(key).asynchronous()
    };

    // The printer is off: what was not sent is tried again, and printed when it is on.
    let early = submit("early", "Oslo").await.call_id();
    until_so("an attempt to find no printer", async || {
        fleet.call(early).await["attempts"] == 1
    })
    .await;
    let mut first = printer(address.port()).await;
    let row = fleet.until_state(early, "succeeded").await;
    assert_eq!(row["result"], json!({"label": 1}));
    let second = submit("second", "Oslo").await.call_id();
    let row = fleet.until_state(second, "succeeded").await;
    assert_eq!(row["result"], json!({"label": 2}));
    assert_eq!(row["attempts"], 1);
    let refused = submit("refused", "Tromsø").await.call_id();
    let row = fleet.until_state(refused, "failed").await;
    assert_eq!(row["error"]["code"], "tool_error", "{row}");
    assert_eq!(row["error"]["details"]["code"], "no_such_character");

    // The printer was switched off and on: the connection that was kept is dead, and the call does not suffer from it.
    first.kill().await.unwrap();
    let mut other = printer(address.port()).await;
    let third = submit("third", "Oslo").await.call_id();
    let row = fleet.until_state(third, "succeeded").await;
    assert_eq!(row["result"], json!({"label": 1}));
    other.kill().await.unwrap();

    // A printer that dies over a line may have printed it.
    let dies = TcpListener::bind(address).await.unwrap();
    let doubted = submit("doubted", "doubted").await.call_id();
    let (stream, _) = dies.accept().await.unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).await.unwrap();
    assert!(line.contains("doubted"));
    let row = fleet.until_state(doubted, "in_doubt").await;
    assert_eq!(row["attempts"], 1);
    invariants::hold(&fleet, &witness).await;
}
