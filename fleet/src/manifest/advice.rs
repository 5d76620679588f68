//! Advice for a manifest: what to write instead of a value that does not fit the schema.
//!
//! Most of it comes from the schema itself: the type, the bounds, the words, and an example for each field. A text that may
//! contain a secret is not repeated; a word, a number or a name is.

mod fields;
pub(super) mod schema;
mod words;

use serde_json::Value;

use self::{
    fields::{example, follow, homes_of, node, properties, types},
    words::{a, all_of, dotted, kind, one_of},
};
use super::{duration, flow::flow};
use crate::arguments::{Violation, nearest};

/// Names from other systems for a field, and the name here.
const ELSEWHERE: [(&str, &str); 10] = [
    ("args", "input_schema"),
    ("arguments", "input_schema"),
    ("inputs", "input_schema"),
    ("parameters", "input_schema"),
    ("schema", "input_schema"),
    ("returns", "output_schema"),
    ("side_effects", "effect"),
    ("throttle", "rate_limit"),
    ("caching", "cache"),
    ("memoize", "cache"),
];

/// Words that people write as an effect.
const EFFECTS: &str = "read where nothing is changed, idempotent where a repetition changes nothing more, \
                       transaction for a statement on the fleet's own database, once for everything else";

/// One sentence about a violation of `schema` by `manifest`: what is wrong, then what to write.
pub(super) fn sentence(violation: &Violation, manifest: &Value, schema: &Value) -> String {
    let place = Spot {
        path: &violation.path,
        schema,
        wanted: node(schema, &violation.path),
        found: manifest.pointer(&violation.path),
    };
    let told = match violation.keyword.as_str() {
        "required" => place.missing(),
        "additionalProperties" => place.unknown(manifest),
        "type" => place.other_type(),
        "enum" => place.other_word(),
        "pattern" => place.other_text(),
        "minimum" | "maximum" => place.out_of_range(),
        "minLength" | "minItems" => place.empty(),
        "minProperties" => place.none_of_them(),
        "maxProperties" => place.too_many(),
        "uniqueItems" => Some("the same value stands there twice; keep one".to_owned()),
        _length => None,
    };
    told.unwrap_or_else(|| violation.sentence().english().to_owned())
}

/// A place in a manifest, with the schema for it and the value there.
struct Spot<'a> {
    path: &'a str,
    schema: &'a Value,
    wanted: Option<&'a Value>,
    found: Option<&'a Value>,
}

impl Spot<'_> {
    fn field(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// An example of a valid value here, as YAML.
    fn example(&self) -> Option<String> {
        example(self.schema, self.wanted?).map(|value| flow(&value))
    }

    fn missing(&self) -> Option<String> {
        // An example would be copied, even for a tool that moves money.
        if self.path == "/effect" {
            return Some(format!("the field is missing; write {EFFECTS}"));
        }
        let line = format!("{}: {}", self.field(), self.example()?);
        Some(format!("the field is missing; write {line}"))
    }

    /// A field that the schema does not know: a typing error, another system's word, or a field of another place.
    fn unknown(&self, manifest: &Value) -> Option<String> {
        let (above, _) = self.path.rsplit_once('/')?;
        let siblings = properties(self.schema, node(self.schema, above)?)?;
        let name = self.field();
        let there = manifest.pointer(above);
        let is_free = |field: &&str| there.is_some_and(|there| there.get(*field).is_none());
        let names = || siblings.keys().map(String::as_str);
        let known = ELSEWHERE.iter().find(|(theirs, _)| *theirs == name);
        let known = known
            .map(|(_, ours)| *ours)
            .filter(|ours| siblings.contains_key(*ours));
        // A field that is set already was hardly meant a second time.
        let meant = known.or_else(|| nearest(name, names().filter(is_free)));
        if let Some(meant) = meant.or_else(|| nearest(name, names())) {
            return Some(format!("there is no such field; write {meant}"));
        }
        let mut homes = Vec::new();
        homes_of(name, self.schema, self.schema, "", &mut homes);
        homes.retain(|home| home != above);
        if !homes.is_empty() {
            let homes: Vec<String> = homes
                .iter()
                .map(|home| match home.as_str() {
                    "" => "at the top".to_owned(),
                    home => format!("below {}", dotted(home)),
                })
                .collect();
            return Some(format!(
                "there is no such field here; write it {}",
                one_of(&homes)
            ));
        }
        let names: Vec<String> = names().map(str::to_owned).collect();
        Some(format!(
            "there is no such field; the fields here are {}",
            all_of(&names)
        ))
    }

    fn other_type(&self) -> Option<String> {
        let (wanted, found) = (self.wanted?, self.found?);
        if self.path.is_empty() {
            let what = if found.is_null() {
                "an empty file"
            } else {
                kind(found)
            };
            return Some(format!(
                "{what} is no manifest; write its fields, beginning with name: get_weather"
            ));
        }
        if let Some(told) = duration_meant(wanted, found).or_else(|| self.share_meant()) {
            return Some(told);
        }
        let types = types(wanted);
        let meant = types
            .iter()
            .find_map(|kind| self.as_type(kind, wanted, found));
        let meant = meant.or_else(|| self.example())?;
        let is = types.first().map_or("what is meant", |kind| a(kind));
        Some(format!("{} is not {is}; write {meant}", self.told(found)))
    }

    /// The value of another type here, if it can be read as the wanted one.
    fn as_type(&self, kind: &str, wanted: &Value, found: &Value) -> Option<String> {
        match (kind, found) {
            ("integer" | "number", Value::String(text)) => text
                .trim()
                .parse::<i64>()
                .ok()
                .map(|number| number.to_string()),
            ("array", Value::String(line)) if self.field() == "command" => {
                let words: Vec<Value> = line.split_whitespace().map(Value::from).collect();
                (!words.is_empty()).then(|| flow(&Value::Array(words)))
            }
            ("array", Value::String(_) | Value::Number(_)) => {
                Some(flow(&Value::Array(vec![found.clone()])))
            }
            ("string", Value::Number(_) | Value::Bool(_)) => Some(format!("'{found}'")),
            ("object", Value::String(word)) => {
                let inner = properties(self.schema, wanted)?.get(word)?;
                let inner = example(self.schema, follow(self.schema, inner))?;
                Some(format!("{{{word}: {}}}", flow(&inner)))
            }
            _ => None,
        }
    }

    fn other_word(&self) -> Option<String> {
        let (wanted, found) = (self.wanted?, self.found?);
        let words: Vec<String> = wanted["enum"].as_array()?.iter().map(flow).collect();
        let text = found.as_str().unwrap_or_default();
        let meant = nearest(text, words.iter().map(String::as_str));
        let told = self.told(found);
        Some(match meant {
            Some(meant) => format!("{told} is not one of {}; write {meant}", all_of(&words)),
            None if self.path == "/effect" => format!("{told} is no effect; write {EFFECTS}"),
            None => format!("{told} is not allowed here; write {}", one_of(&words)),
        })
    }

    fn other_text(&self) -> Option<String> {
        let (wanted, found) = (self.wanted?, self.found?);
        if let Some(told) = duration_meant(wanted, found).or_else(|| self.share_meant()) {
            return Some(told);
        }
        let text = found.as_str()?;
        let pattern = wanted["pattern"].as_str()?;
        if let Some(letters) = name_letters(pattern) {
            let told = format!("the name has other characters than {letters}, or more than 64");
            let meant = name_meant(text, letters.ends_with("and -"));
            return Some(format!("{told}; write {meant}"));
        }
        if self.path == "/output_limit" {
            return Some(format!(
                "{} is not a size; write 64KiB, 1MiB or another number with B, KiB or MiB",
                self.told(found)
            ));
        }
        if self.path == "/rate_limit/by" {
            let meant = text.trim_start_matches('/').replace('.', "/");
            let or_pointer = match meant.is_empty() || meant.contains(['~', ' ']) {
                true => "the JSON pointer of an argument, such as /account/id".to_owned(),
                false => format!("/{meant} for each value of that argument"),
            };
            return Some(format!(
                "{} is neither of these nor a JSON pointer; write tool, tenant, or {or_pointer}",
                self.told(found)
            ));
        }
        if self.path.starts_with("/sensitive/pointers/") {
            let meant = text.trim_start_matches('/').replace('.', "/");
            return Some(format!("a JSON pointer begins with /; write /{meant}"));
        }
        if self.path.starts_with("/files/mime/") {
            return Some(format!(
                "{} is no media type, or has parameters; write image/*, application/pdf or */*",
                self.told(found)
            ));
        }
        if pattern == "^[!-~]*$" {
            let told = "it has a space or a letter that is not ASCII";
            return Some(format!(
                "{told}; write that percent-encoded, or leave it out"
            ));
        }
        Some(match self.example() {
            Some(example) => format!("it is not written as it has to be; write {example}"),
            None => "it has a control character or a line end; leave that out".to_owned(),
        })
    }

    /// The share that was probably meant, in percent.
    fn share_meant(&self) -> Option<String> {
        let (wanted, found) = (self.wanted?, self.found?);
        if !wanted["pattern"].as_str()?.ends_with("%$") {
            return None;
        }
        let number = match found {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.trim().trim_end_matches('%').parse().ok(),
            _other => None,
        };
        let part = number.filter(|part| found.is_number() && *part > 0.0 && *part < 1.0);
        let percent = part.map(|part| part * 100.0).or(number);
        let percent = percent.filter(|percent| (1.0..=100.0).contains(percent));
        let told = self.told(found);
        let meant = percent.unwrap_or(50.0).round();
        Some(format!("{told} is not a share; write {meant}%"))
    }

    fn out_of_range(&self) -> Option<String> {
        let (wanted, found) = (self.wanted?, self.found?);
        let range = match (&wanted["minimum"], &wanted["maximum"]) {
            (Value::Number(low), Value::Number(high)) => format!("{low} to {high}"),
            (Value::Number(low), _) => format!("{low} or more"),
            (_, Value::Number(high)) => format!("at most {high}"),
            _unbounded => return None,
        };
        let instead = match self.path {
            "/concurrency" | "/rate_limit/calls" => {
                ", or leave the field out where nothing limits the tool"
            }
            _other => "",
        };
        Some(format!("{found} is out of range; write {range}{instead}"))
    }

    fn empty(&self) -> Option<String> {
        Some(format!(
            "it is empty; write something such as {}",
            self.example()?
        ))
    }

    fn none_of_them(&self) -> Option<String> {
        let names: Vec<String> = properties(self.schema, self.wanted?)?
            .keys()
            .cloned()
            .collect();
        let example = self.example()?;
        let names = one_of(&names);
        Some(format!(
            "it is empty; write {names} into it, such as {example}"
        ))
    }

    fn too_many(&self) -> Option<String> {
        let names: Vec<String> = self.found?.as_object()?.keys().cloned().collect();
        let count = names.len();
        Some(format!(
            "it has {count} kinds, and a tool is run in one way; keep {}",
            one_of(&names)
        ))
    }

    /// The value here, in a form that may be repeated: numbers and words, and the kind of everything else.
    fn told(&self, found: &Value) -> String {
        let is_word = |text: &str| {
            (1..=40).contains(&text.len())
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b" _-.".contains(&byte))
        };
        match found {
            Value::Bool(_) | Value::Number(_) => found.to_string(),
            Value::String(text) if is_word(text) => format!("the text {text:?}"),
            other => kind(other).to_owned(),
        }
    }
}

/// What a duration without its unit, or in other words, was probably meant to be.
fn duration_meant(wanted: &Value, found: &Value) -> Option<String> {
    if !wanted["pattern"].as_str()?.contains("(ms|s|m|h)") {
        return None;
    }
    Some(match found {
        Value::Number(_) => duration::explain(&found.to_string()),
        Value::String(text) => duration::explain(text),
        other => format!("{} is not a duration; write one such as 30s", kind(other)),
    })
}

/// The letters of a pattern that describes a name.
fn name_letters(pattern: &str) -> Option<&'static str> {
    match pattern {
        "^[a-z0-9_]{1,64}$" => Some("a-z, 0-9 and _"),
        "^[a-z0-9_-]{1,64}$" => Some("a-z, 0-9, _ and -"),
        _other => None,
    }
}

fn name_meant(text: &str, dashes: bool) -> String {
    let letter = |letter: char| match letter.to_ascii_lowercase() {
        letter if letter.is_ascii_alphanumeric() || letter == '_' => letter,
        '-' if dashes => '-',
        _other => '_',
    };
    let name: String = text.trim().chars().map(letter).take(64).collect();
    if name.chars().all(|letter| letter == '_') {
        "a name such as get_weather".to_owned()
    } else {
        name
    }
}

#[cfg(test)]
mod tests;
