//! Limits of starts from the command line, while NATS is away.

use fleet::store::{migrate::migrate, tools};
use serde_json::{Value, json};

use crate::support::{Ran, folder, ledger, postgres, program, run};

/// Name, tools, calls and milliseconds of a limit.
type Listed = (String, Vec<String>, Option<i64>, Option<i64>);

fn tool(name: &str, limit: &str) -> String {
    format!(
        "name: {name}\nversion: 1\ndescription: Looks up.\neffect: read\ninput_schema: {{type: object}}\n\
         rate_limit: {limit}\nexecutor: {{process: {{command: [\"true\"]}}}}\n"
    )
}

#[tokio::test]
async fn a_limit_is_set_replaced_and_given_back_without_nats_and_the_log_has_it() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let ledger = ledger(&postgres.url());
    migrate(&ledger).await.unwrap();
    let mut connection = ledger.connect().await.unwrap();
    for manifest in [
        tool("look", "{calls: 50, per: 1s}"),
        tool("charge", "{share: bank}"),
        tool("refund", "{share: bank}"),
        tool("open", "{share: safe}"),
    ] {
        let manifest = fleet::manifest::parse(&manifest).unwrap();
        tools::apply(&mut connection, &manifest, "test")
            .await
            .unwrap();
    }
    let control = |code: i32, arguments: &[&str]| -> Ran {
        let mut command = program(&[&["control"], arguments].concat());
        command.env("DATABASE_URL", postgres.url());
        command.env("NATS_URL", "nats://127.0.0.1:1");
        let ran = run(command);
        assert_eq!(ran.code, code, "{arguments:?}: {}{}", ran.out, ran.err);
        ran
    };
    let limit = |code: i32, arguments: &[&str]| {
        let note = ["--note", "what it bears", "--actor", "ada"];
        control(code, &[&["limit"], arguments, &note[..]].concat())
    };
    let set = limit(0, &["bank", "100/1s", "--burst", "20", "--json"]).json();
    assert_eq!(
        (&set["result"], &set["control"]["setting"]),
        (
            &json!("set"),
            &json!({"burst": 20, "calls": 100, "per_ms": 1000})
        )
    );
    let again = limit(0, &["bank", "100/1s", "--burst", "20", "--json"]).json();
    assert_eq!(
        (&again["result"], &again["control"]["control_id"]),
        (&json!("already_set"), &json!(1))
    );
    let said = limit(0, &["bank", "5/1m", "--for", "2h"]).out;
    assert!(
        said.contains("of bank is set: 5/1m burst 1 over the whole fleet, until "),
        "{said}"
    );
    assert!(said.contains("and then what held before"), "{said}");
    let said = limit(0, &["safe", "5/1m", "--for", "2h"]).out;
    assert!(
        said.contains("and then it has no numbers, and none of its tools starts any call"),
        "{said}"
    );
    let said = limit(0, &["safe", "50/1m"]).out;
    assert!(
        said.contains(" over the whole fleet, and ends limit 3, 5/1m burst 1 until ")
            && said.contains("by ada: what it bears"),
        "{said}"
    );
    let look = limit(0, &["look", "7/1s", "--json"]).json()["control"]["control_id"].clone();
    let resume = ["resume", &look.to_string(), "--note", "a mistake"];
    let refused = control(1, &resume).err;
    assert!(
        refused.contains(&format!(
            "control {look} is no pause: limit 7/1s burst 1 for look; `toolfleet control limit look auto --note WHY` takes it away"
        )),
        "{refused}"
    );
    let table = control(0, &["list"]).out;
    assert!(
        table.contains("  bank  ") && table.contains("5/1m burst 1"),
        "{table}"
    );

    let limits: Vec<Listed> =
        sqlx::query_as("SELECT name, tools, calls, per_ms FROM toolfleet.limits ORDER BY name")
            .fetch_all(&mut connection)
            .await
            .unwrap();
    let row = |name: &str, tools: &[&str], calls, per_ms| {
        let tools = tools.iter().map(|tool| (*tool).to_owned()).collect();
        (name.to_owned(), tools, Some(calls), Some(per_ms))
    };
    assert_eq!(
        limits,
        [
            row("bank", &["charge", "refund"], 5, 60_000),
            row("look", &["look"], 7, 1_000),
            row("safe", &["open"], 50, 60_000)
        ]
    );

    for (arguments, why) in [
        (
            ["nobody", "5/1s"],
            "there is no limit nobody: it must be that of a tool with a rate_limit of its own, or one that tools share",
        ),
        (["nobody", "auto"], "there is no limit nobody"),
        (
            ["charge", "auto"],
            "the tool charge shares the limit bank: `toolfleet control limit bank",
        ),
        (
            ["charge", "5/1s"],
            "; the tool charge shares the limit bank: `toolfleet control limit bank CALLS/TIME --note WHY`",
        ),
        (
            ["look", "0/1s"],
            "the number before the / must be 1 to 1000000",
        ),
        (
            ["look", "5/25h"],
            "the time after the / must be 1ms to 24h, which is a day",
        ),
        (["look", "101/1ms"], "more than 100 in a millisecond"),
    ] {
        let refused = limit(1, &arguments);
        assert!(refused.err.contains(why), "{}", refused.err);
    }
    let refused = limit(1, &["look", "5/1s", "--burst", "10001"]);
    assert!(
        refused.err.contains("--burst must be 1 to 10000"),
        "{}",
        refused.err
    );
    for (arguments, why) in [
        (["look", "5"], "100/1s, or auto"),
        (["Look", "5/1s"], "a-z, 0-9"),
    ] {
        let refused = limit(2, &arguments);
        assert!(refused.err.contains(why), "{}", refused.err);
    }

    // No tool gets the name of a shared limit, nor a shared limit that of a tool.
    for (name, rate, why) in [
        (
            "bank",
            "{calls: 1, per: 1s}",
            "bank version 1: refused: bank is the name of a limit that other tools share",
        ),
        (
            "other",
            "{share: look}",
            "other version 1: refused: look is the name of a tool with a rate_limit of its own",
        ),
    ] {
        let file = folder.path().join("tool.yaml");
        std::fs::write(&file, tool(name, rate)).unwrap();
        let mut command = program(&["tools", "apply", file.to_str().unwrap()]);
        command.env("DATABASE_URL", postgres.url());
        command.env("NATS_URL", "nats://127.0.0.1:1");
        let refused = run(command);
        assert_eq!(refused.code, 1, "{}", refused.out);
        assert!(refused.out.starts_with(why), "{}", refused.out);
    }

    let said = limit(0, &["look", "auto"]).out;
    assert!(said.contains("of look is over"), "{said}");
    let gone = limit(0, &["look", "auto"]).out;
    assert_eq!(gone, "the limit look was not set by a control\n");
    let gone = limit(0, &["look", "auto", "--json"]).json();
    assert_eq!(gone, json!({"result": "not_found", "control": null}));
    let log = control(0, &["log", "--json"]).json();
    let changes = log.as_array().unwrap().iter().rev();
    let changes: Vec<(&str, &Value)> = changes
        .map(|row| (row["change"].as_str().unwrap(), &row["subject"]))
        .collect();
    let (bank, look, safe) = (&json!("bank"), &json!("look"), &json!("safe"));
    assert_eq!(
        changes,
        [
            ("set", bank),
            // For a time: the one without an end stays beneath it.
            ("set", bank),
            ("set", safe),
            ("set", safe),
            // One without an end takes the one for a time away.
            ("unset", safe),
            ("set", look),
            ("unset", look)
        ]
    );
    postgres.stop().await;
}
