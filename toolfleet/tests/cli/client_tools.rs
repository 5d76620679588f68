//! A call that its caller runs, from the command line: handed out, looked at, and answered.

use fleet::store::migrate::migrate;
use serde_json::json;

use crate::{
    decisions::Where,
    support::{folder, ledger, nats, postgres, run},
};

const SHELL: &str = "name: shell\nversion: 1\ndescription: Runs a command on the caller's own machine.\neffect: once\n\
    input_schema: {type: object}\nexecutor: {client: {presents: shell_call}}\n";

#[tokio::test]
async fn a_call_is_handed_out_explained_and_answered() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let nats = nats(folder.path()).await;
    let here = Where {
        database: postgres.url(),
        nats: nats.url(),
    };
    migrate(&ledger(&here.database)).await.unwrap();
    let manifest = folder.path().join("shell.yaml");
    std::fs::write(&manifest, SHELL).unwrap();
    let applied = run(here.command(&["tools", "apply", manifest.to_str().unwrap()]));
    assert_eq!(applied.code, 0, "{}", applied.err);
    let dispatcher = here.dispatcher();

    let call = ["call", "shell", "command=ls", "--key", "k", "--json"];
    let called = run(here.command(&call));
    assert_eq!(called.code, 0, "{}{}", called.out, called.err);
    let accepted = called.json();
    assert_eq!(accepted["state"], "awaiting_client", "{accepted}");
    let id = accepted["call_id"].as_str().unwrap();
    let token = folder.path().join("token");
    let secret = accepted["awaiting"]["token"].as_str().unwrap();
    std::fs::write(&token, format!("{secret}\n")).unwrap();

    let why = here.reason(id);
    assert_eq!(why["reason"], "awaiting_client", "{why}");
    let open = here.calls(0, &["list", "--state", "awaiting_client", "--json"]);
    assert_eq!(open.json()[0]["call_id"], id);
    let shown = here.calls(0, &["show", id]);
    assert!(shown.out.contains("waits for     client"), "{}", shown.out);
    assert!(!shown.out.contains(secret), "{}", shown.out);

    // A pause refuses what cannot wait, and says so.
    let note = ["--note", "x", "--actor", "ada"];
    let pause = run(here.command(&[&["control", "pause", "--tool", "shell"], &note[..]].concat()));
    assert!(
        pause.out.contains("are refused as tool_paused"),
        "{}",
        pause.out
    );
    let list = run(here.command(&["control", "list"]));
    assert!(
        list.out.contains("wait (client tool: refuse)"),
        "{}",
        list.out
    );
    run(here.command(&[&["control", "resume", "--tool", "shell"], &note[..]].concat()));
    let elsewhere = here.calls(
        1,
        &[
            "output", id, "--token", "x", "--result", "1", "--tenant", "acme",
        ],
    );
    assert!(
        elsewhere.err.contains("--tenant says whose it is"),
        "{}",
        elsewhere.err
    );
    let elsewhere = here.calls(1, &["cancel", id, "--tenant", "acme"]);
    assert!(
        elsewhere.err.contains("--tenant says whose it is"),
        "{}",
        elsewhere.err
    );

    let token = format!("@{}", token.display());
    let hand_in = |code, more: &[&str]| {
        here.calls(
            code,
            &[&["output", id, "--token", &token, "--json"], more].concat(),
        )
    };
    let wrong = ["output", id, "--token", "guess", "--result", "1", "--json"];
    let wrong = here.calls(1, &wrong).json();
    assert_eq!(wrong["error"]["code"], "not_found", "{wrong}");
    let told = hand_in(1, &["--input", "{}"]).json();
    let message = told["error"]["message"].as_str().unwrap();
    assert!(message.contains("has not asked for anything"), "{message}");
    let done = hand_in(0, &["--result", "{\"exit_code\": 0}"]).json();
    assert_eq!(
        (&done["state"], &done["source"]),
        (&json!("succeeded"), &json!("client"))
    );
    assert_eq!(hand_in(0, &["--result", "{\"exit_code\":0}"]).json(), done);
    let other = hand_in(1, &["--error", "no such file", "--not-done"]).json();
    assert_eq!(other["error"]["code"], "conflict", "{other}");
    let why = here.reason(id);
    let because = why["because"].as_str().unwrap();
    assert!(
        because.contains("by the answer of its caller's program"),
        "{why}"
    );

    // An operator takes one back in a name of its own, and what is said of the doubt says so at once.
    let called = run(here.command(&["call", "shell", "command=ls", "--key", "m", "--json"]));
    let second = called.json();
    let second = second["call_id"].as_str().unwrap();
    let back = ["cancel", second, "--actor", "ann", "--reason", "wrong one"];
    here.calls(1, &back);
    let why = here.reason(second);
    assert_eq!(why["reason"], "in_doubt_early", "{why}");
    let because = why["because"].as_str().unwrap();
    assert!(
        because.contains("cancelled by ann (_INBOX") && because.contains("wrong one"),
        "{because}"
    );
    let next = why["next"].as_str().unwrap();
    assert!(next.contains("settles it, too"), "{next}");
    let settle = why["commands"][1].as_str().unwrap();
    assert!(
        settle.contains(&format!("{second} --outcome not_applied --by-time-only")),
        "{settle}"
    );
    let found = |code: &str| {
        let list = ["list", "--code", "in_doubt", "--last-code", code, "--json"];
        here.calls(0, &list).json().as_array().unwrap().len()
    };
    assert_eq!((found("cancelled"), found("client_silent")), (1, 0));
    drop(dispatcher);
    postgres.stop().await;
}
