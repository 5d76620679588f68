//! A `dev` in this process: what it reports, and how it deals with processes that do not behave.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Mutex,
    time::{Duration, Instant},
};

use fleet::{fencing::StateDir, ids::WorkerId};
use nix::sys::signal::Signal;
use sqlx::{Connection, PgConnection};
use tokio::{process::Command, time::timeout};
use tokio_util::sync::CancellationToken;
use toolfleet::dev::{Dev, DevHooks, DevOptions, Screen};
use uuid::Uuid;

use crate::support::{DevProcess, LONG, PROGRAM, folder, is_gone, nats, pids_of, send, wait_until};

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

/// A tool that detaches a process that cannot be found by its family or its environment, and says who is who.
const DETACHES: &str = "
import os, sys, time
def note(name):
    with open(name + '.tmp', 'w') as file:
        file.write(str(os.getpid()))
    os.rename(name + '.tmp', name)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        note('detached')
        os.execvpe('sleep', ['sleep', '600'], {'PATH': os.environ['PATH']})
    os._exit(0)
while not os.path.exists('detached'):
    time.sleep(0.01)
note('main')
time.sleep(600)
";

#[tokio::test]
async fn a_killed_worker_is_dead_at_once_and_fenced_when_nothing_of_it_lives() {
    let folder = folder(0o755);
    let (at, tools) = (folder.path().join("at"), folder.path().join("tools"));
    for made in [&at, &tools] {
        fs::create_dir(made).unwrap();
    }
    let command = serde_json::json!(["python3", "-c", DETACHES]);
    let cwd = at.display();
    let manifest = format!(
        "name: detaches\nversion: 1\ndescription: d\neffect: once\ntimeout: 120s\n\
         input_schema: {{type: object}}\nexecutor: {{process: {{command: {command}, cwd: {cwd}}}}}\n"
    );
    fs::write(tools.join("detaches.yaml"), manifest).unwrap();
    let flags = ["--workers", "1", "--tools", tools.to_str().unwrap()];
    let dev = DevProcess::start(folder.path(), &flags).await;
    let state = dev.state();
    let mut ledger = PgConnection::connect(&state.database_url).await.unwrap();
    let nats = nats(&state.nats_url).await;
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("Idempotency-Key", "1");
    headers.insert("Prefer", "respond-async");
    let subject = "toolfleet.v1.default.call.detaches";
    let accepted = nats
        .request_with_headers(subject, headers, "{}".into())
        .await;
    accepted.unwrap();
    let (main, detached) = (
        pid_in(&at.join("main")).await,
        pid_in(&at.join("detached")).await,
    );
    let guard = parent(main);
    let worker: Uuid = sqlx::query_scalar("SELECT worker_id FROM toolfleet.workers")
        .fetch_one(&mut ledger)
        .await
        .unwrap();

    // Guard and worker die together, so that no process ends what the tool has started.
    send(guard, Signal::SIGSTOP);
    send(state.worker_pids[0], Signal::SIGKILL);
    send(guard, Signal::SIGKILL);
    send(main, Signal::SIGKILL);
    until_sql(
        &mut ledger,
        "SELECT count(*) FROM toolfleet.in_doubt WHERE NOT worker_fenced",
        1,
    )
    .await;
    // Its successor has looked around, when it started and once more.
    until_sql(
        &mut ledger,
        "SELECT count(*) FROM toolfleet.worker_processes WHERE state = 'live' AND beat > 3",
        1,
    )
    .await;
    let dead = "SELECT state FROM toolfleet.workers WHERE worker_id = $1";
    let dead: String = sqlx::query_scalar(dead)
        .bind(worker)
        .fetch_one(&mut ledger)
        .await
        .unwrap();
    assert_eq!(dead, "dead", "something of it lives");
    assert!(!is_gone(detached));

    send(detached, Signal::SIGKILL);
    until_sql(
        &mut ledger,
        "SELECT count(*) FROM toolfleet.in_doubt WHERE worker_fenced",
        1,
    )
    .await;
    let (by, note): (String, String) =
        sqlx::query_as("SELECT fenced_by, fence_note FROM toolfleet.workers WHERE worker_id = $1")
            .bind(worker)
            .fetch_one(&mut ledger)
            .await
            .unwrap();
    assert!(by == "dev" || by.starts_with("worker "), "{by}");
    assert_eq!(note, "lock released");
    dev.stop().await;
}

async fn until_sql(ledger: &mut PgConnection, count: &'static str, is: i64) {
    let until = Instant::now() + LONG;
    loop {
        let counted: i64 = sqlx::query_scalar(count)
            .fetch_one(&mut *ledger)
            .await
            .unwrap();
        if counted == is {
            return;
        }
        assert!(Instant::now() < until, "{count} is {counted}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn pid_in(file: &Path) -> u32 {
    let read = || fs::read_to_string(file).ok()?.parse().ok();
    wait_until("a process to say its id", || read().is_some()).await;
    read().unwrap()
}

fn parent(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(')').unwrap().1;
    let parent = fields.split_ascii_whitespace().nth(1).unwrap();
    parent.parse().unwrap()
}

static FENCED: Mutex<Vec<(String, WorkerId)>> = Mutex::new(Vec::new());
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

/// The worker that the hook of these tests takes every dead process for.
const DEAD: WorkerId = WorkerId(Uuid::from_u128(1));

#[tokio::test]
async fn a_dead_worker_is_fenced_once_and_not_before_its_lock_is_free() {
    let folder = folder(0o755);
    let dev = start(&options(folder.path()), &CancellationToken::new())
        .await
        .unwrap()
        .unwrap();
    let state = dev.state();
    let fenced = || {
        let fenced = FENCED.lock().unwrap();
        let of_this = fenced.iter().filter(|(url, _)| *url == state.database_url);
        of_this.map(|(_, worker)| *worker).collect::<Vec<_>>()
    };
    let locks = StateDir::open(&folder.path().join("data/workers")).unwrap();
    // As if something that the worker had started were alive.
    let lives = locks.hold(DEAD).unwrap();
    send(state.worker_pids[0], Signal::SIGKILL);
    wait_until("the death to be reported", || {
        deaths_of(&state.database_url) == state.worker_pids
    })
    .await;
    wait_until("the worker to be replaced", || {
        dev.state().worker_pids.len() == 1 && dev.state().worker_pids != state.worker_pids
    })
    .await;
    assert!(fenced().is_empty());
    drop(lives);
    wait_until("the worker to be fenced", || fenced() == [DEAD]).await;
    wait_until("its lock to be cleared away", || {
        !locks.workers().unwrap().contains(&DEAD)
    })
    .await;
    dev.stop().await;
    assert_eq!(fenced(), [DEAD]);
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
    assert!(pids_of(&state).len() == 5 && servers.chain(state.worker_pids).all(is_gone));
}

/// A program that is this shell script.
pub(crate) fn script(folder: &Path, text: &str) -> PathBuf {
    let file = folder.join("program");
    fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    file
}

pub(crate) fn options(folder: &Path) -> DevOptions {
    DevOptions {
        data: folder.join("data"),
        tools: None,
        workers: 1,
        dispatchers: 1,
        gateways: 1,
        nats_port: Some(0),
        postgres_port: Some(0),
        http_port: Some(0),
        gateway_port: Some(0),
        concurrency: 4,
        program: Some(PROGRAM.into()),
    }
}

/// Starts a `dev` in this process; its dispatchers and workers are processes as ever.
async fn start(options: &DevOptions, hurry: &CancellationToken) -> anyhow::Result<Option<Dev>> {
    start_on(options, Screen::new(std::io::sink()), hurry).await
}

/// The same with a screen that the test reads.
pub(crate) async fn start_on(
    options: &DevOptions,
    screen: Screen,
    hurry: &CancellationToken,
) -> anyhow::Result<Option<Dev>> {
    let hooks = DevHooks {
        token: |_url, _kept| Box::pin(async { Ok(format!("tf_0123456789ab_{}", "A".repeat(43))) }),
        migrate: |database_url| Box::pin(migrate(database_url)),
        tool_of: |_| None,
        apply_tools: |_, _, _| Box::pin(async { Ok(Vec::new()) }),
        worker_died: |database_url, pid| {
            DEATHS.lock().unwrap().push((database_url, pid));
            Box::pin(async { Ok(vec![DEAD]) })
        },
        fence: |database_url, worker| {
            FENCED.lock().unwrap().push((database_url, worker));
            Box::pin(async { Ok(()) })
        },
    };
    let never = CancellationToken::new();
    timeout(
        LONG,
        Box::pin(Dev::start(options, hooks, screen, &never, hurry)),
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
