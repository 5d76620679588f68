//! TLS to the databases of tools. The certificate is for 127.0.0.1, by an authority of the tests' own.

use std::time::Duration;

use fleet_tests::{postgres::Cluster, wait::until_so};
use serde_json::json;
use worker::executors::sql::SqlExecutor;

use crate::bench::{Bench, answer, context, manifest, word};

const CERTIFICATE: &str = include_str!("tls/server.pem");
const KEY: &str = include_str!("tls/server.key");
const AUTHORITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sql/tls/authority.pem");
const ENCRYPTED: &str = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";

/// Puts its certificate beside the server's data, which is its working directory.
async fn turn_on(bench: &mut Bench) {
    for (number, file, text) in [(901, "tls.pem", CERTIFICATE), (902, "tls.key", KEY)] {
        let write = format!(
            "SELECT lo_from_bytea({number}, convert_to('{text}', 'UTF8'));
             SELECT lo_export({number}, '{file}');
             COPY (SELECT) TO PROGRAM 'chmod 600 {file}'"
        );
        bench.admin(&write).await;
    }
    for setting in [
        "ssl_cert_file = 'tls.pem'",
        "ssl_key_file = 'tls.key'",
        "ssl = on",
    ] {
        bench.admin(&format!("ALTER SYSTEM SET {setting}")).await;
    }
    bench.admin("SELECT pg_reload_conf()").await;
    let on = "SELECT count(*) FROM pg_settings WHERE name = 'ssl' AND setting = 'on'";
    until_so("the server has TLS", async || bench.ask(on).await == 1).await;
}

/// From now on tools have these parameters in their URL, and this host.
fn with(bench: &mut Bench, host: &str, parameters: &str) {
    let url = bench.url.replace("@127.0.0.1", &format!("@{host}"));
    let url = format!("{url}?{parameters}");
    bench.executor = SqlExecutor::new(Some(url.into()));
}

#[tokio::test]
async fn a_server_proves_itself_as_sslmode_asks() {
    let cluster = Cluster::alone(false).await;
    let mut bench = Bench::on(cluster.database().await).await;
    with(&mut bench, "127.0.0.1", "sslmode=require");
    let plain = bench.run("read", ENCRYPTED, json!([]), json!({})).await;
    assert_eq!(word(&plain), ("not_started", "unavailable"), "{plain:?}");
    with(&mut bench, "127.0.0.1", "sslmode=prefer");
    let plain = bench.run("read", ENCRYPTED, json!([]), json!({})).await;
    assert_eq!(answer(&plain), json!([{"ssl": false}]));

    turn_on(&mut bench).await;
    let root = format!("sslrootcert={AUTHORITY}");
    for (host, parameters, encrypted) in [
        ("127.0.0.1", "sslmode=disable".to_owned(), Some(false)),
        ("127.0.0.1", "sslmode=prefer".to_owned(), Some(true)),
        ("127.0.0.1", "sslmode=require".to_owned(), Some(true)),
        (
            "127.0.0.1",
            format!("sslmode=verify-full&{root}"),
            Some(true),
        ),
        ("localhost", format!("sslmode=verify-ca&{root}"), Some(true)),
        // Another host, and an authority that nobody knows.
        ("localhost", format!("sslmode=verify-full&{root}"), None),
        ("127.0.0.1", "sslmode=verify-ca".to_owned(), None),
    ] {
        with(&mut bench, host, &parameters);
        let outcome = bench.run("read", ENCRYPTED, json!([]), json!({})).await;
        match encrypted {
            Some(encrypted) => {
                assert_eq!(
                    answer(&outcome),
                    json!([{"ssl": encrypted}]),
                    "{parameters}"
                );
            }
            None => assert_eq!(
                word(&outcome),
                ("not_started", "unavailable"),
                "{parameters}"
            ),
        }
    }
}

#[tokio::test]
async fn a_statement_is_ended_over_tls_too() {
    let cluster = Cluster::alone(false).await;
    let mut bench = Bench::on(cluster.database().await).await;
    turn_on(&mut bench).await;
    with(&mut bench, "127.0.0.1", "sslmode=require");
    let slow = manifest(
        "once",
        "INSERT INTO items SELECT 1 FROM pg_sleep(60)",
        &json!([]),
    );
    let time = Duration::from_millis(500);
    let outcome = bench.attempt(&slow, &json!({}), context(time)).await;
    assert_eq!(
        word(&outcome),
        ("definite_failure", "timeout"),
        "{outcome:?}"
    );
    let running =
        "SELECT count(*) FROM pg_stat_activity WHERE usename = '@tool' AND state <> 'idle'";
    until_so("nothing runs on", async || bench.ask(running).await == 0).await;
}
