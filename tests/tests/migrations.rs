//! The schema: as it is written down, reached from any state a release left behind, and refused when it is not known.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on ends there")]

use std::{borrow::Cow, fs, path::PathBuf, process::Command};

use fleet::store::{
    StoreError,
    migrate::{check_schema, migrate, migrator},
};
use fleet_tests::postgres::{Cluster, Database};
use sqlx::migrate::Migrator;
use toolfleet::servers::find::{self, SearchPaths};

#[tokio::test]
async fn the_schema_file_is_what_the_migrations_make() {
    let database = Database::fresh().await;
    let bin = find::postgres_bin(&SearchPaths::of_this_process())
        .await
        .unwrap();
    // On a PATH there may be links to some of a server's programs only.
    let server = fs::canonicalize(bin.join("postgres")).unwrap();
    let mut dump = Command::new(server.with_file_name("pg_dump"));
    dump.args([
        "--schema-only",
        "--no-owner",
        "--no-privileges",
        "--schema=toolfleet",
        "--schema=toolfleet_tool",
    ])
    // What depends on the day, and what sqlx keeps for itself.
    .args(["--exclude-table=toolfleet.*_2[0-9][0-9][0-9][0-9][0-9][0-9][0-9]"])
    .args([
        "--exclude-table=toolfleet._migrations",
        "--dbname",
        &database.url,
    ]);
    let output = dump.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let is = normalised(&String::from_utf8(output.stdout).unwrap());
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../migrations/schema.sql");
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        fs::write(&file, &is).unwrap();
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        is == written,
        "migrations/schema.sql is not what the migrations make, first at {:?}; `make schema` writes it anew",
        is.lines()
            .zip(written.lines())
            .find(|(is, written)| is != written)
    );
}

/// The dump without what differs between two runs or two servers: settings, versions, blank lines.
fn normalised(dump: &str) -> String {
    let lines = dump.lines().filter(|line| {
        let noise = ["--", "SET ", "SELECT pg_catalog.set_config", "\\"];
        !line.trim().is_empty() && !noise.iter().any(|start| line.starts_with(start))
    });
    let mut text = String::from(
        "-- The schema after all migrations, as pg_dump prints it, for reading: `make schema` writes it.\n\
         -- Without the daily partitions of the history.\n",
    );
    for line in lines {
        if line.starts_with("CREATE ") {
            text.push('\n');
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[tokio::test]
async fn migrating_twice_does_nothing() {
    let database = Cluster::shared().await.empty_database().await;
    let all = migrator().iter().count();
    assert_eq!(migrate(&database.postgres).await.unwrap(), all);
    assert_eq!(migrate(&database.postgres).await.unwrap(), 0);
    check_schema(&database.postgres).await.unwrap();
}

#[tokio::test]
async fn many_who_migrate_at_once_migrate_once() {
    let database = Cluster::shared().await.empty_database().await;
    let migrating = (0..8).map(|_| migrate(&database.postgres));
    for migrated in futures_util::future::join_all(migrating).await {
        migrated.unwrap();
    }
    check_schema(&database.postgres).await.unwrap();
    let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM toolfleet._migrations")
        .fetch_one(&database.pool)
        .await
        .unwrap();
    assert_eq!(rows, i64::try_from(migrator().iter().count()).unwrap());
}

#[tokio::test]
async fn a_database_that_holds_calls_migrates() {
    let database = at_first_migration().await;
    add_calls(&database).await;
    assert_eq!(
        migrate(&database.postgres).await.unwrap(),
        migrator().iter().count() - 1
    );
    let states: Vec<String> =
        sqlx::query_scalar("SELECT state FROM toolfleet.calls ORDER BY state")
            .fetch_all(&database.pool)
            .await
            .unwrap();
    assert_eq!(states, ["queued", "succeeded"]);
}

#[tokio::test]
async fn counts_stay_exact_when_their_table_changes_while_a_snapshot_is_held() {
    let database = at_first_migration().await;
    let mut holder = database.connect().await;
    for hold in ["BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1"] {
        sqlx::query(hold).execute(&mut holder).await.unwrap();
    }
    add_calls(&database).await;
    // Versions that the snapshot keeps, of rows that were changed in place.
    for counted in [
        "INSERT INTO toolfleet.open_counts SELECT 't', n, n FROM generate_series(-20, 20) n",
        "UPDATE toolfleet.open_counts SET n = -n WHERE backend BETWEEN -20 AND 20",
    ] {
        sqlx::query(counted).execute(&database.pool).await.unwrap();
    }
    // Without the indexes of the history that has rows: they are built only when the snapshot is gone.
    let mut connection = database.connect().await;
    migrator().run(&mut connection).await.unwrap();
    let index: (bool, bool, i64) = sqlx::query_as(
        "SELECT indisvalid, indcheckxmin, (SELECT count(*) FROM toolfleet.open_counts) \
         FROM pg_index WHERE indexrelid = 'toolfleet.open_counts_pkey'::regclass",
    )
    .fetch_one(&database.pool)
    .await
    .unwrap();
    assert_eq!(index, (true, false, 42), "usable at once");
    let sums = "SELECT (SELECT sum(n)::bigint FROM toolfleet.open_counts), toolfleet.open_count('t'), \
                       (SELECT count(*) FROM toolfleet.open_calls)";
    for (change, left) in [
        ("SELECT toolfleet.fold_open_counts(5000, 20000)", 1),
        ("DELETE FROM toolfleet.open_calls", 0),
    ] {
        let (sum, count, calls): (i64, i64, i64) = sqlx::query_as(sums)
            .fetch_one(&database.pool)
            .await
            .unwrap();
        assert_eq!((sum, count, calls), (1, 1, 1));
        sqlx::query(change).execute(&database.pool).await.unwrap();
        let (sum, count, calls): (i64, i64, i64) = sqlx::query_as(sums)
            .fetch_one(&database.pool)
            .await
            .unwrap();
        assert_eq!((sum, count, calls), (left, left, left), "{change}");
    }
}

#[tokio::test]
async fn a_day_of_history_with_calls_gets_its_indexes_after_the_migrations_and_after_an_interruption()
 {
    let database = at_first_migration().await;
    add_calls(&database).await;
    let mut connection = database.connect().await;
    // The migrations alone, and a build that ended before its time.
    migrator().run(&mut connection).await.unwrap();
    let wholes = [
        "finished_calls_code",
        "finished_calls_run",
        "finished_calls_session",
    ];
    assert_eq!(unfinished(&database).await, wholes);
    let name: String = sqlx::query_scalar(
        "SELECT c.relname::text FROM toolfleet.finished_calls f JOIN pg_class c ON c.oid = f.tableoid",
    )
    .fetch_one(&database.pool)
    .await
    .unwrap();
    let filled = format!("toolfleet.{name}");
    for sql in [
        format!("CREATE INDEX {name}_run ON {filled} (run)"),
        format!(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{filled}_run'::regclass"
        ),
    ] {
        // A name of the catalog.
        let done = sqlx::query(sqlx::AssertSqlSafe(sql))
            .execute(&mut connection)
            .await;
        done.unwrap();
    }
    assert_eq!(migrate(&database.postgres).await.unwrap(), 0);
    assert!(unfinished(&database).await.is_empty());
    let built: Vec<String> = sqlx::query_scalar(
        "SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = $1::text::regclass AND indisvalid AND NOT indisprimary \
         ORDER BY indexrelid::regclass::text",
    )
    .bind(&filled)
    .fetch_all(&database.pool)
    .await
    .unwrap();
    let expected = [
        (
            "code",
            "((error ->> 'code'::text)), call_id) WHERE (error IS NOT NULL)",
        ),
        ("run", "run, call_id) WHERE (run IS NOT NULL)"),
        ("session", "session, call_id) WHERE (session IS NOT NULL)"),
    ];
    let expected = expected
        .map(|(of, what)| format!("CREATE INDEX {name}_{of} ON {filled} USING btree ({what}"));
    assert_eq!(built, expected);
    // A day that is made later has them from its beginning.
    sqlx::query("SELECT toolfleet.ensure_partitions(12)")
        .execute(&mut connection)
        .await
        .unwrap();
    let later: Vec<i64> = sqlx::query_scalar(
        "SELECT count(*) FILTER (WHERE x.indisvalid) FROM pg_inherits i \
         JOIN pg_index x ON x.indrelid = i.inhrelid \
         WHERE i.inhparent = 'toolfleet.finished_calls'::regclass GROUP BY i.inhrelid",
    )
    .fetch_all(&database.pool)
    .await
    .unwrap();
    assert!(
        later.len() == 2 + 13 && later.iter().all(|indexes| *indexes == 4),
        "{later:?}"
    );
}

/// The indexes of partitioned tables that a partition lacks.
async fn unfinished(database: &Database) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
         WHERE NOT i.indisvalid AND c.relkind = 'I' ORDER BY 1",
    )
    .fetch_all(&database.pool)
    .await
    .unwrap()
}

#[tokio::test]
async fn a_schema_that_is_missing_or_too_old_is_refused() {
    let empty = Cluster::shared().await.empty_database().await;
    assert_refused(&empty, "toolfleet migrate").await;
    assert_refused(&at_first_migration().await, "toolfleet migrate").await;
}

#[tokio::test]
async fn a_schema_that_a_newer_program_has_added_to_is_accepted() {
    let database = Database::fresh().await;
    database
        .upgrade(1, "ALTER TABLE toolfleet.open_calls ADD COLUMN colour text")
        .await
        .unwrap();
    check_schema(&database.postgres).await.unwrap();
    database.postgres.connect().await.unwrap();
    assert_eq!(
        migrate(&database.postgres).await.unwrap(),
        0,
        "a release that is taken back migrates nothing"
    );
    check_schema(&database.postgres).await.unwrap();
}

#[tokio::test]
async fn a_schema_that_has_moved_on_too_far_is_refused() {
    let database = Database::fresh().await;
    database
        .upgrade(1, "SELECT toolfleet.require_program(29990101000001)")
        .await
        .unwrap();
    assert_refused(&database, "upgrade the program").await;
    for refused in [
        migrate(&database.postgres).await.map(drop),
        database.postgres.connect().await.map(drop),
    ] {
        assert!(
            matches!(&refused, Err(StoreError::UnknownSchema(why)) if why.contains("upgrade the program")),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn what_a_schema_asks_of_programs_never_falls() {
    let database = Database::fresh().await;
    for sql in [
        "SELECT toolfleet.require_program(29990101000001)",
        "SELECT toolfleet.require_program(20261120190000)",
    ] {
        sqlx::query(sql).execute(&database.pool).await.unwrap();
    }
    assert_refused(&database, "29990101000001").await;
}

#[tokio::test]
async fn a_migration_that_was_changed_after_it_was_applied_is_refused() {
    let database = Database::fresh().await;
    sqlx::query("UPDATE toolfleet._migrations SET checksum = 'other'")
        .execute(&database.pool)
        .await
        .unwrap();
    let migrated = migrate(&database.postgres).await;
    assert!(
        matches!(migrated, Err(StoreError::UnknownSchema(_))),
        "{migrated:?}"
    );
}

async fn assert_refused(database: &Database, advice: &str) {
    let refused = check_schema(&database.postgres).await.unwrap_err();
    assert!(
        matches!(&refused, StoreError::UnknownSchema(why) if why.contains(advice)),
        "{refused}"
    );
}

/// An open call and one of today's history.
async fn add_calls(database: &Database) {
    for (table, more, values) in [
        ("open_calls", "not_before, line", "now(), 'q'"),
        (
            "finished_calls",
            "rev, from_state, state, outcome, source, effect_known, finished_at, queued_ms, run_ms, attempts, actor, reason",
            "1, 'running', 'succeeded', 'success', 'live', 'applied', now(), 0, 0, 1, 'test', 'test'",
        ),
    ] {
        let insert = format!(
            "INSERT INTO toolfleet.{table} (call_id, tenant, tool, tool_version, effect, queue, priority, key_retention_ms, \
             args, args_hash, language, dispatcher_id, accepted_at, deadline_at, {more}) \
             VALUES (toolfleet.uuid_floor(now()), 't', 'tool', 1, 'once', 'q', 1, 0, '{{}}', '', 'en', gen_random_uuid(), \
             now(), now(), {values})"
        );
        let insert = if table == "finished_calls" {
            insert
                .replace("dispatcher_id, ", "")
                .replace("gen_random_uuid(), ", "")
        } else {
            insert
        };
        // Made above.
        sqlx::query(sqlx::AssertSqlSafe(insert))
            .execute(&database.pool)
            .await
            .unwrap();
    }
}

/// A database as the first release left it.
async fn at_first_migration() -> Database {
    let database = Cluster::shared().await.empty_database().await;
    let all = migrator();
    let first = Migrator {
        migrations: Cow::Owned(all.iter().take(1).cloned().collect()),
        ..all
    };
    first.run(&mut database.connect().await).await.unwrap();
    database
}
