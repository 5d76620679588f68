//! The history as the command line shows it.

use std::sync::Arc;

use fleet::{
    call::{Effect, Language, Priority},
    canonical,
    ids::{CallId, DispatcherId},
    store::{
        accept::{Accept, NewCall},
        lane::{Locks, Statement},
        migrate::migrate,
    },
    wire::trace::TraceContext,
};
use uuid::Uuid;

use crate::support::{Ran, folder, ledger, postgres, program, run};

#[tokio::test]
async fn calls_are_listed_the_newest_first_and_shown_with_their_moves() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let ledger = ledger(&postgres.url());
    migrate(&ledger).await.unwrap();
    let mut connection = ledger.connect().await.unwrap();
    let (first, second) = (
        NewCall {
            session: Some("morning".parse().unwrap()),
            run: Some("r-1".parse().unwrap()),
            ..call("look", "default", "{\"what\":\"\u{202e}\u{9b}2J\"}")
        },
        call("write", "acme", "{}"),
    );
    for call in [&first, &second] {
        let accepted = Accept
            .run(&mut connection, &[Arc::new(call.clone())], Locks::Wait)
            .await;
        assert!(accepted.unwrap()[0].is_some());
    }
    let calls = |arguments: &[&str]| -> Ran {
        let mut command = program(&[&["calls"], arguments].concat());
        command.env("DATABASE_URL", postgres.url());
        let ran = run(command);
        assert_eq!(ran.err, "", "{arguments:?}");
        ran
    };
    let ids = |arguments: &[&str]| -> Vec<String> {
        let rows = calls(&[&["list", "--json"], arguments].concat()).json();
        let rows = rows.as_array().unwrap().iter();
        rows.map(|row| row["call_id"].as_str().unwrap().to_owned())
            .collect()
    };
    let (first, second) = (first.call_id.to_string(), second.call_id.to_string());
    assert_eq!(ids(&[]), [second.as_str(), &first]);
    assert_eq!(ids(&["--limit", "1"]), [second.as_str()]);
    assert_eq!(ids(&["--tool", "look"]), [first.as_str()]);
    assert_eq!(ids(&["--tenant", "acme"]), [second.as_str()]);
    assert_eq!(
        ids(&["--state", "queued", "--tenant", "default"]),
        [first.as_str()]
    );
    assert!(ids(&["--state", "in_doubt"]).is_empty());
    assert_eq!(ids(&["--session", "morning"]), [first.as_str()]);
    assert_eq!(ids(&["--run", "r-1", "--since", "1h"]), [first.as_str()]);
    assert!(ids(&["--run", "r-1", "--tenant", "acme"]).is_empty());
    assert!(ids(&["--code", "timeout"]).is_empty());
    assert_eq!(
        ids(&["--since", "1h", "--until", "2999-01-01T00:00:00Z"]).len(),
        2
    );
    assert!(ids(&["--until", "1h"]).is_empty());
    assert!(ids(&["--since", "2999-01-01T08:00:00+08:00"]).is_empty());
    let backwards = ["calls", "list", "--since", "1h", "--until", "2h"];
    let mut command = program(&backwards);
    command.env("DATABASE_URL", postgres.url());
    let ran = run(command);
    assert!(
        ran.code == 2 && ran.err.contains("--since 3h --until 2h"),
        "{}",
        ran.err
    );
    let table = calls(&["list"]).out;
    assert!(
        table.starts_with("CALL ") && table.lines().nth(1).unwrap().starts_with(&second),
        "{table}"
    );

    let text = calls(&["show", &first]).out;
    assert!(text.contains("\\u202e\\u009b2J"), "{text}");
    assert!(!text.contains(['\u{202e}', '\u{9b}']), "{text}");
    let story = calls(&["show", &first, "--json"]).json();
    assert_eq!(story["call"]["args"]["what"], "\u{202e}\u{9b}2J");
    assert_eq!(story["attempts"], serde_json::json!([]));
    assert_eq!(story["events"][0]["reason"], "accepted");

    let unknown = CallId::generate().to_string();
    let ran = run(program(&[
        "calls",
        "show",
        &unknown,
        "--database-url",
        &postgres.url(),
    ]));
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.contains(&format!("there is no call {unknown}")),
        "{}",
        ran.err
    );
    postgres.stop().await;
}

pub(crate) fn call(tool: &str, tenant: &str, args: &str) -> NewCall {
    NewCall {
        call_id: CallId::generate(),
        tenant: tenant.parse().unwrap(),
        tool: tool.parse().unwrap(),
        tool_version: 1,
        effect: Effect::Read,
        queue: "default".parse().unwrap(),
        priority: Priority::Normal,
        waits: None,
        line: "default".parse().unwrap(),
        rate_key: None,
        held: false,
        key: None,
        key_retention_ms: 0,
        args: args.to_owned(),
        kept_args: None,
        original_args: None,
        files: Vec::new(),
        no_store: false,
        coercions: Vec::new(),
        args_hash: canonical::hash(&serde_json::from_str(args).unwrap()),
        session: None,
        run: None,
        meta: None,
        language: Language::En,
        trace: TraceContext::default(),
        dispatcher: DispatcherId(Uuid::new_v4()),
        done_secret: fleet::wire::proof::DoneSecret::generate(),
        deadline_ms: 60_000,
        run_deadline: None,
        queue_wait_ms: None,
    }
}
