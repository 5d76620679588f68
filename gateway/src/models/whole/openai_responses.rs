//! A response as its events: it is created, each item is added, grows once and is done, and it is completed.

use serde_json::Value;

use super::members::{around, json, list, object, quoted, taken, text};

const NOTHING: &str = "\"\"";
const IN_PROGRESS: (&str, &str) = ("status", "\"in_progress\"");

/// Where events go, each with its number.
struct NumberedEvents<'a> {
    next: usize,
    tell: &'a mut dyn FnMut(&str, &str),
}

impl NumberedEvents<'_> {
    /// The event of this kind that has the members of this object.
    fn tell(&mut self, kind: &str, event: &str) {
        let kind = format!("response.{kind}");
        let number = self.next.to_string();
        let own = [("type", &*quoted(&kind)), ("sequence_number", &number)];
        (self.tell)(&kind, &around(event, &own));
        self.next += 1;
    }
}

pub(super) fn events(mut reply: Value, tell: &mut dyn FnMut(&str, &str)) {
    let mut to = NumberedEvents { next: 0, tell };
    let whole = object(&[("response", &reply.to_string())]);
    let end = match text(&reply, "status") {
        Some("incomplete") => "incomplete",
        Some("failed") => "failed",
        _other => "completed",
    };
    let output = list(&mut reply, "output");
    let empty = [
        IN_PROGRESS,
        ("output", "[]"),
        ("usage", "null"),
        ("completed_at", "null"),
        ("error", "null"),
        ("incomplete_details", "null"),
    ];
    for (name, _) in empty {
        taken(&mut reply, name);
    }
    let begun = around(&reply.to_string(), &empty);
    drop(reply);
    let begun = object(&[("response", &begun)]);
    to.tell("created", &begun);
    to.tell("in_progress", &begun);
    drop(begun);
    for (index, item) in output.into_iter().enumerate() {
        grow(&index.to_string(), item, &mut to);
    }
    to.tell(end, &whole);
}

fn grow(index: &str, mut item: Value, to: &mut NumberedEvents<'_>) {
    let of_item = |item: &str| object(&[("output_index", index), ("item", item)]);
    let whole = of_item(&item.to_string());
    let at = object(&[("output_index", index), ("item_id", &json(item.get("id")))]);
    let kind = text(&item, "type").unwrap_or_default().to_owned();
    match kind.as_str() {
        "message" => {
            let parts = list(&mut item, "content");
            taken(&mut item, "status");
            let bare = around(&item.to_string(), &[("content", "[]"), IN_PROGRESS]);
            to.tell("output_item.added", &of_item(&bare));
            for (place, part) in parts.into_iter().enumerate() {
                let at = around(&at, &[("content_index", &place.to_string())]);
                grow_part(&at, part, to);
            }
        }
        "function_call" | "custom_tool_call" => {
            let (name, field) = match kind.as_str() {
                "function_call" => ("function_call_arguments", "arguments"),
                _custom => ("custom_tool_call_input", "input"),
            };
            let said = said(&mut item, field);
            taken(&mut item, "status");
            let bare = around(&item.to_string(), &[(field, NOTHING), IN_PROGRESS]);
            to.tell("output_item.added", &of_item(&bare));
            to.tell(&format!("{name}.delta"), &around(&at, &[("delta", &said)]));
            let named = json(item.get("name"));
            let done = around(&at, &[("name", &named), (field, &said)]);
            to.tell(&format!("{name}.done"), &done);
        }
        // Reasoning, and what the vendor has run: whole.
        _other => to.tell("output_item.added", &whole),
    }
    to.tell("output_item.done", &whole);
}

/// A part of a message. `at`: where it stands, which each of its events has.
fn grow_part(at: &str, mut part: Value, to: &mut NumberedEvents<'_>) {
    let whole = around(at, &[("part", &part.to_string())]);
    let (kind, more) = match text(&part, "type") {
        Some("output_text") => ("output_text", &[("logprobs", "[]")][..]),
        Some("refusal") => ("refusal", &[][..]),
        _other => {
            to.tell("content_part.added", &whole);
            to.tell("content_part.done", &whole);
            return;
        }
    };
    let field = match kind {
        "output_text" => "text",
        refusal => refusal,
    };
    let said = said(&mut part, field);
    let empty = around(&part.to_string(), &[(field, NOTHING)]);
    to.tell("content_part.added", &around(at, &[("part", &empty)]));
    let at = around(at, more);
    to.tell(&format!("{kind}.delta"), &around(&at, &[("delta", &said)]));
    to.tell(&format!("{kind}.done"), &around(&at, &[(field, &said)]));
    to.tell("content_part.done", &whole);
}

/// The JSON of a text, which is no longer there; of what is no text, of an empty one.
fn said(object: &mut Value, field: &str) -> String {
    let said = taken(object, field).filter(Value::is_string);
    said.map_or_else(|| NOTHING.to_owned(), |said| said.to_string())
}
