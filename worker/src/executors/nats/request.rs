//! The request of a call: the arguments in canonical form, and everything else as headers. Pure.

use async_nats::{HeaderMap, HeaderName};
use bytes::Bytes;
use fleet::{
    canonical,
    outcome::ToolFailure,
    said,
    wire::{code::Code, message::Message},
};
use serde_json::Value;

use crate::executors::{AttemptContext, headers};

/// The header of the attempt's id, which a cancellation names. Other kinds of tools have no such header.
pub(super) const ATTEMPT_ID: &str = "attempt-id";
/// The header of the subject on which the service may tell what it does.
const EVENTS: &str = "events";
/// The most bytes of the headers: `Toolfleet-Meta` has at most 4 KiB, and escapes may make it six times as long.
pub(super) const HEADERS_MAX: usize = 32 * 1024;
/// The most bytes of the headers about files: sixteen URLs of at most 600 bytes, and ids.
pub(super) const FILES_MAX: usize = 16 * 1024;

/// A request without the headers that every attempt carries.
pub(super) struct NatsDraft {
    body: Body,
    key_header: Option<HeaderName>,
}

enum Body {
    Ready(Bytes),
    /// One of the arguments carries the key, which only the attempt knows.
    AwaitsKey {
        arguments: Value,
        argument: String,
    },
}

/// A request as it goes out.
pub(super) struct NatsRequest {
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl NatsDraft {
    /// `key_argument` and `key_header` carry the key besides `Idempotency-Key`, where the manifest names them.
    ///
    /// # Errors
    ///
    /// `tool_gone` when the header's name is not valid.
    pub(super) fn new(
        arguments: &Value,
        key_argument: Option<String>,
        key_header: Option<&str>,
    ) -> Result<Self, ToolFailure> {
        let key_header = key_header.filter(|name| !name.eq_ignore_ascii_case(headers::KEY));
        // The library accepts an empty name.
        let parsed = |name: &str| name.parse().ok().filter(|_| !name.is_empty());
        let key_header = key_header.map(|name| parsed(name).ok_or(name));
        let key_header = key_header.transpose();
        Ok(Self {
            body: match key_argument {
                None => Body::Ready(text(arguments)),
                Some(argument) => Body::AwaitsKey {
                    arguments: arguments.clone(),
                    argument,
                },
            },
            key_header: key_header.map_err(|_not_a_name| {
                ToolFailure::new(
                    Code::ToolGone,
                    Message::fixed(
                        "idempotency.header in the manifest is not a header name",
                        "清单中的 idempotency.header 不是请求头的名字",
                    ),
                )
            })?,
        })
    }

    /// Whether the server takes a message of this size, headers of so many bytes included.
    ///
    /// # Errors
    ///
    /// `payload_too_large`: every server of the fleet would refuse it.
    pub(super) fn fits(&self, headers: usize, payload_max: usize) -> Result<(), ToolFailure> {
        let body = match &self.body {
            Body::Ready(body) => body.len(),
            // A call's id is shorter than that, and the name as long as it is.
            Body::AwaitsKey {
                arguments,
                argument,
            } => text(arguments).len() + argument.len() + 64,
        };
        if body.saturating_add(headers) <= payload_max {
            return Ok(());
        }
        Err(too_large(body, payload_max))
    }

    /// Adds what this attempt carries; `events` is where its service may tell what it does.
    ///
    /// # Errors
    ///
    /// The key is not a valid header value.
    pub(super) fn fill(
        self,
        context: &AttemptContext,
        events: Option<String>,
    ) -> Result<NatsRequest, ToolFailure> {
        let key = &context.idempotency_key;
        let mut message = HeaderMap::new();
        for (name, value) in headers::headers(context)? {
            if let Some(named) = self.key_header.clone().filter(|_| name == headers::KEY) {
                message.insert(named, value.as_str());
            }
            // One of each: the URLs of files are one value.
            message.append(name, value);
        }
        message.insert(
            headers::fact_name(ATTEMPT_ID),
            context.attempt_id.to_string(),
        );
        if let Some(events) = events {
            message.insert(headers::fact_name(EVENTS), events);
        }
        let body = match self.body {
            Body::Ready(body) => body,
            Body::AwaitsKey {
                mut arguments,
                argument,
            } => {
                if let Value::Object(members) = &mut arguments {
                    members.insert(argument, Value::String(key.clone()));
                }
                text(&arguments)
            }
        };
        Ok(NatsRequest {
            headers: message,
            body,
        })
    }
}

/// The failure of a request that no server accepts.
pub(super) fn too_large(body: usize, payload_max: usize) -> ToolFailure {
    ToolFailure::new(
        Code::PayloadTooLarge,
        said!(
            "the arguments have {body} bytes, and with their headers NATS takes at most {payload_max} in one message: send a reference to the data instead, or raise max_payload of nats-server",
            "参数有 {body} 字节，而 NATS 的一条消息连同请求头最多 {payload_max} 字节：请改为发送对数据的引用，或调高 nats-server 的 max_payload"
        ),
    )
}

fn text(arguments: &Value) -> Bytes {
    canonical::to_text(arguments).into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_its_size() {
        let draft =
            |size: usize| NatsDraft::new(&json!({"a": "x".repeat(size)}), None, None).unwrap();
        assert!(draft(100).fits(HEADERS_MAX, HEADERS_MAX + 108).is_ok());
        let refused = draft(100).fits(HEADERS_MAX, HEADERS_MAX + 107).unwrap_err();
        assert_eq!(refused.code, Code::PayloadTooLarge);
        assert!(
            refused.message.english().contains("108 bytes"),
            "{}",
            refused.message
        );
        let keyed = NatsDraft::new(&json!({}), Some("key".into()), None).unwrap();
        assert!(keyed.fits(HEADERS_MAX, HEADERS_MAX + 36).is_err());
    }

    #[test]
    fn a_header_that_is_none_is_refused() {
        for name in ["a: b", "a\r\nb", "", "é"] {
            let refused = NatsDraft::new(&json!({}), None, Some(name)).err();
            assert_eq!(refused.map(|f| f.code), Some(Code::ToolGone), "{name:?}");
        }
    }
}
