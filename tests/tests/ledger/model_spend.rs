//! What is spent of budgets: counted with the requests, folded, and forgotten when it counts for nothing any more.

use std::time::Duration;

use fleet::{
    ids::CallId,
    manifest::Budget,
    store::{
        accept::NewCall,
        model_calls::{self, EndedModelCall, SpentTokens},
        model_spend::{self, BudgetPart, ReachedBudget},
    },
};
use fleet_tests::wait::until_so;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgPool};

use crate::{
    model_calls::Asked,
    support::{Ledger, new_call},
};

fn budget(value: Value) -> Budget {
    serde_json::from_value(value).unwrap()
}

/// All of a budget that there is, and more than any test spends.
fn wide() -> Budget {
    budget(
        json!({"calls_per_run": 1000, "tokens_per_run": 1_000_000, "cost_per_run": "1000", "cost_per_tenant_day": "1000"}),
    )
}

fn cost(amount: &str, currency: &str, tokens: u64) -> EndedModelCall {
    EndedModelCall {
        run: Duration::from_millis(5),
        tokens: Some(SpentTokens {
            input: tokens,
            cached_input: 0,
            cache_write: 0,
            output: 1,
            reasoning: 1,
            estimated: false,
        }),
        cost: Some((amount.to_owned(), currency.to_owned())),
        ..EndedModelCall::default()
    }
}

/// A queued call of a run.
async fn queued(ledger: &Ledger, run: Option<&str>) -> CallId {
    let call = NewCall {
        run: run.map(|run| run.parse().unwrap()),
        ..new_call()
    };
    ledger.accepted(call).await
}

/// A request of this call that is over.
async fn spends(pool: &PgPool, call: CallId, run: Option<&str>, ended: &EndedModelCall) {
    let asked = Asked {
        budget: Some(wide()),
        ..Asked::of(call, run)
    };
    model_calls::begin(pool, asked.row()).await.unwrap();
    assert!(model_calls::fill(pool, asked.row(), ended).await.unwrap());
    // The answer was lost: it is sent again, and counts once.
    assert!(!model_calls::fill(pool, asked.row(), ended).await.unwrap());
}

async fn reached(pool: &PgPool, call: CallId, of: Value) -> Option<ReachedBudget> {
    model_spend::reached(pool, call, &budget(of), Some("USD"))
        .await
        .unwrap()
}

fn spent(part: BudgetPart, spent: &str, limit: &str) -> Option<ReachedBudget> {
    Some(ReachedBudget {
        part,
        spent: spent.to_owned(),
        limit: limit.to_owned(),
    })
}

async fn rows(pool: &PgPool) -> Vec<(String, String, bool, i64, i64, String)> {
    sqlx::query_as(
        "SELECT scope, CASE scope WHEN 'run' THEN key ELSE 'day' END, bool_and(backend = 0), sum(calls)::bigint, \
             sum(tokens)::bigint, trim_scale(sum(cost))::text \
         FROM toolfleet.model_spend GROUP BY scope, key ORDER BY scope, key",
    )
    .fetch_all(pool)
    .await
    .unwrap()
}

#[tokio::test]
async fn each_part_of_a_budget_is_reached_by_what_its_run_or_tenant_has_spent() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    let waits = queued(&ledger, Some("r")).await;
    let all = json!({"calls_per_run": 2, "tokens_per_run": 40, "cost_per_run": "0.5", "cost_per_tenant_day": "0.75"});
    assert_eq!(reached(pool, waits, all.clone()).await, None);

    let first = CallId::generate();
    spends(pool, first, Some("r"), &cost("0.1", "USD", 9)).await;
    // Another request of the same call is no further call; another currency is no cost of this budget.
    spends(pool, first, Some("r"), &cost("0.15", "USD", 9)).await;
    spends(pool, first, Some("r"), &cost("7", "EUR", 9)).await;
    assert_eq!(reached(pool, waits, all.clone()).await, None);
    spends(pool, CallId::generate(), Some("r"), &cost("0.25", "USD", 9)).await;
    for (part, of, expected) in [
        (
            BudgetPart::CallsPerRun,
            json!({"calls_per_run": 2}),
            ["2", "2"],
        ),
        (
            BudgetPart::TokensPerRun,
            json!({"tokens_per_run": 40}),
            ["40", "40"],
        ),
        (
            BudgetPart::CostPerRun,
            json!({"cost_per_run": "0.50"}),
            ["0.5", "0.5"],
        ),
        (
            BudgetPart::CostPerTenantDay,
            json!({"cost_per_tenant_day": "0.4"}),
            ["0.5", "0.4"],
        ),
    ] {
        assert_eq!(
            reached(pool, waits, of).await,
            spent(part, expected[0], expected[1])
        );
    }
    for below in [
        json!({"calls_per_run": 3}),
        json!({"tokens_per_run": 41}),
        json!({"cost_per_run": "0.500000001"}),
        json!({"cost_per_tenant_day": "0.51"}),
    ] {
        assert_eq!(reached(pool, waits, below.clone()).await, None, "{below}");
    }
    // Another run has its own, and the tenant's day is that of all runs.
    let other = queued(&ledger, Some("r2")).await;
    assert_eq!(reached(pool, other, all).await, None);
    let day = json!({"cost_per_tenant_day": "0.5"});
    assert_eq!(
        reached(pool, other, day.clone()).await,
        spent(BudgetPart::CostPerTenantDay, "0.5", "0.5")
    );
    let elsewhere = NewCall {
        tenant: "other".parse().unwrap(),
        ..new_call()
    };
    let elsewhere = ledger.accepted(elsewhere).await;
    assert_eq!(reached(pool, elsewhere, day).await, None);
}

#[tokio::test]
async fn a_call_without_a_run_is_its_own_run_and_leaves_no_rows() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    let call = queued(&ledger, None).await;
    let other = queued(&ledger, None).await;
    spends(pool, call, None, &cost("0.25", "USD", 9)).await;
    for (of, expected) in [
        (json!({"calls_per_run": 1}), None),
        (
            json!({"tokens_per_run": 10}),
            spent(BudgetPart::TokensPerRun, "10", "10"),
        ),
        (
            json!({"cost_per_run": "0.2"}),
            spent(BudgetPart::CostPerRun, "0.25", "0.2"),
        ),
    ] {
        assert_eq!(reached(pool, call, of.clone()).await, expected);
        assert_eq!(reached(pool, other, of).await, None);
    }
    let kinds: Vec<String> = rows(pool).await.into_iter().map(|row| row.0).collect();
    assert_eq!(kinds, ["tenant_day"]);
}

#[tokio::test]
async fn one_that_has_left_a_request_may_be_tried_again() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    let (first, second) = (
        queued(&ledger, Some("r")).await,
        queued(&ledger, Some("r")).await,
    );
    spends(pool, first, Some("r"), &EndedModelCall::default()).await;
    let one = json!({"calls_per_run": 1});
    assert_eq!(reached(pool, first, one.clone()).await, None);
    assert_eq!(
        reached(pool, second, one).await,
        spent(BudgetPart::CallsPerRun, "1", "1")
    );
}

#[tokio::test]
async fn folding_changes_no_sum_and_waits_for_nobody() {
    let ledger = Ledger::fresh().await;
    let database = &ledger.database;
    // On sessions that are gone then.
    for _ in 0..3 {
        let pool = database.postgres.pool(2);
        for run in ["a", "b"] {
            spends(
                &pool,
                CallId::generate(),
                Some(run),
                &cost("0.25", "USD", 9),
            )
            .await;
        }
        pool.close().await;
    }
    let sums = rows(&database.pool).await;
    assert_eq!(
        sums,
        [
            (
                "run".to_owned(),
                "a".to_owned(),
                false,
                3,
                30,
                "0.75".to_owned()
            ),
            (
                "run".to_owned(),
                "b".to_owned(),
                false,
                3,
                30,
                "0.75".to_owned()
            ),
            (
                "tenant_day".to_owned(),
                "day".to_owned(),
                false,
                0,
                60,
                "1.5".to_owned()
            ),
        ]
    );
    let mut upkeep = database.connect().await;
    let mut busy = database.connect().await;
    sqlx::raw_sql("BEGIN; UPDATE toolfleet.model_spend SET calls = calls WHERE key = 'a'")
        .execute(&mut busy)
        .await
        .unwrap();
    until_so("what is not locked to be folded", async || {
        model_spend::fold(&mut upkeep).await.unwrap();
        let folded = rows(&database.pool).await;
        !folded[0].2 && folded[1].2 && folded[2].2
    })
    .await;
    sqlx::raw_sql("COMMIT").execute(&mut busy).await.unwrap();
    until_so("all to be folded", async || {
        model_spend::fold(&mut upkeep).await.unwrap();
        rows(&database.pool).await.iter().all(|row| row.2)
    })
    .await;
    let without_place = |rows: Vec<(String, String, bool, i64, i64, String)>| {
        rows.into_iter()
            .map(|row| (row.0, row.1, row.3, row.4, row.5))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        without_place(rows(&database.pool).await),
        without_place(sums)
    );
}

#[tokio::test]
async fn what_counts_for_nothing_any_more_is_forgotten() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    // Days ago, by scope and key; the run that goes on keeps what its quiet sessions have counted.
    for (scope, key, backend, days) in [
        ("tenant_day", "old", 1, 4),
        ("tenant_day", "new", 1, 3),
        ("run", "quiet", 1, 31),
        ("run", "quiet", 2, 40),
        ("run", "busy", 1, 40),
        ("run", "busy", 2, 1),
    ] {
        let sql = format!(
            "INSERT INTO toolfleet.model_spend (tenant, tool, scope, key, currency, backend, day) \
             VALUES ('t', 'tool', '{scope}', '{key}', '', {backend}, (now() AT TIME ZONE 'UTC')::date - {days})"
        );
        sqlx::query(AssertSqlSafe(sql)).execute(pool).await.unwrap();
    }
    let mut upkeep = ledger.database.connect().await;
    let left = async || -> Vec<String> {
        sqlx::query_scalar("SELECT key FROM toolfleet.model_spend ORDER BY key, backend")
            .fetch_all(pool)
            .await
            .unwrap()
    };
    assert!(!model_spend::drop_old(&mut upkeep, None).await.unwrap());
    assert_eq!(left().await, ["busy", "busy", "new", "quiet", "quiet"]);
    let retention = Some(Duration::from_secs(30 * 86_400));
    assert!(!model_spend::drop_old(&mut upkeep, retention).await.unwrap());
    assert_eq!(left().await, ["busy", "busy", "new"]);
}
