//! Partitions come and go by the day; what is still needed stays.

use fleet::{
    ids::CallId,
    store::{accept::NewCall, keys::find_key, lane::Reply, read::find, sweep::keep_partitions},
};
use sqlx::PgPool;
use uuid::Uuid;

use crate::support::{Ledger, keyed_call, new_call, new_key, succeeded, tenant};

/// Days ago: long over.
const OLD: i32 = 40;
const RETENTION: Option<i32> = Some(30);

const MODEL_REQUEST: &str = "INSERT INTO toolfleet.model_requests (call_id, request_id, attempt_id, attempt, tenant, tool, \
    tool_version, route, model_asked, kind) VALUES ($1, gen_random_uuid(), gen_random_uuid(), 1, 'acme', 'ask', 1, 'main', 'm', 'answer')";

/// Partitions made and days dropped.
async fn kept(ledger: &Ledger, retention: Option<i32>) -> (i32, i32) {
    let mut connection = ledger.database.postgres.connect_for_upkeep().await.unwrap();
    let kept = keep_partitions(&mut connection, retention).await.unwrap();
    (kept.made, kept.dropped_days)
}

#[tokio::test]
async fn partitions_are_made_once() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    assert_eq!(kept(&ledger, None).await, (0, 0));
    assert_eq!(days(pool).await.len(), 9, "yesterday, today and a week");
    let more: i32 = sqlx::query_scalar("SELECT toolfleet.ensure_partitions(9)")
        .fetch_one(pool)
        .await
        .unwrap();
    assert_eq!(more, 2 * 4);
    assert_eq!(kept(&ledger, RETENTION).await, (0, 0));
}

#[tokio::test]
async fn todays_calls_do_not_land_in_the_default_partition() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let (call, attempt) = ledger.running(&worker).await;
    ledger.ends(succeeded(call, attempt)).await;
    let stray: i64 = sqlx::query_scalar("SELECT count(*) FROM toolfleet.finished_calls_default")
        .fetch_one(&ledger.database.pool)
        .await
        .unwrap();
    assert_eq!(stray, 0);
}

#[tokio::test]
async fn a_stray_call_keeps_no_other_day_from_its_partition() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    // A clock that was off by ten days put this one into the default partition.
    finished(pool, id_of(pool, -10).await, None, 0).await;
    let made: i32 = sqlx::query_scalar("SELECT toolfleet.ensure_partitions(12)")
        .fetch_one(pool)
        .await
        .unwrap();
    assert_eq!(made, 4 * 4, "all but the day that the stray row lies in");
    let again: i32 = sqlx::query_scalar("SELECT toolfleet.ensure_partitions(12)")
        .fetch_one(pool)
        .await
        .unwrap();
    assert_eq!(again, 0);
}

#[tokio::test]
async fn an_old_day_goes_with_its_lapsed_keys_and_those_keys_are_new_again() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    add_day(pool, OLD).await;
    let (call, key) = (id_of(pool, OLD).await, new_key());
    finished(pool, call, Some(key), 0).await;
    let young = id_of(pool, 0).await;
    for (call, named) in [
        (
            call,
            "INSERT INTO toolfleet.call_files SELECT $1, 1, gen_random_uuid()",
        ),
        (call, MODEL_REQUEST),
        (young, MODEL_REQUEST),
    ] {
        sqlx::query(named).bind(call.0).execute(pool).await.unwrap();
    }
    assert_eq!(kept(&ledger, RETENTION).await, (0, 1));
    let requests: Vec<Uuid> = sqlx::query_scalar("SELECT call_id FROM toolfleet.model_calls")
        .fetch_all(pool)
        .await
        .unwrap();
    assert_eq!(requests, [young.0]);
    let named = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM toolfleet.call_files");
    assert_eq!(named.fetch_one(pool).await.unwrap(), 0);
    assert_eq!(days(pool).await.len(), 9);
    assert!(find(pool, call).await.unwrap().is_none());
    assert!(find_key(pool, &tenant(), &key).await.unwrap().is_none());
    assert_eq!(kept(&ledger, RETENTION).await, (0, 0));
    ledger.accepted(keyed_call(key)).await;
}

#[tokio::test]
async fn a_day_stays_while_one_of_its_calls_is_open() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    add_day(pool, OLD).await;
    finished(pool, id_of(pool, OLD).await, None, 0).await;
    let open = id_of(pool, OLD).await;
    ledger
        .accepted(NewCall {
            call_id: open,
            ..new_call()
        })
        .await;
    assert_eq!(kept(&ledger, RETENTION).await, (0, 0));
    assert_eq!(days(pool).await.len(), 10);
}

#[tokio::test]
async fn a_day_stays_while_a_key_into_it_lives() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    add_day(pool, OLD).await;
    let (living, lapsed) = (new_key(), new_key());
    let call = id_of(pool, OLD).await;
    finished(pool, call, Some(living), 60 * 24 * 3_600_000).await;
    finished(pool, id_of(pool, OLD).await, Some(lapsed), 0).await;
    assert_eq!(kept(&ledger, RETENTION).await, (0, 0));
    assert_eq!(days(pool).await.len(), 10);
    for key in [living, lapsed] {
        let reply = ledger.accepting.accept(keyed_call(key)).await;
        assert!(matches!(reply, Reply::Undecided), "{reply:?}");
    }
    let named = find_key(pool, &tenant(), &living).await.unwrap().unwrap();
    assert!(named.call_id == call && !named.lapsed);
}

#[tokio::test]
async fn a_day_stays_while_a_key_into_it_names_a_call_that_is_nowhere() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    add_day(pool, OLD).await;
    let key = new_key();
    name(pool, id_of(pool, OLD).await, key).await;
    assert_eq!(kept(&ledger, RETENTION).await, (0, 0));
    let reply = ledger.accepting.accept(keyed_call(key)).await;
    assert!(matches!(reply, Reply::Undecided), "{reply:?}");
}

#[tokio::test]
async fn marks_reservations_and_names_of_bulk_retries_go_with_the_day_of_their_calls() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    // A day before it that stays, for it has an open key, keeps what is of it.
    add_day(pool, OLD).await;
    add_day(pool, OLD + 1).await;
    let kept_longer = id_of(pool, OLD + 1).await;
    finished(pool, kept_longer, Some(new_key()), 60 * 24 * 3_600_000).await;
    let (old, young) = (id_of(pool, OLD).await, id_of(pool, 0).await);
    for call in [old, young] {
        finished(pool, call, None, 0).await;
    }
    for call in [old, young, kept_longer] {
        sqlx::query(
            "INSERT INTO toolfleet.retry_reservations (call_id, retry, run) VALUES ($1, $1, $1)",
        )
        .bind(call.0)
        .execute(pool)
        .await
        .unwrap();
        sqlx::query("SELECT toolfleet.mark_calls(ARRAY[$1], 'retried', 'ann', NULL, ARRAY[$1])")
            .bind(call.0)
            .execute(pool)
            .await
            .unwrap();
        sqlx::query(
            "INSERT INTO toolfleet.bulk_retries (name, filter, since, until, newest, actor) \
             VALUES ($1::text, '{}', now(), now(), $1, 'ann')",
        )
        .bind(call.0)
        .execute(pool)
        .await
        .unwrap();
    }
    assert_eq!(kept(&ledger, RETENTION).await, (0, 1));
    for table in [
        "SELECT call_id FROM toolfleet.call_marks ORDER BY call_id",
        "SELECT call_id FROM toolfleet.retry_reservations ORDER BY call_id",
        "SELECT newest FROM toolfleet.bulk_retries ORDER BY newest",
    ] {
        let left: Vec<Uuid> = sqlx::query_scalar(table).fetch_all(pool).await.unwrap();
        assert_eq!(left, [kept_longer.0, young.0], "{table}");
    }
}

#[tokio::test]
async fn a_day_stays_while_it_has_an_abandoned_call() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    add_day(pool, OLD).await;
    let call = id_of(pool, OLD).await;
    finished(pool, call, None, 0).await;
    sqlx::query(
        "INSERT INTO toolfleet.call_marks (call_id, what, actor, role) VALUES ($1, 'abandoned', 'ann', 'ann')",
    )
    .bind(call.0)
    .execute(pool)
    .await
    .unwrap();
    assert_eq!(kept(&ledger, RETENTION).await, (0, 0));
    let listed: i64 = sqlx::query_scalar("SELECT count(*) FROM toolfleet.abandoned")
        .fetch_one(pool)
        .await
        .unwrap();
    assert_eq!(listed, 1);
}

#[tokio::test]
async fn a_key_taken_over_survives_the_day_of_its_old_call() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    add_day(pool, OLD).await;
    let (old, key) = (id_of(pool, OLD).await, new_key());
    finished(pool, old, Some(key), 0).await;
    let mut taker = keyed_call(key);
    taker.key.as_mut().unwrap().replaces = Some(old);
    let new = ledger.accepted(taker).await;
    assert_eq!(kept(&ledger, RETENTION).await, (0, 1));
    assert_eq!(
        find_key(pool, &tenant(), &key)
            .await
            .unwrap()
            .unwrap()
            .call_id,
        new
    );
}

#[tokio::test]
async fn a_day_goes_only_when_it_is_over() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    for day in [29, 30, 31] {
        add_day(pool, day).await;
    }
    assert_eq!(kept(&ledger, RETENTION).await, (0, 1));
    assert_eq!(days(pool).await.len(), 9 + 2);
}

/// An id as a call of so many days ago has it.
async fn id_of(pool: &PgPool, days_ago: i32) -> CallId {
    let floor: Uuid = sqlx::query_scalar(
        "SELECT toolfleet.uuid_floor(date_trunc('day', now(), 'UTC') - make_interval(days => $1))",
    )
    .bind(days_ago)
    .fetch_one(pool)
    .await
    .unwrap();
    let mut bytes = *CallId::generate().0.as_bytes();
    bytes[..6].copy_from_slice(&floor.as_bytes()[..6]);
    CallId(Uuid::from_bytes(bytes))
}

/// The partitions of a day that `ensure_partitions` made so many days ago.
async fn add_day(pool: &PgPool, days_ago: i32) {
    let statements: Vec<String> = sqlx::query_scalar(
        "SELECT format('CREATE TABLE toolfleet.%I PARTITION OF toolfleet.%I FOR VALUES FROM (%L) TO (%L)', \
                parent || to_char(day AT TIME ZONE 'UTC', '_YYYYMMDD'), parent, toolfleet.uuid_floor(day), \
                toolfleet.uuid_floor(day + interval '1 day')) \
         FROM (SELECT date_trunc('day', now(), 'UTC') - make_interval(days => $1) AS day) d, \
              unnest(ARRAY['finished_calls', 'ended_attempts', 'call_notes', 'model_requests']) parent",
    )
    .bind(days_ago)
    .fetch_all(pool)
    .await
    .unwrap();
    for statement in statements {
        // Made by the statement above.
        sqlx::query(sqlx::AssertSqlSafe(statement))
            .execute(pool)
            .await
            .unwrap();
    }
}

/// A call that ended a second after it was accepted, and the key that named it.
async fn finished(pool: &PgPool, call: CallId, key: Option<[u8; 32]>, key_retention_ms: i64) {
    sqlx::query(
        "INSERT INTO toolfleet.finished_calls (call_id, rev, from_state, state, outcome, source, effect_known, tenant, \
         tool, tool_version, effect, queue, priority, key_hash, key_retention_ms, args, args_hash, language, accepted_at, \
         deadline_at, finished_at, queued_ms, run_ms, attempts, actor, reason) \
         SELECT $1, 1, 'queued', 'expired', 'system_error', 'error', 'none', 'tenant', 'tool', 1, 'once', 'default', 1, $2, $3, \
         '{}', '', 'en', at, at, at + interval '1 second', 0, 0, 0, 'test', 'test' FROM toolfleet.uuid_instant($1) at",
    )
    .bind(call.0)
    .bind(key.as_ref().map(|key| &key[..]))
    .bind(key_retention_ms)
    .execute(pool)
    .await
    .unwrap();
    if let Some(key) = key {
        name(pool, call, key).await;
    }
}

async fn name(pool: &PgPool, call: CallId, key: [u8; 32]) {
    sqlx::query(
        "INSERT INTO toolfleet.idempotency_keys VALUES ($1, $2, $3, NULL, 'tool', 1, '', '')",
    )
    .bind(tenant().as_str())
    .bind(&key[..])
    .bind(call.0)
    .execute(pool)
    .await
    .unwrap();
}

/// The daily partitions of the finished calls.
async fn days(pool: &PgPool) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT relname::text FROM pg_class WHERE relname ~ '^finished_calls_[0-9]{8}$' AND relkind = 'r' ORDER BY 1",
    )
    .fetch_all(pool)
    .await
    .unwrap()
}
