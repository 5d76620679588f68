//! An executor of a kind of one's own: tools that are methods of a TCP server, which answers each line of JSON with another.
//!
//! `connections` keeps connections open from attempt to attempt, and `reply` says what an answer means. This file says what a
//! manifest needs, what is sent, and when an attempt gives up.

mod connections;
mod reply;

use std::{sync::Arc, time::Duration};

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::{sleep_until, timeout};
use worker::executors::{
    AttemptContext, BoxFuture, Code, Executor, Manifest, Message, Outcome, Prepared, Returned,
    Secrets, ToolFailure, hidden, missing_secret, own_spec, veil,
};

use crate::{
    connections::{Connection, Connections},
    reply::Expected,
};

/// Runs tools whose manifest says `executor: {own: {kind: …, spec: {method: …}}}` with the kind under which it is registered.
pub struct Tcp(Arc<Connections>);

/// The `spec` of a manifest.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    method: String,
    /// `secret://NAME`, handed to the method.
    token: Option<String>,
}

/// How long an answer is waited for after the attempt was called off. In sum less than `LINGER_MAX`.
const GRACE: Duration = Duration::from_secs(2);

impl Tcp {
    /// With the server's `host:port`. Nothing is connected before the first attempt.
    #[must_use]
    pub fn new(address: &str) -> Self {
        Self(Arc::new(Connections::new(address)))
    }
}

impl Executor for Tcp {
    fn check(&self, manifest: &Manifest, secrets: &Secrets) -> Result<(), ToolFailure> {
        token(&own_spec(manifest)?, secrets).map(drop)
    }

    fn prepare(
        &self,
        manifest: &Manifest,
        arguments: &Value,
        secrets: &Secrets,
    ) -> Result<Box<dyn Prepared>, ToolFailure> {
        let spec: Spec = own_spec(manifest)?;
        let how = manifest.idempotency.as_ref();
        Ok(Box::new(Request {
            connections: Arc::clone(&self.0),
            token: token(&spec, secrets)?,
            method: spec.method,
            arguments: arguments.clone(),
            key_argument: how.and_then(|how| how.argument.clone()),
            output_limit: manifest.output_limit,
            redact_results: manifest.redact_results,
        }))
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        self.0.close();
        Box::pin(std::future::ready(()))
    }
}

fn token(spec: &Spec, secrets: &Secrets) -> Result<Option<SecretString>, ToolFailure> {
    let token = spec.token.as_ref().map(|token| secrets.resolve(token));
    token.transpose().map_err(|error| missing_secret(&error))
}

/// A request that lacks only what the attempt knows.
struct Request {
    connections: Arc<Connections>,
    method: String,
    token: Option<SecretString>,
    arguments: Value,
    key_argument: Option<String>,
    output_limit: usize,
    redact_results: bool,
}

impl Prepared for Request {
    fn run(self: Box<Self>, context: AttemptContext) -> BoxFuture<'static, Returned> {
        Box::pin(async move {
            let secrets: Vec<SecretString> = self.token.iter().cloned().collect();
            let outcome = self.attempt(&context, &secrets).await;
            // What a server elsewhere still does ends with no worker, so nothing is left behind.
            veil(outcome, &hidden(secrets, self.redact_results)).into()
        })
    }
}

impl Request {
    async fn attempt(&self, context: &AttemptContext, secrets: &[SecretString]) -> Outcome {
        let opened = tokio::select! {
            biased;
            early = over(context) => Err(early),
            opened = self.connections.open() => opened,
        };
        let mut connection = match opened {
            Ok(connection) => connection,
            Err(why) => return Outcome::NotStarted(why),
        };
        let (line, id) = (self.line(context), context.attempt_id.to_string());
        let (mut rest, mut reply) = (line.as_slice(), Vec::new());
        let exchange = async {
            connection.send(&mut rest).await?;
            connection.read_line(&mut reply, self.output_limit).await
        };
        let (ended, early) = tokio::select! {
            biased;
            ended = exchange => (ended, None),
            early = over(context) => (Err(early.clone()), Some(early.code)),
        };
        let ended = match (ended, early) {
            // Not one byte has left, also where a kept connection turned out to be dead.
            (Err(why), _) if rest.len() == line.len() => return Outcome::NotStarted(why),
            (ended, None) => ended,
            (_, Some(code)) => {
                let late = || failure(code, "it has not answered in time");
                let answers = self.call_off(&mut connection, &mut reply).await;
                answers.then_some(()).ok_or_else(late)
            }
        };
        let expected = Expected { id: &id, secrets };
        let is_whole = ended.is_ok();
        let outcome = expected.outcome(&reply, ended.err());
        // Only a connection on which each line has had its answer serves another attempt.
        if early.is_none() && is_whole && !matches!(outcome, Outcome::Unknown(_)) {
            self.connections.keep(connection);
        }
        outcome
    }

    /// Tells the server by the end of its input. Whether it answers all the same.
    async fn call_off(&self, on: &mut Connection, reply: &mut Vec<u8>) -> bool {
        let last = async {
            on.end().await?;
            on.read_line(reply, self.output_limit).await
        };
        matches!(timeout(GRACE, last).await, Ok(Ok(())))
    }

    /// All that the server is told.
    fn line(&self, context: &AttemptContext) -> Vec<u8> {
        let (mut arguments, key) = (self.arguments.clone(), &context.idempotency_key);
        if let (Some(name), Value::Object(members)) = (&self.key_argument, &mut arguments) {
            members.insert(name.clone(), key.clone().into());
        }
        let facts = context.facts().into_iter();
        let mut call: Map<String, Value> = facts
            .map(|(name, value)| (name.replace('-', "_"), value.into()))
            .collect();
        call.insert("idempotency_key".into(), key.clone().into());
        if let Some(traceparent) = &context.trace.traceparent {
            call.insert("traceparent".into(), traceparent.clone().into());
        }
        if let Some(token) = &self.token {
            call.insert("token".into(), token.expose_secret().into());
        }
        let id = context.attempt_id.to_string();
        let line = json!({ "id": id, "method": self.method, "arguments": arguments, "call": call });
        format!("{line}\n").into_bytes()
    }
}

/// Resolves when the attempt must end, with the failure of one that has sent nothing. Cancel-safe.
async fn over(context: &AttemptContext) -> ToolFailure {
    tokio::select! {
        biased;
        reason = context.stop.told() => reason.before_anything_was_sent(),
        () = sleep_until(context.until) => {
            failure(Code::Timeout, "its time was over before anything was sent")
        }
    }
}

/// Why a tool did not do what was asked. No argument, no result and no secret belongs into it.
fn failure(code: Code, why: &str) -> ToolFailure {
    ToolFailure::new(code, Message::verbatim(why.to_owned()))
}
