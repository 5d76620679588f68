//! Trace context in and out of spans (W3C Trace Context).
//!
//! Outgoing is the context of our own span when spans are exported, and otherwise the caller's, unchanged: a tool gets a
//! `traceparent` of the caller's trace either way. `baggage` is the caller's and passes through; the worker hands it
//! to tools that ask for it.

use std::collections::HashMap;

use opentelemetry::{Context, propagation::TextMapPropagator, trace::TraceContextExt};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::{OpenTelemetrySpanExt, SetParentError};

use crate::wire::trace::TraceContext;

/// How an attempt's span is related to the context in which its call was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// Part of the same trace: the caller waits for this very attempt.
    Child,
    /// A trace of its own that points back, so that a retry in an hour does not stretch the first one.
    Link,
}

impl Relation {
    /// The relation of attempt number `attempt`, from 1. `interactive`: the caller waits for the answer.
    pub const fn of(attempt: u32, interactive: bool) -> Self {
        if attempt == 1 && interactive {
            Self::Child
        } else {
            Self::Link
        }
    }
}

/// The context to pass on from inside the current span; `fallback`, the incoming one, where there is none.
pub fn current_context(fallback: &TraceContext) -> TraceContext {
    context_of(&Span::current(), fallback)
}

/// The context to pass on for `span`; `fallback`, the incoming one, where there is none.
///
/// It starts the span: call [`set_parent`] before.
pub fn context_of(span: &Span, fallback: &TraceContext) -> TraceContext {
    let context = span.context();
    if !context.span().span_context().is_valid() {
        return fallback.clone();
    }
    let mut headers = HashMap::new();
    TraceContextPropagator::new().inject_context(&context, &mut headers);
    TraceContext {
        traceparent: headers.remove("traceparent"),
        tracestate: headers
            .remove("tracestate")
            .filter(|state| !state.is_empty()),
        baggage: fallback.baggage.clone(),
    }
}

/// Joins `span` to the context in which its call was made.
pub fn relate(span: &Span, made_in: &TraceContext, relation: Relation) {
    match relation {
        Relation::Child => set_parent(span, made_in),
        Relation::Link => add_link(span, made_in),
    }
}

/// Makes `span` a child of the incoming context; does nothing without a trace or when spans are not exported.
///
/// It must come before the span has children and before [`context_of`]: a started span keeps its parent.
pub fn set_parent(span: &Span, parent: &TraceContext) {
    let Some(parent) = remote(parent) else { return };
    match span.set_parent(parent) {
        Ok(()) | Err(SetParentError::LayerNotFound | SetParentError::SpanDisabled) => {}
        Err(SetParentError::AlreadyStarted) => {
            debug_assert!(
                false,
                "set_parent comes before a span's first child and before its context is read"
            );
        }
    }
}

/// Links `span` to the incoming context; does nothing without a trace or when spans are not exported.
pub fn add_link(span: &Span, to: &TraceContext) {
    if let Some(context) = remote(to) {
        span.add_link(context.span().span_context().clone());
    }
}

fn remote(trace: &TraceContext) -> Option<Context> {
    let traceparent = trace.traceparent.clone()?;
    let mut headers = HashMap::from([("traceparent".to_owned(), traceparent)]);
    headers.extend(
        trace
            .tracestate
            .clone()
            .map(|state| ("tracestate".to_owned(), state)),
    );
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &headers);
    context.span().span_context().is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_collector_the_callers_context_passes_through() {
        let came = TraceContext {
            traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned()),
            tracestate: Some("vendor=1".to_owned()),
            baggage: Some("user=42".to_owned()),
        };
        let subscriber = tracing_subscriber::registry();
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!("attempt");
            set_parent(&span, &came);
            add_link(&span, &came);
            span.in_scope(|| assert_eq!(current_context(&came), came));
        });
        assert_eq!(current_context(&came), came);
        assert_eq!(
            current_context(&TraceContext::default()),
            TraceContext::default()
        );
    }

    #[test]
    fn only_the_first_attempt_somebody_waits_for_is_a_child() {
        assert_eq!(Relation::of(1, true), Relation::Child);
        assert_eq!(Relation::of(1, false), Relation::Link);
        assert_eq!(Relation::of(2, true), Relation::Link);
    }
}
