//! Requests to models on record: a row before each, filled once, kept as long as its day.

use std::time::Duration;

use fleet::{
    ids::{AttemptId, CallId, Label, ToolName},
    manifest::Budget,
    store::model_calls::{self, EndedModelCall, ModelCallKind, NewModelCall, SpentTokens},
    wire::code::Code,
};
use serde_json::{Value, json};
use sqlx::PgPool;
use uuid::Uuid;

use crate::support::{Ledger, tenant};

/// A request, and whose it is.
pub(crate) struct Asked {
    pub(crate) call: CallId,
    pub(crate) request: Uuid,
    pub(crate) tenant: Label,
    pub(crate) tool: ToolName,
    pub(crate) run: Option<Label>,
    pub(crate) budget: Option<Budget>,
}

impl Asked {
    /// The next request of a call of this tenant and run.
    pub(crate) fn of(call: CallId, run: Option<&str>) -> Self {
        Self {
            call,
            request: Uuid::now_v7(),
            tenant: tenant(),
            tool: "tool".parse().unwrap(),
            run: run.map(|run| run.parse().unwrap()),
            budget: None,
        }
    }

    pub(crate) fn row(&self) -> NewModelCall<'_> {
        NewModelCall {
            call: self.call,
            request: self.request,
            attempt_id: AttemptId::generate(),
            attempt: 1,
            tenant: &self.tenant,
            tool: &self.tool,
            tool_version: 2,
            session: None,
            run: self.run.as_ref(),
            route: "main",
            model: "large",
            kind: ModelCallKind::Answer,
            budget: self.budget.as_ref(),
        }
    }
}

/// A request that is put on record.
async fn begun(pool: &PgPool, call: CallId) -> Asked {
    let asked = Asked::of(call, Some("run-1"));
    model_calls::begin(pool, asked.row()).await.unwrap();
    // The answer was lost: it is sent again.
    model_calls::begin(pool, asked.row()).await.unwrap();
    asked
}

/// What the view shows of the requests of a call.
async fn shown(pool: &PgPool, call: CallId) -> Vec<Value> {
    let rows: Vec<String> = sqlx::query_scalar(
        "SELECT (to_jsonb(m) - 'call_id' - 'request_id' - 'attempt_id' - 'started_at')::text \
         FROM toolfleet.model_calls m WHERE call_id = $1 ORDER BY started_at",
    )
    .bind(call.0)
    .fetch_all(pool)
    .await
    .unwrap();
    rows.iter()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect()
}

fn answered() -> EndedModelCall {
    EndedModelCall {
        model: Some("large\0-7".to_owned()),
        first_token: None,
        run: Duration::from_millis(1234),
        tokens: Some(SpentTokens {
            input: 3_000_000_000_000,
            cached_input: 2,
            cache_write: 3,
            output: 4,
            reasoning: 5,
            estimated: false,
        }),
        cost: Some(("2999999999999999.997".to_owned(), "USD".to_owned())),
        finish: Some("stop"),
        code: None,
        misconfigured: None,
    }
}

#[tokio::test]
async fn a_row_is_filled_once_and_says_unknown_until_then() {
    let ledger = Ledger::fresh().await;
    let (pool, call) = (&ledger.database.pool, CallId::generate());
    let asked = begun(pool, call).await;
    let expected = json!({
        "attempt": 1, "tenant": tenant().as_str(), "tool": "tool", "tool_version": 2, "session": null, "run": "run-1",
        "route": "main", "model_asked": "large", "model_answered": null, "kind": "answer", "first_token_ms": null,
        "run_ms": null, "input_tokens": null, "cached_input_tokens": null, "cache_write_tokens": null,
        "output_tokens": null, "reasoning_tokens": null, "estimated": null, "cost": null, "currency": null,
        "finish": null, "code": "unknown", "misconfigured_status": null,
    });
    assert_eq!(shown(pool, call).await, [expected]);

    assert!(
        model_calls::fill(pool, asked.row(), &answered())
            .await
            .unwrap()
    );
    let failed = EndedModelCall {
        code: Some(Code::Timeout),
        ..EndedModelCall::default()
    };
    let again = model_calls::fill(pool, asked.row(), &failed).await;
    assert!(!again.unwrap(), "what is filled stays");
    let rows = shown(pool, call).await;
    let row = &rows[0];
    assert_eq!(
        (
            &row["model_answered"],
            &row["run_ms"],
            &row["finish"],
            &row["code"],
            &row["misconfigured_status"],
        ),
        (
            &json!("large-7"),
            &json!(1234),
            &json!("stop"),
            &Value::Null,
            &Value::Null,
        )
    );
    // To the last digit.
    let cost: String = sqlx::query_scalar("SELECT cost::text FROM toolfleet.model_calls")
        .fetch_one(pool)
        .await
        .unwrap();
    assert_eq!(cost, "2999999999999999.997");

    for forbidden in [
        "UPDATE toolfleet.model_requests SET cost = 0",
        "DELETE FROM toolfleet.model_requests",
        "TRUNCATE toolfleet.model_requests",
    ] {
        let refused = sqlx::query(forbidden).execute(pool).await;
        assert!(refused.is_err(), "{forbidden}");
    }
    let unknown = model_calls::fill(pool, Asked::of(call, None).row(), &failed).await;
    assert!(!unknown.unwrap());
}

#[tokio::test]
async fn a_fill_leaves_the_session_as_durable_as_it_was() {
    let ledger = Ledger::fresh().await;
    let (pool, call) = (&ledger.database.pool, CallId::generate());
    for _ in 0..20 {
        let asked = begun(pool, call).await;
        model_calls::fill(pool, asked.row(), &answered())
            .await
            .unwrap();
        let setting: String = sqlx::query_scalar("SELECT current_setting('synchronous_commit')")
            .fetch_one(pool)
            .await
            .unwrap();
        assert_eq!(setting, "on");
    }
}
