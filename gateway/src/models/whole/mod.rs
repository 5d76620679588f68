//! A whole reply as the smallest stream that says the same: what the vendor's own package puts together from it is the reply. Pure.
//!
//! It is told so where no chunk was heard: a reply from the ledger, one that came at once, or one whose chunks were lost.

mod anthropic;
mod members;
mod openai_chat;
mod openai_responses;

use fleet::manifest::ChatProtocol;
use serde_json::Value;

/// Tells the events of this reply in their order, each by the vendor's word for it and its JSON. `wants_usage`: the caller of a
/// chat completion wants to be told its tokens.
pub(super) fn events(
    protocol: ChatProtocol,
    reply: Value,
    wants_usage: bool,
    tell: &mut dyn FnMut(&str, &str),
) {
    match protocol {
        ChatProtocol::OpenaiChat => openai_chat::events(reply, wants_usage, tell),
        ChatProtocol::OpenaiResponses => openai_responses::events(reply, tell),
        ChatProtocol::Anthropic => anthropic::events(reply, tell),
    }
}

#[cfg(test)]
mod tests;
