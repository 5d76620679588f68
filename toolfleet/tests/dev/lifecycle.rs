//! A `dev` as a person runs it: started, refused, killed, stopped.

use std::{fs, os::unix::fs::PermissionsExt};

use nix::sys::signal::Signal;
use sqlx::{Connection, Executor, PgConnection};
use tokio::{process::Command, time::timeout};

use crate::support::{DevProcess, LONG, dev, folder, is_gone, nats, pids_of, send, wait_until};

#[tokio::test]
async fn a_second_dev_on_the_same_data_is_refused_with_the_first_ones_pid() {
    let folder = folder(0o755);
    let mut first = DevProcess::start(folder.path(), &["--workers", "1"]).await;
    let second = timeout(LONG, dev(folder.path(), &[]).output())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        said.contains(&format!("pid {}", first.pid)) && said.contains("--data"),
        "{said}"
    );
    assert!(first.child.try_wait().unwrap().is_none());
    first.stop().await;
}

#[tokio::test]
async fn the_doctor_finds_nothing_wrong_with_a_fleet_that_works() {
    let folder = folder(0o755);
    let dev = DevProcess::start(folder.path(), &["--workers", "1"]).await;
    let state = dev.state();
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_toolfleet"));
    doctor.args(["doctor", "--json"]).env_clear();
    doctor.env("DATABASE_URL", state.database_url);
    doctor.env("NATS_URL", state.nats_url);
    let output = timeout(LONG, doctor.output()).await.unwrap().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success() && output.stderr.is_empty());
    let checks = report["checks"].as_array().unwrap();
    let odd = checks.iter().filter(|check| check["status"] != "ok");
    let odd: Vec<&serde_json::Value> = odd.map(|check| &check["check"]).collect();
    // A fleet for one person has one user on NATS and one role in Postgres.
    assert_eq!(odd, ["rights", "nats_rights"], "{report}");
    let heard = checks.iter().find(|check| check["check"] == "dispatchers");
    assert_eq!(heard.unwrap()["found"], "1 dispatcher heard");
    dev.stop().await;
}

#[tokio::test]
async fn whatever_dies_is_started_again_where_it_was_and_dev_json_follows() {
    let folder = folder(0o755);
    let first = DevProcess::start(folder.path(), &["--workers", "2"]).await;
    let before = first.state();
    assert_eq!(
        (before.worker_pids.len(), before.dispatcher_pids.len()),
        (2, 1)
    );
    let file = fs::metadata(folder.path().join("data/dev.json")).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);

    let mut killed = vec![
        before.worker_pids[0],
        before.dispatcher_pids[0],
        before.gateway_pids[0],
    ];
    killed.extend(before.nats_pid.into_iter().chain(before.postgres_pid));
    killed.iter().for_each(|pid| send(*pid, Signal::SIGKILL));
    let after = first.wait_for("everything to be back", |now| {
        let pids = pids_of(now);
        pids.len() == pids_of(&before).len() && killed.iter().all(|pid| !pids.contains(pid))
    });
    let after = after.await;
    assert_eq!(
        after.worker_pids[1], before.worker_pids[1],
        "the other worker is left alone"
    );
    assert_eq!(
        (&after.nats_url, &after.database_url),
        (&before.nats_url, &before.database_url)
    );
    assert_eq!(after.http_url, before.http_url);

    nats(&after.nats_url).await;
    // Another user of the machine has the address and no password.
    let stranger = after.nats_url.rsplit('@').next().unwrap();
    assert!(async_nats::connect(stranger).await.is_err());
    PgConnection::connect(&after.database_url).await.unwrap();
    wait_until("the dispatcher to listen again", || {
        std::net::TcpStream::connect(after.http_url.trim_start_matches("http://")).is_ok()
    })
    .await;
    first.stop().await;
}

#[tokio::test]
async fn a_stop_leaves_no_process_and_no_dev_json() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let folder = folder(0o755);
        let dev = DevProcess::start(folder.path(), &["--workers", "2"]).await;
        let pids = pids_of(&dev.state());
        assert_eq!(pids.len(), 6);
        send(dev.pid, signal);
        let output = dev.stop().await;
        assert!(output.status.success(), "{signal}: {output:?}");
        assert!(pids.iter().all(|pid| is_gone(*pid)), "{signal}");
        assert!(!folder.path().join("data/dev.json").exists());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        for promised in [
            "nats micro ls",
            "psql postgres://",
            "http://127.0.0.1:",
            "logs",
            "Ctrl-C",
            "stopped",
        ] {
            assert!(said.contains(promised), "{promised}: {said}");
        }
    }
}

#[tokio::test]
async fn after_a_killed_dev_the_next_one_starts_clean_on_the_same_data() {
    let folder = folder(0o755);
    let mut first = DevProcess::start(folder.path(), &["--workers", "2"]).await;
    let before = first.state();
    let mut connection = PgConnection::connect(&before.database_url).await.unwrap();
    connection
        .execute("CREATE TABLE public.kept ()")
        .await
        .unwrap();
    send(first.pid, Signal::SIGKILL);
    timeout(LONG, first.child.wait()).await.unwrap().unwrap();
    wait_until("dispatchers and workers to end by themselves", || {
        before
            .worker_pids
            .iter()
            .chain(&before.dispatcher_pids)
            .chain(&before.gateway_pids)
            .all(|pid| is_gone(*pid))
    })
    .await;
    assert!(!is_gone(before.postgres_pid.unwrap()) && !is_gone(before.nats_pid.unwrap()));

    let second = DevProcess::start(folder.path(), &["--workers", "1"]).await;
    let after = second
        .wait_for("its own dev.json", |now| now.nats_pid != before.nats_pid)
        .await;
    assert!(pids_of(&before).iter().all(|pid| is_gone(*pid)));
    let mut connection = PgConnection::connect(&after.database_url).await.unwrap();
    connection.execute("SELECT FROM public.kept").await.unwrap();
    second.stop().await;
}

#[tokio::test]
async fn a_stop_while_starting_is_a_stop() {
    let folder = folder(0o755);
    let mut starting = dev(folder.path(), &[]).spawn().unwrap();
    let file = folder.path().join("data/postgres/postmaster.pid");
    let mut postmaster = None;
    wait_until("Postgres to be on its way", || {
        let lock = fs::read_to_string(&file).unwrap_or_default();
        postmaster = lock
            .lines()
            .next()
            .and_then(|line| line.parse::<u32>().ok());
        postmaster.is_some()
    })
    .await;
    send(starting.id().unwrap(), Signal::SIGTERM);
    let status = timeout(LONG, starting.wait()).await.unwrap().unwrap();
    assert!(status.success(), "{status}");
    assert!(is_gone(postmaster.unwrap()));
    assert!(!folder.path().join("data/dev.json").exists());
}
