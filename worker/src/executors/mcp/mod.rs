//! Tools of MCP servers: one `tools/call`, and what its answer proves.
//!
//! `message` is what goes out and comes in, `headers` what goes beside it over HTTP, `answer` what an answer means; these are pure.
//! `http` and `stdio` carry requests, `peer` learns what a server is, `link` keeps that between attempts, `task` follows a call that a
//! server goes on with. `skim` knows what a message is that is too large to be kept. This file makes one attempt of it.

mod answer;
mod came;
mod cut;
mod headers;
mod hear;
mod http;
mod link;
mod message;
mod peer;
pub(in crate::executors) mod skim;
mod stdio;
mod task;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use fleet::{
    call::Effect,
    egress::Egress,
    ids::ServerName,
    manifest::{ExecutorSpec, Manifest, McpServer, McpSpec, McpTransport},
    outcome::{Outcome, ToolFailure},
    registry::Registry,
    said,
    secrets::Secrets,
    telemetry::metrics,
    wire::{code::Code, message::Message},
};
use futures_util::{FutureExt, future::BoxFuture};
use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json, value::RawValue};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::{
    answer::{AnswerRules, CallResult},
    came::Came,
    cut::AttemptEnd,
    hear::Hear,
    http::{Clients, HttpTarget},
    link::{Ready, ServerLink, ServerLinks, ServerWay},
    message::{CallParams, Request},
    peer::{Carrier, Peer},
    stdio::ServerProcess,
};
use super::{
    AttemptContext, Executor, Prepared, Returned, Stop,
    http::{HttpExecutorError, transport},
    process::{GuardCommand, ProcessExecutor},
    redact::{hidden, missing_secret, veil, veiled},
};

/// Runs tools of MCP servers.
#[derive(Debug, Clone)]
pub struct McpExecutor {
    registry: Registry,
    clients: Clients,
    guard: Option<Arc<GuardCommand>>,
    links: Arc<ServerLinks>,
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
        })
    }

    /// What a server says of its tools, now: over a connection, or with a process, of its own.
    ///
    /// # Errors
    ///
    /// It cannot be reached, or does not say.
    pub(crate) async fn discover(
        &self,
        server: &ServerName,
        secrets: &Secrets,
        until: Instant,
    ) -> Result<Vec<Value>, ToolFailure> {
        let server = self.server(server)?;
        let (way, masked) = self.way(&server, secrets)?;
        let hear = Hear::default();
        let cut = AttemptEnd {
            until,
            stop: Stop::under(CancellationToken::new()),
        };
        let carrier = match way {
            ServerWay::Http(target) => Carrier::Http(target),
            ServerWay::Stdio {
                guard,
                command,
                env,
            } => {
                let stale = Arc::default();
                Carrier::Stdio(ServerProcess::start(
                    &guard,
                    &command,
                    &env,
                    &stale,
                    &self.links.tasks,
                )?)
            }
        };
        let peer = Peer {
            carrier: &carrier,
            ids: &AtomicU64::new(1),
            cut: &cut,
            hear: &hear,
        };
        let found = peer.connect().await;
        carrier.end().await;
        let without_secrets = |definition: Value| {
            let text = veiled(&definition.to_string(), &masked);
            text.and_then(|text| serde_json::from_str(&text).ok())
                .unwrap_or(definition)
        };
        found.map(|(_, definitions)| definitions.into_iter().map(without_secrets).collect())
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
        let is_secret = |value: &str| value.starts_with(Secrets::SCHEME);
        let resolve = |value: &str| {
            secrets
                .resolve(value)
                .map_err(|error| missing_secret(&error))
        };
        let mut masked = Vec::new();
        match &server.transport {
            McpTransport::Http { url, headers } => {
                let url = Url::parse(url).map_err(|_unfit| {
                    ToolFailure::new(
                        Code::ToolGone,
                        Message::fixed(
                            "the URL of the MCP server cannot be used: correct its manifest",
                            "MCP 服务器的 URL 无法使用：请修改它的清单",
                        ),
                    )
                })?;
                let mut fields = HeaderMap::new();
                for (name, value) in headers {
                    let secret = resolve(value)?;
                    fields.insert(header_name(name)?, header_value(name, &secret)?);
                    if is_secret(value) {
                        masked.push(secret);
                    }
                }
                let target = HttpTarget {
                    clients: self.clients.clone(),
                    url,
                    headers: fields,
                };
                Ok((ServerWay::Http(Box::new(target)), masked))
            }
            McpTransport::Stdio { command, env, .. } => {
                let guard = self.guard.clone().ok_or_else(|| {
                    let what = Message::fixed(
                        "this worker has no guard_program, so it runs no MCP servers on stdio",
                        "这个 worker 没有 guard_program，不能运行 stdio 上的 MCP 服务器",
                    );
                    ToolFailure::new(Code::Unavailable, what)
                })?;
                let mut resolved = std::collections::BTreeMap::new();
                for (name, value) in env {
                    let secret = resolve(value)?;
                    if is_secret(value) {
                        masked.push(secret.clone());
                    }
                    resolved.insert(name.clone(), secret);
                }
                let way = ServerWay::Stdio {
                    guard,
                    command: command.clone(),
                    env: resolved,
                };
                Ok((way, masked))
            }
        }
    }
}

fn header_name(name: &str) -> Result<HeaderName, ToolFailure> {
    HeaderName::from_bytes(name.as_bytes()).map_err(|_unfit| {
        let what = said!(
            "{name:?} in the manifest of the MCP server is not a header name",
            "MCP 服务器清单中的 {name:?} 不是请求头的名字"
        );
        ToolFailure::new(Code::ToolGone, what)
    })
}

fn header_value(name: &str, secret: &SecretString) -> Result<HeaderValue, ToolFailure> {
    let text = secret.expose_secret();
    let value = HeaderValue::from_bytes(text.as_bytes())
        .ok()
        .filter(|_| !text.chars().any(char::is_control));
    let mut value = value.ok_or_else(|| {
        let what = said!(
            "the value for the header {name} holds a control character: store it without",
            "请求头 {name} 的值含有控制字符：请去掉后再存"
        );
        ToolFailure::new(Code::Unavailable, what)
    })?;
    value.set_sensitive(true);
    Ok(value)
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
            hidden: hidden(masked.clone(), manifest.redact_results),
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
    /// Masked in the answer.
    hidden: Vec<SecretString>,
}

impl Prepared for McpAttempt {
    fn run(mut self: Box<Self>, context: AttemptContext) -> BoxFuture<'static, Returned> {
        if let (Some(name), Value::Object(members)) =
            (self.key_argument.take(), &mut self.arguments)
        {
            members.insert(name, Value::String(context.idempotency_key.clone()));
        }
        async move {
            let hidden = std::mem::take(&mut self.hidden);
            context.progress.hide(&hidden);
            let returned = self.attempt(&context).await;
            Returned {
                outcome: veil(returned.outcome, &hidden),
                ..returned
            }
        }
        .boxed()
    }
}

impl McpAttempt {
    async fn attempt(&self, context: &AttemptContext) -> Returned {
        let cut = AttemptEnd::of(context);
        if let Some(why) = cut.is_over() {
            return Outcome::NotStarted(answer::before_anything(why)).into();
        }
        let hear = Hear {
            progress: context.progress.clone(),
            token: context.attempt_id.to_string(),
            secrets: self.rules.secrets.clone(),
            stale: Arc::clone(&self.link.stale),
        };
        let ready = self
            .link
            .ready(&self.way, &self.links.tasks, &cut, &hear)
            .await;
        let ready = match ready {
            Ok(ready) => ready,
            Err(failure) => return Outcome::NotStarted(failure).into(),
        };
        let (outcome, is_answered) = self.call(&ready, context, &cut, &hear).await;
        self.settle(&ready, outcome, is_answered).await
    }

    /// Makes the call. Beside what it came to: whether the server is done with it.
    async fn call(
        &self,
        ready: &Ready,
        context: &AttemptContext,
        cut: &AttemptEnd,
        hear: &Hear,
    ) -> (Outcome, bool) {
        let Ready {
            carrier,
            connection,
            ..
        } = ready;
        let mirrored = match connection.tool(&self.spec, self.link.server.on_change) {
            Ok(mirrored) => mirrored,
            // Nothing was started, and nothing will be: no other worker would see another tool.
            Err(failure) => {
                if failure.code == Code::ToolChanged {
                    metrics().tool_changed(&context.tool);
                }
                return (Outcome::DefiniteFailure(failure), true);
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
        let (is_write, limit) = (self.rules.effect != Effect::Read, self.rules.output_limit);
        let came = peer
            .exchange(&request, greeting, headers, is_write, limit)
            .await
            .came;
        if matches!(came, Came::CutOff(_)) {
            self.withdraw(&peer, greeting, id).await;
        } else if came.is_of_another_server() {
            self.link.forget(connection).await;
        } else if came.is_about_parameters() {
            // It may not have the tool any more.
            self.link.stale.store(true, Ordering::Release);
        }
        let is_answered = matches!(came, Came::Answer(_) | Came::TooLarge(..));
        match self.rules.class(came) {
            CallResult::Over(outcome) => (outcome, is_answered),
            CallResult::Task(task) => {
                let followed = task::follow(task, &self.rules, &peer, greeting, limit);
                (followed.await, false)
            }
        }
    }

    /// Tells a server on stdio that nobody waits any more. Over HTTP the closed connection says it, and to a server of the older revision
    /// a message.
    async fn withdraw(&self, peer: &Peer<'_>, greeting: &peer::Greeting, id: u64) {
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

    /// What is left of the attempt. A program that has not answered a write ends, for until it is gone nothing says that it will not do it yet;
    /// one that is the attempt's own ends with it. One that has answered is done with it, whatever is known of the effect, and others have calls
    /// there.
    async fn settle(&self, ready: &Ready, outcome: Outcome, is_answered: bool) -> Returned {
        let is_unknown =
            self.rules.effect != Effect::Read && matches!(outcome, Outcome::Unknown(_));
        let all_gone = if (is_unknown && !is_answered) || ready.is_own {
            ready.carrier.end().await
        } else {
            true
        };
        Returned {
            left_behind: !all_gone,
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
