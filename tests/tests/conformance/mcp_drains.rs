//! Writes that are taken back from a program that calls share: what that does to the other calls, and to those that come.

use std::{fs, path::Path, time::Duration};

use fleet::{call::Effect, outcome::OutcomeWord, taken_back::TakenBack, wire::code::Code};
use fleet_tests::wait::until_so;
use serde_json::json;
use tokio::task::JoinSet;
use worker::executors::{Returned, Stop};

use super::mcp_scene::{AMPLE, Scene, word};

/// Runs of tools, and what ends each.
struct Runs {
    all: JoinSet<Returned>,
    stops: Vec<Stop>,
}

impl Runs {
    /// So many of this tool, once all have begun.
    async fn of(scene: &Scene, tool: &str, effect: Effect, number: usize) -> Self {
        let (before, mut all, mut stops) = (scene.begun(), JoinSet::new(), Vec::new());
        for _ in 0..number {
            let context = conformance::context(AMPLE);
            stops.push(context.stop.clone());
            all.spawn(scene.prepared(tool, effect).run(context));
        }
        let begun = async || scene.begun() == before + number;
        until_so("the runs to begin", begun).await;
        Self { all, stops }
    }

    async fn next(&mut self) -> Returned {
        self.all.join_next().await.unwrap().unwrap()
    }
}

fn exists(pid: &str) -> bool {
    Path::new("/proc").join(pid).exists()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_is_taken_back_leaves_the_other_calls_their_answers() {
    let scene = Scene::stdio("modern");
    let mut runs = Runs::of(&scene, "tell", Effect::Once, 6).await;
    let first = scene.pids();
    assert_eq!(first.len(), 1);
    runs.stops[0].cancel();
    // The others have theirs yet, so it may still be done when its attempt must be over.
    let taken_back = runs.next().await;
    assert_eq!(
        word(&taken_back.outcome),
        (OutcomeWord::Unknown, Some(Code::Cancelled))
    );
    assert!(taken_back.left_behind, "the program may do it yet");
    assert!(exists(&first[0]), "it has five calls");
    // At once, without the pause after an end.
    let outcome = scene.run("count", Effect::Once).await;
    assert_eq!(word(&outcome), (OutcomeWord::Applied, None), "{outcome:?}");
    assert_eq!(scene.pids().len(), 2, "a new call is for a new process");
    fs::write(scene.path("tell"), "").unwrap();
    for _ in 1..6 {
        let returned = runs.next().await;
        let came = word(&returned.outcome);
        assert_eq!(came, (OutcomeWord::Applied, None), "{returned:?}");
    }
    let is_gone = async || !exists(&first[0]);
    until_so("the old process to end with its last call", is_gone).await;
    assert_eq!(scene.pids().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_answers_what_is_taken_back_goes_on() {
    let scene = Scene::stdio("modern");
    let mut runs = Runs::of(&scene, "obey", Effect::Once, 2).await;
    runs.stops[0].cancel();
    let taken_back = runs.next().await;
    assert_eq!(
        word(&taken_back.outcome),
        (OutcomeWord::Unknown, Some(Code::Cancelled))
    );
    assert!(!taken_back.left_behind, "the program is done with it");
    let outcome = scene.run("count", Effect::Once).await;
    assert_eq!(word(&outcome), (OutcomeWord::Applied, None), "{outcome:?}");
    assert_eq!(scene.pids().len(), 1, "it serves on");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_few_processes_live_on_beside_the_one_that_serves() {
    let scene = Scene::stdio("modern");
    let mut all = Vec::new();
    for number in 1..=4 {
        let runs = Runs::of(&scene, "tell", Effect::Once, 2).await;
        assert_eq!(scene.pids().len(), number);
        runs.stops[0].cancel();
        all.push(runs);
        // Its attempt is over when no answer came.
        all.last_mut().unwrap().next().await;
    }
    let outcome = scene.run("count", Effect::Once).await;
    assert_eq!(
        word(&outcome),
        (OutcomeWord::NotStarted, Some(Code::Unavailable)),
        "{outcome:?}"
    );
    let taken_back = outcome
        .failure()
        .and_then(|failure| failure.why_taken_back());
    assert_eq!(
        taken_back,
        Some(TakenBack::NoResources),
        "it costs no attempt"
    );
    fs::write(scene.path("tell"), "").unwrap();
    for runs in &mut all {
        assert_eq!(word(&runs.next().await.outcome).0, OutcomeWord::Applied);
    }
    let is_there = async || {
        let outcome = scene.run("count", Effect::Once).await;
        outcome.word() == OutcomeWord::Applied
    };
    until_so("room for another process", is_there).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_request_that_is_taken_back_spoils_no_other() {
    let scene = Scene::stdio("modern");
    assert_eq!(word(&scene.run("count", Effect::Once).await).1, None);
    let pids = scene.pids();
    let hold = scene.path(&format!("{}.held", pids[0]));
    fs::write(&hold, "").unwrap();
    let mut waiting = JoinSet::new();
    let context = conformance::context(AMPLE);
    waiting.spawn(scene.prepared("tell", Effect::Read).run(context));
    let holding = scene.path(&format!("{}.holding", pids[0]));
    until_so("the program to read no further", async || holding.exists()).await;
    // A pipe holds less.
    let arguments = json!({"a": "x".repeat(300_000)});
    let short = conformance::context(Duration::from_millis(300));
    let large = scene.prepared_with("echo", Effect::Read, &arguments);
    let returned = large.run(short).await;
    assert_ne!(returned.outcome.word(), OutcomeWord::Applied);
    fs::remove_file(&hold).unwrap();
    fs::write(scene.path("tell"), "").unwrap();
    let returned = waiting.join_next().await.unwrap().unwrap();
    assert_eq!(word(&returned.outcome), (OutcomeWord::Applied, None));
    assert_eq!(word(&scene.run("count", Effect::Once).await).1, None);
    assert_eq!(scene.pids(), pids, "it is the same process");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_reads_nothing_is_not_ended_by_what_it_is_told() {
    let scene = Scene::stdio("modern");
    assert_eq!(word(&scene.run("count", Effect::Once).await).1, None);
    let pids = scene.pids();
    let hold = scene.path(&format!("{}.held", pids[0]));
    fs::write(&hold, "").unwrap();
    let mut writes = JoinSet::new();
    let context = conformance::context(AMPLE);
    writes.spawn(scene.prepared("tell", Effect::Once).run(context));
    let holding = scene.path(&format!("{}.holding", pids[0]));
    until_so("the program to read no further", async || holding.exists()).await;
    let sent = async |bytes: usize| {
        let arguments = json!({"a": "x".repeat(bytes)});
        let short = conformance::context(Duration::from_millis(100));
        let asked = scene.prepared_with("echo", Effect::Read, &arguments);
        asked.run(short).await.outcome.word() == OutcomeWord::Unknown
    };
    // A pipe holds 64 KiB, and of a line up to 4 KiB it takes all or nothing. Less room is left in the end than a notification takes.
    assert!(sent(61_000).await);
    let mut bytes: usize = 2_000;
    while !sent(bytes).await {
        bytes = bytes.checked_sub(50).expect("room for one more line");
    }
    fs::remove_file(&hold).unwrap();
    fs::write(scene.path("tell"), "").unwrap();
    let returned = writes.join_next().await.unwrap().unwrap();
    assert_eq!(
        word(&returned.outcome),
        (OutcomeWord::Applied, None),
        "{returned:?}"
    );
    assert_eq!(scene.pids(), pids, "it is the same process");
}
