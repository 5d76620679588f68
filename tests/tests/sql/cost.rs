//! What a transaction costs: for docs/performance.md. A measurement and no test, so it runs only when it is asked for:
//! `cargo test -p fleet-tests --test sql -- --ignored --nocapture what_a_transaction_costs`

use std::{fs, time::Duration};

use fleet_tests::running;
use serde_json::json;
use sqlx::Row as _;
use tokio::time::Instant;

use crate::bench::{Bench, context, manifest, word};

const CALLS: u32 = 4000;
const WARM_UP: u32 = 100;

#[tokio::test(flavor = "current_thread")]
#[ignore = "a measurement"]
async fn what_a_transaction_costs() {
    let mut bench = Bench::new().await;
    bench
        .admin(
            "GRANT USAGE ON SCHEMA toolfleet_tool TO @tool; \
             GRANT EXECUTE ON FUNCTION toolfleet_tool.succeed TO @tool; \
             CREATE TABLE @tool.effects (id uuid NOT NULL); ALTER TABLE @tool.effects OWNER TO @tool",
        )
        .await;
    let statement =
        "INSERT INTO effects (id) VALUES ($1) RETURNING repeat('x', coalesce($2::int, 0)) AS pad";
    let manifest = manifest("transaction", statement, &json!(["{id}", "{size}"]));
    let mut contexts = Vec::new();
    for _ in 0..WARM_UP + CALLS {
        let context = context(Duration::from_secs(600));
        running::transaction(&mut bench.admin, context.call_id, context.attempt_id).await;
        contexts.push(context);
    }
    let mut began = (0.0, 0.0, Instant::now());
    for (index, context) in contexts.into_iter().enumerate() {
        if index == WARM_UP as usize {
            began = (backends(&mut bench).await, cpu("self"), Instant::now());
        }
        let args = json!({"id": context.call_id.0.to_string()});
        let outcome = bench.attempt(&manifest, &args, context).await;
        assert_eq!(word(&outcome).0, "applied", "{outcome:?}");
    }
    let (server, own, elapsed) = (
        backends(&mut bench).await - began.0,
        cpu("self") - began.1,
        began.2.elapsed(),
    );
    let each = |seconds: f64| seconds * 1e6 / f64::from(CALLS);
    println!(
        "each: server {:.0} us of CPU, worker {:.0} us, elapsed {:.0} us",
        each(server),
        each(own),
        each(elapsed.as_secs_f64())
    );
}

/// CPU of the tool's connections, in seconds.
async fn backends(bench: &mut Bench) -> f64 {
    let rows = sqlx::query("SELECT pid FROM pg_stat_activity WHERE usename = $1")
        .bind(&bench.role)
        .fetch_all(&mut bench.admin)
        .await
        .unwrap();
    rows.iter()
        .map(|row| cpu(&row.get::<i32, _>(0).to_string()))
        .sum()
}

/// CPU of a process in seconds, which the kernel counts in hundredths.
fn cpu(process: &str) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let field = |at: usize| {
        fields
            .split_whitespace()
            .nth(at)
            .unwrap()
            .parse::<f64>()
            .unwrap()
    };
    (field(11) + field(12)) / 100.0
}
