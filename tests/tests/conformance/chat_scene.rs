//! The stand-in for vendors, two models on it, and the executor that asks one after the other.

use std::time::Duration;

use fleet::{
    call::Effect,
    egress::Egress,
    outcome::{Outcome, OutcomeWord},
    registry::Registry,
    secrets::Secrets,
    wire::{
        chunks::{ModelChunk, ModelChunks},
        code::Code,
        part::Part,
    },
};
use fleet_tests::{models::ModelServer, postgres::Database, wait::until};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use worker::executors::{AttemptContext, Executor, Progress, chat::ChatExecutor};

const AMPLE: Duration = Duration::from_secs(20);

/// A protocol, and the path and the body of a request by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vendor {
    Chat,
    Responses,
    Anthropic,
}

impl Vendor {
    pub(crate) const ALL: [Self; 3] = [Self::Chat, Self::Responses, Self::Anthropic];

    pub(crate) fn protocol(self) -> &'static str {
        match self {
            Self::Chat => "openai_chat",
            Self::Responses => "openai_responses",
            Self::Anthropic => "anthropic",
        }
    }

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
            Self::Anthropic => "/v1/messages",
        }
    }

    /// A request with this last message.
    pub(crate) fn request(self, text: &str) -> Value {
        let messages = json!([{"role": "user", "content": text}]);
        match self {
            Self::Chat => json!({"messages": messages}),
            Self::Responses => json!({"input": text}),
            Self::Anthropic => json!({"messages": messages, "max_tokens": 100}),
        }
    }
}

/// What is said and done on the stand-in.
pub(crate) struct ChatScene {
    pub(crate) server: ModelServer,
    /// With the ledger of its requests, made with the first of them.
    executor: OnceCell<(ChatExecutor, Database)>,
}

impl ChatScene {
    pub(crate) fn start(rules: &[Value]) -> Self {
        super::provider();
        Self {
            server: ModelServer::start(&json!({"rules": rules}), &[]),
            executor: OnceCell::new(),
        }
    }

    /// The executor, and the ledger in which its requests are on record.
    pub(crate) async fn executor(&self) -> &(ChatExecutor, Database) {
        let make = async || {
            let database = Database::fresh().await;
            let executor = ChatExecutor::new(
                Egress::default(),
                database.pool.clone(),
                Registry::default(),
            );
            (executor.unwrap(), database)
        };
        self.executor.get_or_init(make).await
    }

    /// A route to a model of the stand-in.
    pub(crate) fn route(&self, vendor: Vendor, model: &str) -> Value {
        json!({"name": model, "url": self.server.url(vendor.path()), "model": model})
    }

    /// Makes a request on these routes.
    pub(crate) async fn ask(&self, vendor: Vendor, routes: &[Value], request: &Value) -> Told {
        self.ask_in(vendor, routes, request, conformance::context(AMPLE))
            .await
    }

    pub(crate) async fn ask_in(
        &self,
        vendor: Vendor,
        routes: &[Value],
        request: &Value,
        context: AttemptContext,
    ) -> Told {
        let chat = json!({"protocol": vendor.protocol(), "routes": routes});
        self.ask_of(&chat, request, &Secrets::new(None), context)
            .await
    }

    async fn ask_of(
        &self,
        chat: &Value,
        request: &Value,
        secrets: &Secrets,
        context: AttemptContext,
    ) -> Told {
        let executor = json!({"chat": chat});
        let manifest = super::manifest(Effect::Read, &executor, &json!({"output_limit": 100_000}));
        let (executor, _) = self.executor().await;
        let prepared = executor.prepare(&manifest, request, secrets);
        let outcome = match prepared {
            Ok(prepared) => prepared.run(context).await.outcome,
            Err(failure) => Outcome::NotStarted(failure),
        };
        Told(outcome)
    }

    /// The same as a stream that is followed.
    pub(crate) async fn stream(
        &self,
        vendor: Vendor,
        routes: &[Value],
        request: &Value,
    ) -> Streamed {
        self.stream_of(vendor, routes, request, &Secrets::new(None), AMPLE)
            .await
    }

    pub(crate) async fn stream_of(
        &self,
        vendor: Vendor,
        routes: &[Value],
        request: &Value,
        secrets: &Secrets,
        time: Duration,
    ) -> Streamed {
        let chat = json!({
            "protocol": vendor.protocol(), "routes": routes, "first_token": "1s", "idle": "1s", "fixed": {"stream": true},
        });
        let (progress, told) = Progress::heard();
        let mut context = conformance::context(time);
        context.progress = progress;
        let answer = self.ask_of(&chat, request, secrets, context).await;
        let parts = told.take().into_iter().map(|(_, part)| match part {
            Part::Chunks(chunks) => chunks,
            other => panic!("{other:?}"),
        });
        Streamed {
            told: answer,
            parts: parts.collect(),
        }
    }

    /// How many requests with this last message each of these models was sent.
    pub(crate) async fn asked(&self, text: &str, models: [&str; 2]) -> [usize; 2] {
        let log = self.server.log().await;
        models.map(|model| {
            let of_model = |entry: &&Value| {
                let is_said = entry["raw"]
                    .as_str()
                    .is_some_and(|raw| raw.contains(&format!("\"{text}\"")));
                entry["body"]["model"] == model && is_said
            };
            log.iter().filter(of_model).count()
        })
    }
}

impl ChatScene {
    /// What the stand-in says of the last request, once it has answered that.
    pub(crate) async fn last_answered(&self) -> Value {
        until("the stand-in to be done", async || {
            let last = self.server.log().await.pop()?;
            (!last["ended"].is_null()).then_some(last)
        })
        .await
    }
}

/// What an attempt with a stream came to, and what was told of it.
#[derive(Debug)]
pub(crate) struct Streamed {
    pub(crate) told: Told,
    pub(crate) parts: Vec<ModelChunks>,
}

impl Streamed {
    /// The chunks since the last restart.
    pub(crate) fn chunks(&self) -> Vec<&str> {
        let restart = self.parts.iter().rposition(|part| part.restart);
        let last = &self.parts[restart.unwrap_or(0)..];
        let chunks = last.iter().flat_map(|part| &part.chunks);
        chunks.map(ModelChunk::get).collect()
    }

    /// Which routes told something, in their order, and whether it began anew.
    pub(crate) fn routes(&self) -> Vec<(&str, bool)> {
        let mut routes: Vec<(&str, bool)> = Vec::new();
        for part in &self.parts {
            if part.restart || routes.last().map(|last| last.0) != Some(part.route.as_str()) {
                routes.push((&part.route, part.restart));
            }
        }
        routes
    }
}

/// What an attempt came to.
#[derive(Debug)]
pub(crate) struct Told(pub(crate) Outcome);

impl Told {
    /// The result; null where there is none.
    pub(crate) fn result(&self) -> Value {
        match &self.0 {
            Outcome::Applied { result, flaw: None } => serde_json::from_str(result.get()).unwrap(),
            _no_result => Value::Null,
        }
    }

    pub(crate) fn failed(&self) -> (OutcomeWord, Option<Code>) {
        let failure = self.0.failure();
        (self.0.word(), failure.map(|failure| failure.code))
    }

    pub(crate) fn said(&self) -> &str {
        let failure = self.0.failure();
        failure.map_or("", |failure| failure.message.english())
    }

    pub(crate) fn details(&self) -> Value {
        let failure = self.0.failure();
        failure
            .and_then(|failure| failure.details.clone())
            .unwrap_or_default()
    }
}
