//! MCP servers as tools of a fleet: looked at, applied, called, and lost with their worker.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use fleet::{
    manifest::{AnyManifest, Manifest, McpServer, parse, parse_any},
    mcp::{
        OPERATORS, discover_name,
        discovered::{FoundTool, Standing, compare},
    },
    store::{mcp_servers, tools::Applied},
};
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::{until, until_so, until_within},
    witness::Witness,
};
use serde_json::{Value, json};
use tempfile::TempDir;

const SERVER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/conformance/mcp_server.py"
);

struct Upstream {
    folder: TempDir,
    server: McpServer,
}

impl Upstream {
    /// A server on stdio that the calls of a worker share.
    fn new() -> Self {
        Self::with("shared", "untrusted", &json!({}))
    }

    /// A server on stdio whose processes live so long, which is believed so much and has these variables.
    fn with(lifetime: &str, trust: &str, env: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let command = json!(["python3", SERVER, "stdio", "modern", folder.path()]);
        let transport = json!({"stdio": {"command": command, "env": env, "lifetime": lifetime}});
        let manifest = json!({"kind": "mcp_server", "name": "up", "version": 1, "transport": transport, "trust": trust});
        let Ok(AnyManifest::McpServer(server)) = parse_any(&manifest.to_string()) else {
            panic!("{manifest}")
        };
        Self {
            folder,
            server: *server,
        }
    }

    async fn apply(&self, fleet: &Fleet) {
        let mut connection = fleet.database.connect().await;
        for expected in [Applied::Created, Applied::Unchanged] {
            let applied = mcp_servers::apply(&mut connection, &self.server, "test")
                .await
                .unwrap();
            assert_eq!(applied, expected);
        }
        let mut other = serde_json::to_value(&self.server).unwrap();
        other["on_change"] = json!("warn");
        let other: McpServer = serde_json::from_value(other).unwrap();
        let applied = mcp_servers::apply(&mut connection, &other, "test")
            .await
            .unwrap();
        assert_eq!(applied, Applied::Conflict, "a version never changes");
        let discoverer = worker::discoverer_of(&self.server.queue);
        fleet
            .apply(&serde_json::to_string(&discoverer).unwrap())
            .await;
    }

    /// What a worker finds, beside what is applied.
    async fn discover(&self, fleet: &Fleet, applied: &[Manifest]) -> Vec<FoundTool> {
        let tool = discover_name(&self.server.queue);
        let answer = until("the tool that looks to be known", async || {
            let asked = fleet
                .submit(tool.as_str(), &json!({"server": "up"}))
                .tenant(OPERATORS);
            let answer = asked.wait().await;
            (answer.code() != "unknown_tool").then_some(answer)
        })
        .await;
        assert_eq!(answer["state"], "succeeded", "{}", *answer);
        let definitions = answer["result"]["tools"].as_array().unwrap();
        compare(&self.server, definitions, applied, &[])
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    fn effects(&self) -> usize {
        let text = fs::read_to_string(self.path("effects")).unwrap_or_default();
        text.lines().count()
    }

    fn names(&self, ending: &str) -> Vec<String> {
        let files = fs::read_dir(self.folder.path()).unwrap().flatten();
        let names = files.filter_map(|file| file.file_name().into_string().ok());
        names
            .filter_map(|name| Some(name.strip_suffix(ending)?.to_owned()))
            .collect()
    }
}

fn manifest_of(found: &[FoundTool], upstream: &str) -> Manifest {
    let one = found.iter().find(|one| one.upstream == upstream).unwrap();
    parse(&one.manifest.as_ref().unwrap().to_string()).unwrap()
}

#[tokio::test]
async fn a_server_is_looked_at_applied_and_called_and_a_change_stops_its_calls() {
    let witness = Witness::start().await;
    let upstream = Upstream::new();
    let fleet = Fleet::start(Spec::with([])).await;
    upstream.apply(&fleet).await;
    let new = upstream.discover(&fleet, &[]).await;
    assert!(
        new.iter().all(|one| one.standing == Standing::New),
        "{new:?}"
    );
    let count = manifest_of(&new, "count");
    assert_eq!(
        (count.name.as_str(), count.effect.as_str()),
        ("up_count", "once")
    );
    fleet.apply(&serde_json::to_string(&count).unwrap()).await;

    until_so("the tool to be known", async || {
        let tools = fleet.ask("toolfleet.v1.default.tools", &json!({})).await;
        tools.to_string().contains("\"up_count\"")
    })
    .await;
    for replayed in [false, true] {
        let call = fleet.submit("up_count", &json!({"n": 1})).key("a");
        let answer = call.wait().await;
        assert_eq!(
            (&answer["state"], &answer["replayed"]),
            (&json!("succeeded"), &json!(replayed)),
            "{}",
            *answer
        );
        assert_eq!(answer["result"]["structured"], json!({"ok": true}));
    }
    assert_eq!(upstream.effects(), 1);

    let mut changed =
        json!({"name": "count", "description": "does count", "inputSchema": {"type": "object"}});
    changed["annotations"] = json!({"destructiveHint": false});
    fs::write(upstream.path("count.tool"), changed.to_string()).unwrap();
    let found = upstream
        .discover(&fleet, std::slice::from_ref(&count))
        .await;
    let one = found.iter().find(|one| one.upstream == "count").unwrap();
    assert!(
        matches!(
            one.standing,
            Standing::Changed {
                words_only: false,
                ..
            }
        ),
        "{one:?}"
    );
    // This worker has not looked again yet; one that starts now has.
    let mut fleet = fleet;
    fleet.workers.clear();
    fleet.add_worker(&[]).await;
    let answer = fleet
        .submit("up_count", &json!({"n": 2}))
        .key("b")
        .wait()
        .await;
    assert_eq!(
        (&answer["state"], answer.code()),
        (&json!("failed"), "tool_changed"),
        "{}",
        *answer
    );
    assert_eq!(answer["effect"], "not_applied");
    assert_eq!(upstream.effects(), 1);

    let next = manifest_of(&found, "count");
    assert_eq!(next.version, 2);
    fleet.apply(&serde_json::to_string(&next).unwrap()).await;
    let mut asked = 0;
    until_so("the new version to be called", async || {
        asked += 1;
        let answer = fleet
            .submit("up_count", &json!({"n": 3}))
            .key(&format!("c{asked}"))
            .wait()
            .await;
        answer["state"] == "succeeded" || {
            assert_eq!(answer["tool_version"], 1, "{}", *answer);
            false
        }
    })
    .await;
    let listed = fleet
        .count("SELECT count(*) FROM toolfleet.mcp_servers WHERE current AND transport = 'stdio'")
        .await;
    assert_eq!(listed, 1);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn what_a_server_says_of_its_tools_is_told_without_its_secrets() {
    const SECRET: &str = "hunter2-and-more";
    let upstream = Upstream::with("shared", "untrusted", &json!({"TOKEN": "secret://TOKEN"}));
    let secrets = tempfile::tempdir().unwrap();
    fs::write(secrets.path().join("TOKEN"), SECRET).unwrap();
    let flags = ["--secrets", secrets.path().to_str().unwrap()];
    let fleet = Fleet::start(Spec::with([]).workers(1, &flags)).await;
    upstream.apply(&fleet).await;
    let schema =
        json!({"type": "object", "properties": {"a": {"type": "string", "default": SECRET}}});
    let told = json!({"name": "count", "description": format!("sends {SECRET} on"), "inputSchema": schema});
    fs::write(upstream.path("count.tool"), told.to_string()).unwrap();
    let found = upstream.discover(&fleet, &[]).await;
    let one = found.iter().find(|one| one.upstream == "count").unwrap();
    // What is veiled has no pin, so it can be applied by nobody.
    assert!(
        matches!(&one.standing, Standing::Unfit { reason } if reason.contains("secret")),
        "{one:?}"
    );
    assert!(!format!("{found:?}").contains(SECRET), "{found:?}");
    let kept = "SELECT count(*) FROM toolfleet.calls WHERE result::text LIKE '%hunter2%'";
    assert_eq!(fleet.count(kept).await, 0);
}

#[tokio::test]
async fn what_a_program_wrote_before_it_ended_is_told_to_callers_and_is_in_no_log() {
    const WORDS: &str = "words-of-the-program";
    const TOLD: &str = "SELECT count(*) FROM toolfleet.ended_attempts WHERE error::text LIKE '%words-of-the-program%'";
    let command = json!(["/bin/sh", "-c", format!("echo {WORDS} >&2; exit 7")]);
    let server = json!({"kind": "mcp_server", "name": "up", "version": 1, "transport": {"stdio": {"command": command}}});
    let Ok(AnyManifest::McpServer(server)) = parse_any(&server.to_string()) else {
        panic!("{server}")
    };
    let upstream = Upstream {
        folder: tempfile::tempdir().unwrap(),
        server: *server,
    };
    let fleet = Fleet::start(Spec::with([]).workers(1, &["--queues", "other"])).await;
    upstream.apply(&fleet).await;
    let mut worker = fleet.real_worker("logs", &[], None);
    worker.ready().await;
    let pin = format!("sha256:{}", "0".repeat(64));
    let tool = json!({"name": "up_count", "version": 1, "description": "Counts.", "effect": "once", "output": "content",
        "input_schema": {"type": "object"}, "executor": {"mcp": {"server": "up", "tool": "count", "pin": pin}}});
    fleet.apply(&tool.to_string()).await;
    until_so("the tool to be known", async || {
        let call = fleet.submit("up_count", &json!({})).key("first");
        call.asynchronous().await.code() != "unknown_tool"
    })
    .await;
    until_so("an attempt to end with them", async || {
        fleet.count(TOLD).await > 0
    })
    .await;
    let lines = ["has ended, or answers nothing", "do not start"];
    until_so("the log to say it", async || {
        let log = worker.log();
        lines.iter().all(|line| log.contains(line))
    })
    .await;
    let log = worker.log();
    assert!(!log.contains(WORDS), "{log}");
}

#[tokio::test]
async fn what_a_worker_that_is_killed_shared_is_in_doubt_and_nothing_of_it_lives_on() {
    let witness = Witness::start().await;
    let upstream = Upstream::new();
    let mut fleet = Fleet::start(Spec::with([]).workers(1, &["--queues", "other"])).await;
    upstream.apply(&fleet).await;
    let mut doomed = fleet.real_worker("doomed", &[], None);
    doomed.ready().await;
    let found = upstream.discover(&fleet, &[]).await;
    for tool in ["count", "hang"] {
        let manifest = manifest_of(&found, tool);
        fleet
            .apply(&serde_json::to_string(&manifest).unwrap())
            .await;
    }
    until_so("an effect", async || {
        let answer = fleet
            .submit("up_count", &json!({}))
            .key("first")
            .wait()
            .await;
        answer["state"] == "succeeded"
    })
    .await;
    let hanging = fleet
        .submit("up_hang", &json!({}))
        .key("hang")
        .asynchronous()
        .await;
    until_so("it to hang", async || upstream.names(".begun").len() == 2).await;
    doomed.kill().await;
    let alive = || {
        let pids = upstream.names(".pid");
        pids.into_iter()
            .filter(|pid| Path::new("/proc").join(pid).exists())
            .count()
    };
    until_within(
        Duration::from_secs(3),
        "its processes to be gone",
        async || (alive() == 0).then_some(()),
    )
    .await;
    fleet.until_state(hanging.call_id(), "in_doubt").await;
    fleet.add_worker(&[]).await;
    until_so("the next call", async || {
        let answer = fleet
            .submit("up_count", &json!({}))
            .key("second")
            .wait()
            .await;
        answer["state"] == "succeeded"
    })
    .await;
    assert_eq!((upstream.effects(), upstream.names(".begun").len()), (2, 3));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn programs_of_calls_and_of_looks_take_the_slots_of_programs() {
    let witness = Witness::start().await;
    let upstream = Upstream::with("call", "untrusted", &json!({}));
    let spec = Spec::with([]).workers(1, &["--programs", "1"]);
    let fleet = Fleet::start(spec).await;
    upstream.apply(&fleet).await;
    let found = upstream.discover(&fleet, &[]).await;
    let before = upstream.names(".pid").len();
    for tool in ["tell", "count"] {
        let manifest = manifest_of(&found, tool);
        fleet
            .apply(&serde_json::to_string(&manifest).unwrap())
            .await;
    }
    let mut telling = None;
    until_so("the tool to be known", async || {
        let call = fleet.submit("up_tell", &json!({})).key("tell");
        let call = call.asynchronous().await;
        telling = Some(call.clone());
        call.code() != "unknown_tool"
    })
    .await;
    until_so("it to begin", async || upstream.names(".begun").len() == 1).await;
    let tool = discover_name(&upstream.server.queue);
    let looking = fleet
        .submit(tool.as_str(), &json!({"server": "up"}))
        .tenant(OPERATORS);
    let looking = looking.asynchronous().await.call_id();
    let counting = fleet.submit("up_count", &json!({})).key("count");
    let counting = counting.asynchronous().await.call_id();
    // The look gives its attempt up: it has found no slot. The call has not begun one.
    until_so("the look to find no slot", async || {
        let given_up = "SELECT count(*) FROM toolfleet.ended_attempts WHERE outcome = 'not_started' AND error::text LIKE '%slot%'";
        fleet.count(given_up).await > 0
    })
    .await;
    assert_eq!(upstream.names(".pid").len(), before + 1);
    assert_eq!(upstream.names(".begun").len(), 1);
    fs::write(upstream.path("tell"), "").unwrap();
    for call in [telling.unwrap().call_id(), looking, counting] {
        fleet.until_state(call, "succeeded").await;
    }
    assert_eq!(upstream.effects(), 1);
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn only_a_trusted_server_has_its_word_for_it_that_a_tool_reads() {
    for (trust, effect) in [("untrusted", "once"), ("trusted", "read")] {
        let witness = Witness::start().await;
        let upstream = Upstream::with("shared", trust, &json!({}));
        let tool = json!({"name": "effect_then_crash", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true}});
        fs::write(upstream.path("lies.tool"), tool.to_string()).unwrap();
        let fleet = Fleet::start(Spec::with([])).await;
        upstream.apply(&fleet).await;
        let manifest = manifest_of(&upstream.discover(&fleet, &[]).await, "effect_then_crash");
        assert_eq!(manifest.effect.as_str(), effect);
        fleet
            .apply(&serde_json::to_string(&manifest).unwrap())
            .await;
        let answer = until("the tool to be known", async || {
            let asked = fleet.submit("up_effect_then_crash", &json!({})).key("a");
            let answer = asked.wait().await;
            (answer.code() != "unknown_tool").then_some(answer)
        })
        .await;
        if effect == "once" {
            assert_eq!(answer["state"], "in_doubt", "{}", *answer);
            assert_eq!(upstream.effects(), 1, "whatever the server calls it");
        } else {
            assert_eq!(answer["state"], "failed", "{}", *answer);
            assert!(upstream.effects() > 1, "a read is tried again");
        }
        invariants::hold(&fleet, &witness).await;
    }
}

#[tokio::test]
async fn ten_thousand_tools_are_found_and_one_more_is_said_to_be_too_many() {
    let witness = Witness::start().await;
    let upstream = Upstream::new();
    let fleet = Fleet::start(Spec::with([])).await;
    upstream.apply(&fleet).await;
    fs::write(upstream.path("more"), "10000").unwrap();
    let found = upstream.discover(&fleet, &[]).await;
    assert_eq!(found.len(), 10_000);
    assert_eq!(manifest_of(&found, "more 7").name.as_str(), "up_more_7");
    fs::write(upstream.path("more"), "10001").unwrap();
    let asked = fleet.submit("mcp_discover", &json!({"server": "up"}));
    let answer = asked.tenant(OPERATORS).wait().await;
    assert_eq!(answer["state"], "failed", "{}", *answer);
    assert!(
        answer.to_string().contains("more than 10000 tools"),
        "{}",
        *answer
    );
    invariants::hold(&fleet, &witness).await;
}
