//! HTTP tools against real sockets: what is sent, what each answer means, and what can never happen twice.

mod bounds;
mod egress;
mod meaning;
mod sent;
mod server;

use std::{sync::Once, time::Duration};

use fleet::{
    call::Language,
    egress::Egress,
    ids::{AttemptId, CallId},
    manifest::Manifest,
    outcome::{Outcome, ToolFailure},
    secrets::Secrets,
    wire::trace::TraceContext,
};
use serde_json::{Value, json};
use time::OffsetDateTime;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use worker::executors::{
    AttemptContext, AttemptFiles, Executor, HandedFiles, Prepared, Progress, Promise, Stop,
    http::HttpExecutor,
};

/// A manifest with this effect and request; `more` adds top-level fields.
fn manifest(effect: &str, http: Value, more: Value) -> Manifest {
    let mut manifest = json!({
        "name": "tool", "version": 1, "description": "a tool", "effect": effect,
        "input_schema": {"type": "object"}, "executor": {"http": http},
    });
    for (key, value) in more.as_object().expect("more fields") {
        manifest[key] = value.clone();
    }
    serde_json::from_value(manifest).expect("a manifest")
}

/// A manifest that posts its arguments to this URL.
fn posting(effect: &str, url: &str) -> Manifest {
    manifest(effect, json!({"method": "POST", "url": url}), json!({}))
}

/// An attempt with this much time.
fn context(time: Duration) -> AttemptContext {
    AttemptContext {
        call_id: CallId::generate(),
        attempt_id: AttemptId::generate(),
        attempt: 1,
        tool: "tool".parse().expect("a name"),
        tool_version: 1,
        idempotency_key: "key-1".to_owned(),
        deadline_at: OffsetDateTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
        until: Instant::now() + time,
        tenant: "acme".parse().expect("a name"),
        session: None,
        run: None,
        meta: None,
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

fn executor() -> HttpExecutor {
    executor_under(Egress::default())
}

fn executor_under(egress: Egress) -> HttpExecutor {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        rustls::crypto::ring::default_provider()
            .install_default()
            .expect("nothing else installs one here");
    });
    HttpExecutor::new(egress).expect("there are CA certificates")
}

fn prepare(manifest: &Manifest, arguments: &Value) -> Result<Box<dyn Prepared>, ToolFailure> {
    executor().prepare(manifest, arguments, &Secrets::new(None))
}

/// Runs one attempt with time enough.
async fn run(manifest: &Manifest, arguments: Value) -> Outcome {
    prepare(manifest, &arguments)
        .expect("it can be rendered")
        .run(context(Duration::from_secs(20)))
        .await
        .outcome
}

/// The word and the code of an outcome, as the retry decision sees it.
fn word(outcome: &Outcome) -> (&'static str, Option<&'static str>) {
    (
        outcome.word().as_str(),
        outcome.failure().map(|failure| failure.code.as_str()),
    )
}
