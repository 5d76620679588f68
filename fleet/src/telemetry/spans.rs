//! The spans of a call's life, made in one place so that their names and attributes are the same everywhere.
//!
//! A span per step is `debug`: it costs nothing unless it is exported or logged. The attempt's span is `info`: it has the
//! identity that every log line inside inherits.

use tracing::{Level, Span, debug_span, field::Empty, info_span};

use super::fields;
use crate::{
    call::words,
    ids::{CallId, ToolName, WorkerId},
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
