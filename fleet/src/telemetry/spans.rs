//! The spans of a call's life, made in one place so that their names and attributes are the same everywhere.
//!
//! A span per step is `debug`: it costs nothing unless it is exported or logged. The attempt's span is `info`: it has the
//! identity that every log line inside inherits.

use tracing::{Level, Span, debug_span, field::Empty, info_span};

use super::fields;
use crate::{
    call::words,
    ids::{CallId, ToolName, WorkerId},
    store::model_calls::EndedModelCall,
    wire::code::Code,
};

words! {
    /// The steps of a call's life, in order. The words name spans.
    Step {
        /// A request arrived.
        Accept = "accept",
        /// It is checked, and perhaps mended.
        Validate = "validate",
        /// It is written to the ledger.
        Commit = "commit",
        /// Its pointer goes to NATS.
        Publish = "publish",
        /// Checks that can refuse without an effect.
        Gate = "gate",
        /// The worker takes the call.
        Claim = "claim",
        /// The message is gone.
        Ack = "ack",
        /// The tool runs.
        Execute = "execute",
        /// The outcome is written to the ledger.
        Complete = "complete",
        /// The waiting caller is told.
        Reply = "reply",
    }
}

/// The span of one step.
pub fn step(step: Step) -> Span {
    macro_rules! named {
        ($name:literal) => {
            debug_span!(
                $name,
                { fields::STEP } = step.as_str(),
                { fields::CALL_ID } = Empty,
                { fields::ERROR_TYPE } = Empty,
                { fields::OTEL_STATUS_CODE } = Empty
            )
        };
    }
    match step {
        Step::Accept => named!("accept"),
        Step::Validate => named!("validate"),
        Step::Commit => named!("commit"),
        Step::Publish => named!("publish"),
        Step::Gate => named!("gate"),
        Step::Claim => named!("claim"),
        Step::Ack => named!("ack"),
        Step::Execute => named!("execute"),
        Step::Complete => named!("complete"),
        Step::Reply => named!("reply"),
    }
}

/// The span of one attempt, from gate to reply. Set its parent or link with [`super::trace::relate`] at once.
///
/// The number of the attempt is known after the claim: record it with [`numbered`].
pub fn attempt(call: CallId, tool: &ToolName, worker: WorkerId) -> Span {
    info_span!(
        "attempt",
        { fields::CALL_ID } = %call,
        { fields::GEN_AI_TOOL_NAME } = tool.as_str(),
        { fields::WORKER_ID } = %worker,
        { fields::ATTEMPT } = Empty,
        { fields::ERROR_TYPE } = Empty,
        { fields::OTEL_STATUS_CODE } = Empty
    )
}

/// Writes the number of the attempt, from 1, on its span.
pub fn numbered(span: &Span, attempt: u32) {
    span.record(fields::ATTEMPT, attempt);
}

/// Writes the call's id on the span of a step that began before the call had one.
pub fn identify(span: &Span, call: CallId) {
    span.record(fields::CALL_ID, tracing::field::display(call));
}

/// The standard span around the tool itself: `execute_tool {tool}`.
pub fn execute_tool(call: CallId, tool: &ToolName) -> Span {
    debug_span!(
        "execute_tool",
        { fields::OTEL_NAME } = format!("{} {tool}", fields::EXECUTE_TOOL),
        { fields::OTEL_KIND } = "internal",
        { fields::GEN_AI_OPERATION_NAME } = fields::EXECUTE_TOOL,
        { fields::GEN_AI_TOOL_NAME } = tool.as_str(),
        { fields::GEN_AI_TOOL_CALL_ID } = %call,
        { fields::ERROR_TYPE } = Empty,
        { fields::OTEL_STATUS_CODE } = Empty
    )
}

/// A model that is asked, in the words of metrics and spans: all of a manifest.
#[derive(Debug, Clone, Copy)]
pub struct AskedModel<'a> {
    /// The tool that asks.
    pub tool: &'a ToolName,
    /// Its route.
    pub route: &'a str,
    /// The model that is asked for.
    pub model: &'a str,
    /// Whose protocol it speaks.
    pub provider: &'static str,
}

/// The standard span around a request to a model: `chat {model}`.
pub fn chat(call: CallId, asked: &AskedModel<'_>) -> Span {
    debug_span!(
        "chat",
        { fields::OTEL_NAME } = format!("{} {}", fields::CHAT, asked.model),
        { fields::OTEL_KIND } = "client",
        { fields::CALL_ID } = %call,
        { fields::GEN_AI_OPERATION_NAME } = fields::CHAT,
        { fields::GEN_AI_PROVIDER_NAME } = asked.provider,
        { fields::GEN_AI_REQUEST_MODEL } = asked.model,
        { fields::GEN_AI_TOOL_NAME } = asked.tool.as_str(),
        { fields::MODEL_ROUTE } = asked.route,
        { fields::GEN_AI_RESPONSE_MODEL } = Empty,
        { fields::GEN_AI_USAGE_INPUT_TOKENS } = Empty,
        { fields::GEN_AI_USAGE_OUTPUT_TOKENS } = Empty,
        { fields::ERROR_TYPE } = Empty,
        { fields::OTEL_STATUS_CODE } = Empty
    )
}

/// Writes on the span of a request what it came to.
pub fn chat_ended(span: &Span, ended: &EndedModelCall) {
    if let Some(model) = &ended.model {
        span.record(fields::GEN_AI_RESPONSE_MODEL, model.as_str());
    }
    if let Some(tokens) = &ended.tokens {
        span.record(fields::GEN_AI_USAGE_INPUT_TOKENS, tokens.input);
        span.record(fields::GEN_AI_USAGE_OUTPUT_TOKENS, tokens.output);
    }
    if let Some(code) = ended.code {
        failed(span, code);
    }
}

/// The standard span around publishing a pointer to NATS: `publish {destination}`, a subject without ids in it. The text is
/// built only if the span is recorded.
pub fn publish(destination: impl FnOnce() -> String) -> Span {
    if !tracing::span_enabled!(Level::DEBUG) {
        return Span::none();
    }
    let destination = destination();
    let destination = destination.trim_end_matches(".>");
    debug_span!(
        "publish_message",
        { fields::OTEL_NAME } = format!("{} {destination}", fields::PUBLISH),
        { fields::OTEL_KIND } = "producer",
        { fields::MESSAGING_SYSTEM } = fields::NATS,
        { fields::MESSAGING_OPERATION_NAME } = fields::PUBLISH,
        { fields::MESSAGING_OPERATION_TYPE } = fields::PUBLISH,
        { fields::MESSAGING_DESTINATION_NAME } = destination,
        { fields::ERROR_TYPE } = Empty,
        { fields::OTEL_STATUS_CODE } = Empty
    )
}

/// Marks a span of this file as failed: without it a tool that said no looks healthy.
pub fn failed(span: &Span, code: Code) {
    span.record(fields::ERROR_TYPE, code.as_str());
    span.record(fields::OTEL_STATUS_CODE, "ERROR");
}
