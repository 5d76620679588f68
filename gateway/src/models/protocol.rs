//! Which path speaks whose requests. Pure.

use axum::http::HeaderName;
use fleet::manifest::ChatProtocol;

/// Where the vendors' packages send requests, behind their base URL.
pub(crate) const CHAT_COMPLETIONS: &str = "/v1/chat/completions";
pub(crate) const RESPONSES: &str = "/v1/responses";
pub(crate) const MESSAGES: &str = "/v1/messages";

/// The protocol that a path speaks; `None`: it is none of theirs.
pub(crate) fn spoken_at(path: &str) -> Option<ChatProtocol> {
    match path {
        CHAT_COMPLETIONS => Some(ChatProtocol::OpenaiChat),
        RESPONSES => Some(ChatProtocol::OpenaiResponses),
        MESSAGES => Some(ChatProtocol::Anthropic),
        _other => None,
    }
}

/// The parameters of a query that the vendor's package adds.
pub(crate) const fn parameters(protocol: ChatProtocol) -> &'static [&'static str] {
    match protocol {
        ChatProtocol::OpenaiChat | ChatProtocol::OpenaiResponses => &[],
        // Of the part of the package whose fields are not settled yet.
        ChatProtocol::Anthropic => &["beta"],
    }
}

/// In which header the vendor's package looks for the id of a request, which errors then show.
pub(super) const fn request_id(protocol: ChatProtocol) -> HeaderName {
    match protocol {
        ChatProtocol::OpenaiChat | ChatProtocol::OpenaiResponses => {
            HeaderName::from_static("x-request-id")
        }
        ChatProtocol::Anthropic => HeaderName::from_static("request-id"),
    }
}
