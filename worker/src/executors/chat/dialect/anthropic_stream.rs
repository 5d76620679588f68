//! A stream of Anthropic's Messages: a message that starts, its blocks by their index, and what it came to.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::assembler::{
    Assembler, StreamSoFar, StreamStep, append, error_of, grow, replace, weight,
};
use crate::executors::output;

/// What of a reply has come.
#[derive(Debug, Default)]
pub(super) struct AnthropicStream {
    message: Option<Map<String, Value>>,
    blocks: BTreeMap<u64, StreamedBlock>,
    has_ended: bool,
    /// Whether the count of what was written has come, which is at the end.
    is_counted: bool,
    size: usize,
}

#[derive(Debug)]
struct StreamedBlock {
    block: Map<String, Value>,
    /// The JSON of its `input`, as far as it came.
    input: String,
}

impl Assembler for AnthropicStream {
    fn add(&mut self, mut chunk: Map<String, Value>) -> StreamStep {
        if let Some(failed) = error_of(&chunk) {
            return failed;
        }
        let kind = chunk.remove("type");
        let kind = kind.as_ref().and_then(Value::as_str).unwrap_or_default();
        let added = match kind {
            "message_start" => self.start(chunk),
            "content_block_start" => self.open(chunk),
            "content_block_delta" => self.add_to_block(chunk),
            "message_delta" => self.add_to_message(chunk),
            "message_stop" => {
                self.has_ended = true;
                return StreamStep::Ended;
            }
            // `ping`, `content_block_stop`, and kinds to come.
            _others => Some(()),
        };
        added.map_or(StreamStep::Unfit, |()| StreamStep::More)
    }

    fn size(&self) -> usize {
        self.size
    }

    fn so_far(&self) -> StreamSoFar {
        let none = Map::new();
        let message = self.message.as_ref().unwrap_or(&none);
        StreamSoFar::of(message, self.size, self.is_counted)
    }

    fn reply(self: Box<Self>) -> Option<Map<String, Value>> {
        let mut message = self.message.filter(|_| self.has_ended)?;
        let blocks = self.blocks.into_values().map(StreamedBlock::whole);
        let blocks: Option<Vec<Value>> = blocks.collect();
        message.insert("content".to_owned(), Value::Array(blocks?));
        Some(message)
    }
}

impl AnthropicStream {
    fn start(&mut self, mut chunk: Map<String, Value>) -> Option<()> {
        let Some(Value::Object(message)) = chunk.remove("message") else {
            return None;
        };
        self.size += message.values().map(weight).sum::<usize>();
        self.message = Some(message);
        Some(())
    }

    fn open(&mut self, mut chunk: Map<String, Value>) -> Option<()> {
        let index = chunk.get("index")?.as_u64()?;
        let Some(Value::Object(block)) = chunk.remove("content_block") else {
            return None;
        };
        self.size += weight(&Value::Null) + block.values().map(weight).sum::<usize>();
        let input = String::new();
        self.blocks.insert(index, StreamedBlock { block, input });
        Some(())
    }

    fn add_to_block(&mut self, mut chunk: Map<String, Value>) -> Option<()> {
        let index = chunk.get("index")?.as_u64()?;
        let Some(Value::Object(mut delta)) = chunk.remove("delta") else {
            return None;
        };
        let StreamedBlock { block, input } = self.blocks.get_mut(&index)?;
        let size = &mut self.size;
        let kind = delta.remove("type");
        match kind.as_ref().and_then(Value::as_str).unwrap_or_default() {
            "input_json_delta" => {
                let json = delta.get("partial_json")?.as_str()?;
                *size += json.len();
                input.push_str(json);
                Some(())
            }
            "citations_delta" => {
                let citation = Value::Array(vec![delta.remove("citation")?]);
                append(block, "citations", citation, size);
                Some(())
            }
            _text_thinking_signature_and_others => grow(block, delta, size),
        }
    }

    fn add_to_message(&mut self, chunk: Map<String, Value>) -> Option<()> {
        let (message, size) = (self.message.as_mut()?, &mut self.size);
        for (name, value) in chunk {
            match (name.as_str(), value) {
                ("delta", Value::Object(delta)) => {
                    for (name, value) in delta {
                        replace(message, name, value, size);
                    }
                }
                // It counts from the start of the message, and leaves out what was said there.
                ("usage", Value::Object(usage)) => {
                    self.is_counted = true;
                    match message.get_mut("usage") {
                        Some(Value::Object(counted)) => {
                            for (name, value) in usage {
                                replace(counted, name, value, size);
                            }
                        }
                        _none => replace(message, name, Value::Object(usage), size),
                    }
                }
                (_, value) => replace(message, name, value, size),
            }
        }
        Some(())
    }
}

impl StreamedBlock {
    /// `None`: nobody can read its `input`.
    fn whole(self) -> Option<Value> {
        let Self { mut block, input } = self;
        if !input.trim().is_empty() {
            let input = match output::json_of_any_depth(input.as_bytes()) {
                Ok((json, _mended)) => match output::unreadable(json.get(), output::DEPTH_MAX) {
                    Some(_why) => return None,
                    None => serde_json::from_str(json.get()).ok()?,
                },
                // It broke off, as the whole answer did; the vendor's own reply has no more.
                Err(_no_json) => Value::Object(Map::new()),
            };
            block.insert("input".to_owned(), input);
        }
        Some(Value::Object(block))
    }
}
