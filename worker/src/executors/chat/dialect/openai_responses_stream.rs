//! A stream of OpenAI's Responses: its last event has the whole reply.

use serde_json::{Map, Value};

use super::assembler::{Assembler, StreamSoFar, StreamStep, error_of};

/// What of a reply has come.
#[derive(Debug, Default)]
pub(super) struct OpenaiResponsesStream {
    reply: Option<Map<String, Value>>,
    /// The bytes of texts that the reply will have.
    size: usize,
}

impl Assembler for OpenaiResponsesStream {
    fn add(&mut self, mut chunk: Map<String, Value>) -> StreamStep {
        if let Some(failed) = error_of(&chunk) {
            return failed;
        }
        let kind = chunk.get("type").and_then(Value::as_str);
        let (ends, fails) = match kind.unwrap_or_default() {
            "response.completed" | "response.incomplete" => (true, false),
            "response.failed" | "response.cancelled" => (true, true),
            _others => (false, false),
        };
        if !ends {
            let delta = chunk.get("delta").and_then(Value::as_str);
            self.size += delta.map_or(0, str::len);
            return StreamStep::More;
        }
        match chunk.remove("response") {
            Some(Value::Object(reply)) if fails => StreamStep::Failed(reply),
            Some(Value::Object(reply)) => {
                self.reply = Some(reply);
                StreamStep::Ended
            }
            _none => StreamStep::Unfit,
        }
    }

    fn size(&self) -> usize {
        self.size
    }

    fn repeats_all(&self, name: &[u8]) -> bool {
        name.starts_with(b"response.")
    }

    fn so_far(&self) -> StreamSoFar {
        StreamSoFar {
            bytes: self.size,
            ..StreamSoFar::default()
        }
    }

    fn reply(self: Box<Self>) -> Option<Map<String, Value>> {
        self.reply
    }
}
