//! A stream of OpenAI's Chat Completions: choices and calls of tools by their index, texts joined.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    assembler::{Assembler, StreamSoFar, StreamStep, append, error_of, grow, replace},
    members::is_there,
};

/// The most choices of one request.
const CHOICES_MAX: usize = 256;
/// Members of chunks that no plain reply has.
const OF_CHUNKS: [&str; 2] = ["object", "obfuscation"];

/// What of a reply has come.
#[derive(Debug, Default)]
pub(super) struct OpenaiChatStream {
    reply: Map<String, Value>,
    choices: BTreeMap<u64, StreamedChoice>,
    has_ended: bool,
    size: usize,
}

#[derive(Debug, Default)]
struct StreamedChoice {
    choice: Map<String, Value>,
    message: Map<String, Value>,
}

impl Assembler for OpenaiChatStream {
    fn add(&mut self, chunk: Map<String, Value>) -> StreamStep {
        if let Some(failed) = error_of(&chunk) {
            return failed;
        }
        for (name, value) in chunk {
            // With the count in the last chunk, all others say that they have none.
            let has_no_usage = name == "usage" && value.is_null();
            if name == "choices" {
                let Value::Array(choices) = value else {
                    return StreamStep::Unfit;
                };
                for choice in choices {
                    if self.add_choice(choice).is_none() {
                        return StreamStep::Unfit;
                    }
                }
            } else if !OF_CHUNKS.contains(&name.as_str()) && !has_no_usage {
                replace(&mut self.reply, name, value, &mut self.size);
            }
        }
        // The count of tokens comes behind the end of the last choice.
        StreamStep::More
    }

    fn end(&mut self) {
        self.has_ended = true;
    }

    fn size(&self) -> usize {
        self.size
    }

    fn so_far(&self) -> StreamSoFar {
        let is_counted = self.reply.get("usage").is_some_and(Value::is_object);
        StreamSoFar::of(&self.reply, self.size, is_counted)
    }

    fn reply(self: Box<Self>) -> Option<Map<String, Value>> {
        let has_finished = |choice: &StreamedChoice| is_there(choice.choice.get("finish_reason"));
        let have_all = !self.choices.is_empty() && self.choices.values().all(has_finished);
        if !self.has_ended && !have_all {
            return None;
        }
        let mut reply = self.reply;
        reply.insert("object".to_owned(), Value::from("chat.completion"));
        let choices = self.choices.into_iter();
        let choices = choices.map(|(index, choice)| choice.whole(index));
        reply.insert("choices".to_owned(), choices.collect());
        Some(reply)
    }
}

impl OpenaiChatStream {
    /// `None`: it is no choice, or one too many.
    fn add_choice(&mut self, choice: Value) -> Option<()> {
        let Value::Object(choice) = choice else {
            return None;
        };
        // Servers with one choice leave it out.
        let index = choice.get("index").map_or(Some(0), Value::as_u64)?;
        let is_new = !self.choices.contains_key(&index);
        if is_new && self.choices.len() >= CHOICES_MAX {
            return None;
        }
        let size = &mut self.size;
        let known = self.choices.entry(index).or_default();
        for (name, value) in choice {
            match (name.as_str(), value) {
                // Some servers send all of a short answer at once.
                ("delta" | "message", Value::Object(delta)) => known.add(delta, size)?,
                ("delta" | "message" | "index", _) => {}
                ("logprobs", value) => append(&mut known.choice, "logprobs", value, size),
                (_, value) => replace(&mut known.choice, name, value, size),
            }
        }
        Some(())
    }
}

impl StreamedChoice {
    fn add(&mut self, mut delta: Map<String, Value>, size: &mut usize) -> Option<()> {
        if let Some(Value::Array(calls)) = delta.get_mut("tool_calls") {
            self.place(calls);
        }
        grow(&mut self.message, delta, size)
    }

    /// Gives calls without an index one: that of the call of the same id, of the last one where there is no id, or the next.
    fn place(&self, calls: &mut [Value]) {
        let known = self.message.get("tool_calls").and_then(Value::as_array);
        let known = known.map_or(&[][..], Vec::as_slice);
        let index_of = |call: &Value| call.get("index").and_then(Value::as_u64);
        let mut last = known.iter().filter_map(index_of).max();
        for call in calls {
            let id = call.get("id").and_then(Value::as_str).unwrap_or_default();
            let same = known
                .iter()
                .find(|known| !id.is_empty() && known["id"] == id);
            let next = || last.map_or(0, |last| last.saturating_add(1));
            let index = match (index_of(call), same.and_then(index_of)) {
                (Some(index), _) | (None, Some(index)) => index,
                (None, None) if id.is_empty() => last.unwrap_or(0),
                (None, None) => next(),
            };
            last = last.max(Some(index));
            if let Some(call) = call.as_object_mut() {
                call.insert("index".to_owned(), Value::from(index));
            }
        }
    }

    fn whole(self, index: u64) -> Value {
        let Self {
            mut choice,
            mut message,
        } = self;
        if let Some(Value::Array(calls)) = message.get_mut("tool_calls") {
            calls.sort_by_key(|call| call.get("index").and_then(Value::as_u64));
            for call in calls.iter_mut().filter_map(Value::as_object_mut) {
                call.remove("index");
            }
        }
        message
            .entry("role")
            .or_insert_with(|| Value::from("assistant"));
        choice.insert("index".to_owned(), Value::from(index));
        choice.insert("message".to_owned(), Value::Object(message));
        choice.entry("finish_reason").or_insert(Value::Null);
        Value::Object(choice)
    }
}
