//! How many calls a look may release: the start times that are free, and each of them once.

use std::collections::HashMap;

use fleet::{
    ids::{Label, ToolName},
    store::{
        limited::{Limited, admitted},
        starts::{FreeStarts, free},
    },
};
use serde_json::json;
use sqlx::{Connection as _, PgConnection};

use super::{Scene, applied, numbers};
use crate::support::run;

async fn free_of(connection: &mut PgConnection, tool: &str, tenants: &[&str]) -> FreeStarts {
    let tool: ToolName = tool.parse().unwrap();
    let tenants: Vec<Label> = tenants
        .iter()
        .map(|tenant| tenant.parse().unwrap())
        .collect();
    // However slow the machine is: they were released just now.
    let mut fresh = connection.begin().await.unwrap();
    sqlx::query("UPDATE toolfleet.open_calls SET not_before = clock_timestamp() + interval '1 hour' WHERE state = 'queued'")
        .execute(&mut *fresh)
        .await
        .unwrap();
    let free = free(&mut *fresh, &tool, &tenants).await.unwrap();
    fresh.rollback().await.unwrap();
    free
}

fn each(free: &[(&str, u64)]) -> FreeStarts {
    let each = free
        .iter()
        .map(|(tenant, free)| (tenant.parse().unwrap(), *free));
    FreeStarts::Each(each.collect::<HashMap<_, _>>())
}

#[tokio::test]
async fn half_a_second_is_free_less_what_was_released_and_has_no_start_time() {
    let scene = Scene::with(json!({"calls": 10, "per": "1s", "burst": 2})).await;
    let connection = &mut scene.ledger.database.connect().await;
    assert_eq!(
        free_of(connection, "tool", &["tenant"]).await,
        FreeStarts::Shared(7)
    );
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(scene.released().await);
    }
    assert_eq!(
        free_of(connection, "tool", &["tenant"]).await,
        FreeStarts::Shared(4)
    );
    // A call with a start time is in the bucket's account, and is not counted twice.
    for (call, starts) in calls.iter().zip([true, true, false]) {
        let said = scene.claim(*call).await;
        assert_eq!(
            matches!(said, Some(Limited::Claimed { .. })),
            starts,
            "{said:?}"
        );
    }
    let FreeStarts::Shared(left) = free_of(connection, "tool", &["tenant"]).await else {
        panic!("all share them")
    };
    // Twice would leave fewer; more have become free meanwhile.
    assert!(left >= 4, "{left}");
    // What was not used in time takes another one.
    scene.passes(1_700).await;
    assert_eq!(
        free_of(connection, "tool", &["tenant"]).await,
        FreeStarts::Shared(6)
    );
    // Attempts that wait for their pause do not ask now.
    scene
        .does("UPDATE toolfleet.open_calls SET due_at = now() WHERE state = 'queued'")
        .await;
    assert_eq!(
        free_of(connection, "tool", &["tenant"]).await,
        FreeStarts::Shared(7)
    );
}

#[tokio::test]
async fn what_nobody_has_claimed_for_seconds_is_in_nobodys_way() {
    let scene = Scene::with(json!({"calls": 1, "per": "1h", "burst": 3})).await;
    let connection = &mut scene.ledger.database.connect().await;
    let tool: ToolName = "tool".parse().unwrap();
    for _ in 0..3 {
        scene.released().await;
    }
    let free_now =
        async |connection: &mut PgConnection| free(connection, &tool, &[]).await.unwrap();
    assert_eq!(
        free_of(connection, "tool", &[]).await,
        FreeStarts::Shared(0)
    );
    let on_its_way = admitted(&mut *connection, &tool).await.unwrap().on_its_way;
    assert!(on_its_way <= 3);
    scene.passes(3_000).await;
    assert_eq!(free_now(connection).await, FreeStarts::Shared(3));
    assert_eq!(admitted(connection, &tool).await.unwrap().on_its_way, 0);
}

#[tokio::test]
async fn each_tenant_has_its_own_and_of_a_shared_limit_the_calls_of_all_tools_count() {
    let scene = Scene::with(json!({"calls": 10, "per": "1s", "by": "tenant"})).await;
    let connection = &mut scene.ledger.database.connect().await;
    scene.released_of("tool", "a").await;
    assert_eq!(
        free_of(connection, "tool", &["a", "b"]).await,
        each(&[("a", 5), ("b", 6)])
    );
    assert_eq!(
        free_of(connection, "tool", &[]).await,
        FreeStarts::Unlimited,
        "nobody waits"
    );

    for tool in ["one", "two"] {
        applied(
            connection,
            tool,
            1,
            &json!({"rate_limit": {"share": "bank"}}),
        )
        .await;
    }
    assert_eq!(
        free_of(connection, "one", &["a"]).await,
        FreeStarts::Shared(0),
        "no numbers, no start"
    );
    numbers(connection, "bank", &json!({"calls": 10, "per_ms": 1_000})).await;
    scene.released_of("one", "a").await;
    scene.released_of("two", "b").await;
    for tool in ["one", "two"] {
        assert_eq!(
            free_of(connection, tool, &["a"]).await,
            FreeStarts::Shared(4)
        );
    }
    // It has left the shared limit.
    applied(connection, "two", 2, &json!({})).await;
    assert_eq!(
        free_of(connection, "one", &["a"]).await,
        FreeStarts::Shared(5)
    );
    assert_eq!(
        free_of(connection, "two", &["a"]).await,
        FreeStarts::Unlimited
    );
}

#[tokio::test]
async fn a_look_reads_none_of_100_000_calls_that_wait() {
    let scene = Scene::with(json!({"calls": 10, "per": "1s", "by": "tenant"})).await;
    let connection = &mut scene.ledger.database.connect().await;
    run(connection, "VACUUM ANALYZE toolfleet.open_calls").await;
    for _ in 0..3 {
        scene.released_of("tool", "tenant").await;
    }
    run(
        connection,
        "INSERT INTO toolfleet.open_calls (call_id, tenant, tool, tool_version, effect, queue, line, held, priority, key_retention_ms, \
             args, args_hash, language, dispatcher_id, accepted_at, deadline_at, not_before) \
         SELECT gen_random_uuid(), 'tenant' || n % 50, 'tool', 1, 'read', 'default', 'tool/tool', true, 1, 0, '{}', '', 'en', \
             gen_random_uuid(), now(), now() + interval '1 h', now() FROM generate_series(1, 100000) n",
    )
    .await;
    for analyzed in [false, true] {
        if analyzed {
            run(connection, "ANALYZE toolfleet.open_calls").await;
        }
        let sql = include_str!("../../../../fleet/src/store/sql/free_starts.sql");
        let sql = format!("EXPLAIN (ANALYZE, FORMAT JSON) {sql}")
            .replace("$1", "'tool'")
            .replace("$2", "ARRAY['tenant', 'tenant1', 'tenant2']")
            .replace("$3", "500");
        let plan: serde_json::Value = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .fetch_one(&mut *connection)
            .await
            .unwrap();
        let mut looks = 0;
        let mut open = vec![&plan[0]["Plan"]];
        while let Some(node) = open.pop() {
            if node["Relation Name"] == "open_calls" {
                looks += 1;
                let read = node["Actual Rows"].as_f64().unwrap()
                    + node["Rows Removed by Filter"].as_f64().unwrap_or(0.0);
                assert!(read <= 3.0, "{node:#}");
                assert_eq!(node["Index Name"], "open_calls_admitted", "{node:#}");
            }
            open.extend(node["Plans"].as_array().into_iter().flatten());
        }
        assert_eq!(looks, 1, "{plan:#}");
    }
}
