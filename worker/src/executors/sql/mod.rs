//! Tools that are a statement on a PostgreSQL database.
//!
//! `database` keeps connections: `target` is where its URL leads, `connect` and `tls` go there, `wire` is what is said on them.
//! `session` is one attempt's transaction on one, within its `limits`; `tidy` makes the connection fit for the next;
//! `statement` is what the server says of a statement before it runs, `answer` collects its rows, `not_committed` is why there
//! was no COMMIT. `parameter`, `kind`, `row` and `moment` turn JSON into values and values into JSON; `verdict`
//! says what an attempt came to. This file bounds and stops it.

mod answer;
mod connect;
pub mod database;
mod kind;
pub mod limits;
mod moment;
pub mod not_committed;
mod parameter;
mod row;
pub mod session;
pub mod statement;
mod target;
mod tidy;
mod tls;
mod transaction;
mod verdict;
mod wire;

use std::{pin::pin, sync::Arc, time::Duration};

use fleet::{
    call::Effect,
    manifest::{ExecutorSpec, Manifest, RowBounds, SqlSpec},
    outcome::{Outcome, ToolFailure},
    said,
    secrets::Secrets,
    store::complete,
    wire::{code::Code, message::Message},
};
use futures_util::future::BoxFuture;
use secrecy::SecretString;
use serde_json::{Map, Value, value::RawValue};
use tokio::time::{sleep, sleep_until, timeout};

use self::{
    database::{Database, Databases, Open, Whose},
    limits::Limits,
    not_committed::{NotCommitted, Phase},
    session::{Committed, Ends, Session, Watch},
    statement::Statement,
    transaction::{kept, stopped},
    verdict::Cut,
    wire::CancelKey,
};
use super::{
    AttemptContext, Executor, LINGER_MAX, Prepared, Returned, output,
    redact::{hidden, missing_secret, redact, veiled},
};

/// Runs sql tools.
#[derive(Debug, Default)]
pub struct SqlExecutor {
    fleet: Option<SecretString>,
    databases: Databases,
}

impl SqlExecutor {
    /// With the URL by which tools reach the fleet's own database; `None`: this worker runs no such tools.
    pub fn new(fleet: Option<SecretString>) -> Self {
        Self {
            fleet,
            databases: Databases::default(),
        }
    }

    /// The database that a tool names. Nothing is opened.
    fn database(&self, spec: &SqlSpec, secrets: &Secrets) -> Result<Arc<Database>, ToolFailure> {
        let (url, whose) = if spec.is_on_fleet() {
            let url = self.fleet.clone().ok_or_else(|| {
                let what = Message::fixed(
                    "this worker has no database for tools: set WORKER_TOOL_DATABASE_URL",
                    "这个 worker 没有供工具使用的数据库：请设置 WORKER_TOOL_DATABASE_URL",
                );
                ToolFailure::new(Code::Unavailable, what)
            })?;
            (url, Whose::Fleet)
        } else {
            let url = secrets.resolve(&spec.database);
            (url.map_err(|error| missing_secret(&error))?, Whose::Others)
        };
        self.databases.of(&url, whose).map_err(|error| {
            let what = said!("{error}", "工具的数据库地址无法使用：{error}");
            ToolFailure::new(Code::Unavailable, what)
        })
    }
}

impl Executor for SqlExecutor {
    fn check(&self, manifest: &Manifest, secrets: &Secrets) -> Result<(), ToolFailure> {
        self.database(spec_of(manifest)?, secrets).map(drop)
    }

    fn prepare(
        &self,
        manifest: &Manifest,
        arguments: &Value,
        secrets: &Secrets,
    ) -> Result<Box<dyn Prepared>, ToolFailure> {
        let spec = spec_of(manifest)?;
        let database = self.database(spec, secrets)?;
        let nothing = Map::new();
        let arguments = arguments.as_object().unwrap_or(&nothing);
        let key = manifest
            .idempotency
            .as_ref()
            .and_then(|how| how.argument.as_deref());
        Ok(Box::new(SqlAttempt {
            hidden: hidden(database.secrets(), manifest.redact_results),
            secrets: database.secrets(),
            database,
            statement: spec.statement.clone(),
            params: spec
                .params
                .iter()
                .map(|param| Param::of(param, arguments, key))
                .collect(),
            rows: spec.rows,
            effect: manifest.effect,
            output_limit: manifest.output_limit,
        }))
    }
}

fn spec_of(manifest: &Manifest) -> Result<&SqlSpec, ToolFailure> {
    let ExecutorSpec::Sql(spec) = &manifest.executor else {
        let what = Message::fixed(
            "this version of the tool is not a statement",
            "工具的这个版本不是语句",
        );
        return Err(ToolFailure::new(Code::ToolGone, what));
    };
    Ok(spec)
}

/// What goes where a placeholder stands.
enum Param {
    Value(Value),
    /// The call's key, which only the attempt knows.
    Key,
}

impl Param {
    fn of(param: &Value, arguments: &Map<String, Value>, key: Option<&str>) -> Self {
        let name = param
            .as_str()
            .and_then(|text| text.strip_prefix('{')?.strip_suffix('}'));
        match name {
            Some(name) if Some(name) == key => Self::Key,
            Some(name) => Self::Value(arguments.get(name).cloned().unwrap_or(Value::Null)),
            None => Self::Value(param.clone()),
        }
    }
}

/// A statement with its parameters.
struct SqlAttempt {
    database: Arc<Database>,
    secrets: Vec<SecretString>,
    /// Masked in the answer, which a transaction keeps by itself.
    hidden: Vec<SecretString>,
    statement: String,
    params: Vec<Param>,
    rows: Option<RowBounds>,
    effect: Effect,
    output_limit: usize,
}

impl Prepared for SqlAttempt {
    fn run(self: Box<Self>, context: AttemptContext) -> BoxFuture<'static, Returned> {
        Box::pin(async move {
            let secrets = self.secrets.clone();
            let returned = attempt(*self, context).await;
            Returned {
                outcome: returned.outcome.reworded(|text| redact(text, &secrets)),
                ..returned
            }
        })
    }
}

/// How long a statement may take to end after it was told to; a little of [`LINGER_MAX`] is left for the connection.
const ANSWER_AFTER_CANCEL: Duration = LINGER_MAX.saturating_sub(Duration::from_millis(500));
/// How often it is told: a request that comes between two statements goes unheard.
const CANCEL_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// What is not over by then waits for something: a lock, a disk, another server.
const QUICK: Duration = Duration::from_millis(100);

/// Runs the transaction to its end, or to the end of its time.
async fn attempt(attempt: SqlAttempt, context: AttemptContext) -> Returned {
    if let Some(reason) = context.stop.asked() {
        return Outcome::NotStarted(reason.before_anything_was_sent()).into();
    }
    let (database, watch) = (Arc::clone(&attempt.database), Watch::default());
    let is_transaction = attempt.effect == Effect::Transaction;
    let mut work = Box::pin(transaction(attempt, &context, watch.clone()));
    let cut = tokio::select! {
        biased;
        done = &mut work => {
            return match done {
                Ok(done) => {
                    if let Some(open) = done.open {
                        database.take_back(open);
                    }
                    Returned {
                        committed: done.ended,
                        ..applied(&done.result).into()
                    }
                }
                Err(ended) => verdict::failed(watch.phase(), ended, None).into(),
            };
        }
        cut = cut_off(&context) => cut,
    };
    watch.cut();
    let Some(key) = watch.key() else {
        // Dropping it closes the connection.
        return verdict::silent(watch.phase(), Some(cut)).into();
    };
    let ended = timeout(ANSWER_AFTER_CANCEL, async {
        tokio::select! {
            biased;
            done = &mut work => done,
            never = cancel(&database, key, &watch) => never,
        }
    });
    let returned = match ended.await {
        // The connection is dropped: a cancel request may still be on its way to it.
        Ok(Ok(done)) => Returned {
            committed: done.ended,
            ..applied(&done.result).into()
        },
        Ok(Err(ended)) => verdict::failed(watch.phase(), ended, Some(cut)).into(),
        Err(_elapsed) => Returned {
            // The server may still be at it.
            left_behind: true,
            ..verdict::silent(watch.phase(), Some(cut)).into()
        },
    };
    if is_transaction {
        Returned {
            outcome: stopped(returned.outcome, cut),
            ..returned
        }
    } else {
        returned
    }
}

/// A transaction that has committed.
struct Done {
    /// The answer, as JSON.
    result: String,
    /// How the call ended in it, if it did.
    ended: Option<Box<complete::Moved>>,
    /// Its connection, if that is fit for another.
    open: Option<Open>,
}

/// The whole transaction. Dropping it closes its connection.
async fn transaction(
    attempt: SqlAttempt,
    context: &AttemptContext,
    watch: Watch,
) -> Result<Done, NotCommitted> {
    let limits = Limits {
        read_only: attempt.effect == Effect::Read,
        until: context.until,
        output_limit: attempt.output_limit,
    };
    let database = &attempt.database;
    let statement = database.statement(&attempt.statement, attempt.params.len(), &limits);
    let statement = statement.await.inspect_err(|ended| {
        if ended.may_be_news() {
            database.unlearn(&attempt.statement);
        }
    })?;
    let values = attempt.values(&statement, context)?;
    let turn = database.turn(&attempt.statement, context.until);
    let turn = turn.await.map_err(NotCommitted::NoConnection)?;
    let session = Session::begin(database, limits, facts(context), &watch).await?;
    let mut rest = pin!(finish(
        session, &statement, &values, &attempt, context, &watch
    ));
    match timeout(QUICK, &mut rest).await {
        Ok(done) => {
            let mut done = done?;
            if let Some(open) = &mut done.open {
                open.turn = Some(turn);
            }
            Ok(done)
        }
        Err(_slow) => {
            drop(turn);
            rest.await
        }
    }
}

impl SqlAttempt {
    /// Its parameters as the server is sent them.
    fn values(
        &self,
        statement: &Statement,
        context: &AttemptContext,
    ) -> Result<Vec<Option<String>>, NotCommitted> {
        let each = self.params.iter().zip(&statement.parameters);
        let values = each.map(|(param, parameter)| match param {
            Param::Value(value) => parameter::text(value, parameter),
            Param::Key => {
                let key = Value::from(context.idempotency_key.as_str());
                parameter::text(&key, parameter)
            }
        });
        values
            .collect::<Result<_, _>>()
            .map_err(NotCommitted::Argument)
    }
}

/// From the statement to `COMMIT`.
async fn finish(
    mut session: Session<'_>,
    statement: &Statement,
    values: &[Option<String>],
    attempt: &SqlAttempt,
    context: &AttemptContext,
    watch: &Watch,
) -> Result<Done, NotCommitted> {
    let steps = steps(&mut session, statement, values, attempt, context).await;
    let ended = match steps {
        Ok((result, committed)) => {
            return Ok(Done {
                open: committed.is_clean.then(|| session.into_open()),
                ended: committed.ended.map(Box::new),
                result,
            });
        }
        Err(ended) => ended,
    };
    if ended.may_be_news() {
        attempt.database.unlearn(&attempt.statement);
    }
    if ended.is_stale() {
        // The others have prepared it too.
        attempt.database.forget_idle();
    }
    if matches!(ended, NotCommitted::TooLarge(_))
        && let Some(key) = watch.key()
    {
        attempt.database.cancel(key).await;
    }
    session.abandon().await;
    Err(ended)
}

async fn steps(
    session: &mut Session<'_>,
    statement: &Statement,
    values: &[Option<String>],
    attempt: &SqlAttempt,
    context: &AttemptContext,
) -> Result<(String, Committed), NotCommitted> {
    let answer = session.run(statement, values, attempt.rows).await?;
    let answer = veiled(&answer, &attempt.hidden).unwrap_or(answer);
    if attempt.effect != Effect::Transaction {
        let committed = session.commit(None).await?;
        return Ok((answer, committed));
    }
    let result = kept(&answer, context).await?;
    let ends = Ends {
        call: context.call_id,
        attempt: context.attempt_id,
        result: &result,
    };
    let committed = session.commit(Some(ends)).await?;
    Ok((result, committed))
}

/// What a statement may read with `current_setting('toolfleet.call_id')`.
fn facts(context: &AttemptContext) -> Vec<(String, String)> {
    let named = |(name, value): (&str, String)| (name.replace('-', "_"), value);
    let mut facts: Vec<_> = context.facts().into_iter().map(named).collect();
    facts.push((
        "idempotency_key".to_owned(),
        context.idempotency_key.clone(),
    ));
    let trace = &context.trace;
    let traces = [
        ("traceparent", &trace.traceparent),
        ("tracestate", &trace.tracestate),
        ("baggage", &trace.baggage),
    ];
    facts.extend(
        traces
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value.clone()?))),
    );
    facts
}

/// Resolves when the attempt must end, with the reason.
async fn cut_off(context: &AttemptContext) -> Cut {
    tokio::select! {
        biased;
        reason = context.stop.told() => Cut::Stop(reason),
        () = sleep_until(context.until) => Cut::Time,
    }
}

/// Asks the server to end what it is doing, again and again; never resolves. A COMMIT is left alone: it cannot be called back,
/// only kept from waiting for its replicas.
async fn cancel<T>(database: &Database, key: CancelKey, watch: &Watch) -> T {
    loop {
        if watch.phase() != Phase::Commit {
            database.cancel(key).await;
        }
        sleep(CANCEL_AGAIN_AFTER).await;
    }
}

/// The answer of a transaction that was committed.
fn applied(result: &str) -> Outcome {
    match output::json(result.as_bytes()) {
        Ok((result, mark)) => Outcome::Applied { result, flaw: mark },
        Err(problem) => Outcome::Applied {
            result: RawValue::NULL.to_owned(),
            flaw: Some(ToolFailure::new(
                Code::OutputInvalid,
                said!(
                    "the answer cannot be used: {problem}",
                    "结果无法使用：{problem}",
                    problem
                ),
            )),
        },
    }
}
