//! What a request says of its body and of the answer: JSON goes in, and JSON or a stream comes out.

use axum::http::{
    HeaderMap, StatusCode,
    header::{ACCEPT, CONTENT_TYPE},
};
use fleet::wire::message::Message;

use super::rpc::RpcError;
use crate::headers::IDEMPOTENCY_KEY;

const JSON: &str = "application/json";
const STREAM: &str = "text/event-stream";

/// Looks at both. What is not said is as it should be.
///
/// # Errors
///
/// The body is said to be something else than JSON, or JSON or a stream would not be taken; or it has a key that is not one call's.
pub(super) fn check(headers: &HeaderMap) -> Result<(), RpcError> {
    let kind = headers.get_all(CONTENT_TYPE).iter();
    if !kind
        .map(|line| media(line.as_bytes()))
        .all(|kind| kind == JSON)
    {
        let what = Message::fixed(
            "Content-Type must be application/json",
            "Content-Type 必须是 application/json",
        );
        return Err(RpcError::not_like_this(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            what,
        ));
    }
    let accepted: Vec<String> = headers
        .get_all(ACCEPT)
        .iter()
        .flat_map(|line| line.as_bytes().split(|byte| *byte == b','))
        .map(media)
        .collect();
    let takes = |kind: &str| {
        let (family, _) = kind.split_once('/').unwrap_or_default();
        let any = format!("{family}/*");
        accepted
            .iter()
            .any(|one| one == kind || *one == any || one == "*/*")
    };
    let takes_both = accepted.is_empty() || takes(JSON) && takes(STREAM);
    if !takes_both {
        let what = Message::fixed(
            "Accept must list application/json and text/event-stream",
            "Accept 必须列出 application/json 和 text/event-stream",
        );
        return Err(RpcError::not_like_this(StatusCode::NOT_ACCEPTABLE, what));
    }
    if headers.contains_key(&IDEMPOTENCY_KEY) {
        let what = Message::fixed(
            "a client sends its headers with every message, so Idempotency-Key would make one call of all: say the key in \
             params._meta[\"io.toolfleet/idempotency-key\"]",
            "客户端会在每条消息中发送相同的请求头，Idempotency-Key 会把所有调用变成同一个：请在 \
             params._meta[\"io.toolfleet/idempotency-key\"] 中给出幂等键",
        );
        return Err(RpcError::not_like_this(StatusCode::BAD_REQUEST, what));
    }
    Ok(())
}

/// A media type without its parameters, in small letters.
fn media(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let kind = text.split(';').next().unwrap_or_default();
    kind.trim().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use fleet::call::Language;

    use super::*;

    #[test]
    fn json_goes_in_and_json_or_a_stream_comes_out() {
        let status = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            match check(&headers) {
                Ok(()) => 200,
                Err(error) => error.told(None, Language::En).status.as_u16(),
            }
        };
        for (name, value, expected) in [
            ("content-type", "application/json", 200),
            ("content-type", "Application/JSON; charset=utf-8", 200),
            ("content-type", "text/plain", 415),
            ("content-type", "application/json-seq", 415),
            ("content-type", "", 415),
            ("accept", "application/json, text/event-stream", 200),
            ("accept", "text/event-stream;q=0.5,application/json", 200),
            ("accept", "*/*", 200),
            ("accept", "application/*, text/*", 200),
            ("accept", "application/json", 406),
            ("accept", "text/event-stream", 406),
            ("accept", "text/html", 406),
            ("accept", "", 406),
            ("idempotency-key", "k", 400),
            ("x-other", "k", 200),
        ] {
            assert_eq!(status(name, value), expected, "{name}: {value}");
        }
        assert!(check(&HeaderMap::new()).is_ok());
    }
}
