//! Files beside calls: handed in over NATS in chunks, named in calls, and read by the attempts of those.

use async_nats::HeaderMap;
use bytes::Bytes;
use fleet_client::Question;
use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    wait::{LONG, until_so},
    witness::Witness,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

mod calls;
mod reader;

const UNKNOWN: &str = "01a00000-0000-7000-8000-000000000000";

/// What the endpoint answers to this request: raw bytes, and headers.
async fn answer(fleet: &Fleet, tenant: &str, question: Question) -> fleet_client::Answer {
    let question = Question {
        subject: format!("toolfleet.v1.{tenant}.file"),
        patience: LONG,
        ..question
    };
    let answer = fleet.caller.ask(question).await;
    answer.expect("a dispatcher answers")
}

async fn asked_of(fleet: &Fleet, tenant: &str, asked: &Value) -> Value {
    let question = Question::new(String::new(), asked.to_string());
    answer(fleet, tenant, question).await.read().unwrap()
}

async fn asked(fleet: &Fleet, what: Value) -> Value {
    asked_of(fleet, "default", &what).await
}

async fn chunk_of(fleet: &Fleet, tenant: &str, lines: &[(&str, &str)], data: Bytes) -> Value {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, *value);
    }
    let question = Question {
        headers,
        ..Question::new(String::new(), data)
    };
    answer(fleet, tenant, question).await.read().unwrap()
}

async fn chunk(fleet: &Fleet, file: &str, at: usize, data: &[u8]) -> Value {
    let at = at.to_string();
    let lines = [("Toolfleet-File", file), ("Toolfleet-File-Offset", &at)];
    chunk_of(fleet, "default", &lines, Bytes::copy_from_slice(data)).await
}

async fn begun(fleet: &Fleet, bytes: usize) -> String {
    let begun = asked(
        fleet,
        json!({"op": "begin", "name": "report.pdf", "mime": "application/pdf", "bytes": bytes}),
    )
    .await;
    assert_eq!(begun["state"], "open", "{begun}");
    begun["file_id"].as_str().unwrap().to_owned()
}

fn hash(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

async fn finished(fleet: &Fleet, file: &str, bytes: &[u8]) -> Value {
    asked(
        fleet,
        json!({"op": "finish", "file_id": file, "sha256": hash(bytes)}),
    )
    .await
}

/// The id of a ready file of this type with these bytes.
async fn handed_in(fleet: &Fleet, mime: &str, bytes: &[u8]) -> String {
    let begin = json!({"op": "begin", "name": "a b.txt", "mime": mime, "bytes": bytes.len()});
    let begun = asked(fleet, begin).await;
    let file = begun["file_id"].as_str().unwrap().to_owned();
    for (n, part) in bytes.chunks(256 * 1024).enumerate() {
        chunk(fleet, &file, n * 256 * 1024, part).await;
    }
    let ready = finished(fleet, &file, bytes).await;
    assert_eq!(ready["state"], "ready", "{ready}");
    file
}

fn code(answer: &Value) -> &str {
    answer["error"]["code"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_handed_in_looked_at_read_back_and_deleted() {
    let fleet = Fleet::start(Spec::with([]).workers(0, &[]).roles()).await;
    let bytes: Vec<u8> = (0..600_000_u32).map(|n| (n % 251) as u8).collect();
    let begin =
        json!({"op": "begin", "name": "报告.pdf", "mime": "Application/PDF", "bytes": bytes.len()});
    let begun = asked(&fleet, begin).await;
    let file = begun["file_id"].as_str().unwrap();
    assert_eq!(
        (&begun["state"], &begun["received"], &begun["chunk_bytes"]),
        (&json!("open"), &json!(0), &json!(262_144))
    );
    let mut at = 0;
    for part in bytes.chunks(262_144) {
        let taken = chunk(&fleet, file, at, part).await;
        at += part.len();
        let expected = json!({"file_id": file, "state": "open", "received": at});
        assert_eq!(taken, expected);
    }
    let open = asked(&fleet, json!({"op": "describe", "file_id": file})).await;
    assert_eq!(
        (&open["state"], &open["received"], open.get("sha256")),
        (&json!("open"), &json!(600_000), None)
    );
    let ready = finished(&fleet, file, &bytes).await;
    for (field, value) in [
        ("state", json!("ready")),
        ("name", json!("报告.pdf")),
        ("mime", json!("application/pdf")),
        ("bytes", json!(600_000)),
        ("sha256", json!(hash(&bytes))),
    ] {
        assert_eq!(ready[field], value, "{ready}");
    }
    assert!(ready["expires_at"].as_str() > begun["expires_at"].as_str());
    assert_eq!(finished(&fleet, file, &bytes).await, ready);
    let described = asked(&fleet, json!({"op": "describe", "file_id": file})).await;
    assert_eq!(described, ready);
    let listed = asked(&fleet, json!({"op": "list"})).await;
    assert_eq!(listed, json!({"files": [ready], "more": false}));

    let mut read = Vec::new();
    while read.len() < bytes.len() {
        let body = json!({"op": "read", "file_id": file, "offset": read.len()});
        let question = Question::new(String::new(), body.to_string());
        let part = answer(&fleet, "default", question).await;
        let headers = part.headers().unwrap();
        let header = |name: &str| headers.get(name).unwrap().as_str().to_owned();
        assert_eq!(header("Toolfleet-File"), file);
        assert_eq!(header("Toolfleet-File-Offset"), read.len().to_string());
        assert_eq!(header("Toolfleet-File-Bytes"), "600000");
        assert_eq!(header("Toolfleet-File-Mime"), "application/pdf");
        read.extend_from_slice(part.bytes());
    }
    assert!(read == bytes);
    let behind = asked(
        &fleet,
        json!({"op": "read", "file_id": file, "offset": 600_000}),
    )
    .await;
    assert_eq!(code(&behind), "invalid_arguments", "{behind}");

    let deleted = asked(&fleet, json!({"op": "delete", "file_id": file})).await;
    assert_eq!(deleted, json!({"file_id": file, "state": "deleted"}));
    let again = asked(&fleet, json!({"op": "delete", "file_id": file})).await;
    assert_eq!(code(&again), "not_found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_is_refused_with_what_is_there_and_the_file_stays_as_it_is() {
    let fleet = Fleet::start(Spec::with([]).workers(0, &[])).await;
    let begin = |name: &str, mime: &str, bytes: u64| json!({"op": "begin", "name": name, "mime": mime, "bytes": bytes});
    for (wrong, told) in [
        (begin("../../etc/passwd", "a/b", 1), "invalid_arguments"),
        (begin("..", "a/b", 1), "invalid_arguments"),
        (begin("a\u{202e}b", "a/b", 1), "invalid_arguments"),
        (begin("a\nb", "a/b", 1), "invalid_arguments"),
        (
            begin("a", "text/plain; charset=utf-8", 1),
            "invalid_arguments",
        ),
        (begin("a", "a/b", 0), "invalid_arguments"),
        (begin("a", "a/b", 33 * 1024 * 1024), "payload_too_large"),
        (json!({"op": "upload"}), "invalid_arguments"),
        (json!({"op": "describe", "file_id": "1"}), "invalid_id"),
    ] {
        let refused = asked(&fleet, wrong.clone()).await;
        assert_eq!(code(&refused), told, "{wrong}: {refused}");
    }
    let file = begun(&fleet, 7).await;
    let refused = async |at, data: &[u8], told: &str| {
        let refused = chunk(&fleet, &file, at, data).await;
        assert_eq!(code(&refused), told, "{refused}");
        refused["error"]["details"].clone()
    };
    refused(0, b"", "invalid_arguments").await;
    refused(0, &vec![0; 256 * 1024 + 1], "payload_too_large").await;
    assert_eq!(refused(3, b"def", "conflict").await["received"], 0);
    chunk(&fleet, &file, 0, b"abc").await;
    assert_eq!(refused(0, b"xyz", "conflict").await["received"], 3);
    let beyond = refused(3, b"defgh", "payload_too_large").await;
    assert_eq!(beyond, json!({"received": 3, "bytes": 7}));
    let short = finished(&fleet, &file, b"abcdefg").await;
    assert_eq!(code(&short), "conflict");
    assert_eq!(
        short["error"]["details"],
        json!({"received": 3, "bytes": 7})
    );
    let early = asked(&fleet, json!({"op": "read", "file_id": file, "offset": 0})).await;
    assert_eq!(code(&early), "not_found", "it is not ready");
    chunk(&fleet, &file, 3, b"defg").await;
    let wrong = finished(&fleet, &file, b"other").await;
    assert_eq!(code(&wrong), "conflict");
    let both = json!({"sha256": hash(b"abcdefg"), "said": hash(b"other")});
    assert_eq!(wrong["error"]["details"], both);
    let open = asked(&fleet, json!({"op": "describe", "file_id": file})).await;
    assert_eq!(open["state"], "open");
    assert_eq!(finished(&fleet, &file, b"abcdefg").await["state"], "ready");

    let one = [("Toolfleet-File", file.as_str())];
    let half = chunk_of(&fleet, "default", &one, Bytes::from_static(b"a")).await;
    assert_eq!(code(&half), "header_invalid");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_file_an_expired_one_and_one_that_never_was_are_told_alike() {
    let fleet = Fleet::start(Spec::with([]).workers(0, &[])).await;
    let (file, expired) = (
        handed_in(&fleet, "text/plain", b"abc").await,
        handed_in(&fleet, "text/plain", b"abc").await,
    );
    let moved = sqlx::query(
        "UPDATE toolfleet.kept_files SET expires_at = now() - interval '1 ms' WHERE file_id = $1::uuid",
    )
    .bind(&expired)
    .execute(&fleet.database.pool)
    .await
    .unwrap();
    // Unless the sweep was there already.
    assert!(moved.rows_affected() <= 1);
    let cases = [
        ("other", file.as_str()),
        ("other", UNKNOWN),
        ("default", UNKNOWN),
        ("default", &expired),
    ];
    for ask in [
        json!({"op": "describe"}),
        json!({"op": "read", "offset": 0}),
        json!({"op": "finish", "sha256": hash(b"abc")}),
        json!({"op": "delete"}),
    ] {
        let mut told = Vec::new();
        for (tenant, id) in cases {
            let mut ask = ask.clone();
            ask["file_id"] = json!(id);
            told.push(asked_of(&fleet, tenant, &ask).await);
        }
        assert_eq!(code(&told[0]), "not_found", "{}", told[0]);
        assert!(told.iter().all(|one| *one == told[0]), "{told:?}");
    }
    let mut told = Vec::new();
    for (tenant, id) in cases {
        let lines = [("Toolfleet-File", id), ("Toolfleet-File-Offset", "0")];
        told.push(chunk_of(&fleet, tenant, &lines, Bytes::from_static(b"abc")).await);
    }
    assert_eq!(code(&told[0]), "not_found");
    assert!(told.iter().all(|one| *one == told[0]), "{told:?}");
    let listed = asked_of(&fleet, "other", &json!({"op": "list"})).await;
    assert_eq!(listed["files"], json!([]));
    let mine = asked(&fleet, json!({"op": "describe", "file_id": file})).await;
    assert_eq!(mine["state"], "ready", "nothing of it was changed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_go_to_any_dispatcher_and_one_that_is_gone_is_not_missed() {
    let mut fleet = Fleet::start(Spec::with([]).workers(0, &[]).dispatchers(2)).await;
    let bytes: Vec<u8> = (0..100_000_u32).map(|n| (n % 249) as u8).collect();
    let file = begun(&fleet, bytes.len()).await;
    let mut parts = bytes.chunks(10_000).enumerate();
    for (n, part) in parts.by_ref().take(5) {
        chunk(&fleet, &file, n * 10_000, part).await;
    }
    for dispatcher in &mut fleet.dispatchers {
        dispatcher.drain().await;
    }
    fleet.add_dispatcher().await;
    let open = asked(&fleet, json!({"op": "describe", "file_id": file})).await;
    assert_eq!(open["received"], 50_000);
    // The answer to the last one may have been lost.
    chunk(&fleet, &file, 40_000, &bytes[40_000..50_000]).await;
    for (n, part) in parts {
        let taken = chunk(&fleet, &file, n * 10_000, part).await;
        assert_eq!(taken["received"], (n + 1) * 10_000, "{taken}");
    }
    assert_eq!(finished(&fleet, &file, &bytes).await["state"], "ready");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_keeps_no_more_than_its_quota_and_gets_it_back_when_files_go() {
    let mut fleet = Fleet::start(Spec::with([]).workers(0, &[]).dispatchers(0)).await;
    let flags = ["--tenant-files", "3", "--tenant-file-bytes", "100"];
    fleet.add_dispatcher_with(&flags).await;
    let begin = json!({"op": "begin", "name": "a", "mime": "a/b", "bytes": 60});
    let first = asked(&fleet, begin.clone()).await;
    assert_eq!(first["state"], "open");
    let over = asked(&fleet, begin.clone()).await;
    assert_eq!(code(&over), "quota_exceeded", "{over}");
    assert_eq!(over["error"]["suggestion"], "retry_later");
    let other = asked_of(&fleet, "other", &begin).await;
    assert_eq!(other["state"], "open", "another tenant has its own");
    let expire = "UPDATE toolfleet.kept_files SET expires_at = now() WHERE tenant = 'default'";
    assert_eq!(fleet.sql(expire).await, 1);
    until_so("the sweep to delete it", async || {
        let left = "SELECT count(*) FROM toolfleet.kept_files WHERE tenant = 'default'";
        fleet.count(left).await == 0
    })
    .await;
    let again = asked(&fleet, begin).await;
    assert_eq!(again["state"], "open", "{again}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_count_as_requests_and_bytes() {
    let mut fleet = Fleet::start(Spec::with([]).workers(0, &[]).dispatchers(0)).await;
    let flags = ["--tenant-bytes-per-second", "100000"];
    fleet.add_dispatcher_with(&flags).await;
    let file = begun(&fleet, 500_000).await;
    let large = vec![0; 200_000];
    chunk(&fleet, &file, 0, &large).await;
    let fast = chunk(&fleet, &file, 200_000, &large).await;
    assert_eq!(code(&fast), "rate_limited", "{fast}");
}
