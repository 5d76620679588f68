//! The stand-in for vendors, two models on it, and the executor that asks one after the other.

use std::time::Duration;

use fleet::{
    call::Effect,
    egress::Egress,
    outcome::{Outcome, OutcomeWord},
    secrets::Secrets,
    wire::code::Code,
};
use fleet_tests::{models::ModelServer, wait::until};
use serde_json::{Value, json};
use worker::executors::{AttemptContext, Executor, chat::ChatExecutor};

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
    executor: ChatExecutor,
}

impl ChatScene {
    pub(crate) fn start(rules: &[Value]) -> Self {
        super::provider();
        Self {
            server: ModelServer::start(&json!({"rules": rules}), &[]),
            executor: ChatExecutor::new(Egress::default()).unwrap(),
        }
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
        let executor = json!({"chat": {"protocol": vendor.protocol(), "routes": routes}});
        let manifest = super::manifest(Effect::Read, &executor, &json!({"output_limit": 100_000}));
        let prepared = self
            .executor
            .prepare(&manifest, request, &Secrets::new(None));
        let outcome = match prepared {
            Ok(prepared) => prepared.run(context).await.outcome,
            Err(failure) => Outcome::NotStarted(failure),
        };
        Told(outcome)
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
