//! What the fleet has learned of a tool's timeout, from the command line.

use std::time::Duration;

use fleet::{
    learn::{LearnedWhy, Lesson},
    store::{migrate::migrate, timeouts, tools},
};
use serde_json::json;

use crate::support::{folder, ledger, postgres, program, run};

#[tokio::test]
async fn a_learned_timeout_is_told_with_the_look_and_the_changes_that_it_came_from() {
    let folder = folder();
    let postgres = postgres(folder.path(), true).await;
    let ledger = ledger(&postgres.url());
    migrate(&ledger).await.unwrap();
    let mut connection = ledger.connect().await.unwrap();
    for (name, timeout) in [
        ("look", "{learned: p95x2, floor: 2s}"),
        ("new", "{learned: p99x3}"),
        ("fixed", "7s"),
    ] {
        let manifest = format!(
            "name: {name}\nversion: 1\ndescription: Looks up.\neffect: read\ninput_schema: {{type: object}}\n\
             timeout: {timeout}\nexecutor: {{process: {{command: [\"true\"]}}}}\n"
        );
        let manifest = fleet::manifest::parse(&manifest).unwrap();
        tools::apply(&mut connection, &manifest, "test")
            .await
            .unwrap();
    }
    let pool = ledger.pool(1);
    let look = "look".parse().unwrap();
    timeouts::take_due(&pool, &[("look".parse().unwrap(), 1)])
        .await
        .unwrap();
    let lesson = Lesson {
        samples: 900,
        longer: 12,
        p95_ms: 4_100,
        p99_ms: 5_000,
        next: Some((Duration::from_millis(7_500), LearnedWhy::CutOff)),
    };
    let five = Duration::from_secs(5);
    let kept = timeouts::keep(&pool, &look, 1, None, five, &lesson).await;
    assert!(kept.unwrap());
    let show = |arguments: &[&str]| {
        let mut command = program(&[&["tools", "show"], arguments, &["--timeout"]].concat());
        command.env("DATABASE_URL", postgres.url());
        run(command)
    };
    let told = show(&["look"]).out;
    for part in [
        "look version 1: 7500ms, learned as p95x2 between 2s and 30s, initially 5s\n",
        ": 900 samples, 12 longer than the timeout, p95 4100ms, p99 5s\n",
        "cut_off",
    ] {
        assert!(told.contains(part), "{part} is not in {told}");
    }
    let shown = show(&["look", "--json"]).json();
    assert_eq!(shown["timeout_ms"], 7_500);
    assert_eq!(shown["look"]["samples"], 900);
    assert_eq!(shown["changes"][0]["why"], "cut_off");
    assert_eq!(shown["changes"][0]["before_ms"], 5_000);
    assert_eq!(shown["manifest"]["learned"], "p95x2");
    let new = show(&["new"]).out;
    assert!(
        new.contains("new version 1: 5s, learned as p99x3 between 1s and 30s"),
        "{new}"
    );
    let fixed = show(&["fixed"]).out;
    assert_eq!(fixed, "fixed version 1: 7s, as its manifest says\n");
    assert_eq!(show(&["fixed", "--json"]).json()["manifest"], json!("7s"));
    assert_eq!(show(&["look", "--format", "mcp"]).code, 2);
}
