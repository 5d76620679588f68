//! The message about a tool that is applied and that no dispatcher offers yet.

use std::{fs, path::Path};

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

/// The next line that it prints about the tool.
async fn line(dev: &mut DevProcess) -> String {
    let stdout = dev.child.stdout.as_mut().unwrap();
    let mut printed = Vec::new();
    while !printed.ends_with(b"\n") || !String::from_utf8_lossy(&printed).contains("look: ") {
        let read = timeout(LONG, stdout.read_buf(&mut printed)).await;
        assert_ne!(read.expect("it says something of the tool").unwrap(), 0);
    }
    let printed = String::from_utf8(printed).unwrap();
    let mut lines = printed.lines().filter(|line| line.contains("look: "));
    let line = lines.next().unwrap().to_owned();
    assert_eq!(lines.next(), None, "{printed}");
    line
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
    let said = line(&mut dev).await;
    assert!(
        said.ends_with("look: applied as version 1, not yet offered"),
        "{said}"
    );
    let mut ledger = PgConnection::connect(&state.database_url).await.unwrap();
    let applied: Vec<i32> =
        sqlx::query_scalar("SELECT version FROM toolfleet.tools WHERE tool = 'look'")
            .fetch_all(&mut ledger)
            .await
            .unwrap();
    assert_eq!(applied, [1], "it was applied all the same");

    send(dispatcher, Signal::SIGCONT);
    manifest(&tools.join("look.yaml"), "Looks again.");
    let said = line(&mut dev).await;
    assert!(
        said.ends_with("look: changed, applied as version 2"),
        "{said}"
    );
    dev.stop().await;
}
