//! What is told of MCP servers that do not work: programs that crash or say what is no MCP, servers over HTTP that answer something else.

use std::{fs, time::Duration};

use fleet::{
    call::Effect,
    outcome::{Outcome, OutcomeWord, ToolFailure},
    secrets::Secrets,
    wire::code::Code,
};
use fleet_tests::wait::until_so;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinSet,
};

use super::mcp_scene::{Scene, word};

const SECRET: &str = "hunter/2-the-secret";

/// A server whose secret is in this part of its transport, and the folder of the secret.
fn with_secret(transport: &Value) -> (Scene, TempDir) {
    let mut scene = Scene::of(tempfile::tempdir().unwrap(), None, transport, "refuse");
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("TOKEN"), SECRET).unwrap();
    scene.secrets = Secrets::new(Some(folder.path().to_owned()));
    (scene, folder)
}

fn program(script: &str) -> (Scene, TempDir) {
    let stdio = json!({"command": ["sh", "-c", script], "env": {"TOKEN": "secret://TOKEN"}});
    with_secret(&json!({ "stdio": stdio }))
}

fn failure(outcome: &Outcome) -> (String, Value) {
    let failure: &ToolFailure = outcome.failure().unwrap();
    let told = format!("{failure:?}");
    assert!(!told.contains(SECRET), "{told}");
    let details = failure.details.clone().unwrap_or_default();
    (failure.message.english().to_owned(), details)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_crashes_at_its_start_says_why() {
    let (scene, _secrets) =
        program(r#"echo "first" >&2; echo "no such module $TOKEN" >&2; exit 7"#);
    // The second is in the pause after the first.
    for number in 0..2 {
        let outcome = scene.run("count", Effect::Once).await;
        assert_eq!(
            word(&outcome),
            (OutcomeWord::NotStarted, Some(Code::Unavailable)),
            "{outcome:?}"
        );
        let (message, details) = failure(&outcome);
        let said = "the MCP server s has ended: sh ended with exit code 7; it wrote last on its standard error: no such module [secret]";
        assert!(message.starts_with(said), "{number}: {message}");
        assert_eq!(details["exit_code"], 7, "{details}");
        assert_eq!(details["stderr"], "first\nno such module [secret]\n");
        assert_eq!(
            (&details["server"], &details["program"]),
            (&json!("s"), &json!("sh"))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_crashes_during_a_call_says_how() {
    let scene = Scene::stdio("modern");
    let outcome = scene.run("crash", Effect::Once).await;
    assert_eq!(
        word(&outcome),
        (OutcomeWord::Unknown, Some(Code::Unavailable)),
        "{outcome:?}"
    );
    let (message, details) = failure(&outcome);
    assert!(message.contains("exit code 3"), "{message}");
    assert_eq!(details["exit_code"], 3, "{details}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_says_what_is_no_mcp_is_told_of() {
    let (scene, _secrets) = program("echo 'hello world'; exec sleep 60");
    let short = conformance::context(Duration::from_secs(2));
    let returned = scene.run_in("count", Effect::Once, short).await;
    assert_eq!(
        word(&returned.outcome),
        (OutcomeWord::NotStarted, Some(Code::Timeout))
    );
    let (message, details) = failure(&returned.outcome);
    let said =
        "it wrote 1 lines that are no messages of MCP, the first of 11 bytes, and never answered";
    assert!(message.contains(said), "{message}");
    assert_eq!(details["odd_lines"], 1, "{details}");
}

/// A server over HTTP that answers this to everything.
async fn answering(head: &'static str, body: &'static str, serving: &mut JoinSet<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    serving.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 64 * 1024];
            drop(stream.read(&mut request).await);
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            drop(stream.write_all(answer.as_bytes()).await);
        }
    });
    format!("http://127.0.0.1:{port}/mcp")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_over_http_that_does_not_work_is_named() {
    let mut serving = JoinSet::new();
    for (head, body, said, excerpt) in [
        (
            "401 Unauthorized\r\nContent-Type: application/json",
            r#"{"message": "bad token hunter/2-the-secret"}"#,
            "the MCP server s let nobody in: it answered with status 401; an operator has to look at this header of its manifest, and its secret: Authorization (secret://TOKEN)",
            Some(r#"{"message": "bad token [secret]"}"#),
        ),
        (
            "500 Oops\r\nContent-Type: text/html",
            "<h1>oops</h1>\r\n",
            "the MCP server s cannot be asked: it answered with status 500",
            Some("<h1>oops</h1>"),
        ),
        (
            "200 OK\r\nContent-Type: text/html; charset=utf-8",
            "<h1>hello</h1>",
            "the MCP server s answered with text/html, which is no MCP",
            None,
        ),
    ] {
        let url = answering(head, body, &mut serving).await;
        let headers = json!({"Authorization": "secret://TOKEN", "X-Plain": "x"});
        let (scene, _secrets) = with_secret(&json!({"http": {"url": url, "headers": headers}}));
        let outcome = scene.run("count", Effect::Once).await;
        assert_eq!(
            word(&outcome),
            (OutcomeWord::NotStarted, Some(Code::Unavailable)),
            "{outcome:?}"
        );
        let (message, details) = failure(&outcome);
        assert_eq!(message, said);
        assert_eq!(details["server"], "s");
        assert_eq!(details["body"].as_str(), excerpt, "{details}");
        // A wrong secret does not mend itself.
        let needs_operator = outcome.failure().unwrap().needs_operator();
        assert_eq!(needs_operator, head.starts_with("401"), "{head}");
    }
    let (scene, _secrets) = with_secret(&json!({"http": {"url": "http://127.0.0.1:9/mcp"}}));
    let (message, details) = failure(&scene.run("count", Effect::Once).await);
    assert!(message.ends_with("(MCP server s)"), "{message}");
    assert_eq!(details["server"], "s");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_was_put_back_is_called_again() {
    let scene = Scene::http("modern");
    let changed = json!({"name": "count", "description": "x", "inputSchema": {"type": "object"}});
    fs::write(scene.path("count.tool"), changed.to_string()).unwrap();
    for _ in 0..20 {
        let outcome = scene.run("count", Effect::Once).await;
        assert_eq!(
            word(&outcome),
            (OutcomeWord::DefiniteFailure, Some(Code::ToolChanged))
        );
    }
    let lists = || {
        fs::read_to_string(scene.path("lists"))
            .unwrap()
            .lines()
            .count()
    };
    assert!(lists() < 20, "not for each call: {}", lists());
    fs::remove_file(scene.path("count.tool")).unwrap();
    let is_called = async || scene.run("count", Effect::Once).await.word() == OutcomeWord::Applied;
    until_so("the tool that was put back", is_called).await;
    assert_eq!(scene.effects(), 1);
}
