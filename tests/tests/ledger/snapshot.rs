//! Finds the transaction that keeps vacuum from its work, also as a user with few rights, and the one that holds a lock.

use fleet::store::{
    figures, hot_tables, locks,
    snapshot::{self, HolderKind, SnapshotHolder},
};
use fleet_tests::{
    postgres::{Cluster, Database},
    wait::{until, until_so},
};
use sqlx::{Connection as _, PgConnection, PgPool, postgres::PgPoolOptions};
use tokio::task::JoinSet;

use crate::support::run;

/// One transaction that writes, so that there is something to free.
async fn write(pool: &PgPool) {
    let writing = sqlx::query("UPDATE toolfleet.fleet SET quarantines = quarantines");
    writing.execute(pool).await.unwrap();
}

async fn pid(connection: &mut PgConnection) -> i32 {
    let asking = sqlx::query_scalar("SELECT pg_backend_pid()");
    asking.fetch_one(connection).await.unwrap()
}

/// The holder that is not the test's own statement at work.
async fn held(pool: &PgPool) -> Option<SnapshotHolder> {
    let holder = snapshot::oldest(pool).await.unwrap();
    holder.filter(|holder| holder.transactions > 0)
}

/// A pool of a user who has no rights but to connect.
async fn as_a_stranger(database: &Database, role: &str) -> PgPool {
    let options = PgPoolOptions::new().max_connections(1);
    let switch = format!("SET ROLE {role}");
    let options = options.after_connect(move |connection, _| {
        let switch = switch.clone();
        Box::pin(async move {
            sqlx::query(sqlx::AssertSqlSafe(switch))
                .execute(connection)
                .await
                .map(drop)
        })
    });
    options.connect(&database.url).await.unwrap()
}

#[tokio::test]
async fn the_oldest_snapshot_is_named_while_it_is_held() {
    let cluster = Cluster::alone(true).await;
    let database = cluster.database().await;
    let (mut idle, mut writing) = (database.connect().await, database.connect().await);
    assert_eq!(held(&database.pool).await, None);

    // A reader that has taken its snapshot and does nothing more, as psql and pg_dump do.
    let reader = pid(&mut idle).await;
    let mut reading = idle
        .begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ")
        .await
        .unwrap();
    sqlx::query("SELECT 1")
        .execute(&mut *reading)
        .await
        .unwrap();
    for _ in 0..5 {
        write(&database.pool).await;
    }
    // Younger, and in another database: neither is what holds it back.
    let mut younger = writing.begin().await.unwrap();
    sqlx::query("SELECT pg_current_xact_id()")
        .execute(&mut *younger)
        .await
        .unwrap();
    let other = cluster.database().await;
    let mut elsewhere = other.connect().await;
    let beside = elsewhere
        .begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ")
        .await
        .unwrap();

    let holder = held(&database.pool).await.unwrap();
    assert_eq!(
        (holder.kind, holder.pid),
        (HolderKind::Session, Some(reader))
    );
    assert!(
        holder.open_for.is_some() && holder.transactions >= 5,
        "{holder:?}"
    );
    let user: String = sqlx::query_scalar("SELECT current_user::text")
        .fetch_one(&database.pool)
        .await
        .unwrap();
    assert_eq!(holder.name, user);

    // Who may not see sessions of others sees the holder, and not since when.
    sqlx::query("CREATE ROLE stranger")
        .execute(&database.pool)
        .await
        .unwrap();
    let stranger = as_a_stranger(&database, "stranger").await;
    let seen = held(&stranger).await.unwrap();
    assert_eq!(
        (seen.pid, seen.open_for, seen.horizon),
        (Some(reader), None, holder.horizon)
    );

    drop(beside);
    reading.rollback().await.unwrap();
    let holder = held(&database.pool).await;
    assert_ne!(holder.and_then(|holder| holder.pid), Some(reader));
    younger.rollback().await.unwrap();
}

#[tokio::test]
async fn who_keeps_the_fleet_from_its_rows_is_named_behind_others_that_wait() {
    let cluster = Cluster::alone(true).await;
    let database = cluster.database().await;
    assert_eq!(locks::blockers(&database.pool).await.unwrap(), []);
    let mut holding = database.connect().await;
    let holder = pid(&mut holding).await;
    let mut held = holding.begin().await.unwrap();
    let lock = "LOCK TABLE toolfleet.open_calls IN SHARE ROW EXCLUSIVE MODE";
    sqlx::query(lock).execute(&mut *held).await.unwrap();

    // A person's CREATE INDEX waits for it, and a process of the fleet behind both.
    let (mut indexing, mut writing) = (database.connect().await, database.connect().await);
    let name = "SET application_name = 'someone'; SET lock_timeout = 0";
    sqlx::raw_sql(name).execute(&mut indexing).await.unwrap();
    let name = "SET application_name = 'toolfleet-worker'; SET lock_timeout = 0";
    sqlx::raw_sql(name).execute(&mut writing).await.unwrap();
    let mut waiting = JoinSet::new();
    waiting.spawn(async move {
        let sql = "BEGIN; LOCK TABLE toolfleet.open_calls IN SHARE MODE; ROLLBACK";
        sqlx::raw_sql(sql).execute(&mut indexing).await.unwrap();
    });
    let waits = async |count: i64| {
        let sessions = "SELECT count(*) FROM pg_locks WHERE NOT granted";
        until_so("sessions wait", async || {
            let sessions = sqlx::query_scalar::<_, i64>(sessions);
            sessions.fetch_one(&database.pool).await.unwrap() == count
        })
        .await;
    };
    waits(1).await;
    waiting.spawn(async move {
        let sql = "UPDATE toolfleet.open_calls SET rev = rev";
        sqlx::query(sql).execute(&mut writing).await.unwrap();
    });
    waits(2).await;

    let blockers = locks::blockers(&database.pool).await.unwrap();
    let [blocker] = blockers.as_slice() else {
        panic!("{blockers:?}");
    };
    assert_eq!((blocker.pid, blocker.waiting), (Some(holder), 1));
    assert!(blocker.open_for.is_some(), "{blocker:?}");
    let figures = figures::figures(&database.pool).await.unwrap();
    assert_eq!(figures.lock_waiters, 1);

    held.rollback().await.unwrap();
    waiting.join_all().await;
    assert_eq!(locks::blockers(&database.pool).await.unwrap(), []);
}

#[tokio::test]
async fn a_vacuum_that_is_at_work_holds_nothing_and_no_change_of_its_table_ends_it() {
    let cluster = Cluster::alone(true).await;
    let database = cluster.database().await;
    let pool = &database.pool;
    let mut dying = database.connect().await;
    for statement in [
        "ALTER TABLE toolfleet.open_counts SET (autovacuum_enabled = off)",
        "INSERT INTO toolfleet.open_counts SELECT 'tenant' || n, 1, 0 FROM generate_series(1, 3000) n",
        "DELETE FROM toolfleet.open_counts",
    ] {
        run(&mut dying, statement).await;
    }
    // What a session has done is counted when it ends, at the latest.
    dying.close().await.unwrap();
    let counts = until("the dead rows to be counted", async || {
        let mut tables = hot_tables::look(pool).await.unwrap().into_iter();
        tables.find(|table| table.name() == "open_counts")
    })
    .await;
    let mut slow = database.connect().await;
    let vacuum = pid(&mut slow).await;
    // It rests after each page.
    run(&mut slow, "SET vacuum_cost_delay = 100").await;
    run(&mut slow, "SET vacuum_cost_limit = 1").await;
    let mut vacuuming = JoinSet::new();
    vacuuming.spawn(async move {
        let vacuuming = sqlx::query("VACUUM toolfleet.open_counts").execute(&mut slow);
        vacuuming.await.map(drop)
    });
    let is_at_work = async || -> bool {
        let sql = "SELECT EXISTS (SELECT FROM pg_stat_progress_vacuum WHERE pid = $1)";
        let asking = sqlx::query_scalar(sql).bind(vacuum).fetch_one(pool);
        asking.await.unwrap()
    };
    until_so("the vacuum to be at work", is_at_work).await;
    write(pool).await;
    let sql = "SELECT age(backend_xmin) > 0 FROM pg_stat_activity WHERE pid = $1";
    let asking = sqlx::query_scalar(sql).bind(vacuum).fetch_one(pool);
    let is_old: bool = asking.await.unwrap();
    assert!(is_old, "it has a snapshot, and an old one");
    assert_eq!(held(pool).await, None);

    let mut upkeep = database.connect().await;
    hot_tables::set_autovacuum_at(&mut upkeep, &counts, 5_000)
        .await
        .unwrap();
    let sql = "SELECT option_value FROM pg_class c, pg_options_to_table(c.reloptions) \
               WHERE c.oid = 'toolfleet.open_counts'::regclass AND option_name = 'autovacuum_vacuum_threshold'";
    let asking = sqlx::query_scalar(sql).fetch_one(pool);
    let waits_for: String = asking.await.unwrap();
    assert_eq!(waits_for, "1000");
    assert!(is_at_work().await);
    let ending = sqlx::query("SELECT pg_terminate_backend($1)").bind(vacuum);
    ending.execute(pool).await.unwrap();
    assert!(vacuuming.join_next().await.unwrap().unwrap().is_err());
}
