//! The vendor's events as server-sent events. Pure.

use bytes::{BufMut as _, BytesMut};
use fleet::manifest::ChatProtocol;

use crate::events::raw::{write_message, write_named};

/// Ends the stream of a chat completion.
const DONE: &[u8] = b"data: [DONE]\n\n";

/// Writes an event with these bytes of JSON, whose own word for it is `kind`.
pub(super) fn write(protocol: ChatProtocol, kind: &str, json: &str, to: &mut BytesMut) {
    match protocol {
        ChatProtocol::OpenaiChat => write_message(json.as_bytes(), to),
        ChatProtocol::OpenaiResponses | ChatProtocol::Anthropic => {
            let letter = |byte: u8| byte.is_ascii_lowercase() || b"._".contains(&byte);
            let is_word = (1..=64).contains(&kind.len()) && kind.bytes().all(letter);
            match is_word {
                true => write_named(kind, json.as_bytes(), to),
                false => write_message(json.as_bytes(), to),
            }
        }
    }
}

/// Writes what stands at the end of a stream that has come to its end.
pub(super) fn write_end(protocol: ChatProtocol, to: &mut BytesMut) {
    match protocol {
        ChatProtocol::OpenaiChat => to.put_slice(DONE),
        ChatProtocol::OpenaiResponses | ChatProtocol::Anthropic => {}
    }
}
