//! What of a folder's manifests is offered, and what is said of it.

use std::{fs, path::Path};

use fleet::{
    manifest::parse,
    store::tools::{Applied, apply},
};
use nix::sys::signal::Signal;
use sqlx::{Connection, PgConnection};
use tokio::{io::AsyncReadExt, time::timeout};

use crate::support::{DevProcess, LONG, folder, send};

fn manifest(file: &Path, description: &str) {
    let text = format!(
        "name: look\nversion: 1\ndescription: {description}\neffect: read\ninput_schema: {{type: object}}\n\
         executor: {{process: {{command: [/bin/true]}}}}\n"
    );
    // In one step: the folder is looked at meanwhile.
    let draft = file.with_extension("draft");
    fs::write(&draft, text).unwrap();
    fs::rename(draft, file).unwrap();
}

/// The next line with this in it.
async fn line(dev: &mut DevProcess, mark: &str) -> String {
    let stdout = dev.child.stdout.as_mut().unwrap();
    let mut printed = Vec::new();
    while !printed.ends_with(b"\n") || !String::from_utf8_lossy(&printed).contains(mark) {
        let read = timeout(LONG, stdout.read_buf(&mut printed)).await;
        assert_ne!(read.expect("it says that").unwrap(), 0);
    }
    let printed = String::from_utf8(printed).unwrap();
    let mut lines = printed.lines().filter(|line| line.contains(mark));
    let line = lines.next().unwrap().to_owned();
    assert_eq!(lines.next(), None, "{printed}");
    line
}

/// The descriptions of the versions of the tool.
async fn versions(dev: &DevProcess) -> Vec<String> {
    let mut ledger = PgConnection::connect(&dev.state().database_url)
        .await
        .unwrap();
    let sql =
        "SELECT manifest->>'description' FROM toolfleet.tools WHERE tool = 'look' ORDER BY version";
    sqlx::query_scalar(sql)
        .fetch_all(&mut ledger)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_tool_that_no_dispatcher_has_yet_is_said_to_be_applied_and_not_yet_offered() {
    let folder = folder(0o755);
    let tools = folder.path().join("tools");
    fs::create_dir(&tools).unwrap();
    let flags = ["--workers", "0", "--tools", tools.to_str().unwrap()];
    let mut dev = DevProcess::start(folder.path(), &flags).await;
    dev.printed().await;
    let state = dev.state();
    let [dispatcher] = state.dispatcher_pids[..] else {
        panic!("{state:?}");
    };
    // It lives, and hears nothing.
    send(dispatcher, Signal::SIGSTOP);
    manifest(&tools.join("look.yaml"), "Looks.");
    let said = line(&mut dev, "look: ").await;
    assert!(
        said.ends_with("look: applied as version 1, not yet offered"),
        "{said}"
    );
    assert_eq!(
        versions(&dev).await,
        ["Looks."],
        "it was applied all the same"
    );

    send(dispatcher, Signal::SIGCONT);
    manifest(&tools.join("look.yaml"), "Looks again.");
    let said = line(&mut dev, "look: ").await;
    assert!(
        said.ends_with("look: changed, applied as version 2 (the file says 1)"),
        "{said}"
    );
    dev.stop().await;
}

#[tokio::test]
async fn what_the_only_manifest_of_a_tool_says_is_what_is_offered() {
    let folder = folder(0o755);
    let tools = folder.path().join("tools");
    fs::create_dir(&tools).unwrap();
    let (hello, greet) = (tools.join("hello.yaml"), tools.join("greet.yaml"));
    manifest(&hello, "Old.");
    let flags = ["--workers", "0", "--tools", tools.to_str().unwrap()];
    let mut dev = DevProcess::start(folder.path(), &flags).await;
    dev.printed().await;

    // Another name for the same makes no version.
    fs::rename(&hello, &greet).unwrap();
    line(&mut dev, "hello.yaml is gone").await;
    manifest(&greet, "New.");
    line(&mut dev, "look: ").await;
    assert_eq!(versions(&dev).await, ["Old.", "New."]);

    fs::remove_file(&greet).unwrap();
    let said = line(&mut dev, "greet.yaml is gone").await;
    assert!(
        said.contains("toolfleet tools retire look --note"),
        "{said}"
    );
    manifest(&hello, "Old.");
    let said = line(&mut dev, "look: ").await;
    assert!(
        said.ends_with("look: changed, applied as version 3 (the file says 1)"),
        "{said}"
    );
    dev.stop().await;

    let mut dev = DevProcess::start(folder.path(), &flags).await;
    dev.printed().await;
    assert_eq!(versions(&dev).await, ["Old.", "New.", "Old."]);
    dev.stop().await;
}

/// A tool of an MCP server with this pin, in JSON.
fn pinned(version: i32, pin: &str) -> String {
    format!(
        r#"{{"name": "look", "version": {version}, "description": "{pin}", "effect": "once", "output": "content",
            "input_schema": {{"type": "object"}},
            "executor": {{"mcp": {{"server": "s", "tool": "look", "pin": "sha256:{}"}}}}}}"#,
        pin.repeat(64)
    )
}

#[tokio::test]
async fn an_older_pin_is_not_put_over_a_newer_one_that_somebody_has_applied() {
    let folder = folder(0o755);
    let tools = folder.path().join("tools");
    fs::create_dir(&tools).unwrap();
    let server = r#"{"kind": "mcp_server", "name": "s", "version": 1, "transport": {"stdio": {"command": ["/bin/true"]}}}"#;
    fs::write(tools.join("s.json"), server).unwrap();
    let file = tools.join("look.json");
    fs::write(&file, pinned(1, "a")).unwrap();
    let flags = ["--workers", "0", "--tools", tools.to_str().unwrap()];
    let mut dev = DevProcess::start(folder.path(), &flags).await;
    dev.printed().await;
    let mut ledger = PgConnection::connect(&dev.state().database_url)
        .await
        .unwrap();
    // As `toolfleet tools apply` does with what `mcp discover` has written elsewhere.
    let newer = parse(&pinned(2, "b")).unwrap();
    let applied = apply(&mut ledger, &newer, "ada@example").await.unwrap();
    assert_eq!(applied, Applied::Created);
    drop(ledger);
    dev.stop().await;

    let mut dev = DevProcess::start(folder.path(), &flags).await;
    let said = dev.printed().await;
    assert!(
        said.contains("tools: look.json: look: left as it is: its pin is older than that of version 2, which ada@example has applied"),
        "{said}"
    );
    assert_eq!(versions(&dev).await, ["a", "b"]);

    // Who wants the older one says so.
    let draft = tools.join("look.draft");
    fs::write(&draft, pinned(3, "a")).unwrap();
    fs::rename(draft, &file).unwrap();
    let said = line(&mut dev, "look: ").await;
    assert!(said.ends_with("look: applied as version 3"), "{said}");
    assert_eq!(versions(&dev).await, ["a", "b", "a"]);
    dev.stop().await;
}
