//! Manifests in, definitions out.

use std::{fs, process::Command, time::Duration};

use fleet::store::migrate::migrate;
use futures_util::StreamExt;
use serde_json::json;
use toolfleet::servers::free_ports;

use crate::support::{folder, ledger, nats, postgres, program, run};

const LOOK: &str = "\
name: look
version: 1
description: Looks something up and tells what it found.
effect: read
input_schema: {type: object, properties: {what: {type: string, minLength: 1, description: What to look up}}}
executor: {process: {command: [look]}}
";

#[test]
fn the_examples_have_nothing_to_object_to() {
    let ran = run(program(&["tools", "lint", "examples/tools"]));
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert_eq!(ran.out, "5 files: 0 problems, 0 warnings\n");
}

#[test]
fn every_problem_of_every_file_is_named_by_file_and_pointer() {
    let folder = folder();
    fs::write(
        folder.path().join("a.yaml"),
        LOOK.replace("effect: read", "effect: maybe\nbogus: 1")
            .replace("Looks something up and tells what it found.", "Looks."),
    )
    .unwrap();
    fs::write(
        folder.path().join("b.yaml"),
        LOOK.replace(", description: What to look up", ""),
    )
    .unwrap();
    fs::write(folder.path().join("c.yaml"), "name: [").unwrap();
    let good = LOOK.replace("name: look", "name: glance");
    fs::write(folder.path().join("d.yaml"), good).unwrap();
    let mut lint = program(&["tools", "lint", "."]);
    lint.current_dir(folder.path());
    let ran = run(lint);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    let lines: Vec<&str> = ran.out.lines().collect();
    let starts = |start: &str| lines.iter().filter(|line| line.starts_with(start)).count();
    assert_eq!(starts("./a.yaml:/effect: "), 1, "{}", ran.out);
    assert_eq!(starts("./a.yaml:/bogus: "), 1, "{}", ran.out);
    assert_eq!(starts("./a.yaml:/description: warning: "), 1, "{}", ran.out);
    assert_eq!(
        starts("./b.yaml:/input_schema/properties/what: warning: "),
        1,
        "{}",
        ran.out
    );
    assert_eq!(starts("./c.yaml: "), 1, "{}", ran.out);
    assert_eq!(starts("./d.yaml"), 0, "{}", ran.out);
    assert_eq!(lines.last(), Some(&"4 files: 3 problems, 2 warnings"));

    let mut lint = program(&["tools", "lint", "--json", "b.yaml"]);
    lint.current_dir(folder.path());
    let ran = run(lint);
    assert_eq!(ran.code, 0, "warnings alone are no failure");
    let found = &ran.json()[0];
    assert_eq!(
        (&found["file"], &found["problems"]),
        (&json!("b.yaml"), &json!([]))
    );
    assert_eq!(
        found["warnings"][0]["path"],
        "/input_schema/properties/what"
    );
}

/// The fleet's own tool that reads large results comes with the first tool that needs it, and has nothing to object to.
#[tokio::test]
async fn a_tool_with_large_results_brings_the_tool_that_reads_them() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    migrate(&ledger(&postgres.url())).await.unwrap();
    let file = folder.path().join("look.yaml");
    fs::write(&file, format!("{LOOK}large_result: {{}}\n")).unwrap();
    let apply = || {
        let mut command = program(&["tools", "apply", file.to_str().unwrap()]);
        command
            .env("DATABASE_URL", postgres.url())
            .env("NATS_URL", "nats://127.0.0.1:1");
        run(command)
    };
    let first = apply();
    assert_eq!(
        first.out, "look version 1: created\nread_result version 1: created\n",
        "{}",
        first.err
    );
    assert!(!first.err.contains("may get wrong"), "{}", first.err);
    assert!(apply().out.contains("read_result version 1: unchanged"));
}

#[tokio::test]
async fn a_version_is_applied_once_and_never_changed() {
    let folder = folder();
    let (postgres, nats) = tokio::join!(postgres(folder.path(), true), nats(folder.path()));
    migrate(&ledger(&postgres.url())).await.unwrap();
    let client = async_nats::connect(nats.url()).await.unwrap();
    let mut bell = client.subscribe("toolfleet.control.changed").await.unwrap();
    client.flush().await.unwrap();
    let file = folder.path().join("look.yaml");
    let write = |text: &str| fs::write(&file, text).unwrap();
    let path = file.to_str().unwrap();
    let on_servers = |arguments: &[&str]| -> Command {
        let mut command = program(arguments);
        command
            .env("DATABASE_URL", postgres.url())
            .env("NATS_URL", nats.url());
        command
    };
    let tools = |arguments: &[&str]| run(on_servers(&[&["tools"], arguments].concat()));

    write(LOOK);
    let first = tools(&["apply", path, "examples/tools", "--by", "ada\u{202e}"]);
    assert_eq!(first.code, 0, "{}{}", first.out, first.err);
    assert_eq!(
        first.out,
        "look version 1: created\ncount_words version 1: created\nfind_charge version 1: created\n\
         get_weather version 1: created\ntransfer version 1: created\ncharge_account version 1: created\n"
    );
    let heard = tokio::time::timeout(Duration::from_secs(30), bell.next()).await;
    assert!(heard.unwrap().unwrap().payload.is_empty());
    let again = tools(&["apply", path]);
    assert_eq!(
        (again.code, again.out.as_str()),
        (0, "look version 1: unchanged\n")
    );

    write(&LOOK.replace("Looks", "Glances"));
    let other = tools(&["apply", path]);
    assert_eq!(other.code, 1);
    assert!(
        other.out.starts_with("look version 1: refused: "),
        "{}",
        other.out
    );

    // No fleet to tell is a warning: dispatchers look by themselves.
    write(
        &LOOK
            .replace("Looks", "Glances")
            .replace("version: 1", "version: 2"),
    );
    let mut alone = on_servers(&["tools", "apply", path, "--json"]);
    alone.env(
        "NATS_URL",
        format!("nats://127.0.0.1:{}", free_ports(1).unwrap()[0]),
    );
    let alone = run(alone);
    assert_eq!(
        (alone.code, alone.err.lines().count()),
        (0, 1),
        "{}",
        alone.err
    );
    assert_eq!(
        alone.json(),
        json!([{"file": path, "tool": "look", "version": 2, "result": "created"}])
    );

    // What a model may get wrong is said once, and applied.
    let unclear = folder.path().join("unclear.yaml");
    let text = LOOK.replace("name: look", "name: run");
    fs::write(&unclear, text).unwrap();
    let path_of_unclear = unclear.to_str().unwrap();
    let hinted = tools(&["apply", path_of_unclear]);
    assert_eq!(
        (hinted.code, hinted.out.as_str()),
        (0, "run version 1: created\n")
    );
    assert!(
        hinted.err.contains(": 1 thing that a model may get wrong"),
        "{}",
        hinted.err
    );
    let again = tools(&["apply", path_of_unclear]);
    assert_eq!((again.code, again.err.as_str()), (0, ""));

    // One bad file, and none is applied.
    let good = folder.path().join("good.yaml");
    fs::write(&good, LOOK.replace("version: 1", "version: 3")).unwrap();
    write("name: look");
    let bad = tools(&["apply", good.to_str().unwrap(), path]);
    assert_eq!(bad.code, 1);
    assert!(bad.out.contains("look.yaml:/"), "{}", bad.out);

    let listed = tools(&["list", "--json"]).json();
    let of = |name: &str| {
        listed
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["tool"] == name)
            .unwrap()
    };
    assert_eq!(listed.as_array().unwrap().len(), 7);
    assert_eq!(
        (&of("look")["version"], &of("look")["executor"]),
        (&json!(2), &json!("process"))
    );
    assert_eq!(
        (&of("charge_account")["key"], &of("get_weather")["key"]),
        (&json!("required"), &json!("optional"))
    );
    let table = tools(&["list", "--all"]).out;
    assert_eq!(
        table
            .lines()
            .filter(|line| line.starts_with("look "))
            .count(),
        2,
        "{table}"
    );
    assert!(
        table.contains("ada\\u{202e}") && !table.contains('\u{202e}'),
        "{table}"
    );

    let shown = tools(&["show", "look", "--version", "1", "--format", "anthropic"]).json();
    assert_eq!(
        shown["description"],
        "Looks something up and tells what it found."
    );
    assert!(shown["input_schema"].is_object() && shown.get("executor").is_none());
    let strict = tools(&[
        "show",
        "look",
        "--version",
        "1",
        "--format",
        "openai",
        "--strict",
    ]);
    assert_eq!(strict.json()["function"]["strict"], true, "{}", strict.err);
    assert_eq!(tools(&["show", "look", "--strict"]).code, 1);
    let manifest = tools(&["show", "look"]).json();
    assert_eq!(
        (&manifest["version"], &manifest["timeout"]),
        (&json!(2), &json!("30s"))
    );
    for (missing, sentence) in [
        (&["show", "look", "--version", "3"][..], "has no version 3"),
        (&["show", "nope"], "no tool nope"),
    ] {
        let ran = tools(missing);
        assert_eq!(ran.code, 1);
        assert!(ran.err.contains(sentence), "{}", ran.err);
    }
    nats.stop().await;
    postgres.stop().await;
}

#[tokio::test]
async fn a_tool_is_retired_once_and_offered_again_by_a_newer_version_alone() {
    let folder = folder();
    let (postgres, nats) = tokio::join!(postgres(folder.path(), true), nats(folder.path()));
    migrate(&ledger(&postgres.url())).await.unwrap();
    let client = async_nats::connect(nats.url()).await.unwrap();
    let file = folder.path().join("look.yaml");
    let path = file.to_str().unwrap();
    let tools = |arguments: &[&str]| {
        let mut command = program(&[&["tools"], arguments].concat());
        command
            .env("DATABASE_URL", postgres.url())
            .env("NATS_URL", nats.url());
        run(command)
    };
    let retire = [
        "retire",
        "look",
        "--note",
        "Replaced\u{202e}.",
        "--by",
        "ada",
    ];
    let unknown = tools(&retire);
    assert_eq!((unknown.code, unknown.out.as_str()), (1, ""));
    assert!(unknown.err.contains("no tool look"), "{}", unknown.err);

    fs::write(&file, LOOK).unwrap();
    assert_eq!(tools(&["apply", path]).code, 0);
    // Who retires a tool says why.
    assert_eq!(tools(&["retire", "look"]).code, 2);
    assert_eq!(tools(&["retire", "look", "--note", " "]).code, 2);
    let mut bell = client.subscribe("toolfleet.control.changed").await.unwrap();
    client.flush().await.unwrap();
    let first = tools(&retire);
    assert_eq!((first.code, first.err.as_str()), (0, ""));
    assert!(
        first
            .out
            .starts_with("tool look is retired, up to version 1: "),
        "{}",
        first.out
    );
    let heard = tokio::time::timeout(Duration::from_secs(30), bell.next()).await;
    assert!(heard.unwrap().unwrap().payload.is_empty());
    let again = tools(&["retire", "look", "--note", "Again.", "--by", "bob"]);
    assert_eq!((again.code, again.err.as_str()), (0, ""));
    assert!(
        again
            .out
            .starts_with("tool look had been retired before, up to version 1, by ada at "),
        "{}",
        again.out
    );
    let again = tools(&["retire", "look", "--note", "Again.", "--json"]);
    assert_eq!(
        again.json(),
        json!({"tool": "look", "version": 1, "result": "already_retired"})
    );

    let row = tools(&["list", "--json"]).json()[0].clone();
    assert!(row["retired_at"].is_string(), "{row}");
    assert_eq!(
        (&row["retired_by"], &row["retired_note"]),
        (&json!("ada"), &json!("Replaced\u{202e}."))
    );
    let shown = tools(&["show", "look"]);
    assert_eq!(shown.json()["version"], 1);
    let said = "toolfleet: look version 1 is retired, by ada at ";
    assert!(
        shown.err.starts_with(said) && shown.err.ends_with(": Replaced\\u{202e}.\n"),
        "{}",
        shown.err
    );

    let unchanged = tools(&["apply", path]);
    assert_eq!(unchanged.out, "look version 1: unchanged\n");
    assert_eq!(
        unchanged.err,
        "toolfleet: look version 1 is retired: apply a version above 1 to offer the tool again\n"
    );
    fs::write(&file, LOOK.replace("version: 1", "version: 2")).unwrap();
    let newer = tools(&["apply", path]);
    assert_eq!(
        (newer.out.as_str(), newer.err.as_str()),
        ("look version 2: created\n", "")
    );
    let table = tools(&["list", "--all"]).out;
    let rows: Vec<&str> = table.lines().map(str::trim_end).collect();
    assert!(rows[0].ends_with("RETIRED"), "{table}");
    assert!(
        rows[2].ends_with(" -") && !rows[1].ends_with(" -"),
        "{table}"
    );
    assert_eq!(tools(&["show", "look"]).err, "");
    nats.stop().await;
    postgres.stop().await;
}

/// What is misspelt in `never_after` would forbid nothing, and in `after` everything.
#[tokio::test]
async fn a_policy_names_tools_that_are_applied_before_it_or_with_it() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    migrate(&ledger(&postgres.url())).await.unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let mail = LOOK.replace("name: look", "name: mail");
    let policy = "policy: {after: [confirm, glance], never_after: [look]}\n";
    write("mail.yaml", &(mail.clone() + policy));
    write(
        "look.yaml",
        &(LOOK.to_owned() + "policy: {never_after: [mail]}\n"),
    );
    let tools = |arguments: &[&str]| {
        let mut command = program(&[&["tools"], arguments].concat());
        command.current_dir(folder.path());
        command.env("DATABASE_URL", postgres.url());
        command.env("NATS_URL", "nats://127.0.0.1:1");
        run(command)
    };
    let refused = tools(&["apply", "mail.yaml", "look.yaml"]);
    assert_eq!(refused.code, 1, "{}{}", refused.out, refused.err);
    let lines: Vec<&str> = refused.out.lines().collect();
    assert_eq!(lines.len(), 2, "{}", refused.out);
    for (line, tool) in lines.iter().zip(["confirm", "glance"]) {
        let says = format!("mail.yaml:/policy: it names {tool}, and no such tool was ever applied");
        assert!(line.starts_with(&says), "{line}");
    }
    assert!(refused.err.contains("nothing was applied"));
    let refused = tools(&["apply", "mail.yaml", "--json"]).json();
    assert_eq!(refused[0]["problems"][2]["path"], "/policy");
    assert_eq!(tools(&["list", "--json"]).json(), json!([]));
    // Each names the other.
    write("mail.yaml", &(mail + "policy: {never_after: [look]}\n"));
    let applied = tools(&["apply", "look.yaml", "mail.yaml"]);
    assert_eq!(applied.code, 0, "{}{}", applied.out, applied.err);
    let again = tools(&["apply", "mail.yaml"]);
    assert_eq!(again.out, "mail version 1: unchanged\n");
    postgres.stop().await;
}

#[tokio::test]
async fn names_of_tools_that_a_model_is_to_use_and_that_nobody_has_applied_are_told() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    migrate(&ledger(&postgres.url())).await.unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("look.yaml", LOOK);
    let model = "name: ask_model\nversion: 1\ndescription: Answers a conversation.\neffect: read\n\
        executor: {chat: {protocol: openai_chat, routes: [{name: main, url: 'https://models.example/v1', model: m}]}}\n\
        delegates: [{tool: look, keywords: [{word: weather, weight: 5}]}, {tool: researcher, keywords: [{word: research, weight: 5}]}]\n\
        tool_selection: {from: fleet, only: [look, lock], always: [find_tols]}\n\
        context: {strategy: hybrid, summary_tool: sum_upp}\n";
    write("model.yaml", model);
    let mut command = program(&["tools", "apply", "model.yaml", "look.yaml"]);
    command.current_dir(folder.path());
    command.env("DATABASE_URL", postgres.url());
    command.env("NATS_URL", "nats://127.0.0.1:1");
    let applied = run(command);
    assert_eq!(applied.code, 0, "{}{}", applied.out, applied.err);
    let told: Vec<&str> = applied
        .err
        .lines()
        .filter(|line| line.contains("ever applied"))
        .collect();
    let named = [
        "delegates names researcher",
        "tool_selection.only names lock",
        "context.summary_tool names sum_upp",
    ];
    assert_eq!(told.len(), named.len(), "{}", applied.err);
    for (line, named) in told.iter().zip(named) {
        let says =
            format!("ask_model: {named}, and no such tool was ever applied; is it misspelt?");
        assert!(line.contains(&says), "{line}");
    }
    postgres.stop().await;
}

#[test]
fn two_files_with_one_tool_are_a_problem_of_both_and_nothing_is_applied() {
    let folder = folder();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("a.yaml", LOOK);
    write("b.yaml", &LOOK.replace("version: 1", "version: 2"));
    write("c.yaml", &LOOK.replace("name: look", "name: glance"));
    for verb in ["lint", "apply"] {
        let mut tools = program(&["tools", verb, "."]);
        tools.current_dir(folder.path());
        // There is no server: what is refused asks none.
        tools.env("DATABASE_URL", "postgres://nobody@127.0.0.1:1/nowhere");
        let ran = run(tools);
        assert_eq!(ran.code, 1, "{verb}: {}{}", ran.out, ran.err);
        for (file, other) in [
            ("./a.yaml:/name: ", "./b.yaml"),
            ("./b.yaml:/name: ", "./a.yaml"),
        ] {
            let named = |line: &str| line.starts_with(file) && line.contains(other);
            assert!(ran.out.lines().any(named), "{verb}: {}", ran.out);
        }
        assert!(!ran.out.contains("c.yaml:"), "{verb}: {}", ran.out);
    }
    // The same file by two paths is one file.
    let mut twice = program(&["tools", "lint", "a.yaml", "./a.yaml"]);
    twice.current_dir(folder.path());
    let ran = run(twice);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
}

#[test]
fn an_address_in_a_url_is_judged_as_the_workers_judge_it() {
    let folder = folder();
    let program_of = "{process: {command: [look]}}";
    let http = LOOK.replace(
        program_of,
        "{http: {method: GET, url: 'http://2130706433:80/'}}",
    );
    fs::write(folder.path().join("a.yaml"), http).unwrap();
    let ran_with = |verb: &str, settings: &[(&str, &str)]| {
        let mut tools = program(&["tools", verb, "a.yaml"]);
        tools.current_dir(folder.path());
        tools.env("DATABASE_URL", "postgres://nobody@127.0.0.1:1/nowhere");
        tools.envs(settings.iter().copied());
        run(tools)
    };
    let public = ("WORKER_EGRESS", "public");
    for verb in ["lint", "apply"] {
        let ran = ran_with(verb, &[public]);
        assert_eq!(ran.code, 1, "{verb}: {}{}", ran.out, ran.err);
        let problem = "a.yaml:/executor/http/url: 127.0.0.1 is not a public address";
        assert!(ran.out.starts_with(problem), "{verb}: {}", ran.out);
    }
    let allowed = ("WORKER_EGRESS_ALLOW", "127.0.0.0/8");
    for settings in [&[][..], &[public, allowed]] {
        let ran = ran_with("lint", settings);
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    }
    let ran = ran_with("lint", &[("WORKER_EGRESS_ALLOW", "10.0.0.0/33")]);
    assert_eq!(ran.code, 64, "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("10.0.0.0/33"), "{}", ran.err);
}
