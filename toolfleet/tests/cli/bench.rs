//! `toolfleet bench`, on a fleet of its own.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use fleet::arguments::Schema;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use toolfleet::servers::process::command_line;

use crate::support::{folder, program, run};

/// The bench in a fleet of its own, whose temporary files lie in this folder.
fn bench(folder: &Path, more: &[&str]) -> Command {
    let mut command = program(&[&["bench", "--dev"], more].concat());
    command.env("TMPDIR", folder);
    for servers in ["TOOLFLEET_NATS_SERVER", "TOOLFLEET_POSTGRES_BIN", "PATH"] {
        if let Some(value) = std::env::var_os(servers) {
            command.env(servers, value);
        }
    }
    command
}

#[test]
fn a_short_run_loses_and_doubles_nothing_and_says_what_it_measured() {
    let folder = folder();
    let floor = folder.path().join("floor");
    let printed =
        r#"{"calls":1000,"seconds":1,"calls_per_s":1000.0,"p50_ms":1,"p95_ms":2,"p99_ms":3}"#;
    fs::write(&floor, format!("#!/bin/sh\necho '{printed}'\n")).unwrap();
    fs::set_permissions(&floor, fs::Permissions::from_mode(0o755)).unwrap();
    let picture = folder.path().join("bench.svg");
    let ran = run(bench(
        folder.path(),
        &[
            "--effect",
            "once,transaction",
            "--seconds",
            "2",
            "--warm-up",
            "0",
            "--in-flight",
            "32",
            "--failures",
            "6",
            "--tools",
            "2",
            "--tenants",
            "2",
            "--history",
            "1000",
            "--held",
            "20",
            "--floor",
            "--floor-program",
            floor.to_str().unwrap(),
            "--json",
            "--svg",
            picture.to_str().unwrap(),
        ],
    ));
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let said = ran.json();
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/bench.json");
    let schema = serde_json::from_slice(&fs::read(schema).unwrap()).unwrap();
    let schema = Schema::compile(&schema).unwrap();
    assert!(schema.is_valid(&said), "{:?}", schema.validate(&said));
    let workloads = said["workloads"].as_array().unwrap();
    let effects: Vec<&str> = workloads
        .iter()
        .filter_map(|one| one["effect"].as_str())
        .collect();
    assert_eq!(effects, ["once", "transaction"]);
    for one in workloads {
        assert_eq!(
            (&one["lost"], &one["doubled"]),
            (&0.into(), &0.into()),
            "{one}"
        );
        assert!(one["calls"].as_u64().unwrap() > 0, "{one}");
        assert!(one["p50_ms"].as_f64() <= one["p99_ms"].as_f64(), "{one}");
        let per_s = one["calls_per_s"].as_f64().unwrap();
        let ratio = one["ratio"].as_f64().unwrap();
        assert!((ratio - per_s / 1000.0).abs() < 0.001, "{one}");
        for process in ["dispatcher_1", "worker_1", "postgres", "nats", "bench"] {
            assert!(
                one["memory_mib"][process].as_f64().unwrap() > 1.0,
                "{process}: {one}"
            );
        }
        // Calls of the queue without workers are still there.
        assert_eq!(one["sizes"]["open_calls_rows"], 20, "{one}");
    }
    assert_eq!(said["servers"]["postgres"]["fsync"], "on");
    assert_eq!(said["servers"]["nats"]["storage"], "file");
    assert_eq!(said["floors"].as_array().unwrap().len(), 3);
    assert_eq!(
        fs::read_to_string(picture)
            .unwrap()
            .matches("<polyline")
            .count(),
        2
    );
    assert_eq!(left_in(folder.path()), Vec::<String>::new());
}

#[test]
fn calls_that_nobody_waits_for_are_waited_for_in_the_end() {
    let folder = folder();
    for (mode, effect) in [("batch", "idempotent"), ("async", "read")] {
        let ran = run(bench(
            folder.path(),
            &[
                "--mode",
                mode,
                "--effect",
                effect,
                "--batch",
                "50",
                "--in-flight",
                "8",
                "--seconds",
                "1",
                "--warm-up",
                "0",
                "--backlog",
                "100",
                "--json",
            ],
        ));
        assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
        let one = &ran.json()["workloads"][0];
        assert_eq!(
            (&one["lost"], &one["doubled"]),
            (&0.into(), &0.into()),
            "{one}"
        );
        assert!(one["calls"].as_u64().unwrap() > 0, "{one}");
        assert_eq!(one["sizes"]["open_calls_rows"], 0, "{one}");
    }
}

#[test]
fn each_effect_is_measured_without_a_brake_and_then_with_each_over_nats_and_http() {
    let folder = folder();
    let ran = run(bench(
        folder.path(),
        &[
            "--with",
            "breaker,rate_limit,concurrency",
            "--via",
            "nats,http",
            "--effect",
            "once,transaction",
            "--seconds",
            "1",
            "--warm-up",
            "0",
            "--in-flight",
            "8",
            "--json",
        ],
    ));
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let said = ran.json();
    let workloads = said["workloads"].as_array().unwrap();
    let names: Vec<_> = workloads.iter().map(|one| one["name"].as_str()).collect();
    let expected = [
        "once_sync",
        "once_http_sync",
        "once_breaker_sync",
        "once_breaker_http_sync",
        "once_rate_limit_sync",
        "once_rate_limit_http_sync",
        "once_concurrency_sync",
        "once_concurrency_http_sync",
        "transaction_sync",
        "transaction_http_sync",
        "transaction_breaker_sync",
        "transaction_breaker_http_sync",
        "transaction_rate_limit_sync",
        "transaction_rate_limit_http_sync",
        "transaction_concurrency_sync",
        "transaction_concurrency_http_sync",
    ];
    assert_eq!(names, expected.map(Some));
    for one in workloads {
        assert!(one["calls"].as_u64().unwrap() > 0, "{one}");
        assert_eq!(one["failed"], serde_json::json!({}), "{one}");
        assert_eq!(one["lost"], 0, "{one}");
        assert_eq!(one["doubled"], 0, "{one}");
    }
}

#[test]
fn reads_that_repeat_a_question_run_once_with_a_cache_and_each_time_without() {
    let folder = folder();
    let ran = run(bench(
        folder.path(),
        &[
            "--hits",
            "90",
            "--effect",
            "read",
            "--seconds",
            "2",
            "--warm-up",
            "0",
            "--in-flight",
            "8",
            "--json",
        ],
    ));
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let said = ran.json();
    let [plain, cached] = said["workloads"].as_array().unwrap().as_slice() else {
        panic!("{said}");
    };
    assert_eq!(plain["name"], "read_sync");
    assert_eq!(cached["name"], "read_cached_sync");
    let count = |of: &serde_json::Value, what: &str| of[what].as_u64().unwrap();
    assert!(count(plain, "runs") >= count(plain, "sent"), "{plain}");
    let (runs, sent) = (count(cached, "runs"), count(cached, "sent"));
    assert!(runs > 0 && runs * 2 < sent, "{cached}");
    assert_eq!(count(cached, "lost"), 0, "{cached}");
}

#[test]
fn an_open_loop_says_how_many_it_asked_for() {
    let folder = folder();
    let ran = run(bench(
        folder.path(),
        &[
            "--rate",
            "50",
            "--effect",
            "read",
            "--seconds",
            "2",
            "--warm-up",
            "1",
            "--json",
        ],
    ));
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    let one = &ran.json()["workloads"][0];
    // Those of the warm-up that were answered late are measured too: 50 a second for 3 s, and the first at once.
    assert!(one["calls"].as_u64().unwrap() <= 151, "{one}");
    assert_eq!(
        (&one["rate"], &one["in_flight"]),
        (&50.into(), &serde_json::Value::Null)
    );
}

#[test]
fn a_bench_that_is_interrupted_leaves_nothing() {
    let folder = folder();
    let mut command = bench(folder.path(), &["--effect", "read", "--seconds", "600"]);
    let mut running = command
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(running.stderr.take().unwrap()).lines();
    let mut lines = lines.map(Result::unwrap);
    assert!(lines.any(|line| line.contains("read_sync")), "it measures");
    let pid = Pid::from_raw(i32::try_from(running.id()).unwrap());
    kill(pid, Signal::SIGINT).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while running.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until, "it ends");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(running.wait().unwrap().code(), Some(1));
    assert!(lines.any(|line| line.contains("stopped before the end")));
    assert_eq!(left_in(folder.path()), Vec::<String>::new());
}

#[test]
fn what_cannot_be_measured_is_said_at_once() {
    for (arguments, code, says) in [
        (&["bench"][..], 2, "--database-url"),
        (&["bench", "--dev", "--effect", "write"], 2, "transaction"),
        (&["bench", "--dev", "--bytes", "59"], 2, "60"),
        (
            &["bench", "--dev", "--hits", "9", "--mode", "async"],
            2,
            "--hits",
        ),
        (
            &["bench", "--dev", "--with", "breaker", "--failures", "9"],
            2,
            "--with",
        ),
        (&["bench", "--dev", "--with", "brakes"], 2, "rate_limit"),
        (
            &["bench", "--dev", "--via", "http", "--rate", "5"],
            2,
            "--rate",
        ),
        (
            &["bench", "--dev", "--rate", "5", "--in-flight", "5"],
            2,
            "--in-flight",
        ),
        (
            &["bench", "--dev", "--mode", "batch", "--bytes", "65536"],
            2,
            "--batch",
        ),
        (
            &["bench", "--dev", "--floor", "--floor-program", "/nowhere"],
            64,
            "/nowhere",
        ),
        (
            &["bench", "--history", "5", "--database-url", "postgres://x"],
            2,
            "--dev",
        ),
    ] {
        // No `dev` is near.
        let mut bench = program(arguments);
        bench.current_dir("/");
        let ran = run(bench);
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(says), "{arguments:?}: {}", ran.err);
    }
}

/// Folders of the bench, and processes that live in them.
fn left_in(folder: &Path) -> Vec<String> {
    let folders = fs::read_dir(folder).unwrap();
    let folders = folders.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let place = folder.to_string_lossy().into_owned();
    let processes = fs::read_dir("/proc").into_iter().flatten();
    let processes = processes.filter_map(|entry| {
        let line = command_line(entry.ok()?.file_name().to_str()?.parse().ok()?).join(" ");
        line.contains(&place).then_some(line)
    });
    folders
        .filter(|name| name.starts_with("toolfleet-bench-"))
        .chain(processes)
        .collect()
}
