//! The yardstick against real servers: it measures something, loses nothing, and leaves nothing behind.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::{
    process::{Output, Stdio},
    time::Duration,
};

use async_nats::jetstream;
use fleet_tests::{
    fleet::built,
    postgres::{Cluster, Database},
};
use futures_util::StreamExt;
use serde_json::Value;
use sqlx::Connection;
use tempfile::TempDir;
use tokio::{process::Command, time::timeout};
use toolfleet::servers::{Nats, NatsOptions, nats::MAX_PAYLOAD};

const RUN_MAX: Duration = Duration::from_secs(60);

struct Servers {
    database: Database,
    nats: Nats,
    // After the server that stores in it.
    _folder: TempDir,
}

impl Servers {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = NatsOptions {
            store: folder.path().join("store"),
            port: None,
            log: folder.path().join("log"),
            max_payload: MAX_PAYLOAD,
            password: None,
            further: String::new(),
        };
        Self {
            database: Cluster::shared().await.empty_database().await,
            nats: Nats::start(options).await.unwrap(),
            _folder: folder,
        }
    }

    async fn measure(&self, seconds: u32, flags: &[&str]) -> Output {
        let mut floor = Command::new(built("fleet_tests_floor"));
        floor
            .env("DATABASE_URL", &self.database.url)
            .env("NATS_URL", self.nats.url())
            .args(["--seconds", &seconds.to_string()])
            .args(["--warm-up", "0", "--json"])
            .args(flags)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        timeout(RUN_MAX, floor.output()).await.unwrap().unwrap()
    }

    async fn nothing_is_left(&self) {
        let mut connection = self.database.connect().await;
        let schema = sqlx::query_scalar("SELECT to_regnamespace('toolfleet_floor') IS NOT NULL");
        let schema: bool = schema.fetch_one(&mut connection).await.unwrap();
        assert!(!schema, "the schema is still there");
        let client = async_nats::connect(self.nats.url()).await.unwrap();
        let left = jetstream::new(client).stream_names();
        let left: Vec<_> = left.collect().await;
        assert!(left.is_empty(), "streams are still there: {left:?}");
        connection.close().await.unwrap();
    }
}

#[tokio::test]
async fn every_call_is_answered_and_nothing_is_left_behind() {
    let servers = Servers::start().await;
    for (in_flight, bytes) in [("64", "60"), ("1", "60"), ("8", "65536")] {
        let flags = ["--in-flight", in_flight, "--bytes", bytes];
        let output = servers.measure(1, &flags).await;

        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{flags:?}: {said}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(report["calls"].as_u64() > Some(0), "{report}");
        assert!(report["calls_per_s"].as_f64() > Some(0.0), "{report}");
        assert!(
            report["p50_ms"].as_f64() <= report["max_ms"].as_f64(),
            "{report}"
        );
        assert_eq!(report["lost"], 0, "{report}");
        assert_eq!(report["pgbench_tps"], Value::Null, "{report}");
        servers.nothing_is_left().await;
    }
}

#[tokio::test]
async fn the_same_statements_run_by_themselves_with_pgbench() {
    let servers = Servers::start().await;

    // On a machine with much to do, pgbench needs more than a second to connect, and then has no figure.
    let output = servers.measure(4, &["--in-flight", "8", "--pgbench"]).await;

    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    // Where it is not installed, that is said.
    let found = !said.contains("there is no pgbench here");
    assert_eq!(
        report["pgbench_tps"].as_f64() > Some(0.0),
        found,
        "{report}: {said}"
    );
    servers.nothing_is_left().await;
}

#[tokio::test]
async fn a_second_run_in_the_same_database_is_refused() {
    let servers = Servers::start().await;
    let mut other = servers.database.connect().await;
    let taken: bool =
        sqlx::query_scalar("SELECT pg_try_advisory_lock(hashtext('toolfleet_floor'))")
            .fetch_one(&mut other)
            .await
            .unwrap();
    assert!(taken);

    let output = servers.measure(1, &[]).await;

    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("another toolfleet-floor"),
        "{said}"
    );
}
