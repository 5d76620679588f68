//! What a database says, however much it is, takes no more memory of a worker than the tool's limit allows.

use std::{fs, time::Duration};

use fleet::outcome::Outcome;
use serde_json::json;

use crate::bench::{Bench, answer, context, manifest, word};

const MIB: u64 = 1024 * 1024;
/// How much more of its memory the process may touch for an answer: 300 MB are said.
const GROWTH_MAX: u64 = 24 * MIB;
/// The server compresses and stores some of the 300 MB first; on a busy machine that has taken ten seconds.
const TIME: Duration = Duration::from_secs(120);

fn bytes(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib * 1024
}

/// Runs a statement as a tool: its outcome, and by how much the peak of this process was above where it began.
#[expect(clippy::print_stdout, reason = "the figures are asked for")]
async fn measured(bench: &Bench, effect: &str, statement: &str) -> (Outcome, u64) {
    // The peak begins anew.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = bytes("VmRSS");
    let manifest = manifest(effect, statement, &json!([]));
    let outcome = bench.attempt(&manifest, &json!({}), context(TIME)).await;
    let peak = bytes("VmHWM");
    println!(
        "{statement}: {:?}, {} MiB before, {} MiB at the peak",
        word(&outcome),
        before / MIB,
        peak / MIB
    );
    (outcome, peak.saturating_sub(before))
}

#[tokio::test]
async fn no_answer_takes_more_memory_than_its_limit() {
    let mut bench = Bench::new().await;
    bench
        .admin(
            "CREATE FUNCTION @tool.shout() RETURNS int LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION '%', repeat('x', 300000000) USING ERRCODE = '23505'; END $$;
             CREATE FUNCTION @tool.chat() RETURNS int LANGUAGE plpgsql AS
             $$ BEGIN RAISE NOTICE '%', repeat('x', 300000000); RETURN 1; END $$;
             ALTER ROLE @tool SET log_min_messages = 'panic'",
        )
        .await;
    // The connection, and what is learned of it, is not what is measured.
    let small = bench.run("read", "SELECT 1 AS one", json!([]), json!({}));
    assert_eq!(answer(&small.await), json!([{"one": 1}]));
    let too_large = ("definite_failure", "output_too_large");
    for (effect, statement, told) in [
        ("read", "SELECT repeat('x', 300000000) AS one", too_large),
        (
            "once",
            "INSERT INTO items SELECT 1, repeat('x', 300000000) RETURNING name",
            too_large,
        ),
        (
            "read",
            "SELECT repeat('x', 100000) AS a, repeat('x', 900000) AS b, repeat('x', 9000000) AS c FROM generate_series(1, 30)",
            too_large,
        ),
        (
            "read",
            "SELECT repeat('x', 3000) AS a FROM generate_series(1, 100000)",
            too_large,
        ),
        (
            "once",
            "SELECT shout() AS one",
            ("definite_failure", "tool_error"),
        ),
        ("once", "SELECT chat() AS one", ("applied", "")),
    ] {
        let (outcome, growth) = measured(&bench, effect, statement).await;
        assert_eq!(word(&outcome), told, "{statement}");
        assert!(growth < GROWTH_MAX, "{statement}: {growth} bytes");
    }
    assert_eq!(bench.ask("SELECT count(*) FROM @tool.items").await, 0);
}

/// It comes while the transaction is being committed, when a refusal would be a lie.
#[tokio::test]
async fn a_long_notice_at_commit_hides_no_commit() {
    let mut bench = Bench::new().await;
    bench
        .admin(
            "CREATE FUNCTION @tool.chat() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE NOTICE '%', repeat('x', 30000000); RETURN NULL; END $$;
             CREATE TABLE @tool.noted (id int); ALTER TABLE @tool.noted OWNER TO @tool;
             CREATE CONSTRAINT TRIGGER chat AFTER INSERT ON @tool.noted DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW EXECUTE FUNCTION @tool.chat()",
        )
        .await;
    let insert = "INSERT INTO noted VALUES (1)";
    let outcome = bench.run("once", insert, json!([]), json!({})).await;
    assert_eq!(answer(&outcome), json!({"rows_affected": 1}));
    assert_eq!(bench.ask("SELECT count(*) FROM @tool.noted").await, 1);
}
