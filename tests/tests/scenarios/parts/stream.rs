//! HTTP tools that answer with a stream of events.

use std::collections::HashMap;

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    witness::Witness,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use super::{followed, parts_of, reports};

/// A service that answers each path with the bytes of its name, and closes.
struct Service {
    url: String,
    _serving: JoinSet<()>,
}

impl Service {
    async fn start(answers: HashMap<&'static str, Vec<u8>>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}/{{what}}", listener.local_addr().unwrap());
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, answers.clone()));
            }
        });
        Self {
            url,
            _serving: serving,
        }
    }

    fn tool(&self, name: &str, more: &str) -> String {
        let url = &self.url;
        format!(
            "name: {name}\nversion: 1\ndescription: Answers with a stream.\neffect: once\n\
             input_schema: {{type: object, properties: {{what: {{type: string}}}}, required: [what]}}\n\
             executor: {{http: {{method: POST, url: \"{url}\", stream: true}}}}\n{more}"
        )
    }
}

async fn serve(mut stream: TcpStream, answers: HashMap<&'static str, Vec<u8>>) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).await.is_ok() {
        head.extend_from_slice(&byte);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    assert!(
        head.contains("accept: text/event-stream, application/json"),
        "{head}"
    );
    let path = head.split(' ').nth(1).unwrap_or_default();
    let answer = &answers[path.trim_start_matches('/')];
    // The client may have read enough.
    stream.write_all(answer).await.unwrap_or(());
    stream.shutdown().await.unwrap_or(());
}

/// A success of this type, with a body that ends with the connection.
fn success(kind: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n{body}")
        .into_bytes()
}

fn events(body: &str) -> Vec<u8> {
    success("text/event-stream; charset=utf-8", body)
}

const GOOD: &str = "\
: hello

event: output
data: {\"text\":\"once \"}

event: output
data: {\"text\":\"upon\"}

event: output
data: {\"progress\":{\"fraction\":0.5}}

event: output
data: nonsense

event: output
data: {\"value\":1}

event: result
data: {\"n\":9007199254740993,
data:  \"p\":1.10}

event: output
data: {\"text\":\"late\"}

";

#[tokio::test]
async fn a_stream_has_parts_and_the_answer() {
    let witness = Witness::start().await;
    let plain = success("application/json", "{\"event\": \"result\"}");
    let no =
        b"HTTP/1.1 409 No\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".to_vec();
    let answers = HashMap::from([("good", events(GOOD)), ("plain", plain), ("no", no)]);
    let service = Service::start(answers).await;
    let fleet = Fleet::start(Spec::with([service.tool("streams", "")])).await;
    let (answer, told) = followed(&fleet, "streams", &json!({"what": "good"})).await;
    assert_eq!(answer["state"], "succeeded", "{}", *answer);
    assert_eq!(
        answer["result"],
        serde_json::from_str::<Value>(r#"{"n":9007199254740993,"p":1.10}"#).unwrap()
    );
    assert_eq!(
        parts_of(&told, 1),
        [json!({"text": "once upon"}), json!({"value": 1})]
    );
    assert_eq!(reports(&told), [json!([0.5, null])]);
    // Nobody hears the parts; the answer is the same.
    let silent = fleet
        .submit("streams", &json!({"what": "good"}))
        .key("silent")
        .wait()
        .await;
    assert_eq!(silent["result"], answer["result"], "{}", *silent);
    let (plain, told) = followed(&fleet, "streams", &json!({"what": "plain"})).await;
    assert_eq!(plain["result"], json!({"event": "result"}), "{}", *plain);
    assert_eq!(parts_of(&told, 1), [] as [Value; 0]);
    let (no, _told) = followed(&fleet, "streams", &json!({"what": "no"})).await;
    assert_eq!(no.code(), "tool_error", "{}", *no);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_stream_without_its_result_says_nothing_of_the_effect() {
    let witness = Witness::start().await;
    let part = "event: output\ndata: {\"text\":\"a\"}\n\n";
    let without = format!("{part}event: result\ndata: {{}}\n");
    let cut = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{part}\r\n7",
        part.len()
    );
    let endless = format!("event: output\ndata: {}\n\n", "x".repeat(1_000_000)).repeat(20);
    let answers = HashMap::from([
        ("without", events(&without)),
        ("cut", cut.into_bytes()),
        ("endless", events(&endless)),
        ("empty", events("")),
    ]);
    let service = Service::start(answers).await;
    let fleet = Fleet::start(Spec::with([service.tool("streams", "")])).await;
    for (what, parts) in [("without", 1), ("cut", 1), ("endless", 0), ("empty", 0)] {
        let (answer, told) = followed(&fleet, "streams", &json!({"what": what})).await;
        assert_eq!(answer["state"], "in_doubt", "{what}: {}", *answer);
        assert_eq!(parts_of(&told, 1).len(), parts, "{what}");
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_result_that_is_too_large_is_one_of_a_tool_that_did_it() {
    let witness = Witness::start().await;
    let large = format!("event: result\ndata: \"{}\"\n\n", "x".repeat(5_000));
    let service = Service::start(HashMap::from([("large", events(&large))])).await;
    let tool = service.tool("streams", "output_limit: 4KiB\n");
    let fleet = Fleet::start(Spec::with([tool])).await;
    let (answer, _told) = followed(&fleet, "streams", &json!({"what": "large"})).await;
    assert_eq!(
        (&answer["state"], answer.code()),
        (&json!("succeeded"), "output_too_large"),
        "{}",
        *answer
    );
    invariants::hold(&fleet, &witness).await;
}
