//! Names of span attributes, log fields and metric labels. Dashboards and queries rely on them: a change is a break.
//!
//! Our own are under `toolfleet.`; standard ones keep their standard names. Both conventions are still in development, so their
//! versions are pinned here, and moving to a newer one is one commit in this file and in `docs/telemetry.md`:
//!
//! - messaging: `open-telemetry/semantic-conventions`, `docs/messaging/messaging-spans.md` at 001e4f4
//!   (the operation type is `publish`; later texts say `send`);
//! - generative AI: the same repository, `docs/gen-ai/gen-ai-spans.md` at 01d9450.

/// The call's id.
pub const CALL_ID: &str = "toolfleet.call.id";
/// The attempt's number, from 1.
pub const ATTEMPT: &str = "toolfleet.attempt";
/// The step of a call's life, a word of [`super::spans::Step`].
pub const STEP: &str = "toolfleet.step";
/// The random id of one worker process start.
pub const WORKER_ID: &str = "toolfleet.worker.id";

/// The stable error code, a word of [`crate::wire::code::Code`].
pub const ERROR_TYPE: &str = "error.type";

/// The messaging system: always [`NATS`].
pub const MESSAGING_SYSTEM: &str = "messaging.system";
/// The value of [`MESSAGING_SYSTEM`].
pub const NATS: &str = "nats";
/// The operation, in the system's words: [`PUBLISH`].
pub const MESSAGING_OPERATION_NAME: &str = "messaging.operation.name";
/// The operation, in the convention's words: [`PUBLISH`].
pub const MESSAGING_OPERATION_TYPE: &str = "messaging.operation.type";
/// A message was handed to the server.
pub const PUBLISH: &str = "publish";
/// The subject up to the queue, or the stream: never with an id in it.
pub const MESSAGING_DESTINATION_NAME: &str = "messaging.destination.name";

/// What the generative AI convention calls the operation: always [`EXECUTE_TOOL`].
pub const GEN_AI_OPERATION_NAME: &str = "gen_ai.operation.name";
/// The value of [`GEN_AI_OPERATION_NAME`], and the first word of the span's name.
pub const EXECUTE_TOOL: &str = "execute_tool";
/// The tool's name.
pub const GEN_AI_TOOL_NAME: &str = "gen_ai.tool.name";
/// The call's id, under its standard name.
pub const GEN_AI_TOOL_CALL_ID: &str = "gen_ai.tool.call.id";

/// The value of [`GEN_AI_OPERATION_NAME`] of a request to a model, and the first word of its span's name.
pub const CHAT: &str = "chat";
/// Whose requests and answers a model speaks: `openai` or `anthropic`, whoever serves it.
pub const GEN_AI_PROVIDER_NAME: &str = "gen_ai.provider.name";
/// The model that is asked for, as the manifest has it.
pub const GEN_AI_REQUEST_MODEL: &str = "gen_ai.request.model";
/// The model that answered, as it says.
pub const GEN_AI_RESPONSE_MODEL: &str = "gen_ai.response.model";
/// Tokens that were read.
pub const GEN_AI_USAGE_INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// Tokens that were written.
pub const GEN_AI_USAGE_OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// Metric label: `input` or `output`.
pub const GEN_AI_TOKEN_TYPE: &str = "gen_ai.token.type";
/// The name of a route to a model.
pub const MODEL_ROUTE: &str = "toolfleet.route";

/// Read by the bridge to OpenTelemetry: the span's name, where it is not a constant.
pub const OTEL_NAME: &str = "otel.name";
/// Read by the bridge to OpenTelemetry: the span's kind.
pub const OTEL_KIND: &str = "otel.kind";
/// Read by the bridge to OpenTelemetry: `ERROR` marks the span as failed.
pub const OTEL_STATUS_CODE: &str = "otel.status_code";

/// Metric label: the tool's name, or `other` past the cap.
pub const TOOL: &str = "tool";
/// Metric label: the outcome of an attempt, a word of [`crate::outcome::OutcomeWord`], or of a call, one of
/// [`crate::call::CallOutcome`].
pub const OUTCOME: &str = "outcome";
/// Metric label: where the answer to a call comes from, a word of [`crate::call::Source`].
pub const SOURCE: &str = "source";
/// Metric label: what was decided about a call that waits for a yes, a word of [`crate::store::approvals::Ruling`].
pub const DECISION: &str = "decision";
/// Metric label: whose key named the call already, the caller's or one from the arguments.
pub const KEY: &str = "key";
/// Metric label: the queue's name.
pub const QUEUE: &str = "queue";
/// Metric label: why a pointer did not become an attempt.
pub const REASON: &str = "reason";
/// Metric label: the name of an interceptor of the worker's program.
pub const INTERCEPTOR: &str = "interceptor";
/// Metric label: what an interceptor said of a call.
pub const VERDICT: &str = "verdict";
/// Metric label: how an argument was changed, a word of [`crate::arguments::Rule`].
pub const RULE: &str = "rule";
/// Metric label: what NATS was told about a message.
pub const SETTLEMENT: &str = "settlement";
/// Metric label: which pass of the sweep.
pub const PASS: &str = "pass";
/// Metric label: a server that the process needs, `nats` or `postgres`.
pub const SERVER: &str = "server";
/// Metric label: who speaks in an answer over HTTP: `call`, `door` or `gateway`.
pub const SPEAKER: &str = "speaker";
/// Metric label: the status of an answer over HTTP.
pub const STATUS: &str = "status";
/// Metric label: the method of a request over MCP, or `other` where no such method is served.
pub const METHOD: &str = "method";
/// Metric label: what an answer over MCP came to, `ok`, `open`, a word of [`crate::wire::code::Code`], or `other`.
pub const CODE: &str = "code";
/// Metric label: which statement of the ledger.
pub const STATEMENT: &str = "statement";
/// Metric label: whether a statement without an answer had been executed.
pub const FOUND: &str = "found";
/// Metric label: the name of a route to a model.
pub const ROUTE: &str = "route";
/// Metric label: which tokens of a request to a model.
pub const KIND: &str = "kind";
/// Metric label: a currency, as the price of a route has it.
pub const CURRENCY: &str = "currency";
/// Metric label: for whom a call waits outside the fleet, a word of [`crate::call::Awaiting`].
pub const FOR: &str = "for";
/// Metric label: the state of a call, a word of [`crate::call::State`].
pub const STATE: &str = "state";
