//! What a vendor's requests and replies mean: one file for each protocol, in the `form` of all, and one that puts its streams
//! together, an `assembler`. Pure.
//!
//! Nothing is read into types of the vendor's, so fields that nobody here knows pass as they are.

mod anthropic;
mod anthropic_stream;
mod assembler;
mod form;
mod members;
mod message;
mod openai_chat;
mod openai_chat_stream;
mod openai_responses;
mod openai_responses_stream;

use fleet::manifest::ChatProtocol;

pub(super) use self::{
    assembler::{Assembler, StreamSoFar, StreamStep},
    form::{Dialect, Finish, TokenUsage},
    message::{OfferedTool, Speaker},
};

/// The dialect of a protocol.
pub(super) fn of(protocol: ChatProtocol) -> &'static dyn Dialect {
    match protocol {
        ChatProtocol::OpenaiChat => &openai_chat::OpenaiChat,
        ChatProtocol::OpenaiResponses => &openai_responses::OpenaiResponses,
        ChatProtocol::Anthropic => &anthropic::Anthropic,
    }
}

#[cfg(test)]
mod stream_tests;
#[cfg(test)]
mod tests;
