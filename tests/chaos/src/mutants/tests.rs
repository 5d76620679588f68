use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use fleet::{
    ids::{AttemptId, CallId, WorkerId},
    store::{
        PgConnection,
        accept::Accept,
        awaiting,
        claim::{Claim, read_back},
        complete::{AttemptCost, Complete, Ending, EndingKind, Guard},
        followers,
        lane::{Locks, Statement},
        read, sweep, walk,
    },
};
use fleet_tests::postgres::Database;
use sqlx::{AssertSqlSafe, Executor, Row, raw_sql};
use uuid::Uuid;

use super::{ALL, Mutant, Planting, Sight, plant};

/// A statement as it goes over the wire, with the types of its parameters.
struct Sent {
    text: String,
    types: Vec<String>,
}

impl Sent {
    /// What this connection has sent last.
    async fn last(connection: &mut PgConnection) -> Self {
        let last = "SELECT statement, parameter_types::text[] AS types FROM pg_prepared_statements \
                    ORDER BY prepare_time DESC LIMIT 1";
        let row = connection.fetch_one(raw_sql(last)).await.unwrap();
        Self {
            text: row.get("statement"),
            types: row.get("types"),
        }
    }

    async fn of_lane<S: Statement>(statement: S, connection: &mut PgConnection) -> Self {
        statement.run(connection, &[], Locks::Wait).await.unwrap();
        Self::last(connection).await
    }
}

/// A statement as a mutant has it.
fn mutated(statement: &Sent, mutant: &Mutant) -> String {
    let rewrites = mutant.rewrites();
    rewrites
        .iter()
        .fold(statement.text.clone(), |text, rewrite| {
            text.replace(&rewrite.find, &rewrite.replace)
        })
}

/// Calls that wait, and a worker that lives.
async fn stored(connection: &mut PgConnection, calls: i32) -> WorkerId {
    let worker = WorkerId::generate();
    let store = format!(
        "INSERT INTO toolfleet.worker_processes (worker_id, name, host, pid, version, queues, concurrency)
         VALUES ('{worker}', 'w', 'h', 1, '0', '{{default}}', 1);
         INSERT INTO toolfleet.open_calls (call_id, tenant, tool, tool_version, effect, queue, line, priority, key_retention_ms, args,
             args_hash, language, dispatcher_id, accepted_at, deadline_at, not_before)
         SELECT gen_random_uuid(), 'acme', 'charge', 1, 'once', 'default', 'default', 1, 0, '{{}}', '\\x00', 'en', gen_random_uuid(), now(),
             now() + interval '1 minute', now()
         FROM generate_series(1, {calls})"
    );
    connection
        .execute(raw_sql(AssertSqlSafe(store)))
        .await
        .unwrap();
    worker
}

async fn waiting(connection: &mut PgConnection) -> Vec<Uuid> {
    let waiting = "SELECT call_id FROM toolfleet.open_calls WHERE state = 'queued'";
    let rows = connection.fetch_all(raw_sql(waiting)).await.unwrap();
    rows.iter().map(|row| row.get("call_id")).collect()
}

/// What only the statement does that can do everything.
fn again() -> Ending {
    Ending {
        call_id: CallId::generate(),
        guard: Guard::Attempt(AttemptId::generate()),
        kind: EndingKind::Again {
            pause_ms: 1,
            cost: AttemptCost::Spent,
        },
        attempt: None,
        actor: "test".to_owned(),
        reason: "test".to_owned(),
    }
}

/// What the product really sends, by the names that edits call it.
async fn sent(database: &Database) -> BTreeMap<&'static str, Sent> {
    let mut connection = database.connect().await;
    let mut sent = BTreeMap::new();
    let mut note = |name, statement| assert!(sent.insert(name, statement).is_none());
    note("accept", Sent::of_lane(Accept, &mut connection).await);
    let claim = Claim::new(WorkerId::generate());
    note("claim", Sent::of_lane(claim, &mut connection).await);
    let complete = Complete;
    note(
        "end_running",
        Sent::of_lane(complete, &mut connection).await,
    );
    let general = Complete;
    let rows = [again()];
    let running = general.run(&mut connection, &rows, Locks::Wait);
    assert!(running.await.unwrap()[0].is_none());
    note("complete", Sent::last(&mut connection).await);
    let (call, attempt) = (CallId::generate(), AttemptId::generate());
    read_back(&mut connection, call, attempt).await.unwrap();
    note("claim_read_back", Sent::last(&mut connection).await);

    // One connection, so that what was sent is looked for where it was sent.
    let pool = database.postgres.pool_for_reading(1);
    walk::step(&pool, None, &walk::Worth::all()).await.unwrap();
    note("walk", Sent::last(&mut pool.acquire().await.unwrap()).await);
    sweep::lost(&pool, true).await.unwrap();
    note(
        "lost_behind",
        Sent::last(&mut pool.acquire().await.unwrap()).await,
    );
    awaiting::over(&pool).await.unwrap();
    note(
        "waits",
        Sent::last(&mut pool.acquire().await.unwrap()).await,
    );
    followers::lines_behind(&pool, None).await.unwrap();
    note(
        "followers",
        Sent::last(&mut pool.acquire().await.unwrap()).await,
    );
    read::find(&pool, call).await.unwrap();
    note("find", Sent::last(&mut pool.acquire().await.unwrap()).await);
    sent
}

#[test]
fn each_mutant_has_a_name_and_is_something() {
    let names: BTreeSet<&str> = ALL.iter().map(|mutant| mutant.name).collect();
    assert_eq!(names.len(), ALL.len());
    for mutant in ALL {
        let name = mutant.name;
        assert!(std::ptr::eq(Mutant::named(name).unwrap(), mutant));
        assert!(!mutant.mistake.is_empty() && !mutant.rule.is_empty());
        let something =
            mutant.edits.len() + mutant.sources.len() + usize::from(mutant.planting.is_some());
        assert!(something > 0, "{name} changes nothing");
        for edit in mutant.edits {
            assert_ne!(edit.find, edit.replace, "{name}");
        }
    }
    assert!(Mutant::named("none").is_none());
    let seen = ALL.iter().filter(|mutant| mutant.sight != Sight::Masked);
    assert!(seen.count() >= 16);
}

#[test]
fn each_change_of_a_source_is_made_exactly_once() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let planted = plant::planted(&root).unwrap();
    for mutant in ALL {
        for source in mutant.sources {
            assert_ne!(source.find, source.replace, "{}", mutant.name);
            // It asks by its own name.
            let asks = format!("mutant::on(\"{}\")", mutant.name);
            assert!(planted[source.file].contains(&asks), "{asks}");
        }
    }
}

#[test]
fn a_mistake_in_sources_is_not_made_by_the_tree_as_it_stands() {
    for mutant in ALL {
        let in_sources = !mutant.sources.is_empty();
        assert_eq!(mutant.is_planted().is_err(), in_sources, "{}", mutant.name);
        assert_eq!(mutant.variable().is_some(), in_sources, "{}", mutant.name);
    }
}

#[tokio::test]
async fn each_edit_changes_the_statement_it_means_into_another_that_postgres_takes() {
    let database = Database::fresh().await;
    let sent = sent(&database).await;
    let mut connection = database.connect().await;
    for mutant in ALL {
        let name = mutant.name;
        let edited: BTreeSet<&str> = mutant.edits.iter().map(|edit| edit.statement).collect();
        for edit in mutant.edits {
            let meant = sent
                .iter()
                .filter(|(_, statement)| statement.text.contains(edit.find));
            let meant: Vec<&str> = meant.map(|(name, _)| *name).collect();
            // The two that end calls have something in common, and then it is wrong in both.
            let meant: Vec<&str> = match meant[..] {
                [one, "end_running"] => vec![one],
                _ => meant,
            };
            assert_eq!(meant, [edit.statement], "{name}: {}", edit.find);
        }
        for statement in edited {
            let Sent { text, types } = &sent[statement];
            let rewritten = mutated(&sent[statement], mutant);
            assert_ne!(*text, rewritten);
            // The types are those that the product has named, so what it sends is what is tried.
            let types = match types.join(", ") {
                none if none.is_empty() => none,
                types => format!("({types})"),
            };
            let prepare = format!("PREPARE mutant {types} AS {rewritten}; DEALLOCATE mutant");
            let prepared = connection.execute(raw_sql(AssertSqlSafe(prepare))).await;
            assert!(prepared.is_ok(), "{name}: {prepared:?}");
        }
    }
}

#[tokio::test]
async fn each_planting_takes_root_once() {
    for mutant in ALL {
        let Some(sql) = mutant.sql() else { continue };
        let name = mutant.name;
        let database = Database::fresh().await;
        let mut connection = database.connect().await;
        let planting = connection
            .execute(raw_sql(AssertSqlSafe(sql.clone())))
            .await;
        assert!(planting.is_ok(), "{name}: {planting:?}");
        // What it changes is not there any more.
        let again = connection.execute(raw_sql(AssertSqlSafe(sql))).await;
        assert!(again.is_err(), "{name} changes nothing");
    }
}

#[tokio::test]
async fn a_planting_that_finds_nothing_to_change_fails() {
    let planting = Planting::Function {
        name: "toolfleet.settle",
        find: "what no function says",
        replace: "",
    };
    let mutant = Mutant {
        planting: Some(planting),
        ..*Mutant::named("settle_without_fence").unwrap()
    };
    let database = Database::fresh().await;
    let mut connection = database.connect().await;
    let planted = connection.execute(raw_sql(AssertSqlSafe(mutant.sql().unwrap())));
    let error = planted.await.unwrap_err().to_string();
    assert!(
        error.contains("does not say what the mutant changes"),
        "{error}"
    );
}

#[tokio::test]
async fn a_call_that_runs_is_claimed_once_more_by_the_mutant_alone() {
    let database = Database::fresh().await;
    let claim = sent(&database).await.remove("claim").unwrap();
    let mutant = mutated(&claim, Mutant::named("claim_without_state_guard").unwrap());
    let mut connection = database.connect().await;
    let worker = stored(&mut connection, 1).await;
    let call = waiting(&mut connection).await;
    for (text, claimed) in [(&claim.text, 1), (&claim.text, 0), (&mutant, 1)] {
        let claiming = sqlx::query(AssertSqlSafe(text.clone()))
            .bind(worker.0)
            .bind(&call)
            .bind(vec![Uuid::new_v4()])
            .bind(vec![1_000_i64]);
        let rows = claiming.fetch_all(&mut connection).await.unwrap();
        assert_eq!(rows.len(), claimed);
    }
}

#[tokio::test]
async fn a_claim_that_never_arrived_is_believed_by_the_mutant_alone() {
    let database = Database::fresh().await;
    let look = sent(&database).await.remove("claim_read_back").unwrap();
    let mutant = mutated(&look, Mutant::named("silent_claim_believed").unwrap());
    let mut connection = database.connect().await;
    stored(&mut connection, 1).await;
    let call = waiting(&mut connection).await[0];
    for (text, found) in [(look.text, false), (mutant, true)] {
        let looking = sqlx::query(AssertSqlSafe(text))
            .bind(call)
            .bind(Uuid::new_v4());
        let row = looking.fetch_optional(&mut connection).await.unwrap();
        assert_eq!(row.is_some(), found);
        // What the worker refuses to be without.
        if let Some(row) = row {
            assert_eq!(row.get::<i32, _>("rev"), 0);
            assert_eq!(row.get::<i64, _>("attempt_timeout_ms"), 10_000);
            assert_eq!(row.get::<Vec<u8>, _>("args_hash"), [0]);
            row.get::<i64, _>("since_first_start_ms");
        }
    }
}

#[tokio::test]
async fn some_accepted_calls_are_lost_by_the_mutant() {
    let database = Database::fresh().await;
    let mut connection = database.connect().await;
    let mutant = Mutant::named("accepted_call_lost").unwrap();
    let planting = raw_sql(AssertSqlSafe(mutant.sql().unwrap()));
    connection.execute(planting).await.unwrap();
    stored(&mut connection, 2_000).await;
    let left = waiting(&mut connection).await.len();
    assert!((1_900..2_000).contains(&left), "{left}");
}
