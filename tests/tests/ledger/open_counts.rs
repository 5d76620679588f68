//! How many open calls a tenant has: the counts say what the table would, whatever ends calls and whatever happens meanwhile.

use std::process::Command;

use fleet::{
    call::{Effect, State},
    ids::{CallId, Label},
    store::{
        accept::NewCall,
        cancel::{self, Cancellation},
        complete::Guard,
        open_counts::{self, Open},
        settle::{self, SettledAs, Settlement},
    },
};
use fleet_tests::{
    invariants::MISCOUNTED,
    postgres::Cluster,
    wait::{until, until_so},
};
use futures_util::future::join_all;
use sqlx::{Connection as _, PgConnection, PgPool};
use tokio::task::JoinSet;

use crate::support::{
    Ledger, claim_of, doubted, end_in, ending, keyed_call, new_call, new_key, repeated, run,
    succeeded, tenant,
};

async fn miscounted(pool: &PgPool) -> i64 {
    sqlx::query_scalar(MISCOUNTED)
        .fetch_one(pool)
        .await
        .unwrap()
}

/// What the counts say of a tenant, where they agree with the table.
async fn open(ledger: &Ledger, tenant: &Label) -> i64 {
    let pool = &ledger.database.pool;
    assert_eq!(miscounted(pool).await, 0);
    open_counts::of(pool, tenant, &[]).await.unwrap().calls
}

fn of_tenant(tenant: &str) -> NewCall {
    NewCall {
        tenant: tenant.parse().unwrap(),
        ..new_call()
    }
}

/// Folds whatever is not locked, as if there were too many rows.
async fn fold_all(connection: &mut PgConnection) -> i64 {
    sqlx::query_scalar("SELECT toolfleet.fold_open_counts(5000, 0)")
        .fetch_one(connection)
        .await
        .unwrap()
}

async fn rows(ledger: &Ledger) -> Vec<(String, i64)> {
    sqlx::query_as("SELECT tenant, n FROM toolfleet.open_counts ORDER BY tenant, backend")
        .fetch_all(&ledger.database.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn every_way_to_end_a_call_is_counted() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let pool = ledger.database.pool.clone();
    let mine = tenant();
    assert_eq!(open(&ledger, &mine).await, 0);

    let (done, attempt) = ledger.running(&worker).await;
    assert_eq!(open(&ledger, &mine).await, 1);
    ledger.ends(succeeded(done, attempt)).await;
    assert_eq!(open(&ledger, &mine).await, 0);

    // Again, and in doubt: open all the same.
    let (tried, attempt) = ledger.running(&worker).await;
    ledger.ends(repeated(tried, attempt)).await;
    let attempt = worker.claims(tried).await;
    ledger.ends(doubted(tried, attempt)).await;
    assert_eq!(open(&ledger, &mine).await, 1);
    let settlement = Settlement {
        call: tried,
        tenant: None,
        finding: SettledAs::Applied,
        actor: "ann",
        note: "it is on the account",
        result: None,
        by_time_only: false,
    };
    settle::settle(&pool, &settlement).await.unwrap();
    assert_eq!(open(&ledger, &mine).await, 0);

    let cancelled = ledger.queued().await;
    let wish = Cancellation {
        call: cancelled,
        tenant: None,
        actor: "ann",
        reason: None,
    };
    cancel::cancel(&pool, &wish).await.unwrap();
    assert_eq!(open(&ledger, &mine).await, 0);

    let expired = ledger.queued().await;
    let expiry = ending(expired, Guard::Queued(0), end_in(State::Expired));
    ledger.ends(expiry).await;
    assert_eq!(open(&ledger, &mine).await, 0);

    // By the role of the tools, which sees no table.
    let transaction = NewCall {
        effect: Effect::Transaction,
        ..new_call()
    };
    let transaction = ledger.accepted(transaction).await;
    let attempt = worker.claims(transaction).await;
    let mut tool = PgConnection::connect(&ledger.database.tool_url())
        .await
        .unwrap();
    for (end, left) in [("ROLLBACK", 1), ("COMMIT", 0)] {
        run(&mut tool, "BEGIN").await;
        sqlx::query("SELECT * FROM toolfleet_tool.succeed($1, $2, '{}')")
            .bind(transaction.0)
            .bind(attempt.0)
            .execute(&mut tool)
            .await
            .unwrap();
        assert_eq!(
            open(&ledger, &mine).await,
            1,
            "it is not over before it is committed"
        );
        run(&mut tool, end).await;
        assert_eq!(open(&ledger, &mine).await, left);
    }
}

#[tokio::test]
async fn a_call_that_was_not_taken_is_not_counted_and_each_tenant_has_its_own() {
    let ledger = Ledger::fresh().await;
    let key = new_key();
    ledger.accepted(keyed_call(key)).await;
    ledger.accepting.accept(keyed_call(key)).await;
    let batch = (0..30)
        .map(|n| of_tenant(["acme", "beta"][n % 2]))
        .collect::<Vec<_>>();
    ledger.accepting.accept_all(batch).await;
    let there = ledger.accepted(of_tenant("acme")).await;
    let tenants: Vec<Label> = ["beta", "nobody", "acme", "tenant"]
        .iter()
        .map(|name| name.parse().unwrap())
        .collect();
    let pool = &ledger.database.pool;
    let counted = open_counts::of_all(pool, &tenants).await.unwrap();
    assert_eq!(counted, [15, 0, 16, 1]);
    let asked = [CallId::generate(), there];
    let found = open_counts::of(pool, &tenants[2], &asked).await.unwrap();
    let expected = Open {
        calls: 16,
        there: vec![there],
    };
    assert_eq!(found, expected);
    assert_eq!(miscounted(pool).await, 0);
}

#[tokio::test]
async fn the_counts_are_exact_at_every_moment_while_many_write_and_fold() {
    let mut ledger = Ledger::fresh().await;
    let worker = ledger.worker().await;
    let mut writers = JoinSet::new();
    for writer in 0..8 {
        let accepting = ledger.accepting.clone();
        let completing = ledger.completing.clone();
        let claiming = worker.claiming.clone();
        let database = ledger.database.pool.clone();
        writers.spawn(async move {
            for turn in 0..30 {
                let name = format!("t{}", (writer + turn) % 5);
                let calls: Vec<_> = (0..turn % 4 + 1).map(|_| of_tenant(&name)).collect();
                let ids: Vec<_> = calls.iter().map(|call| call.call_id).collect();
                accepting.accept_all(calls).await;
                for (place, call) in ids.into_iter().enumerate() {
                    if place % 3 == 2 {
                        let wish = Cancellation {
                            call,
                            tenant: None,
                            actor: "ann",
                            reason: None,
                        };
                        cancel::cancel(&database, &wish).await.unwrap();
                    } else if place % 3 == 1 {
                        let row = claim_of(call);
                        let attempt = row.attempt_id;
                        claiming.claim(row).await.unwrap().unwrap();
                        completing.complete_once(succeeded(call, attempt)).await;
                    }
                }
            }
        });
    }
    let (mut looks, mut folded) = (0, 0);
    let mut connection = ledger.database.connect().await;
    while writers.try_join_next().is_none_or(|ended| {
        ended.unwrap();
        !writers.is_empty()
    }) {
        assert_eq!(miscounted(&ledger.database.pool).await, 0);
        // Of living sessions too, which add to them at this moment.
        folded += fold_all(&mut connection).await;
        looks += 1;
    }
    assert!(looks > 5 && folded > 5, "{looks} looks, {folded} rows");
    let left: i64 = rows(&ledger).await.iter().map(|(_, n)| n).sum();
    let calls: i64 = sqlx::query_scalar("SELECT count(*) FROM toolfleet.open_calls")
        .fetch_one(&ledger.database.pool)
        .await
        .unwrap();
    assert!(calls > 0);
    assert_eq!(left, calls);
}

#[tokio::test]
async fn the_counts_of_sessions_that_are_gone_become_one_row_and_zeros_none() {
    let ledger = Ledger::fresh().await;
    ledger.queued().await;
    let mut sessions = Vec::new();
    for name in ["acme", "acme", "beta"] {
        let mut session = ledger.database.connect().await;
        let call = of_tenant(name);
        sqlx::query(
            "INSERT INTO toolfleet.open_calls (call_id, tenant, tool, tool_version, effect, queue, line, priority, \
             key_retention_ms, args, args_hash, language, dispatcher_id, accepted_at, deadline_at, not_before) \
             VALUES ($1, $2, 'tool', 1, 'once', 'default', 'default', 1, 0, '{}', '', 'en', gen_random_uuid(), now(), \
             now() + interval '1 hour', now())",
        )
        .bind(call.call_id.0)
        .bind(name)
        .execute(&mut session)
        .await
        .unwrap();
        sessions.push((session, call.call_id));
    }
    let (_, of_beta) = sessions[2];
    let wish = Cancellation {
        call: of_beta,
        tenant: None,
        actor: "ann",
        reason: None,
    };
    cancel::cancel(&ledger.database.pool, &wish).await.unwrap();
    let mut upkeep = ledger.database.connect().await;
    assert_eq!(
        open_counts::fold(&mut upkeep).await.unwrap(),
        0,
        "all of them live"
    );
    assert_eq!(rows(&ledger).await.len(), 5);
    for (session, _) in sessions {
        session.close().await.unwrap();
    }
    ledger.database.pool.close().await;
    let mut folded = 0;
    until_so("the sessions to be gone", async || {
        folded += open_counts::fold(&mut upkeep).await.unwrap();
        folded == 4
    })
    .await;
    let left: Vec<(String, i64)> =
        sqlx::query_as("SELECT tenant, n FROM toolfleet.open_counts ORDER BY tenant")
            .fetch_all(&mut upkeep)
            .await
            .unwrap();
    assert_eq!(left, [("acme".to_owned(), 2), ("tenant".to_owned(), 1)]);
}

#[tokio::test]
async fn a_recount_puts_right_what_was_written_behind_the_triggers() {
    let ledger = Ledger::fresh().await;
    ledger.many_queued(3).await;
    let mut connection = ledger.database.connect().await;
    assert_eq!(open_counts::recount(&mut connection).await.unwrap(), 0);
    run(&mut connection, "SET session_replication_role = replica").await;
    run(&mut connection, "DELETE FROM toolfleet.open_calls").await;
    run(&mut connection, "RESET session_replication_role").await;
    assert_eq!(miscounted(&ledger.database.pool).await, 1);
    // Every dispatcher does it, perhaps at the same moment.
    let recounts = (0..8).map(async |_| {
        let mut connection = ledger.database.connect().await;
        open_counts::recount(&mut connection).await.unwrap()
    });
    let righted: i64 = join_all(recounts).await.into_iter().sum();
    assert_eq!(righted, 1);
    assert_eq!(open(&ledger, &tenant()).await, 0);
}

#[tokio::test]
async fn a_server_that_crashes_under_load_comes_back_with_exact_counts() {
    let cluster = Cluster::alone(true).await;
    let ledger = Ledger::on(cluster.database().await);
    // A session that is killed takes the whole server down with it.
    let mut victim = ledger.database.connect().await;
    let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
        .fetch_one(&mut victim)
        .await
        .unwrap();
    let mut writers = JoinSet::new();
    for writer in 0..4 {
        let accepting = ledger.accepting.clone();
        writers.spawn(async move {
            for turn in 0..10_000 {
                let name = format!("t{}", (writer + turn) % 3);
                let call = of_tenant(&name);
                if !matches!(
                    accepting.accept(call).await,
                    fleet::store::lane::Reply::Done(_)
                ) {
                    return turn;
                }
            }
            unreachable!("the server crashes before")
        });
    }
    until_so("some calls to be there", async || {
        rows(&ledger).await.iter().map(|(_, n)| n).sum::<i64>() > 50
    })
    .await;
    let killed = Command::new("kill")
        .args(["-KILL", &pid.to_string()])
        .status();
    assert!(killed.unwrap().success());
    let accepted: i32 = writers.join_all().await.into_iter().sum();
    let mut connection = until("the server to be back", async || {
        PgConnection::connect(&ledger.database.url).await.ok()
    })
    .await;
    let wrong: i64 = sqlx::query_scalar(MISCOUNTED)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(wrong, 0);
    let counted: i64 = sqlx::query_scalar("SELECT sum(n)::bigint FROM toolfleet.open_counts")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert!(counted >= i64::from(accepted), "{counted} of {accepted}");
}
