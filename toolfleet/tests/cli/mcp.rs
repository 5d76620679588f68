//! `toolfleet mcp`, and manifests of MCP servers among those of tools.

use std::fs;

use fleet::store::migrate::migrate;

use crate::support::{folder, ledger, postgres, program, run};

const SERVER: &str = "{kind: mcp_server, name: tracker, version: 1, queue: eu-1, transport: {http: {url: 'https://mcp.example.com/mcp', headers: {Authorization: 'secret://TRACKER'}}}}\n";

fn tool(server: &str) -> String {
    format!(
        "{{name: tracker_create, version: 1, description: 'Creates an issue in the tracker.', effect: once, output: content, \
          input_schema: {{type: object, additionalProperties: false}}, \
          executor: {{mcp: {{server: {server}, tool: create-issue, pin: 'sha256:{}'}}}}}}\n",
        "0".repeat(64)
    )
}

#[tokio::test]
async fn servers_are_applied_with_their_tools_and_listed() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    migrate(&ledger(&postgres.url())).await.unwrap();
    let on = |arguments: &[&str]| {
        let mut command = program(arguments);
        command
            .current_dir(folder.path())
            .env("DATABASE_URL", postgres.url())
            .env("NATS_URL", "nats://127.0.0.1:1");
        run(command)
    };
    fs::create_dir(folder.path().join("tools")).unwrap();
    let file = |name: &str| folder.path().join("tools").join(name);
    fs::write(file("create.yaml"), tool("tracker")).unwrap();

    let alone = on(&["tools", "apply", "tools"]);
    assert_eq!(alone.code, 1);
    assert!(
        alone
            .out
            .contains("/executor/mcp/server: no MCP server tracker was ever applied"),
        "{}",
        alone.out
    );

    fs::write(file("tracker.yaml"), SERVER).unwrap();
    let linted = on(&["tools", "lint", "tools"]);
    assert_eq!(
        (linted.code, linted.out.lines().last()),
        (0, Some("2 files: 0 problems, 0 warnings")),
        "{}",
        linted.out
    );
    let both = on(&["tools", "apply", "tools", "--by", "ada"]);
    assert_eq!(both.code, 0, "{}{}", both.out, both.err);
    assert_eq!(
        both.out,
        "mcp server tracker version 1: created\ntracker_create version 1: created\nmcp_discover_eu_1_a8ddeaba version 1: created\n"
    );
    assert!(
        on(&["tools", "apply", "tools"])
            .out
            .contains("mcp server tracker version 1: unchanged")
    );

    fs::write(
        file("tracker.yaml"),
        SERVER.replace("queue: eu-1", "trust: trusted"),
    )
    .unwrap();
    let other = on(&["tools", "apply", "tools"]);
    assert_eq!(other.code, 1);
    assert!(
        other
            .out
            .contains("refused: this version is there with other content"),
        "{}",
        other.out
    );
    fs::write(file("twin.yaml"), SERVER).unwrap();
    let twins = on(&["tools", "lint", "tools"]);
    assert!(
        twins.out.contains("the MCP server tracker is in "),
        "{}",
        twins.out
    );

    let listed = on(&["mcp", "list", "--json"]).json();
    assert_eq!(
        (
            &listed[0]["server"],
            &listed[0]["transport"],
            &listed[0]["trust"],
            &listed[0]["tools"],
            &listed[0]["applied_by"]
        ),
        (
            &"tracker".into(),
            &"http".into(),
            &"untrusted".into(),
            &1.into(),
            &"ada".into()
        )
    );
    let shown = on(&["mcp", "show", "tracker"]).json();
    assert_eq!(
        shown["transport"]["http"]["headers"]["Authorization"],
        "secret://TRACKER"
    );
    let missing = on(&["mcp", "show", "nobody"]);
    assert_eq!(missing.code, 1);
    assert!(
        missing.err.contains("there is no MCP server nobody"),
        "{}",
        missing.err
    );
    let version = on(&["mcp", "show", "tracker", "--version", "2"]);
    assert!(version.err.contains("has no version 2"), "{}", version.err);
}
