//! How what is asked many times a second finds its rows when the statistics say that there are none: a vacuum has seen the
//! table empty, and then came many. By its statistics alone, a plan that reads all of them for each looks as good as any.

use fleet::{
    call::Priority,
    hold::Line,
    store::{
        expiry, followers,
        pauses::{self, LineMove},
        probe, release, renumber, sweep,
        walk::{self, Worth},
        workers,
    },
};
use futures_util::future::join_all;
use sqlx::PgConnection;

use crate::support::{Ledger, new_call, run};

/// A ledger whose last vacuum saw it empty, and the calls that came after it.
async fn refilled() -> Ledger {
    let ledger = Ledger::fresh().await;
    let accepting = |held| {
        let accepting = (0..300).map(|_| {
            ledger.accepted(fleet::store::accept::NewCall {
                held,
                priority: Priority::Normal,
                ..new_call()
            })
        });
        join_all(accepting.collect::<Vec<_>>())
    };
    accepting(false).await;
    let connection = &mut ledger.database.connect().await;
    run(connection, "DELETE FROM toolfleet.open_calls").await;
    run(connection, "VACUUM ANALYZE toolfleet.open_calls").await;
    accepting(false).await;
    accepting(true).await;
    ledger
}

/// The plans of those statements that this session has prepared which have this in their text.
async fn plans(session: &mut PgConnection, part: &str) -> Vec<String> {
    run(session, "SET plan_cache_mode = force_generic_plan").await;
    let prepared: Vec<(String, i32)> = sqlx::query_as(
        "SELECT name, cardinality(parameter_types) FROM pg_prepared_statements WHERE strpos(statement, $1) > 0 \
         AND strpos(statement, 'pg_prepared') = 0",
    )
    .bind(part)
    .fetch_all(&mut *session)
    .await
    .unwrap();
    let mut plans = Vec::new();
    for (name, parameters) in prepared {
        let nulls = vec!["NULL"; usize::try_from(parameters).unwrap()].join(", ");
        let explain = format!("EXPLAIN EXECUTE {name}({nulls})");
        let lines: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(explain))
            .fetch_all(&mut *session)
            .await
            .unwrap();
        plans.push(lines.join("\n"));
    }
    plans
}

/// Every look into the open calls is for certain ones of them.
fn assert_bounded(plan: &str) {
    let mut lines = plan.lines().peekable();
    let mut looks = 0;
    while let Some(line) = lines.next() {
        if line.contains(" Scan ") && line.contains(" on open_calls") {
            looks += 1;
            // Indexes that have nothing but what is looked for.
            let of_few = ["open_calls_due", "open_calls_probes"];
            let of_few = of_few.map(|index| format!("Index Only Scan using {index} "));
            if of_few.iter().any(|scan| line.contains(scan)) {
                continue;
            }
            let condition = lines.peek().copied().unwrap_or_default();
            let certain = condition.contains(" Cond: ") && !condition.contains("Cond: (call_id = ");
            assert!(certain, "{line}\n{condition}\n\n{plan}");
        }
    }
    assert!(looks > 0, "{plan}");
}

#[tokio::test]
async fn a_release_reads_what_it_releases() {
    let ledger = refilled().await;
    let mut session = release::connect(&ledger.database.postgres).await.unwrap();
    let turn = [(new_call().tenant, 100)];
    let line = "default".parse().unwrap();
    let released = release::release(&mut session, &line, &turn).await.unwrap();
    assert_eq!(released.len(), 100);
    let plans = plans(&mut session, "held_since").await;
    assert_eq!(plans.len(), 1);
    assert_bounded(&plans[0]);
}

#[tokio::test]
async fn what_is_due_and_what_may_be_lost_is_read_and_nothing_else() {
    let ledger = refilled().await;
    let pool = ledger.database.postgres.pool(1);
    sweep::take_due(&pool, &[]).await.unwrap();
    probe::take(&pool).await.unwrap();
    let step = walk::step(&pool, None, &Worth::all()).await.unwrap();
    assert!(step.cursor.is_none() && step.expired.is_empty());
    let mut session = pool.acquire().await.unwrap();
    let mut plans = plans(&mut session, "publish_n").await;
    plans.extend(self::plans(&mut session, "fenced_since").await);
    assert_eq!(plans.len(), 3);
    for plan in &plans {
        assert_bounded(plan);
    }
}

/// Its statements are asked while the table is empty, and their plans are kept when it fills.
#[tokio::test]
async fn whose_followers_may_go_is_read_by_the_lines_they_stand_in() {
    let ledger = Ledger::fresh().await;
    let pool = ledger.database.postgres.pool(1);
    let leader = ledger.queued().await;
    let connection = &mut ledger.database.connect().await;
    // As a vacuum leaves it that gives the pages of an emptied table back.
    run(connection, "TRUNCATE toolfleet.open_calls").await;
    run(connection, "VACUUM ANALYZE toolfleet.open_calls").await;
    for _ in 0..6 {
        followers::lines_of(&pool, &[leader]).await.unwrap();
        followers::lines_behind(&pool, None).await.unwrap();
    }
    let mut session = pool.acquire().await.unwrap();
    let plans = plans(&mut session, "toolfleet.fetching").await;
    assert_eq!(plans.len(), 2);
    for plan in &plans {
        assert!(!plan.contains("Seq Scan on open_calls"), "{plan}");
    }
    // What they ask the function is planned by its own settings.
    let (body, settings): (String, Vec<String>) = sqlx::query_as(
        "SELECT replace(substring(prosrc FROM 'RETURN QUERY(.*);'), 'fetching.calls', 'ARRAY[gen_random_uuid()]'), proconfig \
         FROM pg_proc WHERE oid = 'toolfleet.fetching'::regproc",
    )
    .fetch_one(&mut *connection)
    .await
    .unwrap();
    assert!(settings.contains(&"enable_seqscan=off".to_owned()));
    run(connection, "SET enable_seqscan = off").await;
    let explain = format!("EXPLAIN {body}");
    let plan: Vec<String> = sqlx::query_scalar(sqlx::AssertSqlSafe(explain))
        .fetch_all(&mut *connection)
        .await
        .unwrap();
    let plan = plan.join("\n");
    for key in [
        "open_calls_pkey on open_calls",
        "kept_answers_pkey on kept_answers",
    ] {
        assert!(
            plan.contains(&format!("Index Scan using {key}")),
            "{key}: {plan}"
        );
    }
}

#[tokio::test]
async fn a_new_number_is_given_to_certain_calls() {
    let ledger = refilled().await;
    let pool = ledger.database.postgres.pool(1);
    let call = ledger.queued().await;
    let numbered = renumber::renumber(&pool, &[(call, 1)]).await.unwrap();
    assert_eq!(numbered.len(), 1);
    let mut session = pool.acquire().await.unwrap();
    let plans = plans(&mut session, "publish_n").await;
    assert_eq!(plans.len(), 1);
    let by_id = "Index Scan using open_calls_pkey on open_calls";
    let by_place = "Tid Scan on open_calls";
    assert!(
        plans[0].contains(by_id)
            && plans[0].contains(by_place)
            && !plans[0].contains("Seq Scan on open_calls"),
        "{}",
        plans[0]
    );
}

#[tokio::test]
async fn a_walk_for_pauses_reads_and_moves_calls_by_their_ids() {
    let ledger = refilled().await;
    let pool = ledger.database.postgres.pool(1);
    let held = pauses::held_behind(&pool, None, &[]).await.unwrap();
    let to: Line = "elsewhere".parse().unwrap();
    let moves = held.iter().map(|held| LineMove {
        call: held.call,
        from: held.line.clone(),
        to: to.clone(),
    });
    let moves: Vec<LineMove> = moves.collect();
    assert_eq!(pauses::move_held(&pool, &moves).await.unwrap(), 300);
    let mut session = pool.acquire().await.unwrap();
    let mut plans = plans(&mut session, "becomes").await;
    plans.extend(self::plans(&mut session, "coalesce(held, false)").await);
    assert_eq!(plans.len(), 2);
    for plan in &plans {
        assert!(
            plan.contains("Index Scan using open_calls_pkey on open_calls")
                && !plan.contains("open_calls_held")
                && !plan.contains("Seq Scan on open_calls"),
            "{plan}"
        );
    }
}

#[tokio::test]
async fn a_look_at_what_is_over_reads_certain_calls() {
    let ledger = refilled().await;
    let pool = ledger.database.postgres.pool(1);
    let call = ledger.queued().await;
    let look = expiry::look(&pool, &[call]).await.unwrap();
    assert_eq!(look.left.len(), 1);
    let mut session = pool.acquire().await.unwrap();
    let plans = plans(&mut session, "waited_too_long").await;
    assert_eq!(plans.len(), 1);
    let by_id = "Index Scan using open_calls_pkey on open_calls";
    let certain = "Index Cond: (call_id = ANY ($1))";
    assert!(
        plans[0].contains(by_id) && plans[0].contains(certain),
        "{}",
        plans[0]
    );
}

#[tokio::test]
async fn a_worker_reads_what_runs_on_it() {
    let mut ledger = refilled().await;
    let worker = ledger.worker().await;
    let running = ledger.running(&worker).await;
    let mut session = ledger.database.postgres.connect().await.unwrap();
    let rows = workers::own_rows(&mut session, &[running]).await.unwrap();
    assert_eq!(rows.len(), 1);
    let plans = plans(&mut session, "effect_unknown").await;
    assert_eq!(plans.len(), 1);
    let look = "Index Scan using open_calls_pkey on open_calls c";
    assert!(
        plans[0].contains(look) && plans[0].contains("Index Cond: (call_id = mine.call_id)"),
        "{}",
        plans[0]
    );
}
