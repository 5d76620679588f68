//! A whole reply as the smallest stream, made where it holds up nobody: not by the threads that serve others, few at once, and of so many
//! values only.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use fleet::{
    call::Language,
    manifest::ChatProtocol,
    wire::{code::Code, message::Message},
};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    error::ModelError,
    reply::{ModelReply, unreadable},
    sse, whole,
};
use crate::{
    body::{SHORT, aside},
    value,
};

/// How many long replies are taken apart at once.
const AT_ONCE_MAX: usize = 2;
/// The most values of a reply that is told as a stream: one in memory may take a hundred times what it takes as text.
const VALUES_MAX: usize = 200_000;

/// Where whole replies become streams. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct WholeStreams(Arc<Semaphore>);

impl Default for WholeStreams {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE_MAX)))
    }
}

/// Why there is no stream of a reply.
#[derive(Debug, PartialEq, Eq)]
enum Unstreamed {
    TooManyValues,
    NoReply,
}

impl WholeStreams {
    /// All bytes of the stream.
    ///
    /// # Errors
    ///
    /// There is none of this reply, or the gateway stops.
    pub(super) async fn made(
        &self,
        reply: &ModelReply,
        protocol: ChatProtocol,
        wants_usage: bool,
        language: Language,
    ) -> Result<Bytes, ModelError> {
        let call = Some(reply.call);
        let bytes = reply.bytes.clone();
        let place = self.place(bytes.len()).await;
        let making = aside(bytes.len(), move || {
            // The place is free when it is done, also where nobody waits for it any more.
            let _place = place;
            smallest(&bytes, protocol, wants_usage)
        });
        match making.await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(Unstreamed::NoReply)) => Err(unreadable(call, language)),
            Ok(Err(Unstreamed::TooManyValues)) => Err(ModelError::of_call(
                Code::OutputTooLarge,
                &TOO_MANY,
                call,
                language,
            )),
            Err(refused) => Err(ModelError {
                call,
                ..ModelError::refused(&refused, language)
            }),
        }
    }

    /// Waits for a place for so many bytes. Short ones need none.
    async fn place(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        match bytes > SHORT {
            true => Arc::clone(&self.0).acquire_owned().await.ok(),
            false => None,
        }
    }
}

fn smallest(reply: &[u8], protocol: ChatProtocol, wants_usage: bool) -> Result<Bytes, Unstreamed> {
    if values(reply) > VALUES_MAX {
        return Err(Unstreamed::TooManyValues);
    }
    let reply = value::read(reply).filter(Value::is_object);
    let reply = reply.ok_or(Unstreamed::NoReply)?;
    let mut to = BytesMut::new();
    whole::events(protocol, reply, wants_usage, &mut |kind, json| {
        sse::write(protocol, kind, json, &mut to);
    });
    sse::write_end(protocol, &mut to);
    Ok(to.freeze())
}

/// How many values a text of JSON has at most, without a value being made.
fn values(json: &[u8]) -> usize {
    let (mut values, mut in_text, mut is_escaped) = (1, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            b',' | b'[' | b'{' if !in_text => values += 1,
            _ => {}
        }
    }
    values
}

const TOO_MANY: Message = Message::fixed(
    "The call has worked, and its reply has too many values to be told as a stream. It is kept: ask for it by its id at /v1/calls, or send requests as this one without stream.",
    "调用已成功，但回复包含的值太多，无法以流的形式发送。回复已保存：请在 /v1/calls 用它的 id 查询，或者以后发送这类请求时不要使用 stream。",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_texts() {
        for (json, expected) in [
            ("7", 1),
            (r#""a,[{\",""#, 1),
            ("[1,2,3]", 4),
            (r#"{"a":{"b":"\\"},"c":[]}"#, 5),
        ] {
            assert_eq!(values(json.as_bytes()), expected, "{json}");
        }
    }

    #[test]
    fn a_reply_of_very_many_values_is_not_taken_apart() {
        let choices = |count: usize| {
            let items = vec![r#"{"":0}"#; count].join(",");
            format!(r#"{{"choices":[{items}],"output":[{items}],"content":[{items}]}}"#)
        };
        for protocol in ChatProtocol::ALL {
            let made = |reply: &str| smallest(reply.as_bytes(), *protocol, true);
            assert_eq!(made(&choices(200_000)), Err(Unstreamed::TooManyValues));
            assert_eq!(made("[1]"), Err(Unstreamed::NoReply));
            // The largest that is.
            let most = choices(30_000);
            let stream = made(&most).unwrap();
            assert!(stream.len() < 64 * most.len(), "{}", stream.len());
        }
    }

    #[tokio::test]
    async fn few_long_replies_are_made_at_once() {
        let streams = WholeStreams::default();
        let held = [
            streams.place(SHORT + 1).await,
            streams.place(SHORT + 1).await,
        ];
        assert!(held.iter().all(Option::is_some));
        assert!(streams.0.try_acquire().is_err());
        // Short ones do not wait.
        assert!(streams.place(SHORT).await.is_none());
        drop(held);
        assert_eq!(streams.0.available_permits(), AT_ONCE_MAX);
    }
}
