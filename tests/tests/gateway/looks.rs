//! Looks through a large history over HTTP: what they tell, and of whom.

use fleet::tokens::Scope;
use fleet_tests::{
    fleet::{Fleet, Spec},
    web::Web,
    witness::Witness,
};
use serde_json::{Value, json};

use crate::tokens::{Held, known, token, with};

/// Calls of the last hour, of two tenants in turn.
async fn history(fleet: &Fleet) {
    sqlx::query(
        "INSERT INTO toolfleet.finished_calls (call_id, rev, from_state, state, outcome, source, effect_known, tenant, tool, \
             tool_version, effect, queue, priority, key_retention_ms, args, args_hash, result, language, accepted_at, deadline_at, \
             finished_at, queued_ms, run_ms, attempts, actor, reason) \
         SELECT (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7000b' || lpad(to_hex(n), 15, '0'))::uuid, \
             1, 'queued', 'succeeded', 'success', 'live', 'applied', CASE WHEN n % 2 = 0 THEN 'acme' ELSE 'default' END, 'look', 1, \
             'read', 'default', 1, 0, '{}', '', 'true', 'en', at, at, at, 0, 0, 0, 'test', 'test' \
         FROM (SELECT n, now() - interval '50 minutes' * (1 - n / 5000.0::float8) AS at FROM generate_series(1, 5000) n) numbered",
    )
    .execute(&fleet.database.pool)
    .await
    .unwrap();
}

async fn asked(web: Web, who: &Held, query: &str) -> Value {
    let request = with(web.get(&format!("/v1/history?{query}")), who);
    let answer = request.send().await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    answer.json()
}

#[tokio::test]
async fn where_a_look_ended_is_no_place_of_a_call_that_is_not_shown() {
    let witness = Witness::start().await;
    let fleet = Fleet::start(Spec::with([witness.tool("look", "read")])).await;
    let (mut gateway, web) = fleet.gateway(&["--auth", "tokens"]).await;
    let operator = token(&fleet, "ann", "*", Scope::ALL, "*").await;
    let without_admin = token(&fleet, "bob", "*", &[Scope::Read], "*").await;
    let of_none = token(&fleet, "eve", "evil", &[Scope::Read], "*").await;
    let of_no_tool = token(&fleet, "mallory", "acme", &[Scope::Read], "nothing_*").await;
    for who in [&operator, &without_admin, &of_none, &of_no_tool] {
        known(web, who).await;
    }
    history(&fleet).await;
    let nothing = json!({"calls": [], "before": null});
    for (who, query) in [
        (&of_none, "within_ms=1"),
        (&of_none, "within_ms=1&state=failed"),
        (&of_none, "within_ms=1&text=nothing"),
        (&of_none, "within_ms=1&text=true"),
        (&of_no_tool, "within_ms=1&tool=nothing_here"),
        (&of_no_tool, "within_ms=1&tool=nothing_here&text=true"),
    ] {
        assert_eq!(asked(web, who, query).await, nothing, "{query}");
    }
    // Who has all of them is told how far it came.
    let one = "within_ms=1&tool=nothing_here";
    let request = with(web.get(&format!("/v1/history?{one}")), &operator);
    let told = request.header("Toolfleet-Tenant", "*").send().await.json();
    assert!(
        told["calls"].as_array().unwrap().is_empty() && told["before"].is_string(),
        "{told}"
    );
    let request = with(web.get(&format!("/v1/history?{one}")), &without_admin);
    let told = request.header("Toolfleet-Tenant", "*").send().await.json();
    assert_eq!(told, nothing, "calls of operators are hidden from it");
    gateway.drain().await;
}
