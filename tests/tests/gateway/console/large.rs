//! Calls that are large: a result of eight megabytes, and twenty thousand moves.

use fleet::ids::CallId;
use fleet_tests::{
    fleet::{Fleet, Spec},
    witness::Witness,
};
use serde_json::Value;

use super::browser::Browser;

const RESULT_BYTES: usize = 8 * 1024 * 1024;
const MOVES: i32 = 20_000;
/// What a page of any call is at most.
const PAGE_MAX: usize = 1024 * 1024;

/// A call that was put off so often and then failed with this result.
async fn failed(fleet: &Fleet, moves: i32, result: &str) -> CallId {
    let (call, pool) = (CallId::generate(), &fleet.database.pool);
    sqlx::query(
        "INSERT INTO toolfleet.finished_calls (call_id, rev, from_state, state, outcome, source, effect_known, tenant, tool, \
             tool_version, effect, queue, priority, key_retention_ms, args, args_hash, result, error, language, accepted_at, deadline_at, \
             finished_at, queued_ms, run_ms, attempts, actor, reason) \
         SELECT $1, $2 + 1, 'queued', 'failed', 'system_error', 'error', 'none', 'default', 'look', 1, 'read', 'default', 1, 0, '{}', '', \
             $3::json, '{\"code\": \"unavailable\", \"message\": \"away\"}', 'en', at, at, at + interval '6 hours', 0, 0, 0, 'test', 'the_last' \
         FROM toolfleet.uuid_instant($1) at",
    )
    .bind(call.0)
    .bind(moves)
    .bind(result)
    .execute(pool)
    .await
    .unwrap();
    sqlx::query(
        "INSERT INTO toolfleet.call_notes (call_id, rev, at, from_state, to_state, actor, reason) \
         SELECT $1, n, at + interval '1 second' * n, 'queued', 'queued', 'worker', CASE WHEN n % 2 = 0 THEN 'postponed' ELSE 'note_' || n END \
         FROM toolfleet.uuid_instant($1) at, generate_series(1, $2) n",
    )
    .bind(call.0)
    .bind(moves)
    .execute(pool)
    .await
    .unwrap();
    call
}

#[tokio::test]
async fn a_call_with_many_moves_has_its_first_and_its_last_ones() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let call = failed(&fleet, MOVES, "null").await;
    let story = web.get(&format!("/v1/history/{call}")).send().await.json();
    let events = story["events"].as_array().unwrap();
    let revisions: Vec<i64> = events
        .iter()
        .map(|event| event["revision"].as_i64().unwrap())
        .collect();
    let (last, first) = (i64::from(MOVES) + 1, i64::from(MOVES) + 1 - 399);
    assert_eq!(revisions, (0..100).chain(first..=last).collect::<Vec<_>>());
    assert_eq!(
        story["events_in_all"],
        MOVES + 2,
        "with its beginning and its end"
    );
    assert_eq!(events.last().unwrap()["to_state"], "failed");
    let page = Browser::new(web)
        .page(&format!("/console/calls/{call}"))
        .await;
    assert!(page.len() < PAGE_MAX, "{} bytes", page.len());
    for (shown, is) in [
        ("note_1<", true),
        ("note_19999<", true),
        ("the_last<", true),
        ("note_9999<", false),
        ("19502 / 20002", true),
    ] {
        assert_eq!(page.contains(shown), is, "{shown}");
    }
    gateway.drain().await;
}

#[tokio::test]
async fn of_a_large_result_a_page_has_the_beginning_and_the_rest_is_one_click_away() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&[]).await;
    let browser = Browser::new(web);
    let line = format!("\"{}\"", "x".repeat(RESULT_BYTES));
    let many = format!(
        "[{}]",
        vec!["{\"n\":12345678901234567890.10}"; RESULT_BYTES / 40].join(",")
    );
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    for result in [line, many, deep] {
        let call = failed(&fleet, 0, &result).await;
        let page = browser.page(&format!("/console/calls/{call}")).await;
        assert!(
            page.len() < PAGE_MAX,
            "{} bytes of {}",
            page.len(),
            result.len()
        );
        assert!(
            page.contains(&format!("/console/calls/{call}/whole/result-json"))
                || result.len() < 1_000
        );
        let whole = browser
            .get(&format!("/console/calls/{call}/whole/result-json"))
            .await;
        assert!(
            whole.text() == result,
            "{} bytes of {}",
            whole.body.len(),
            result.len()
        );
        let story = web.get(&format!("/v1/history/{call}")).send().await;
        assert!(story.text().contains(&result), "to the digit");
        // In a list it costs nothing.
        let listed: Value = web
            .get("/v1/history?tool=look&state=failed")
            .send()
            .await
            .json();
        assert_eq!(listed["calls"][0]["call_id"], call.to_string());
    }
    gateway.drain().await;
}
