//! `toolfleet mcp`, and manifests of MCP servers among those of tools.

use std::fs;

use fleet::store::migrate::migrate;

use crate::{
    doctor::said,
    support::{folder, ledger, nats, postgres, program, run},
};

const SERVER: &str = "{kind: mcp_server, name: tracker, version: 1, queue: eu-1, transport: {http: {url: 'https://mcp.example.com/mcp', headers: {Authorization: 'secret://TRACKER'}}}}\n";

fn tool(server: &str) -> String {
    format!(
        "{{name: tracker_create, version: 1, description: 'Creates an issue in the tracker.', effect: once, output: content, queue: eu-1, \
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

#[tokio::test]
async fn a_tool_of_another_queue_than_its_server_is_named_and_applied() {
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
    let file = |name: &str| folder.path().join(name);
    fs::write(file("tracker.yaml"), SERVER).unwrap();
    fs::write(file("same.yaml"), tool("tracker")).unwrap();
    let other = tool("tracker").replace("tracker_create", "tracker_other");
    let other = other.replace("queue: eu-1, ", "");
    fs::write(file("other.yaml"), &other).unwrap();

    let linted = on(&["tools", "lint", "tracker.yaml", "same.yaml", "other.yaml"]);
    let warning = "other.yaml:/queue: warning: mcp_queue_differs: tracker_other runs on the workers of the queue default";
    assert!(linted.out.contains(warning), "{}", linted.out);
    assert_eq!(
        linted.out.matches("mcp_queue_differs").count(),
        1,
        "{}",
        linted.out
    );
    let names = |ran: &crate::support::Ran| ran.err.matches("mcp_queue_differs: tracker_").count();
    let server = on(&["tools", "apply", "tracker.yaml", "same.yaml"]);
    assert_eq!((server.code, names(&server)), (0, 0), "{}", server.err);
    let applied = on(&["tools", "apply", "other.yaml"]);
    assert_eq!((applied.code, names(&applied)), (0, 1), "{}", applied.err);
    assert!(
        applied
            .err
            .contains("tracker_other runs on the workers of the queue default")
            && applied.err.contains("asks those of eu-1"),
        "{}",
        applied.err
    );
    // Only what is applied now is spoken of.
    let same = on(&["tools", "apply", "same.yaml"]);
    assert_eq!((same.code, names(&same)), (0, 0), "{}", same.err);

    // A server that moves leaves its tools behind.
    let moved = SERVER.replace("version: 1, queue: eu-1", "version: 2");
    fs::write(file("tracker.yaml"), moved).unwrap();
    let moved = on(&["tools", "apply", "tracker.yaml"]);
    assert_eq!((moved.code, names(&moved)), (0, 1), "{}", moved.err);
    assert!(
        moved
            .err
            .contains("tracker_create runs on the workers of the queue eu-1"),
        "{}",
        moved.err
    );
    let retired = on(&["tools", "retire", "tracker_create", "--note", "moved"]);
    assert_eq!(retired.code, 0, "{}", retired.err);
    let again = on(&["tools", "apply", "tracker.yaml"]);
    assert_eq!((again.code, names(&again)), (0, 0), "{}", again.err);
}

#[tokio::test]
async fn the_names_of_the_tools_that_look_are_the_fleets_own() {
    let folder = folder();
    for (name, is_own) in [
        ("mcp_discover", true),
        ("mcp_discover_all", true),
        ("mcp_discovery", false),
    ] {
        let path = folder.path().join("tool.yaml");
        fs::write(&path, tool("tracker").replace("tracker_create", name)).unwrap();
        let linted = run(program(&["tools", "lint", path.to_str().unwrap()]));
        assert_eq!(linted.code, i32::from(is_own), "{name}: {}", linted.out);
        assert_eq!(linted.out.contains("the fleet's own"), is_own, "{name}");
    }
}

#[tokio::test]
async fn doctor_says_nothing_of_the_tools_that_look() {
    let folder = folder();
    let (postgres, nats) = (
        postgres(folder.path(), true).await,
        nats(folder.path()).await,
    );
    migrate(&ledger(&postgres.url())).await.unwrap();
    let on = |arguments: &[&str]| {
        let mut command = program(arguments);
        command
            .current_dir(folder.path())
            .env("DATABASE_URL", postgres.url())
            .env("NATS_URL", nats.url());
        run(command)
    };
    let file = |name: &str| folder.path().join(name);
    fs::write(file("tracker.yaml"), SERVER).unwrap();
    let applied = on(&["tools", "apply", "tracker.yaml"]);
    assert!(applied.out.contains("mcp_discover_eu_1"), "{}", applied.out);
    // The server leaves its queue, and the tool that looks stays there.
    let moved = SERVER.replace("version: 1, queue: eu-1", "version: 2");
    fs::write(file("tracker.yaml"), moved).unwrap();
    let applied = on(&["tools", "apply", "tracker.yaml"]);
    assert_eq!(applied.code, 0, "{}", applied.err);

    let ran = on(&["doctor", "--json"]);
    assert_eq!(said(&ran, "workers"), ["ok: no queue has tools yet"]);
    assert_eq!(said(&ran, "tools"), [""; 0], "{}", ran.out);
    let payload = said(&ran, "max_payload");
    assert!(payload[0].starts_with("ok: "), "{payload:?}");

    fs::write(file("create.yaml"), tool("tracker")).unwrap();
    assert_eq!(on(&["tools", "apply", "create.yaml"]).code, 0);
    let ran = on(&["doctor", "--json"]);
    assert_eq!(
        said(&ran, "workers"),
        ["warn: queue eu-1 has no worker for tracker_create"]
    );
    nats.stop().await;
    postgres.stop().await;
}
