//! Looks through a history that no index leads through: window by window, and no call is left out or told twice.

use fleet::ids::CallId;
use fleet_history::{
    filter::Filter,
    look::{Found, look},
};
use sqlx::PgPool;
use uuid::Uuid;

use crate::support::Ledger;

const CALLS: i64 = 4_000;
/// Of so many calls one is of the rare tool.
const RARE: i64 = 900;

/// Calls of the last hour, oldest first, each with its number in its arguments.
async fn history(pool: &PgPool) -> Vec<CallId> {
    let made: Vec<(Uuid, bool)> = sqlx::query_as(
        "INSERT INTO toolfleet.finished_calls (call_id, rev, from_state, state, outcome, source, effect_known, tenant, tool, \
             tool_version, effect, queue, priority, key_retention_ms, args, args_hash, result, language, accepted_at, deadline_at, \
             finished_at, queued_ms, run_ms, attempts, actor, reason) \
         SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7000b' || lpad(to_hex(n), 15, '0'))::uuid, \
             1, 'queued', 'succeeded', 'success', 'live', 'applied', 'tenant', CASE WHEN n % $2 = 0 THEN 'rare' ELSE 'common' END, 1, \
             'read', 'default', 1, 0, json_build_object('number', 'n' || n || '.'), '', 'true', 'en', at, at, at, 0, 0, 0, 'test', 'test' \
         FROM (SELECT n, now() - interval '50 minutes' * (1 - n::float8 / $1) AS at FROM generate_series(1, $1) n) numbered \
         RETURNING call_id, tool = 'rare'",
    )
    .bind(CALLS)
    .bind(RARE)
    .fetch_all(pool)
    .await
    .unwrap();
    let rare = made.into_iter().filter(|(_, is_rare)| *is_rare);
    let mut rare: Vec<CallId> = rare.map(|(call, _)| CallId(call)).collect();
    rare.sort_unstable();
    rare
}

fn rare(limit: i64) -> Filter {
    Filter {
        tool: Some("rare".parse().unwrap()),
        tells_others: true,
        limit,
        ..Filter::default()
    }
}

fn ids(found: &Found) -> Vec<CallId> {
    let calls = found.calls.iter().map(|row| row.read().unwrap().call_id);
    calls.map(|call| call.parse().unwrap()).collect()
}

#[tokio::test]
async fn pages_together_have_every_call_once_however_soon_each_look_ends() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    let mut newest_first = history(pool).await;
    newest_first.reverse();
    assert_eq!(newest_first.len(), 4);
    for (limit, goes_on) in [
        (1, true),
        (2, true),
        (4, true),
        (100, true),
        (1, false),
        (100, false),
    ] {
        for text in [None, Some("true")] {
            let mut filter = rare(limit);
            let mut told = Vec::new();
            let mut pages = 0;
            loop {
                let found = look(pool, &filter, text, || goes_on).await.unwrap();
                told.extend(ids(&found));
                pages += 1;
                let Some(until) = found.until else { break };
                filter.before = Some(until.parse().unwrap());
            }
            assert_eq!(told, newest_first, "{limit} {goes_on} {text:?}");
            assert!(pages <= 12, "{pages} pages of {limit}, {goes_on}");
        }
    }
}

#[tokio::test]
async fn a_look_that_may_not_go_on_ends_behind_its_first_window_and_says_so() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    let made = history(pool).await;
    let found = look(pool, &rare(10), None, || false).await.unwrap();
    // The newest thousand calls have the one with the number 3,600.
    assert_eq!(ids(&found), made[3..]);
    let until: CallId = found.until.unwrap().parse().unwrap();
    let behind: i64 =
        sqlx::query_scalar("SELECT count(*) FROM toolfleet.calls WHERE call_id >= $1")
            .bind(until.0)
            .fetch_one(pool)
            .await
            .unwrap();
    assert_eq!(behind, 1_000);
    let nothing = Filter {
        tool: Some("none".parse().unwrap()),
        ..rare(10)
    };
    let found = look(pool, &nothing, None, || true).await.unwrap();
    assert_eq!((found.calls.len(), found.until), (0, None));
}

#[tokio::test]
async fn who_does_not_see_every_call_is_told_no_place_of_others() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    let made = history(pool).await;
    for text in [None, Some("true")] {
        let own = Filter {
            tells_others: false,
            ..rare(2)
        };
        let found = look(pool, &own, text, || false).await.unwrap();
        assert_eq!(ids(&found), [made[3], made[2]]);
        assert_eq!(found.until, Some(made[2].to_string()));
        let nothing = Filter {
            tool: Some("none".parse().unwrap()),
            ..own
        };
        let found = look(pool, &nothing, text, || false).await.unwrap();
        assert_eq!((found.calls.len(), found.until), (0, None));
    }
}

#[tokio::test]
async fn a_text_is_found_in_arguments_by_itself_and_among_calls_of_a_filter() {
    let ledger = Ledger::fresh().await;
    let pool = &ledger.database.pool;
    let made = history(pool).await;
    let any = Filter {
        tool: None,
        ..rare(10)
    };
    let found = look(pool, &any, Some("n900."), || true).await.unwrap();
    assert_eq!(ids(&found), made[..1]);
    let of_others = Filter {
        tool: Some("common".parse().unwrap()),
        ..rare(10)
    };
    let found = look(pool, &of_others, Some("n900."), || true)
        .await
        .unwrap();
    assert!(ids(&found).is_empty());
}
