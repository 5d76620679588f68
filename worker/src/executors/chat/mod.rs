//! Models: one request, one reply, on the first route that has one.
//!
//! `conversation` puts the messages of a request together, `request` is what is asked, `routes` which routes are passed over, `class`
//! what an answer means and what follows, `answer` what the call came to, with its `cost`; `dialect` knows the protocols and `estimate`
//! how long a text is. All of these are pure. `edits` are the interceptors between a conversation and its model. `attempt` asks one
//! route after the other; `exchange` sends a request once, over the transport of HTTP tools, and `stream` reads an answer that comes in
//! pieces; `record` puts each request on record. `summarize` has a model write what stands for the beginning of a conversation.
//! This file makes a request ready.

mod answer;
mod attempt;
mod class;
pub(crate) mod conversation;
mod cost;
mod dialect;
mod edits;
mod estimate;
mod exchange;
mod record;
mod request;
mod routes;
mod stream;
mod summarize;

use std::sync::{Arc, atomic::AtomicBool};

use fleet::{
    egress::Egress,
    manifest::{Budget, ChatProtocol, ChatRoute, ChatSpec, ExecutorSpec, Manifest},
    outcome::ToolFailure,
    registry::Registry,
    said,
    secrets::Secrets,
    store::PgPool,
    telemetry::metrics,
    wire::message::Message,
};
use reqwest::{
    Client, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use secrecy::SecretString;
use serde_json::{Map, Value};

use crate::breaker::desk::BreakerDesk;

pub(crate) use self::edits::ModelEdits;
use self::{
    attempt::{ChatAttempt, ReadyRoute, Summarizer, no_route},
    dialect::Dialect,
    edits::EditSpecs,
    exchange::RequestSender,
    record::RequestRecords,
    routes::RouteNeeds,
    stream::StreamTimes,
};
use super::{
    Executor, Prepared,
    executor::has_secrets,
    http::{
        HttpExecutorError,
        part::{Part, defect, header_name},
        transport,
    },
    redact::hidden,
};

/// Runs chat tools.
#[derive(Debug, Clone)]
pub struct ChatExecutor {
    client: Client,
    egress: Egress,
    breakers: Option<BreakerDesk>,
    ledger: PgPool,
    registry: Registry,
    edits: Arc<ModelEdits>,
}

impl ChatExecutor {
    /// Builds the client, whose requests go where `egress` allows it, and are put on record in `ledger` before they do. Of which tools
    /// the ledger also counts what is spent, the newest versions in `registry` say.
    ///
    /// # Errors
    ///
    /// No TLS provider is installed in this process, or there are no CA certificates.
    pub fn new(
        egress: Egress,
        ledger: PgPool,
        registry: Registry,
    ) -> Result<Self, HttpExecutorError> {
        Ok(Self {
            // That of writes: each request has a connection of its own, so the library never sends one twice, which would be paid twice.
            client: transport::writing(&egress)?,
            egress,
            breakers: None,
            ledger,
            registry,
            edits: Arc::default(),
        })
    }

    /// Asks here whether a route may be tried.
    #[must_use]
    pub(crate) fn asking(mut self, breakers: BreakerDesk) -> Self {
        self.breakers = Some(breakers);
        self
    }

    /// Counts here what interceptors of model calls do.
    #[must_use]
    pub(crate) fn counting(mut self, edits: Arc<ModelEdits>) -> Self {
        self.edits = edits;
        self
    }
}

impl ChatExecutor {
    /// What the tool may spend: its newest version says it for all of them.
    fn budget(&self, manifest: &Manifest) -> Option<Budget> {
        match self.registry.current(&manifest.name) {
            Some(newest) => newest.manifest.budget.clone(),
            None => manifest.budget.clone(),
        }
    }
}

impl Executor for ChatExecutor {
    fn check(&self, manifest: &Manifest, secrets: &Secrets) -> Result<(), ToolFailure> {
        if let ExecutorSpec::Chat(spec) = &manifest.executor {
            for route in &spec.routes {
                metrics().has_route(&manifest.name, &route.name);
            }
        }
        has_secrets(manifest, secrets)
    }

    fn prepare(
        &self,
        manifest: &Manifest,
        arguments: &Value,
        secrets: &Secrets,
    ) -> Result<Box<dyn Prepared>, ToolFailure> {
        let ExecutorSpec::Chat(spec) = &manifest.executor else {
            let kind = manifest.executor.kind();
            return Err(defect(said!(
                "a {kind} tool was given to the chat executor",
                "一个 {kind} 工具被交给了 chat 执行器"
            )));
        };
        let dialect = dialect::of(spec.protocol);
        let none = Map::new();
        let request = request::request(spec, dialect, arguments.as_object().unwrap_or(&none))?;
        let is_streamed = request::is_streamed(&request);
        if is_streamed && manifest.sensitive.is_some() {
            return Err(request::sensitive());
        }
        let edits = EditSpecs::of(manifest, &self.edits, &self.registry);
        let needs = RouteNeeds::of(dialect, &request);
        // What is sent may be shorter.
        let needs = if edits.are_any() {
            needs.of_any_size()
        } else {
            needs
        };
        let mut attempt = self.attempt(manifest, spec, secrets, edits, self.budget(manifest))?;
        for ready in &mut attempt.routes {
            ready.skipped = routes::skipped(&ready.route, &needs);
        }
        let routes = attempt.routes.iter();
        let passed_over = routes.filter_map(|ready| Some((&ready.route, ready.skipped?)));
        let passed_over: Vec<_> = passed_over.collect();
        if passed_over.len() == attempt.routes.len() {
            return Err(no_route(&passed_over));
        }
        attempt.sender.times = is_streamed.then_some(StreamTimes {
            first_token: spec.first_token,
            idle: spec.idle,
        });
        attempt.summarizer = self.summarizer(manifest, secrets);
        attempt.request = request;
        Ok(Box::new(attempt))
    }
}

impl ChatExecutor {
    /// An attempt of a tool on its routes, without a request.
    fn attempt(
        &self,
        manifest: &Manifest,
        spec: &ChatSpec,
        secrets: &Secrets,
        edits: EditSpecs,
        budget: Option<Budget>,
    ) -> Result<ChatAttempt, ToolFailure> {
        let dialect = dialect::of(spec.protocol);
        let mut told = Vec::new();
        let mut routes = Vec::with_capacity(spec.routes.len());
        for route in &spec.routes {
            routes.push(ReadyRoute {
                url: url(&route.url)?,
                headers: route_headers(dialect, route, secrets, &mut told)?,
                skipped: None,
                route: route.clone(),
            });
        }
        Ok(ChatAttempt {
            egress: self.egress.clone(),
            breakers: self.breakers.clone(),
            timeout: manifest.timeout.longest(),
            records: RequestRecords {
                ledger: self.ledger.clone(),
                provider: match spec.protocol {
                    ChatProtocol::OpenaiChat | ChatProtocol::OpenaiResponses => "openai",
                    ChatProtocol::Anthropic => "anthropic",
                },
                budget,
            },
            dialect,
            request: Map::new(),
            edits,
            summarizer: None,
            routes,
            hidden: hidden(told.clone(), manifest.redact_results),
            sender: RequestSender {
                client: self.client.clone(),
                dialect,
                times: None,
                has_told: AtomicBool::new(false),
                output_limit: manifest.output_limit,
                secrets: told,
            },
        })
    }

    /// What writes the summaries of a tool's conversations, where it may need some; `Err`: why it cannot.
    fn summarizer(
        &self,
        manifest: &Manifest,
        secrets: &Secrets,
    ) -> Option<Result<Box<Summarizer>, &'static str>> {
        let context = manifest.context.as_ref();
        let context = context.filter(|context| context.strategy.has_summary())?;
        let other = context
            .summary_tool
            .as_ref()
            .filter(|name| **name != manifest.name);
        let newest = other.map(|name| self.registry.current(name));
        let writer = match &newest {
            None => manifest,
            Some(Some(tool)) => &tool.manifest,
            Some(None) => return Some(Err("no_tool")),
        };
        let (ExecutorSpec::Chat(spec), ExecutorSpec::Chat(of)) =
            (&writer.executor, &manifest.executor)
        else {
            return Some(Err("no_chat_tool"));
        };
        // What it costs is the conversation's.
        let budget = self.budget(manifest);
        if !budget.as_ref().is_none_or(|budget| budget.counts(spec, of)) {
            return Some(Err("no_price"));
        }
        let edits = EditSpecs::none(&self.edits, &self.registry);
        let attempt = self.attempt(writer, spec, secrets, edits, budget);
        let attempt = attempt.map_err(|_lacking| "no_secret");
        Some(attempt.map(|attempt| {
            Box::new(Summarizer {
                tool: writer.name.clone(),
                spec: spec.clone(),
                attempt,
            })
        }))
    }
}

fn url(text: &str) -> Result<Url, ToolFailure> {
    Url::parse(text).map_err(|_unfit| {
        defect(Message::fixed(
            "the URL of a route in the manifest cannot be read",
            "无法读取清单中某个路由的 URL",
        ))
    })
}

/// The headers of a route; the secrets among them are added to `told`.
fn route_headers(
    dialect: &dyn Dialect,
    route: &ChatRoute,
    secrets: &Secrets,
    told: &mut Vec<SecretString>,
) -> Result<HeaderMap, ToolFailure> {
    let mut headers = HeaderMap::new();
    let json = HeaderValue::from_static("application/json");
    headers.insert(ACCEPT, json.clone());
    headers.insert(CONTENT_TYPE, json);
    for (name, value) in dialect.headers() {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
    for (name, text) in &route.headers {
        let name = header_name(name)?;
        let part = Part::read(text, secrets)?;
        if let Some(value) = part.header_value(&name, &Map::new())? {
            headers.insert(name, value);
        }
        if let Part::Secret(secret) = part {
            told.push(secret);
        }
    }
    Ok(headers)
}
