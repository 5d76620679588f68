//! While another session holds a snapshot, no version of a row can be removed. What is asked many times a second must not read
//! the versions that pile up: counted in blocks and rows, not in time.

use std::{sync::Arc, time::Duration};

use fleet::{
    ids::{Label, WorkerId},
    store::{
        accept::Accept,
        claim::Claim,
        complete::Complete,
        lane::{Locks, Statement as _},
        look::CallsPart,
        open_counts, sweep,
        walk::{self, Worth},
    },
};
use fleet_tests::{invariants::MISCOUNTED, postgres::Database};
use sqlx::{PgConnection, PgPool};

use crate::support::{Ledger, claim_of, new_call, run, succeeded, tenant};

/// Calls that come and go one by one, each statement in a transaction of its own.
const COME_AND_GO: &str = "CREATE PROCEDURE come_and_go(calls int) LANGUAGE plpgsql AS $$ \
    DECLARE id uuid; \
    BEGIN \
        FOR n IN 1..calls LOOP \
            id := toolfleet.uuid_floor(now() - interval '1 hour' + make_interval(secs => n / 1000.0)); \
            INSERT INTO toolfleet.open_calls (call_id, tenant, tool, tool_version, effect, queue, line, priority, \
                key_retention_ms, args, args_hash, language, dispatcher_id, accepted_at, deadline_at, not_before) \
            VALUES (id, 'tenant', 'tool', 1, 'once', 'default', 'default', 1, 0, '{}', '', 'en', gen_random_uuid(), now(), \
                now() + interval '1 hour', now()); \
            COMMIT; \
            DELETE FROM toolfleet.open_calls WHERE call_id = id; \
            COMMIT; \
        END LOOP; \
    END $$";
const CALLS: i64 = 3_000;

/// A session that has a snapshot and does nothing more.
async fn holder(database: &Database) -> PgConnection {
    let mut holder = database.connect().await;
    run(&mut holder, "BEGIN ISOLATION LEVEL REPEATABLE READ").await;
    run(&mut holder, "SELECT 1").await;
    holder
}

/// A session that has accepted and ended many calls, one by one.
async fn busy(database: &Database) -> PgConnection {
    let mut busy = database.connect().await;
    run(&mut busy, "SET synchronous_commit = off").await;
    run(&mut busy, "SET enable_seqscan = off").await;
    run(&mut busy, "SET enable_bitmapscan = off").await;
    run(&mut busy, COME_AND_GO).await;
    sqlx::query("CALL come_and_go($1::bigint::int)")
        .bind(CALLS)
        .execute(&mut busy)
        .await
        .unwrap();
    busy
}

/// How many blocks of the hot tables and their indexes a statement reads.
async fn blocks(session: &mut PgConnection, sql: &str) -> i64 {
    run(session, "BEGIN").await;
    // The plans of the fleet are kept, and planning reads a page of every empty index.
    let prepare = format!("PREPARE one AS {sql}; EXPLAIN EXECUTE one");
    // Made in this file.
    let prepared = sqlx::raw_sql(sqlx::AssertSqlSafe(prepare)).execute(&mut *session);
    prepared.await.unwrap();
    let before = blocks_so_far(session).await;
    run(session, "EXECUTE one").await;
    let read = blocks_so_far(session).await - before;
    run(session, "DEALLOCATE one").await;
    run(session, "ROLLBACK").await;
    read
}

async fn miscounted(pool: &PgPool) -> i64 {
    let counting = sqlx::query_scalar(MISCOUNTED);
    counting.fetch_one(pool).await.unwrap()
}

const ACCEPT: &str = "INSERT INTO toolfleet.open_calls (call_id, tenant, tool, tool_version, effect, queue, line, priority, \
    key_retention_ms, args, args_hash, language, dispatcher_id, accepted_at, deadline_at, not_before) \
    VALUES (toolfleet.uuid_floor(now()), 'tenant', 'tool', 1, 'once', 'default', 'default', 1, 0, '{}', '', 'en', \
    gen_random_uuid(), now(), now() + interval '1 hour', now())";

#[tokio::test]
async fn counting_a_call_reads_the_newest_version_of_its_sessions_row() {
    let ledger = Ledger::fresh().await;
    let kept = ledger.queued().await;
    let _holder = holder(&ledger.database).await;
    let mut busy = busy(&ledger.database).await;
    // Its versions lie on many pages; the statements that make and end calls read a few of them.
    let all = blocks(&mut busy, "SELECT sum(n) FROM toolfleet.open_counts").await;
    assert!(all > 40, "{all}");
    let accept = blocks(&mut busy, ACCEPT).await;
    let end = format!("DELETE FROM toolfleet.open_calls WHERE call_id = '{kept}'");
    let end = blocks(&mut busy, &end).await;
    assert!(accept <= 12 && end <= 12, "{accept} and {end} of {all}");
    assert_eq!(miscounted(&ledger.database.pool).await, 0);
    assert!(ledger.find(kept).await.attempts == 0);
}

#[tokio::test]
async fn a_sum_over_a_large_table_reads_the_newest_version_of_each_row() {
    let ledger = Ledger::fresh().await;
    let mut old = holder(&ledger.database).await;
    let mut busy = busy(&ledger.database).await;
    let pool = &ledger.database.pool;
    ledger.many_queued(7).await;
    let counted = async || open_counts::of(pool, &tenant(), &[]).await.unwrap().calls;
    assert_eq!(counted().await, 7);
    // Rows of sessions that are gone and rows below zero count, as do other tenants' not.
    for more in [
        "INSERT INTO toolfleet.open_counts SELECT 'filler' || n, 1, n FROM generate_series(1, 40000) n",
        "INSERT INTO toolfleet.open_counts VALUES ('tenant', 0, 30), ('tenant', 4000000, -12), ('tenant', 2147483647, 5)",
    ] {
        run(&mut busy, more).await;
    }
    let size: i64 = sqlx::query_scalar("SELECT pg_relation_size('toolfleet.open_counts')")
        .fetch_one(pool)
        .await
        .unwrap();
    assert!(size > 4 << 20, "{size}");
    assert_eq!(counted().await, 30);
    let others: Vec<Label> = ["filler7", "tenant", "nobody"]
        .iter()
        .map(|name| name.parse().unwrap())
        .collect();
    let sums = open_counts::of_all(pool, &others).await.unwrap();
    assert_eq!(sums, [7, 30, 0]);
    let read = blocks(&mut busy, "SELECT toolfleet.open_count('tenant')").await;
    assert!(read <= 40, "{read}");
    // As of its snapshot, before all of that.
    let then: i64 = sqlx::query_scalar("SELECT toolfleet.open_count('tenant')")
        .fetch_one(&mut old)
        .await
        .unwrap();
    assert_eq!(then, 0);
}

#[tokio::test]
async fn a_fold_and_a_recount_under_a_held_snapshot_change_no_sum() {
    let ledger = Ledger::fresh().await;
    ledger.many_queued(5).await;
    let mut old = holder(&ledger.database).await;
    let sum = "SELECT toolfleet.open_count('tenant')";
    let of_old: i64 = sqlx::query_scalar(sum).fetch_one(&mut old).await.unwrap();
    assert_eq!(of_old, 5);
    let mut busy = busy(&ledger.database).await;
    let mut upkeep = ledger.database.connect().await;
    for round in 1..=3_i64 {
        ledger.many_queued(2).await;
        let folded: i64 = sqlx::query_scalar("SELECT toolfleet.fold_open_counts(5000, 0)")
            .fetch_one(&mut upkeep)
            .await
            .unwrap();
        assert!(folded > 0);
        assert_eq!(miscounted(&ledger.database.pool).await, 0);
        let left: i64 = sqlx::query_scalar("SELECT count(*) FROM toolfleet.open_counts")
            .fetch_one(&mut upkeep)
            .await
            .unwrap();
        assert_eq!(left, 1, "all in the row of those that are gone");
        assert_eq!(open_counts::recount(&mut upkeep).await.unwrap(), 0);
        // Its row was taken away: it gets another one.
        run(&mut busy, "CALL come_and_go(10)").await;
        assert_eq!(miscounted(&ledger.database.pool).await, 0);
        let counted = open_counts::of(&ledger.database.pool, &tenant(), &[]).await;
        assert_eq!(counted.unwrap().calls, 5 + 2 * round);
    }
    let of_old: i64 = sqlx::query_scalar(sum).fetch_one(&mut old).await.unwrap();
    assert_eq!(of_old, 5);
}

/// What the statement that this session has prepared with this in its text reads, run with these parameters.
async fn buffers(session: &mut PgConnection, part: &str, parameters: &str) -> u64 {
    let name: String = sqlx::query_scalar(
        "SELECT name FROM pg_prepared_statements WHERE strpos(statement, $1) > 0 AND strpos(statement, 'pg_prepared') = 0",
    )
    .bind(part)
    .fetch_one(&mut *session)
    .await
    .unwrap();
    let explain = format!("EXPLAIN (ANALYZE, BUFFERS) EXECUTE {name}({parameters})");
    let lines: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(explain))
        .fetch_all(&mut *session)
        .await
        .unwrap();
    // The first is that of the whole plan.
    let buffers = lines.iter().find(|line| line.contains("Buffers: shared"));
    let figures = buffers.unwrap().split(['=', ' ']);
    figures.filter_map(|word| word.parse::<u64>().ok()).sum()
}

#[tokio::test]
async fn a_look_at_certain_calls_reads_no_call_that_has_ended() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (running, _) = ledger.running(&worker).await;
    let queued = ledger.queued().await;
    let _holder = holder(&ledger.database).await;
    drop(busy(&ledger.database).await);

    let pool = ledger.database.postgres.pool(1);
    let known = [running, queued];
    let all = Worth::all();
    let step = walk::step_over(&pool, CallsPart::Among(&known), &all).await;
    let step = step.unwrap();
    assert_eq!((step.seen.as_slice(), step.cursor), (&known[..], None));
    let lost = sweep::lost_in(&pool, CallsPart::Among(&known), true).await;
    assert!(lost.unwrap().is_empty());
    let mut session = pool.acquire().await.unwrap();
    let ids = format!("'{{{running},{queued}}}'");
    let walked = format!("8192, {ids}, '{{}}', '{{}}', '{{}}', '{{}}'");
    let walked = buffers(
        &mut session,
        "call_id = ANY($2) ORDER BY call_id LIMIT",
        &walked,
    )
    .await;
    let looked = buffers(&mut session, "state = 'running'", &format!("true, {ids}")).await;
    assert!(walked <= 20 && looked <= 20, "{walked} and {looked}");
    drop(session);

    // One at all of them finds the same, and reads what has ended, too.
    let step = walk::step(&pool, None, &Worth::all()).await.unwrap();
    assert_eq!(step.seen, known);
    let mut session = pool.acquire().await.unwrap();
    let first = running.before(Duration::MAX);
    let all = format!("8192, '{first}', '{{}}', '{{}}', '{{}}', '{{}}'");
    let all = buffers(&mut session, "call_id > $2 ORDER BY call_id LIMIT", &all).await;
    assert!(all > 100, "{all}");
}

/// What accepting, claiming and ending one call reads of the hot tables and their indexes, statement by statement.
async fn path(session: &mut PgConnection, worker: WorkerId) -> [i64; 3] {
    let call = Arc::new(new_call());
    let claim = claim_of(call.call_id);
    let ending = succeeded(call.call_id, claim.attempt_id);
    run(session, "BEGIN").await;
    let before = blocks_so_far(session).await;
    let accepted = [call];
    let accepting = Accept.run(session, &accepted, Locks::Wait);
    assert!(accepting.await.unwrap()[0].is_some());
    let accept = blocks_so_far(session).await;
    let (claims, claiming) = ([claim], Claim::new(worker));
    let claiming = claiming.run(session, &claims, Locks::Wait);
    assert!(claiming.await.unwrap()[0].is_some());
    let claim = blocks_so_far(session).await;
    let (endings, completing) = ([ending], Complete);
    let completing = completing.run(session, &endings, Locks::Wait);
    assert!(completing.await.unwrap()[0].is_some());
    let complete = blocks_so_far(session).await;
    run(session, "COMMIT").await;
    [accept - before, claim - accept, complete - claim]
}

/// Blocks of the hot tables and their indexes that this session has read since it last told the server, which is not in the
/// middle of a transaction.
async fn blocks_so_far(session: &mut PgConnection) -> i64 {
    sqlx::query_scalar(
        "SELECT sum(pg_stat_get_xact_blocks_fetched(hot.oid) + ( \
             SELECT coalesce(sum(pg_stat_get_xact_blocks_fetched(i.indexrelid)), 0) FROM pg_index i WHERE i.indrelid = hot.oid))::bigint \
         FROM unnest('{toolfleet.open_calls, toolfleet.open_counts, toolfleet.worker_processes}'::regclass[]) hot (oid)",
    )
    .fetch_one(session)
    .await
    .unwrap()
}

#[tokio::test]
async fn a_calls_way_reads_no_more_after_thousands_of_others() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let mut fresh = ledger.database.connect().await;
    path(&mut fresh, worker.id).await;
    let before = path(&mut fresh, worker.id).await;
    let _holder = holder(&ledger.database).await;
    let mut busy = busy(&ledger.database).await;
    let after = path(&mut busy, worker.id).await;
    for (name, (before, after)) in ["accept", "claim", "complete"]
        .iter()
        .zip(before.into_iter().zip(after))
    {
        assert!(
            after <= before + 12,
            "{name}: {after} blocks, {before} before"
        );
    }
    assert_eq!(miscounted(&ledger.database.pool).await, 0);
}
