//! Trace context in NATS headers, the row and the tool (W3C Trace Context).

use serde::{Deserialize, Serialize};

/// The three headers of a trace, as they came. The door drops malformed ones and never refuses them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    /// `traceparent`: version, trace id, parent span id, flags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// `tracestate`: vendor data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
    /// `baggage`: the caller's own pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baggage: Option<String>,
}

impl TraceContext {
    /// The most bytes `tracestate` and `baggage` may have; longer ones are dropped.
    pub const EXTRA_MAX: usize = 1024;

    /// Keeps the well-formed ones.
    pub fn from_headers(mut get: impl FnMut(&str) -> Option<String>) -> Self {
        let extra = |value: Option<String>| {
            value.filter(|text| {
                text.len() <= Self::EXTRA_MAX
                    && text.bytes().all(|b| matches!(b, b' '..=b'~' | b'\t'))
            })
        };
        let traceparent = get("traceparent").filter(|text| Self::is_traceparent(text));
        let follows = traceparent.is_some();
        Self {
            traceparent,
            tracestate: extra(get("tracestate")).filter(|_| follows),
            baggage: extra(get("baggage")),
        }
    }

    /// The trace id, 32 hexadecimal digits.
    pub fn trace_id(&self) -> Option<&str> {
        self.traceparent.as_deref().map(|text| &text[3..35])
    }

    fn is_traceparent(text: &str) -> bool {
        let hex = |part: &str| part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let nonzero = |part: &str| part.bytes().any(|b| b != b'0');
        let parts: Vec<&str> = text.split('-').collect();
        matches!(parts.as_slice(), [version, trace, span, flags]
            if *version == "00" && trace.len() == 32 && span.len() == 16 && flags.len() == 2
            && hex(trace) && hex(span) && hex(flags) && nonzero(trace) && nonzero(span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_postgres_could_not_store_is_dropped() {
        for bad in ["a=\0", "a=\u{1b}[2J", "a=\u{e9}"] {
            let read =
                TraceContext::from_headers(|name| (name == "baggage").then(|| bad.to_owned()));
            assert_eq!(read.baggage, None, "{bad:?}");
        }
    }

    #[test]
    fn a_malformed_parent_is_dropped_with_its_state() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let read = |parent: &str| {
            TraceContext::from_headers(|name| match name {
                "traceparent" => Some(parent.to_owned()),
                "tracestate" => Some("a=1".to_owned()),
                _ => None,
            })
        };
        assert_eq!(
            read(good).trace_id(),
            Some("0af7651916cd43dd8448eb211c80319c")
        );
        assert_eq!(read(good).tracestate.as_deref(), Some("a=1"));
        for bad in [
            "",
            "00-0-0-01",
            "xx",
            &good.to_uppercase(),
            &good.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
        ] {
            assert_eq!(read(bad), TraceContext::default(), "{bad}");
        }
    }
}
