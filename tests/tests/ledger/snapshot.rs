//! Finds the transaction that keeps vacuum from its work, also as a user with few rights, and the one that holds a lock.

use fleet::store::{
    figures, locks,
    snapshot::{self, HolderKind, SnapshotHolder},
};
use fleet_tests::{
    postgres::{Cluster, Database},
    wait::until_so,
};
use sqlx::{Connection as _, PgConnection, PgPool, postgres::PgPoolOptions};
use tokio::task::JoinSet;

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
