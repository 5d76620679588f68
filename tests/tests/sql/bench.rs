//! A database with a role for tools, and an executor that runs statements on it.

use std::time::Duration;

use fleet::{
    call::Language,
    ids::{AttemptId, CallId},
    manifest::Manifest,
    outcome::{Outcome, ToolFailure},
    secrets::Secrets,
    wire::trace::TraceContext,
};
use fleet_tests::postgres::Database;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Executor as _, PgConnection};
use time::OffsetDateTime;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use worker::executors::{
    AttemptContext, AttemptFiles, Executor as _, HandedFiles, Progress, Promise, Returned, Stop,
    sql::SqlExecutor,
};

/// A ledger, and beside it the schema of a tool's role.
pub(crate) struct Bench {
    pub(crate) database: Database,
    /// A superuser.
    pub(crate) admin: PgConnection,
    pub(crate) executor: SqlExecutor,
    /// The role of the tools, whose schema has the same name.
    pub(crate) role: String,
    pub(crate) url: String,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::on(Database::fresh().await).await
    }

    /// On a database of one's own.
    pub(crate) async fn on(database: Database) -> Self {
        let mut admin = database.connect().await;
        let role = format!("tool_{}", Uuid::new_v4().simple());
        for statement in [
            format!("CREATE ROLE {role} LOGIN PASSWORD 'hunter2'"),
            format!("CREATE SCHEMA {role} AUTHORIZATION {role}"),
            format!(
                "CREATE TABLE {role}.items (id int PRIMARY KEY, name text NOT NULL DEFAULT '')"
            ),
            format!("ALTER TABLE {role}.items OWNER TO {role}"),
            format!("ALTER ROLE {role} SET search_path = {role}"),
        ] {
            admin.execute(AssertSqlSafe(statement)).await.unwrap();
        }
        let (_, place) = database.url.split_once('@').unwrap();
        let url = format!("postgres://{role}:hunter2@{place}");
        Self {
            executor: SqlExecutor::new(Some(url.clone().into())),
            admin,
            database,
            role,
            url,
        }
    }

    /// The same through another port.
    pub(crate) fn through(&mut self, port: u16) {
        let (front, database) = self.url.rsplit_once('/').unwrap();
        let (front, _) = front.rsplit_once(':').unwrap();
        self.executor = SqlExecutor::new(Some(format!("{front}:{port}/{database}").into()));
    }

    /// Runs a statement as the superuser.
    pub(crate) async fn admin(&mut self, statement: &str) {
        let statement = AssertSqlSafe(statement.replace("@tool", &self.role));
        self.admin.execute(sqlx::raw_sql(statement)).await.unwrap();
    }

    /// One value, asked as the superuser.
    pub(crate) async fn ask(&mut self, statement: &str) -> i64 {
        let statement = AssertSqlSafe(statement.replace("@tool", &self.role));
        sqlx::query_scalar(statement)
            .fetch_one(&mut self.admin)
            .await
            .unwrap()
    }

    /// Runs a statement as a tool with ten seconds of time.
    pub(crate) async fn run(
        &self,
        effect: &str,
        statement: &str,
        params: Value,
        args: Value,
    ) -> Outcome {
        let manifest = manifest(effect, statement, &params);
        self.attempt(&manifest, &args, context(Duration::from_secs(10)))
            .await
    }

    pub(crate) async fn attempt(
        &self,
        manifest: &Manifest,
        args: &Value,
        context: AttemptContext,
    ) -> Outcome {
        self.returned(manifest, args, context).await.outcome
    }

    pub(crate) async fn returned(
        &self,
        manifest: &Manifest,
        args: &Value,
        context: AttemptContext,
    ) -> Returned {
        match self.executor.prepare(manifest, args, &Secrets::default()) {
            Ok(prepared) => prepared.run(context).await,
            Err(failure) => Outcome::NotStarted(failure).into(),
        }
    }
}

/// A manifest that was not checked.
pub(crate) fn manifest(effect: &str, statement: &str, params: &Value) -> Manifest {
    let manifest = json!({
        "name": "tool", "version": 1, "description": "a tool", "effect": effect,
        "input_schema": {"type": "object"},
        "executor": {"sql": {"database": "fleet", "statement": statement, "params": params}},
    });
    serde_json::from_value(manifest).unwrap()
}

/// An attempt with this much time.
pub(crate) fn context(time: Duration) -> AttemptContext {
    AttemptContext {
        call_id: CallId::generate(),
        attempt_id: AttemptId::generate(),
        attempt: 1,
        tool: "tool".parse().unwrap(),
        tool_version: 1,
        idempotency_key: "key-1".to_owned(),
        deadline_at: OffsetDateTime::UNIX_EPOCH,
        until: Instant::now() + time,
        tenant: "acme".parse().unwrap(),
        session: None,
        run: None,
        meta: Some(serde_json::from_str(r#"{"it's":"'; DROP TABLE items"}"#).unwrap()),
        language: Language::En,
        trace: TraceContext::default(),
        stop: Stop::under(CancellationToken::new()),
        progress: Progress::default(),
        completion_token: None,
        asked: None,
        files: AttemptFiles::default(),
        handed: HandedFiles::default(),
        promise: Promise::default(),
    }
}

/// What an applied attempt answered.
pub(crate) fn answer(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Applied { result, flaw: None } => serde_json::from_str(result.get()).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The word and the code of an outcome.
pub(crate) fn word(outcome: &Outcome) -> (&'static str, &'static str) {
    let code = outcome
        .failure()
        .map_or("", |failure: &ToolFailure| failure.code.as_str());
    (outcome.word().as_str(), code)
}
