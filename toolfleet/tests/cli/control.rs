//! Pauses from the command line, while NATS is away.

use fleet::store::{migrate::migrate, tools};
use serde_json::{Value, json};

use crate::support::{Ran, folder, ledger, postgres, program, run};

const TOOL: &str = "name: charge\nversion: 1\ndescription: Charges an account.\neffect: once\nqueue: payments\n\
    input_schema: {type: object}\nexecutor: {process: {command: [\"true\"]}}\n";
const NOTE: [&str; 4] = ["--note", "the bank\u{1b}[2J migrates", "--actor", "ada"];

#[tokio::test]
async fn calls_are_paused_and_resumed_without_nats_and_the_log_has_it() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let ledger = ledger(&postgres.url());
    migrate(&ledger).await.unwrap();
    let mut connection = ledger.connect().await.unwrap();
    let manifest = fleet::manifest::parse(TOOL).unwrap();
    tools::apply(&mut connection, &manifest, "test")
        .await
        .unwrap();
    let control = |code: i32, arguments: &[&str]| -> Ran {
        let mut command = program(&[&["control"], arguments].concat());
        command.env("DATABASE_URL", postgres.url());
        command.env("NATS_URL", "nats://127.0.0.1:1");
        let ran = run(command);
        assert_eq!(ran.code, code, "{arguments:?}: {}{}", ran.out, ran.err);
        ran
    };
    let pause =
        |code: i32, arguments: &[&str]| control(code, &[&["pause"], arguments, &NOTE[..]].concat());

    let set = pause(
        0,
        &[
            "--tool",
            "charge",
            "--where",
            "/account=DE-001",
            "--for",
            "1h",
            "--json",
        ],
    );
    assert!(
        set.err.contains("will see it within a few seconds"),
        "{}",
        set.err
    );
    let set = set.json();
    assert_eq!((&set["result"], &set["covers"]), (&json!("set"), &json!(0)));
    let there = &set["control"];
    assert_eq!(
        (&there["value"], &there["setting"]),
        (&json!("DE-001"), &json!("wait"))
    );
    let again = [
        "--tool",
        "charge",
        "--where",
        "/account=DE-001",
        "--for",
        "1h",
    ];
    let said = pause(0, &again).out;
    assert!(
        said.starts_with("pause 1 was set before: tool charge, /account = \"DE-001\", until "),
        "{said}"
    );
    assert!(
        said.contains("say --replace to begin its time anew"),
        "{said}"
    );
    let conflict = pause(1, &[&again[..], &["--refuse"]].concat());
    assert!(
        conflict
            .err
            .contains("pause 1 has this scope already, and is another one: wait until"),
        "{}",
        conflict.err
    );
    let changed = pause(0, &[&again[..4], &["--for", "2h", "--replace"]].concat()).out;
    assert!(
        changed.starts_with("pause 1 is changed: tool charge, /account = \"DE-001\", until "),
        "{changed}"
    );
    let refuses = [
        "--queue",
        "payments",
        "--tenant",
        "acme",
        "--refuse",
        "--tell",
        "ask again tomorrow",
    ];
    let said = pause(0, &refuses).out;
    assert!(
        said.contains("until `toolfleet control resume 3 --note …`"),
        "{said}"
    );
    assert!(said.contains("new calls are refused"), "{said}");

    for (arguments, why) in [
        (&["--tool", "absent"][..], "there is no such tool"),
        (
            &["--queue", "default", "--tool", "charge"],
            "no version of the tool has this queue",
        ),
        (&[], "a pause needs a scope"),
        (
            &["--tenant", "beta", "--for", "721h"],
            "--for must be 1ms to 720h, which is 30 days",
        ),
        (
            &["--tenant", "beta", "--refuse", "--tell", "a\u{7}b"],
            "--tell must not have control characters",
        ),
        (
            &["--tenant", "beta", "--refuse", "--tell", "a\u{200b}b"],
            "--tell must not have invisible characters",
        ),
        (
            &["--tool", "charge", "--where", "/a~2b=1"],
            "--where must begin with a JSON pointer such as /account/id",
        ),
    ] {
        let refused = pause(1, arguments);
        assert!(refused.err.contains(why), "{arguments:?}: {}", refused.err);
    }

    let listed = control(0, &["list", "--json"]).json();
    let ids = |listed: &Value| -> Vec<i64> {
        let rows = listed.as_array().unwrap().iter();
        rows.map(|row| row["control_id"].as_i64().unwrap())
            .collect()
    };
    assert_eq!(ids(&listed), [1, 3]);
    assert_eq!(listed[1]["told"], "ask again tomorrow");
    let table = control(0, &["list"]).out;
    assert!(table.contains("queue payments, tenant acme"), "{table}");
    assert!(table.contains("the bank\\u{1b}[2J migrates"), "{table}");

    let resume = |code: i32, arguments: &[&str]| {
        control(code, &[&["resume"], arguments, &NOTE[..]].concat())
    };
    let said = resume(0, &["3"]).out;
    assert!(
        said.contains("pause 3 of queue payments, tenant acme is over"),
        "{said}"
    );
    // A call may be in both.
    assert!(
        said.contains(
            "but for what another pause may hold on: 1 of tool charge, /account = \"DE-001\""
        ),
        "{said}"
    );
    let null = ["--tool", "charge", "--where", "/account=null"];
    let said = pause(0, &null).out;
    assert!(said.contains("tool charge, /account = null"), "{said}");
    let said = resume(0, &null).out;
    assert!(
        said.ends_with("goes back to its line within seconds, and runs in its turn\n"),
        "{said}"
    );
    for (flags, why) in [
        (
            ["--note", "x", "--actor", "a\u{202e}da"],
            "--actor must not have invisible characters",
        ),
        (
            ["--note", "x\u{200b}y", "--actor", "ada"],
            "--note must not have invisible characters",
        ),
    ] {
        for arguments in [&["pause", "--tool", "charge"][..], &["unset", "1"]] {
            let refused = control(1, &[arguments, &flags].concat());
            assert!(refused.err.contains(why), "{arguments:?}: {}", refused.err);
        }
    }
    let number = |spelling: &'static str| ["--tool", "charge", "--where", spelling];
    let said = pause(0, &number("/n=1e2")).out;
    assert!(said.contains("tool charge, /n = 100"), "{said}");
    let said = pause(
        0,
        &[&number("/n=100.0")[..], &["--refuse", "--replace"]].concat(),
    )
    .out;
    assert!(
        said.contains(" is changed: tool charge, /n = 100"),
        "{said}"
    );
    resume(0, &number("/n=10e1"));
    let gone = resume(1, &["3"]);
    assert!(gone.err.contains("there is no such pause"), "{}", gone.err);
    let by_scope = [
        "--tool",
        "charge",
        "--where",
        "/account=\"DE-001\"",
        "--json",
    ];
    assert_eq!(resume(0, &by_scope).json()["control"]["control_id"], 1);
    assert_eq!(ids(&control(0, &["list", "--json"]).json()), [0_i64; 0]);
    let log = control(0, &["log", "--json"]).json();
    let changes: Vec<_> = log
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (&row["change"], &row["control_id"]))
        .collect();
    let (set, unset) = (&json!("set"), &json!("unset"));
    assert_eq!(
        changes,
        [
            (unset, &json!(1)),
            (unset, &json!(7)),
            (&json!("changed"), &json!(7)),
            (set, &json!(7)),
            (unset, &json!(5)),
            (set, &json!(5)),
            (unset, &json!(3)),
            (set, &json!(3)),
            (&json!("changed"), &json!(1)),
            (set, &json!(1))
        ]
    );
    assert_eq!(log[0]["actor"], "ada");
    let table = control(0, &["log", "--limit", "1"]).out;
    assert_eq!(table.lines().count(), 2, "{table}");
    postgres.stop().await;
}

#[test]
fn a_pause_that_says_too_little_is_refused() {
    let url = ["--database-url", "postgres://127.0.0.1:1/none"];
    for (arguments, code, hint) in [
        (&["pause", "--tool", "charge"][..], 2, "--note"),
        (
            &["pause", "--tool", "charge", "--note", " "],
            2,
            "a note has 1 to 2000 characters",
        ),
        (&["pause", "--where", "/a=1", "--note", "x"], 2, "--tool"),
        (
            &["pause", "--tool", "a", "--tell", "x", "--note", "x"],
            2,
            "--refuse",
        ),
        (
            &["pause", "--tool", "a", "--for", "soon", "--note", "x"],
            2,
            "is not a duration",
        ),
        (&["resume", "--note", "x"], 1, "which pause?"),
        (
            &["resume", "x", "--note", "x"],
            2,
            "control id must be a whole number",
        ),
        (
            &["resume", "1", "--tool", "a", "--note", "x"],
            2,
            "cannot be used with",
        ),
        (&["resume", "1", "--note", "x"], 69, ""),
        (
            &["resume", "1", "--note", "x", "--actor", ""],
            2,
            "a name has 1 to 128 characters",
        ),
        (
            &["unset", "1", "--note", "x", "--actor="],
            2,
            "a name has 1 to 128 characters",
        ),
    ] {
        let ran = run(program(&[&["control"], arguments, &url[..]].concat()));
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(hint), "{arguments:?}: {}", ran.err);
    }
}

#[tokio::test]
async fn a_breaker_is_forced_and_let_go_without_nats() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let ledger = ledger(&postgres.url());
    migrate(&ledger).await.unwrap();
    let mut connection = ledger.connect().await.unwrap();
    for (name, lines) in [("guarded", "breaker: {}\n"), ("plain", "")] {
        let manifest = TOOL.replace("name: charge", &format!("name: {name}")) + lines;
        let manifest = fleet::manifest::parse(&manifest).unwrap();
        tools::apply(&mut connection, &manifest, "test")
            .await
            .unwrap();
    }
    let breaker = |code: i32, arguments: &[&str]| -> Ran {
        let mut command = program(&[&["control", "breaker"], arguments, &NOTE[..]].concat());
        command.env("DATABASE_URL", postgres.url());
        command.env("NATS_URL", "nats://127.0.0.1:1");
        let ran = run(command);
        assert_eq!(ran.code, code, "{arguments:?}: {}{}", ran.out, ran.err);
        ran
    };
    let set = breaker(0, &["guarded", "open", "--for", "1h", "--json"]).json();
    let control = &set["control"];
    assert_eq!(
        (&set["result"], &control["kind"], &control["setting"]),
        (&json!("set"), &json!("breaker"), &json!("open"))
    );
    let said = breaker(0, &["guarded", "open", "--for", "1h"]).out;
    assert!(
        said.starts_with("the breaker of guarded is forced open (control 1), until "),
        "{said}"
    );
    let mut command = program(&[&["control", "resume", "1"], &NOTE[..]].concat());
    command.env("DATABASE_URL", postgres.url());
    command.env("NATS_URL", "nats://127.0.0.1:1");
    let refused = run(command);
    assert_eq!(refused.code, 1, "{}", refused.out);
    let expected = "control 1 is no pause: breaker open for tool guarded; `toolfleet control breaker guarded auto --note WHY` takes it away";
    assert!(refused.err.contains(expected), "{}", refused.err);
    let closed = breaker(0, &["guarded", "closed", "--json"]).json();
    assert_eq!(
        (&closed["result"], &closed["control"]["control_id"]),
        (&json!("changed"), &json!(1))
    );
    let said = breaker(0, &["guarded", "auto"]).out;
    assert!(said.contains("no longer forced"), "{said}");
    let said = breaker(0, &["guarded", "auto"]).out;
    assert!(said.contains("was not forced"), "{said}");
    for (arguments, code, hint) in [
        (&["plain", "open"][..], 1, "has no breaker"),
        (&["plain", "auto"], 1, "the tool plain has no breaker"),
        (&["nowhere", "auto"], 1, "there is no tool nowhere"),
        (&["nowhere", "open"], 1, "no such tool"),
        (
            &["guarded", "half"],
            2,
            "possible values: open, closed, auto",
        ),
        (
            &["guarded", "auto", "--for", "1h"],
            1,
            "--for is for open and closed",
        ),
    ] {
        let ran = breaker(code, arguments);
        assert!(ran.err.contains(hint), "{arguments:?}: {}", ran.err);
    }
}

#[tokio::test]
async fn a_mode_of_a_brake_that_the_tool_lacks_is_set_and_said() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let ledger = ledger(&postgres.url());
    migrate(&ledger).await.unwrap();
    let mut connection = ledger.connect().await.unwrap();
    for (name, lines) in [
        ("guarded", "breaker: {}\nrate_limit: {calls: 1, per: 1s}\n"),
        ("plain", ""),
    ] {
        let manifest = TOOL.replace("name: charge", &format!("name: {name}")) + lines;
        let manifest = fleet::manifest::parse(&manifest).unwrap();
        tools::apply(&mut connection, &manifest, "test")
            .await
            .unwrap();
    }
    for (brake, tool, lacks) in [
        ("breaker", "plain", true),
        ("rate_limit", "plain", true),
        ("retry_budget", "plain", true),
        ("repeat_cap", "plain", false),
        ("breaker", "guarded", false),
        ("rate_limit", "guarded", false),
    ] {
        let set = ["control", "set", brake, "observe", "--tool", tool];
        let mut command = program(&[&set[..], &NOTE].concat());
        command.env("DATABASE_URL", postgres.url());
        command.env("NATS_URL", "nats://127.0.0.1:1");
        let ran = run(command);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let hint = format!("the newest version of {tool} has no {brake}");
        assert_eq!(ran.out.contains(&hint), lacks, "{}", ran.out);
    }
    postgres.stop().await;
}
