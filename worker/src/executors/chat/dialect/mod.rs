//! What a vendor's requests and replies mean: one file for each protocol, in the `form` of all. Pure.
//!
//! Nothing is read into types of the vendor's, so fields that nobody here knows pass as they are.

mod anthropic;
mod form;
mod openai_chat;
mod openai_responses;

use fleet::manifest::ChatProtocol;

pub(super) use self::form::{Dialect, Finish, TokenUsage};

/// The dialect of a protocol.
pub(super) fn of(protocol: ChatProtocol) -> &'static dyn Dialect {
    match protocol {
        ChatProtocol::OpenaiChat => &openai_chat::OpenaiChat,
        ChatProtocol::OpenaiResponses => &openai_responses::OpenaiResponses,
        ChatProtocol::Anthropic => &anthropic::Anthropic,
    }
}

#[cfg(test)]
mod tests;
