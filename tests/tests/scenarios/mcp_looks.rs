//! Looks at MCP servers, as the person at a terminal has them.

use std::{fs, process::Stdio, time::Duration};

use fleet::{
    manifest::{AnyManifest, McpServer, parse_any},
    store::{mcp_servers, tools::Applied},
};
use fleet_tests::{
    fleet::{Fleet, Spec, built},
    invariants,
    wait::until,
    witness::Witness,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    process::Command,
    task::JoinSet,
    time::timeout,
};

const SERVER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/conformance/mcp_server.py"
);
const PATIENCE: Duration = Duration::from_secs(90);
/// The attempts of the newest look.
const ATTEMPTS: &str = "SELECT attempts::bigint FROM toolfleet.calls WHERE tool = 'mcp_discover' ORDER BY call_id DESC LIMIT 1";

async fn apply(fleet: &Fleet, name: &str, transport: &Value) {
    let manifest =
        json!({"kind": "mcp_server", "name": name, "version": 1, "transport": transport});
    let Ok(AnyManifest::McpServer(server)) = parse_any(&manifest.to_string()) else {
        panic!("{manifest}")
    };
    let server: McpServer = *server;
    let mut connection = fleet.database.connect().await;
    let applied = mcp_servers::apply(&mut connection, &server, "test").await;
    assert_eq!(applied.unwrap(), Applied::Created);
}

async fn apply_discoverer(fleet: &Fleet) {
    let discoverer = worker::discoverer_of(&"default".parse().unwrap());
    fleet
        .apply(&serde_json::to_string(&discoverer).unwrap())
        .await;
}

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

/// `toolfleet mcp discover`, once the dispatcher knows the tool that looks.
async fn discover(fleet: &Fleet, server: &str, flags: &[&str]) -> Ran {
    until("the tool that looks to be known", async || {
        let mut command = Command::new(built("fleet_tests_toolfleet"));
        command
            .args(["mcp", "discover", server])
            .args(flags)
            .env("NATS_URL", fleet.nats_url())
            .env("DATABASE_URL", &fleet.database.url)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let ending = timeout(PATIENCE, command.output());
        let output = ending.await.expect("it ends").unwrap();
        let ran = Ran {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        };
        (!ran.err.contains("do not know the tool")).then_some(ran)
    })
    .await
}

/// A server that lets nobody in.
async fn closed(serving: &mut JoinSet<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    serving.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 64 * 1024];
            drop(stream.read(&mut request).await);
            let answer =
                "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            drop(stream.write_all(answer.as_bytes()).await);
        }
    });
    format!("http://127.0.0.1:{port}/mcp")
}

#[tokio::test]
async fn a_look_that_failed_says_what_a_person_can_do_and_is_no_dead_letter() {
    let witness = Witness::start().await;
    let mut serving = JoinSet::new();
    let secrets = tempfile::tempdir().unwrap();
    fs::write(secrets.path().join("TOKEN"), "hunter2-and-more").unwrap();
    let flags = ["--secrets", secrets.path().to_str().unwrap()];
    let fleet = Fleet::start(Spec::with([]).workers(1, &flags)).await;
    let (url, away) = (closed(&mut serving).await, "http://127.0.0.1:9/mcp");
    let headers = json!({"Authorization": "secret://TOKEN"});
    apply(
        &fleet,
        "closed",
        &json!({"http": {"url": url, "headers": headers}}),
    )
    .await;
    apply(&fleet, "away", &json!({"http": {"url": away}})).await;
    apply_discoverer(&fleet).await;

    for (server, said, advice) in [
        (
            "closed",
            "closed was not looked at: The MCP server closed let nobody in: it answered with status 401; an operator has to look at this header \
             of its manifest, and its secret: Authorization (secret://TOKEN)",
            "toolfleet mcp show closed has its manifest; toolfleet calls show ",
        ),
        (
            "away",
            "away was not looked at: ",
            "see whether it answers at its address (toolfleet mcp show away) from the machines of the workers of the queue default",
        ),
    ] {
        // The worker knows the server within moments, and so does the second look.
        for _look in 0..2 {
            let ran = discover(&fleet, server, &[]).await;
            assert_eq!(ran.code, Some(69), "{}{}", ran.out, ran.err);
            if server == "closed" && ran.err.contains("does not know") {
                continue;
            }
            assert!(
                ran.err.contains(said) && ran.err.contains(advice),
                "{}",
                ran.err
            );
            for of_agents in [
                "idempotency key",
                "Tell the user",
                "may work later",
                "hunter2",
            ] {
                assert!(!ran.err.contains(of_agents), "{}", ran.err);
            }
        }
        // A wrong secret does not mend itself; a server that is away may come back.
        let attempts = fleet.count(ATTEMPTS).await;
        assert_eq!(attempts == 1, server == "closed", "{server}: {attempts}");
    }
    let failed =
        "SELECT count(*) FROM toolfleet.calls WHERE tool = 'mcp_discover' AND state = 'failed'";
    assert!(fleet.count(failed).await >= 4);
    let dead = "SELECT count(*) FROM toolfleet.dead_letters";
    assert_eq!(fleet.count(dead).await, 0);

    // So is a call of a tool of that server: it is not said to work later.
    let pin = format!("sha256:{}", "0".repeat(64));
    let tool = json!({"name": "closed_count", "version": 1, "description": "Counts.", "effect": "once", "output": "content",
        "input_schema": {"type": "object"}, "executor": {"mcp": {"server": "closed", "tool": "count", "pin": pin}}});
    fleet.apply(&tool.to_string()).await;
    let answer = until("the tool to be known", async || {
        let answer = fleet
            .submit("closed_count", &json!({}))
            .key("a")
            .wait()
            .await;
        (answer.code() != "unknown_tool").then_some(answer)
    })
    .await;
    assert_eq!(
        (
            &answer["state"],
            answer.code(),
            &answer["effect"],
            &answer["attempts"]
        ),
        (
            &json!("failed"),
            "unavailable",
            &json!("not_applied"),
            &json!(1)
        ),
        "{}",
        *answer
    );
    assert_eq!(
        (
            &answer["error"]["retryable"],
            &answer["error"]["suggestion"]
        ),
        (&json!(false), &json!("ask_user"))
    );
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("Authorization (secret://TOKEN)") && !message.contains("later"),
        "{message}"
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_look_that_is_larger_than_a_message_is_read_from_the_ledger_and_a_tool_that_is_too_deep_is_unfit()
 {
    let witness = Witness::start().await;
    let upstream = tempfile::tempdir().unwrap();
    let fleet = Fleet::start(Spec::with([]).max_payload(512 * 1024)).await;
    let command = json!(["python3", SERVER, "stdio", "modern", upstream.path()]);
    apply(&fleet, "up", &json!({"stdio": {"command": command}})).await;
    apply_discoverer(&fleet).await;
    let deep = "[".repeat(200) + &"]".repeat(200);
    let deep = format!(r#"{{"name": "deep", "inputSchema": {{"type": "object", "x": {deep}}}}}"#);
    fs::write(upstream.path().join("deep.tool"), deep).unwrap();
    fs::write(upstream.path().join("more"), "10000").unwrap();

    let ran = discover(&fleet, "up", &["--json"]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let found: Value = serde_json::from_str(&ran.out).unwrap();
    let found = found.as_array().unwrap();
    assert_eq!(found.len(), 10_000);
    let size = "SELECT max(length(result::text))::bigint FROM toolfleet.calls";
    assert!(fleet.count(size).await > 512 * 1024);
    let deep: Vec<_> = found
        .iter()
        .filter(|one| one["name"] == "up_deep")
        .collect();
    assert_eq!(deep.len(), 1);
    assert_eq!(
        (&deep[0]["standing"], &deep[0]["reason"]),
        (
            &json!("unfit"),
            &json!("inputSchema: it is nested deeper than 97 levels")
        )
    );
    let new = found.iter().filter(|one| one["standing"] == "new");
    assert_eq!(new.count(), 9_999);

    fs::remove_file(upstream.path().join("more")).unwrap();
    let ran = discover(&fleet, "up", &[]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let line = "unfit     up_deep (deep): inputSchema: it is nested deeper than 97 levels";
    assert!(ran.out.lines().any(|said| said == line), "{}", ran.out);
    invariants::hold(&fleet, &witness).await;
}
