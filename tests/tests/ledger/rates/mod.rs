//! Tools whose attempts start only so often: who gets which start time, and what becomes of the others.

mod buckets;
mod claims;
mod controls;
mod keys;
mod model;
mod room;

use fleet::{
    hold::Line,
    ids::{CallId, ToolName},
    manifest,
    modes::InterceptMode,
    store::{
        accept::NewCall,
        limited::Limited,
        tools::{Applied, apply},
    },
};
use serde_json::{Value, json};
use sqlx::PgConnection;

use crate::support::{Ledger, Worker, claim_of, new_call};

/// A ledger with one tool and its rate, and a worker.
struct Scene {
    ledger: Ledger,
    worker: Worker,
}

impl Scene {
    async fn with(limit: Value) -> Self {
        let mut ledger = Ledger::fresh().await;
        applied(
            &mut ledger.database.connect().await,
            "tool",
            1,
            &json!({"rate_limit": limit}),
        )
        .await;
        let worker = ledger.worker().await;
        Self { ledger, worker }
    }

    /// A call of this tool and tenant that was handed over.
    async fn released_of(&self, tool: &str, tenant: &str) -> CallId {
        self.ledger.accepted(call_of(tool, tenant)).await
    }

    async fn released(&self) -> CallId {
        self.released_of("tool", "tenant").await
    }

    async fn claim(&self, call: CallId) -> Option<Limited> {
        let claiming = &self.worker.claiming;
        claiming
            .claim_limited(claim_of(call), InterceptMode::Enforce)
            .await
            .unwrap()
    }

    async fn does(&self, sql: &'static str) -> u64 {
        let done = sqlx::query(sql).execute(&self.ledger.database.pool).await;
        done.unwrap().rows_affected()
    }

    /// Milliseconds from now to this moment of the call's row.
    async fn ms_until(&self, call: CallId, sql: &'static str) -> Option<f64> {
        let asking = sqlx::query_scalar(sql).bind(call.0);
        asking.fetch_one(&self.ledger.database.pool).await.unwrap()
    }

    /// As if so much time had passed for the bucket and for the start times that were handed out.
    async fn passes(&self, ms: i64) {
        let pool = &self.ledger.database.pool;
        for sql in [
            "UPDATE toolfleet.rate_buckets SET tat = tat - $1 * interval '1 ms', closed_until = closed_until - $1 * interval '1 ms', \
                 used_at = used_at - $1 * interval '1 ms'",
            "UPDATE toolfleet.open_calls SET rate_at = rate_at - $1 * interval '1 ms', not_before = not_before - $1 * interval '1 ms'",
        ] {
            sqlx::query(sql).bind(ms).execute(pool).await.unwrap();
        }
    }
}

fn call_of(tool: &str, tenant: &str) -> NewCall {
    let tool: ToolName = tool.parse().unwrap();
    NewCall {
        line: Line::Tool(tool.clone()),
        tool,
        tenant: tenant.parse().unwrap(),
        ..new_call()
    }
}

/// Applies a version of a tool with these fields.
pub(crate) async fn applied(
    connection: &mut PgConnection,
    tool: &str,
    version: i32,
    fields: &Value,
) {
    let applied = try_apply(connection, tool, version, fields).await;
    assert_eq!(applied, Applied::Created);
}

/// Tries to apply one.
async fn try_apply(
    connection: &mut PgConnection,
    tool: &str,
    version: i32,
    fields: &Value,
) -> Applied {
    let mut written = json!({
        "name": tool, "version": version, "description": "What it does.", "effect": "read",
        "input_schema": {"type": "object", "additionalProperties": false},
        "executor": {"http": {"method": "GET", "url": "http://127.0.0.1:1/"}},
    });
    for (name, value) in fields.as_object().unwrap() {
        written[name] = value.clone();
    }
    let manifest = manifest::parse(&written.to_string()).unwrap();
    apply(connection, &manifest, "test").await.unwrap()
}

/// Sets the numbers of a limit, as `toolfleet control limit` does.
async fn numbers(connection: &mut PgConnection, name: &str, setting: &Value) {
    sqlx::query(
        "SELECT toolfleet.unset_control('test', 'other numbers', kind => 'limit', subject => $1)",
    )
    .bind(name)
    .execute(&mut *connection)
    .await
    .unwrap();
    sqlx::query(
        "SELECT toolfleet.set_control('limit', $2::text::json, 'test', 'numbers', subject => $1)",
    )
    .bind(name)
    .bind(setting.to_string())
    .execute(connection)
    .await
    .unwrap();
}
