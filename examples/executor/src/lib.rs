//! An executor of a kind of one's own: tools that are methods of a server, a program that is started once and answers lines.
//!
//! `server` owns the program and its two pipes; this file says what a manifest needs, what is sent, and what a reply means.

mod server;

use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use tokio::time::{sleep_until, timeout};
use worker::executors::{
    AttemptContext, BoxError, BoxFuture, Code, Executor, Manifest, Message, Outcome, Prepared,
    Returned, Secrets, StartContext, ToolFailure, missing_secret, output, own_spec, redact,
};

use crate::server::{Asked, Reply, Server};

/// Runs tools whose manifest says `executor: {own: {kind: lines, spec: {method: …}}}`.
pub struct Lines(Server);

/// The `spec` of a manifest.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    method: String,
    /// `secret://NAME`, handed to the method.
    token: Option<String>,
}

/// How long the server may take to end a request that was called off. In sum less than `LINGER_MAX`.
const GRACE: Duration = Duration::from_secs(2);

impl Lines {
    /// With the program that is the server, and its arguments.
    pub fn new(program: &str, args: &[&str]) -> Self {
        Self(Server::new(program, args))
    }
}

impl Executor for Lines {
    fn start<'a>(&'a self, worker: &'a StartContext) -> BoxFuture<'a, Result<(), BoxError>> {
        Box::pin(async { Ok(self.0.start(worker.lock.clone()).await?) })
    }

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
            server: self.0.clone(),
            token: token(&spec, secrets)?,
            method: spec.method,
            arguments: arguments.clone(),
            key_argument: how.and_then(|how| how.argument.clone()),
            output_limit: manifest.output_limit,
        }))
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.stop())
    }
}

fn token(spec: &Spec, secrets: &Secrets) -> Result<Option<SecretString>, ToolFailure> {
    let token = spec.token.as_ref().map(|token| secrets.resolve(token));
    token.transpose().map_err(|error| missing_secret(&error))
}

/// A request that lacks only what the attempt knows.
struct Request {
    server: Server,
    method: String,
    token: Option<SecretString>,
    arguments: Value,
    key_argument: Option<String>,
    output_limit: usize,
}

impl Prepared for Request {
    fn run(self: Box<Self>, context: AttemptContext) -> BoxFuture<'static, Returned> {
        Box::pin(async move {
            let secrets: Vec<SecretString> = self.token.iter().cloned().collect();
            let returned = self.attempt(context).await;
            Returned {
                // A tool may repeat its secret in saying no.
                outcome: returned.outcome.reworded(|text| redact(text, &secrets)),
                ..returned
            }
        })
    }
}

impl Request {
    async fn attempt(self, context: AttemptContext) -> Returned {
        if let Some(reason) = context.stop.asked() {
            return Outcome::NotStarted(reason.before_anything_was_sent()).into();
        }
        let mut asked = match self.server.ask(self.line(&context)).await {
            Ok(asked) => asked,
            // Nothing was sent, so even a write may be tried again.
            Err(error) => return Outcome::NotStarted(failure(Code::Unavailable, &error)).into(),
        };
        let code = tokio::select! {
            biased;
            reply = asked.reply() => return self.class(reply).into(),
            reason = context.stop.told() => reason.code(),
            () = sleep_until(context.until) => Code::Timeout,
        };
        self.call_off(asked, code).await
    }

    /// Tells the server to end the request. What it still says within its grace holds; after that it may be at it for ever.
    async fn call_off(&self, mut asked: Asked, code: Code) -> Returned {
        self.server.cancel(&asked);
        match timeout(GRACE, asked.reply()).await {
            Ok(Some(Reply { ended: true, .. })) => {
                Outcome::Unknown(failure(code, "it was ended before it answered")).into()
            }
            Ok(reply) => self.class(reply).into(),
            Err(_elapsed) => Returned {
                left_behind: true,
                ..Outcome::Unknown(failure(code, "it did not end when it was told to")).into()
            },
        }
    }

    /// What a reply means; `None`: the server ended instead.
    fn class(&self, reply: Option<Reply>) -> Outcome {
        let Some(reply) = reply else {
            return Outcome::Unknown(failure(Code::ToolCrashed, "its server ended meanwhile"));
        };
        if reply.crashed {
            return Outcome::Unknown(failure(Code::ToolCrashed, "it broke off"));
        }
        if let Some(no) = reply.error {
            let failure = failure(Code::ToolError, &no.message);
            return Outcome::DefiniteFailure(match no.code {
                Some(code) => failure.with_details(json!({ "code": code })),
                None => failure,
            });
        }
        // It was done, whatever can be made of the answer.
        let Some(result) = reply.result else {
            let result = RawValue::NULL.to_owned();
            return Outcome::Applied { result, flaw: None };
        };
        let bytes = result.get().as_bytes();
        let (result, flaw) = if bytes.len() > self.output_limit {
            let flaw = failure(Code::OutputTooLarge, "its answer exceeds output_limit");
            (output::beginning(bytes, self.output_limit), Some(flaw))
        } else {
            match output::json(bytes) {
                Ok((result, mark)) => (result, mark.or(reply.mended.then(ToolFailure::mended))),
                Err(why) => {
                    let flaw = ToolFailure::new(Code::OutputInvalid, why);
                    (RawValue::NULL.to_owned(), Some(flaw))
                }
            }
        };
        Outcome::Applied { result, flaw }
    }

    /// All that the server is told, but for the number of the request.
    fn line(&self, context: &AttemptContext) -> Value {
        let mut arguments = self.arguments.clone();
        if let (Some(name), Value::Object(members)) = (&self.key_argument, &mut arguments) {
            members.insert(name.clone(), context.idempotency_key.clone().into());
        }
        let facts = context.facts().into_iter();
        let mut call: serde_json::Map<String, Value> = facts
            .map(|(name, value)| (name.replace('-', "_"), value.into()))
            .collect();
        call.insert(
            "idempotency_key".into(),
            context.idempotency_key.clone().into(),
        );
        if let Some(traceparent) = &context.trace.traceparent {
            call.insert("traceparent".into(), traceparent.clone().into());
        }
        if let Some(token) = &self.token {
            call.insert("token".into(), token.expose_secret().into());
        }
        json!({ "method": self.method, "arguments": arguments, "call": call })
    }
}

/// Why a tool did not do what was asked. No argument, no result and no secret belongs into it.
fn failure(code: Code, why: &str) -> ToolFailure {
    ToolFailure::new(code, Message::verbatim(why.to_owned()))
}
