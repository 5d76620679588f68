//! Tools of MCP servers: one `tools/call`, and what its answer proves.
//!
//! `message` is what goes out and comes in, `headers` what goes beside it over HTTP, `answer` what an answer means; these are pure.
//! `way` is how a server is reached. `http` and `stdio` carry requests (`stream` reads an answer in events, `serving` and `line`
//! what a program writes), `peer` learns what a server is, with its `list` of tools and the `definition` of each; `link` keeps that
//! between attempts as a `connection`, and the `shared_program` of calls; `task` follows a call that a server goes on with;
//! `discover` looks at what there is. `skim` knows what a message is that is too large to be kept, `aside` reads what is long
//! elsewhere. This file makes one attempt of it.

mod answer;
mod aside;
mod came;
mod connection;
mod cut;
mod definition;
mod discover;
mod headers;
mod hear;
mod http;
mod late;
mod line;
mod link;
mod list;
mod message;
mod peer;
mod serving;
mod shared_program;
pub(in crate::executors) mod skim;
mod standing;
mod stdio;
mod story;
mod stream;
mod task;
mod way;

use std::{sync::Arc, time::Duration};

use fleet::{
    call::Effect,
    egress::Egress,
    ids::ServerName,
    manifest::{ExecutorSpec, Lifetime, Manifest, McpServer, McpSpec, McpTransport},
    outcome::{Outcome, ToolFailure},
    registry::Registry,
    said,
    secrets::Secrets,
    telemetry::metrics,
    wire::code::Code,
};
use futures_util::{FutureExt, future::BoxFuture};
use secrecy::SecretString;
use serde_json::{Value, json, value::RawValue};
use tokio::time::Instant;

use self::{
    answer::{AnswerRules, CallResult},
    came::Came,
    connection::Greeting,
    cut::AttemptEnd,
    hear::Hear,
    http::Clients,
    late::{Became, LateAnswer},
    link::{Ready, ServerLink, ServerLinks},
    message::{CallParams, Request},
    peer::{Carrier, Peer},
    stdio::ServerProcess,
    way::ServerWay,
};
use super::{
    AttemptContext, Executor, Prepared, Returned,
    http::{HttpExecutorError, transport},
    process::{GuardCommand, ProcessExecutor},
    redact::{hidden, redact, veil},
};
use crate::programs::Programs;

/// How old a list of tools is at least that is read again before a call fails for what it says: calls of a tool that has changed
/// must not have a long list read for each.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Runs tools of MCP servers.
#[derive(Debug, Clone)]
pub struct McpExecutor {
    registry: Registry,
    clients: Clients,
    guard: Option<Arc<GuardCommand>>,
    links: Arc<ServerLinks>,
    /// The slots that programs take which are started to be looked at; `None`: there is no bound.
    programs: Option<Programs>,
}

impl McpExecutor {
    /// The servers that `registry` knows, reached where `egress` allows it; those on stdio under the guards of `programs`.
    ///
    /// # Errors
    ///
    /// No TLS provider is installed in this process, or there are no CA certificates.
    pub fn new(
        registry: Registry,
        egress: Egress,
        programs: &ProcessExecutor,
    ) -> Result<Self, HttpExecutorError> {
        Ok(Self {
            registry,
            clients: Clients {
                reads: transport::reading(&egress)?,
                writes: transport::writing(&egress)?,
                egress,
            },
            guard: programs.guard_command(),
            links: Arc::default(),
            programs: None,
        })
    }

    /// Has programs that are started to be looked at take slots of these.
    #[must_use]
    pub(crate) fn taking_slots_of(mut self, programs: Programs) -> Self {
        drop(self.links.programs.set(programs.clone()));
        self.programs = Some(programs);
        self
    }

    fn server(&self, name: &ServerName) -> Result<Arc<McpServer>, ToolFailure> {
        self.registry.mcp_server(name).ok_or_else(|| {
            let what = said!(
                "this worker does not know the MCP server {name}",
                "这个 worker 不认识 MCP 服务器 {name}"
            );
            ToolFailure::new(Code::Unavailable, what)
        })
    }

    fn way(
        &self,
        server: &McpServer,
        secrets: &Secrets,
    ) -> Result<(ServerWay, Vec<SecretString>), ToolFailure> {
        ServerWay::to(server, secrets, &self.clients, self.guard.as_ref())
    }
}

/// Whether each call has a program of its own.
fn has_own_program(server: &McpServer) -> bool {
    matches!(
        server.transport,
        McpTransport::Stdio {
            lifetime: Lifetime::Call,
            ..
        }
    )
}

fn spec(manifest: &Manifest) -> Result<&McpSpec, ToolFailure> {
    match &manifest.executor {
        ExecutorSpec::Mcp(spec) => Ok(spec),
        other => {
            let kind = other.kind();
            let what = said!(
                "a {kind} tool was given to the mcp executor",
                "一个 {kind} 工具被交给了 mcp 执行器"
            );
            Err(ToolFailure::new(Code::ToolGone, what))
        }
    }
}

impl Executor for McpExecutor {
    fn is_program(&self, manifest: &Manifest) -> bool {
        let server = spec(manifest).and_then(|spec| self.server(&spec.server));
        server.is_ok_and(|server| has_own_program(&server))
    }

    fn check(&self, manifest: &Manifest, secrets: &Secrets) -> Result<(), ToolFailure> {
        metrics().has_pinned_tool(&manifest.name);
        let server = self.server(&spec(manifest)?.server)?;
        self.way(&server, secrets).map(drop)
    }

    fn prepare(
        &self,
        manifest: &Manifest,
        arguments: &Value,
        secrets: &Secrets,
    ) -> Result<Box<dyn Prepared>, ToolFailure> {
        let spec = spec(manifest)?.clone();
        let server = self.server(&spec.server)?;
        let (way, masked) = self.way(&server, secrets)?;
        let idempotency = manifest.idempotency.as_ref();
        Ok(Box::new(McpAttempt {
            link: self.links.of(&server),
            links: Arc::clone(&self.links),
            way,
            arguments: arguments.clone(),
            key_argument: idempotency.and_then(|how| how.argument.clone()),
            redact_results: manifest.redact_results,
            rules: AnswerRules {
                effect: manifest.effect,
                errors: spec.errors,
                form: manifest.output,
                output_limit: manifest.output_limit,
                secrets: masked,
            },
            spec,
        }))
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        self.links.clear();
        self.links.tasks.close();
        self.links.tasks.wait().boxed()
    }
}

struct McpAttempt {
    link: Arc<ServerLink>,
    links: Arc<ServerLinks>,
    way: ServerWay,
    spec: McpSpec,
    arguments: Value,
    key_argument: Option<String>,
    rules: AnswerRules,
    redact_results: bool,
}

impl Prepared for McpAttempt {
    fn run(mut self: Box<Self>, context: AttemptContext) -> BoxFuture<'static, Returned> {
        if let (Some(name), Value::Object(members)) =
            (self.key_argument.take(), &mut self.arguments)
        {
            members.insert(name, Value::String(context.idempotency_key.clone()));
        }
        async move { self.attempt(&context).await }.boxed()
    }
}

impl McpAttempt {
    async fn attempt(&mut self, context: &AttemptContext) -> Returned {
        let cut = AttemptEnd::of(context);
        if let Some(why) = cut.is_over() {
            return Outcome::NotStarted(answer::before_anything(why)).into();
        }
        let mut ready = match self.ready_with_tool(&cut).await {
            Ok(ready) => ready,
            Err(failure) => {
                // It has what the program said last.
                let secrets = self.link.masks(&self.rules.secrets);
                let masked = failure.reworded(|text| redact(text, &secrets));
                let outcome = Outcome::NotStarted(masked);
                return self.noted(outcome, &cut).into();
            }
        };
        self.rules.secrets = std::mem::take(&mut ready.masked);
        let hidden = hidden(self.rules.secrets.clone(), self.redact_results);
        context.progress.hide(&hidden);
        let hear = Hear {
            progress: context.progress.clone(),
            token: context.attempt_id.to_string(),
            secrets: self.rules.secrets.clone(),
            stale: Arc::clone(&self.link.stale),
        };
        let (outcome, late) = self.call(&ready, context, &cut, &hear).await;
        let returned = self.settle(ready, outcome, late).await;
        Returned {
            outcome: veil(self.noted(self.masked(returned.outcome), &cut), &hidden),
            ..returned
        }
    }

    /// The outcome without secrets in its failure: a program may have written them before it ended.
    fn masked(&self, outcome: Outcome) -> Outcome {
        outcome.reworded(|text| redact(text, &self.rules.secrets))
    }

    /// The outcome with the server's name. Whether the server works is noted for the log.
    fn noted(&self, outcome: Outcome, cut: &AttemptEnd) -> Outcome {
        let server = &self.link.server.name;
        let outcome = standing::named(outcome, server);
        match &outcome {
            // Not what became of one call: a tool that fails beside others that work would have a line for each.
            Outcome::NotStarted(failure)
                if matches!(failure.code, Code::Unavailable | Code::Timeout) =>
            {
                if cut.stop.asked().is_none() {
                    self.link.trouble.began(server, failure.code);
                }
            }
            Outcome::NotStarted(_) => {}
            Outcome::Applied { .. } | Outcome::DefiniteFailure(_) | Outcome::Unknown(_) => {
                self.link.trouble.is_over(server);
            }
        }
        outcome
    }

    /// The server, ready to be asked. Where what it said of the tool before this attempt is not what was applied, it is asked again first:
    /// it may have been put back.
    async fn ready_with_tool(&self, cut: &AttemptEnd) -> Result<Ready, ToolFailure> {
        let began = Instant::now();
        let ready = self.ready(cut).await?;
        let connection = &ready.connection;
        let is_older = connection.listed_at < began && connection.listed_at.elapsed() >= LOOK_AGAIN;
        let on_change = self.link.server.on_change;
        if is_older && connection.has_changed(&self.spec, on_change) {
            self.link.outdated(connection);
            drop(ready);
            return self.ready(cut).await;
        }
        Ok(ready)
    }

    /// The server, ready to be asked.
    async fn ready(&self, cut: &AttemptEnd) -> Result<Ready, ToolFailure> {
        let (link, masked) = (&self.link, &self.rules.secrets);
        match &self.way {
            ServerWay::Stdio(way) if has_own_program(&link.server) => {
                let hear = Hear {
                    stale: Arc::clone(&link.stale),
                    ..Hear::default()
                };
                link.own(way, masked, &self.links.tasks, cut, &hear).await
            }
            way => link.ready(way, masked, &self.links, cut).await,
        }
    }

    /// Makes the call. Beside what it came to: what may still come of a write that a shared program has not answered.
    async fn call(
        &self,
        ready: &Ready,
        context: &AttemptContext,
        cut: &AttemptEnd,
        hear: &Hear,
    ) -> (Outcome, Option<LateAnswer>) {
        let Ready {
            carrier,
            connection,
            ..
        } = ready;
        let mirrored =
            match connection.tool(&self.spec, self.link.server.on_change, &self.link.said) {
                Ok(mirrored) => mirrored,
                // Nothing was started, and nothing will be: no other worker would see another tool.
                Err(failure) => {
                    if failure.code == Code::ToolChanged {
                        metrics().tool_changed(&context.tool);
                    }
                    return (Outcome::DefiniteFailure(failure), None);
                }
            };
        let peer = Peer {
            carrier,
            ids: &self.link.ids,
            cut,
            hear,
        };
        let arguments = self.arguments.to_string();
        let arguments = RawValue::from_string(arguments).expect("arguments are JSON");
        let asked = context.asked.as_deref();
        let responses = asked.and_then(|asked| responses(asked.input.as_deref()?));
        let params = CallParams {
            name: &self.spec.tool,
            arguments: &arguments,
            input_responses: responses.as_deref(),
            request_state: asked.and_then(|asked| asked.state.as_deref()),
        };
        let greeting = &connection.greeting;
        let id = peer.next_id();
        let meta = message::facts(context);
        let request = Request::new(id, "tools/call", &params, greeting.revision, meta);
        let request = request.named(&self.spec.tool);
        let headers = match &self.arguments {
            Value::Object(arguments) => mirrored.headers(arguments).collect(),
            _other => Vec::new(),
        };
        let is_over_http = matches!(carrier, Carrier::Http(_));
        if is_over_http && headers::are_too_large(&headers) {
            return (Outcome::DefiniteFailure(headers::too_large()), None);
        }
        let (is_write, limit) = (self.rules.effect != Effect::Read, self.rules.output_limit);
        let came = peer
            .exchange(&request, greeting, headers, is_write, limit)
            .await
            .came;
        let mut late = None;
        if matches!(came, Came::CutOff(_)) {
            if let Some(process) = self.may_do_it_yet(ready) {
                late = Some(LateAnswer::of(process, id, limit));
            }
            self.withdraw(&peer, greeting, id).await;
        } else if came.is_of_another_server() {
            self.link.forget(connection);
        } else if came.may_be_of_another_server() {
            self.link.doubt(connection);
        }
        let is_answered = matches!(came, Came::Answer(_) | Came::TooLarge(..));
        match self.rules.class(came) {
            CallResult::Over(outcome) if is_answered || late.is_some() => (outcome, late),
            CallResult::Over(outcome) => {
                let late = self.doubts(ready, &outcome);
                (outcome, late)
            }
            CallResult::Task(task) => {
                let followed = task::follow(task, &self.rules, &peer, greeting, limit);
                let outcome = followed.await;
                let late = self.doubts(ready, &outcome);
                (outcome, late)
            }
        }
    }

    /// The program that may still do what was taken back from it: a shared one, of a write. One of a single call ends with that.
    fn may_do_it_yet<'r>(&self, ready: &'r Ready) -> Option<&'r Arc<ServerProcess>> {
        match &ready.carrier {
            Carrier::Stdio(process) if !ready.is_own && self.rules.effect != Effect::Read => {
                Some(process)
            }
            Carrier::Stdio(_) | Carrier::Http(_) => None,
        }
    }

    /// The same where the outcome says so, and no other answer will come.
    fn doubts(&self, ready: &Ready, outcome: &Outcome) -> Option<LateAnswer> {
        let process = self.may_do_it_yet(ready)?;
        matches!(outcome, Outcome::Unknown(_)).then(|| LateAnswer::of_task(process))
    }

    /// Tells a server on stdio that nobody waits any more. Over HTTP the closed connection says it, and to a server of the older revision
    /// a message.
    async fn withdraw(&self, peer: &Peer<'_>, greeting: &Greeting, id: u64) {
        let is_told = match peer.carrier {
            Carrier::Stdio(_) => true,
            Carrier::Http(_) => greeting.revision != message::Revision::Modern,
        };
        if is_told {
            let params = json!({ "requestId": id, "reason": "the caller does not wait any more" });
            peer.tell("notifications/cancelled", &params, greeting)
                .await;
        }
    }

    /// What is left of the attempt. A program that is the attempt's own ends with it. A shared one that has not answered a write takes
    /// nothing new and ends with its other calls, for until it is gone nothing says that it will not do it yet. One that has answered is
    /// done with it, whatever is known of the effect.
    async fn settle(&self, ready: Ready, outcome: Outcome, late: Option<LateAnswer>) -> Returned {
        let all_gone = match (ready.carrier, late) {
            (Carrier::Stdio(process), Some(late)) => {
                return self.became(late.wait(process, &self.link).await, outcome);
            }
            (carrier, _) if ready.is_own => carrier.end().await,
            (_, _) => true,
        };
        Returned {
            left_behind: !all_gone,
            ..outcome.into()
        }
    }

    /// What a write that was taken back has become. An answer that does not say it leaves the reason why it was taken back.
    fn became(&self, became: Became, outcome: Outcome) -> Returned {
        let left_behind = matches!(became, Became::LivesOn);
        let outcome = match became {
            Became::Answered(came) => match self.rules.class(came) {
                CallResult::Over(Outcome::Unknown(_) | Outcome::NotStarted(_))
                | CallResult::Task(_) => outcome,
                CallResult::Over(known) => known,
            },
            Became::Gone | Became::LivesOn => outcome,
        };
        Returned {
            left_behind,
            ..outcome.into()
        }
    }
}

/// What a caller gave, as the protocol has it: what is behind `inputResponses`, or else all of it.
fn responses(input: &RawValue) -> Option<Box<RawValue>> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Given {
        input_responses: Box<RawValue>,
    }
    match serde_json::from_str::<Given>(input.get()) {
        Ok(given) => Some(given.input_responses),
        Err(_other) => RawValue::from_string(input.get().to_owned()).ok(),
    }
}
