//! The history of a fleet, as an operator reads it, and direct changes to it by a test.

use fleet::ids::CallId;
use serde_json::Value;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::{fleet::Fleet, wait::until_so};

impl Fleet {
    /// What an operator's query finds, a JSON object a row; `$1` is the call.
    ///
    /// # Panics
    ///
    /// Postgres refuses the query.
    pub async fn rows(&self, sql: &str, call: CallId) -> Vec<Value> {
        let sql = format!("SELECT to_json(found)::text FROM ({sql}) found");
        // Made of constants of tests.
        let rows: Vec<String> = sqlx::query_scalar(AssertSqlSafe(sql))
            .bind(call.0)
            .fetch_all(&self.database.pool)
            .await
            .expect("a test's query is good");
        rows.iter()
            .map(|row| serde_json::from_str(row).expect("Postgres makes JSON"))
            .collect()
    }

    /// Every call that there is.
    ///
    /// # Panics
    ///
    /// Postgres refuses the query.
    pub async fn calls(&self) -> Vec<CallId> {
        let found = sqlx::query_scalar("SELECT call_id FROM toolfleet.calls")
            .fetch_all(&self.database.pool);
        let found: Vec<Uuid> = found.await.expect("the view is there");
        found.into_iter().map(CallId).collect()
    }

    /// The call as the view `calls` shows it.
    ///
    /// # Panics
    ///
    /// There is not exactly one.
    pub async fn call(&self, call: CallId) -> Value {
        let mut rows = self
            .rows("SELECT * FROM toolfleet.calls WHERE call_id = $1", call)
            .await;
        assert_eq!(rows.len(), 1, "call {call} is in {} places", rows.len());
        rows.remove(0)
    }

    /// Its attempts, from the first.
    pub async fn attempts(&self, call: CallId) -> Vec<Value> {
        let sql = "SELECT *, extract(epoch FROM started_at) AS started, extract(epoch FROM finished_at) AS finished \
                   FROM toolfleet.attempts WHERE call_id = $1 ORDER BY number, late";
        self.rows(sql, call).await
    }

    /// Its moves, from the first.
    pub async fn events(&self, call: CallId) -> Vec<Value> {
        let sql = "SELECT * FROM toolfleet.call_events WHERE call_id = $1 ORDER BY revision";
        self.rows(sql, call).await
    }

    /// Waits until the call is in this state.
    ///
    /// # Panics
    ///
    /// It is not in time.
    pub async fn until_state(&self, call: CallId, state: &str) -> Value {
        let what = format!("call {call} to be {state}");
        until_so(&what, async || self.call(call).await["state"] == state).await;
        self.call(call).await
    }

    /// Runs a statement that no process of the fleet knows of; returns how many rows it touched.
    ///
    /// # Panics
    ///
    /// Postgres refuses it.
    pub async fn sql(&self, statement: &'static str) -> u64 {
        let done = sqlx::query(statement).execute(&self.database.pool).await;
        done.expect("a test's statement is good").rows_affected()
    }

    /// How many rows a query counts.
    ///
    /// # Panics
    ///
    /// Postgres refuses it.
    pub async fn count(&self, sql: &'static str) -> i64 {
        let count = sqlx::query_scalar(sql).fetch_one(&self.database.pool).await;
        count.expect("a test's query is good")
    }
}
