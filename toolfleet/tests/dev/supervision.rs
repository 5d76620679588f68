//! A `dev` in this process: what it reports, and how it deals with processes that do not behave.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Mutex,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use tokio::{process::Command, time::timeout};
use tokio_util::sync::CancellationToken;
use toolfleet::dev::{Dev, DevHooks, DevOptions, Screen};

use crate::support::{DevProcess, LONG, PROGRAM, folder, is_gone, pids_of, send, wait_until};

#[tokio::test]
async fn a_child_that_cannot_start_fails_the_start_with_its_log_and_nothing_stays() {
    let folder = folder(0o755);
    let refuses = script(folder.path(), "echo 'no such luck'; exit 64");
    let options = DevOptions {
        program: Some(refuses),
        ..options(folder.path())
    };
    let problem = start(&options, &CancellationToken::new())
        .await
        .err()
        .expect("a dispatcher that ends is no dispatcher")
        .to_string();
    assert!(
        problem.contains("dev-dispatcher-1") && problem.contains("no such luck"),
        "{problem}"
    );
    let postgres = fs::read_to_string(folder.path().join("data/postgres/postmaster.pid"));
    assert!(postgres.is_err(), "Postgres was shut down: {postgres:?}");
}

static DEATHS: Mutex<Vec<(String, u32)>> = Mutex::new(Vec::new());

fn deaths_of(database_url: &str) -> Vec<u32> {
    let deaths = DEATHS.lock().unwrap();
    deaths
        .iter()
        .filter(|(url, _)| url == database_url)
        .map(|(_, pid)| *pid)
        .collect()
}

#[tokio::test]
async fn each_death_of_a_worker_is_reported_once_and_a_drained_worker_is_no_death() {
    let folder = folder(0o755);
    let options = DevOptions {
        workers: 2,
        ..options(folder.path())
    };
    let dev = start(&options, &CancellationToken::new())
        .await
        .unwrap()
        .unwrap();
    let before = dev.state();
    let (killed, drained) = (before.worker_pids[0], before.worker_pids[1]);
    send(killed, Signal::SIGKILL);
    wait_until("the worker to be replaced", || {
        let now = dev.state().worker_pids;
        now.len() == 2 && !now.contains(&killed)
    })
    .await;
    dev.stop().await;
    let deaths = deaths_of(&before.database_url);
    assert_eq!(
        deaths.iter().filter(|pid| **pid == killed).count(),
        1,
        "{deaths:?}"
    );
    assert!(!deaths.contains(&drained), "{deaths:?}");
}

#[tokio::test]
async fn the_workers_of_a_killed_dev_are_reported_by_the_next_one() {
    let folder = folder(0o755);
    let mut killed = DevProcess::start(folder.path(), &["--workers", "2"]).await;
    let left = killed.state();
    send(killed.pid, Signal::SIGKILL);
    timeout(LONG, killed.child.wait()).await.unwrap().unwrap();

    let dev = start(&options(folder.path()), &CancellationToken::new())
        .await
        .unwrap()
        .unwrap();
    let database_url = dev.state().database_url;
    wait_until("both deaths to be reported", || {
        deaths_of(&database_url) == left.worker_pids
    })
    .await;
    assert!(left.worker_pids.iter().all(|pid| is_gone(*pid)));
    dev.stop().await;
}

#[tokio::test]
async fn in_a_hurry_nobody_is_waited_for() {
    let folder = folder(0o755);
    // It serves as ever and does not listen to SIGTERM.
    let deaf = script(
        folder.path(),
        &format!("trap '' TERM; exec 3<&0; {PROGRAM} \"$@\" <&3 & wait"),
    );
    let hurry = CancellationToken::new();
    let options = DevOptions {
        program: Some(deaf),
        ..options(folder.path())
    };
    let dev = start(&options, &hurry).await.unwrap().unwrap();
    let state = dev.state();
    let began = Instant::now();
    hurry.cancel();
    dev.stop().await;
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "each of the two has a grace of 15 s"
    );
    let servers = [state.nats_pid, state.postgres_pid].into_iter().flatten();
    assert!(pids_of(&state).len() == 4 && servers.chain(state.worker_pids).all(is_gone));
}

/// A program that is this shell script.
fn script(folder: &Path, text: &str) -> PathBuf {
    let file = folder.join("program");
    fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    file
}

fn options(folder: &Path) -> DevOptions {
    DevOptions {
        data: folder.join("data"),
        tools: None,
        workers: 1,
        dispatchers: 1,
        nats_port: 0,
        postgres_port: 0,
        http_port: 0,
        concurrency: 4,
        program: Some(PROGRAM.into()),
    }
}

/// Starts a `dev` in this process; its dispatchers and workers are processes as ever.
async fn start(options: &DevOptions, hurry: &CancellationToken) -> anyhow::Result<Option<Dev>> {
    let hooks = DevHooks {
        migrate: |database_url| Box::pin(migrate(database_url)),
        apply_tools: |_, _| Box::pin(async { Ok(Vec::new()) }),
        worker_died: |database_url, pid| {
            DEATHS.lock().unwrap().push((database_url, pid));
            Box::pin(async { Ok(()) })
        },
    };
    let never = CancellationToken::new();
    timeout(
        LONG,
        Box::pin(Dev::start(
            options,
            hooks,
            Screen::new(std::io::sink()),
            &never,
            hurry,
        )),
    )
    .await
    .unwrap()
}

async fn migrate(database_url: String) -> anyhow::Result<()> {
    let status = Command::new(PROGRAM)
        .arg("migrate")
        .env("DATABASE_URL", database_url)
        .status()
        .await?;
    anyhow::ensure!(status.success(), "migrate failed");
    Ok(())
}
