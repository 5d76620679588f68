//! Arrays and objects sent as text of many kinds.

use serde_json::{Value, json};

use super::{Change, Damage, Source};
use crate::{pointer::places, random::Chance};

type Drawn = Option<Damage>;

fn container(
    source: &Source<'_>,
    chance: &mut Chance,
    asked: fn(&Value) -> bool,
    write: impl FnOnce(&Value, &mut Chance) -> Option<String>,
) -> Drawn {
    let (at, value) = source.one(chance, asked)?;
    Some(Damage::set(at, json!(write(value, chance)?)))
}

fn is_container(value: &Value) -> bool {
    value.is_array() || value.is_object()
}

fn spaced(value: &Value, chance: &mut Chance) -> String {
    let text = value.to_string();
    match chance.below(3) {
        0 => format!(" {text}\n"),
        1 => serde_json::to_string_pretty(value).expect("a value can be written"),
        _ => text,
    }
}

pub(super) fn array_as_json(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    container(source, chance, Value::is_array, |value, chance| {
        Some(spaced(value, chance))
    })
}

pub(super) fn object_as_json(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    container(source, chance, Value::is_object, |value, chance| {
        Some(spaced(value, chance))
    })
}

pub(super) fn fenced(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    container(source, chance, is_container, |value, chance| {
        let text = spaced(value, chance);
        let tag = chance.of(&["json", "", "JSON"]);
        Some(format!(
            "```{tag}\n{}\n```{}",
            text.trim(),
            chance.of(&["", "\n"])
        ))
    })
}

fn is_no_json(text: &str) -> Option<()> {
    serde_json::from_str::<Value>(text).is_err().then_some(())
}

pub(super) fn json5(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    container(source, chance, is_container, |value, chance| {
        let mut text = String::new();
        write_json5(value, &mut text, chance);
        is_no_json(&text)?;
        Some(if chance.percent(20) {
            format!("// as asked\n{text}")
        } else {
            text
        })
    })
}

pub(super) fn python(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    container(source, chance, is_container, |value, _| {
        let mut text = String::new();
        write_python(value, &mut text, ('[', ']'));
        is_no_json(&text)?;
        Some(text)
    })
}

pub(super) fn python_tuple(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    container(source, chance, Value::is_array, |value, chance| {
        let mut text = String::new();
        write_python(value, &mut text, *chance.of(&[('(', ')'), ('{', '}')]));
        Some(text)
    })
}

/// The text without its end. What is left opens something and does not close it.
fn cut(text: &str, chance: &mut Chance) -> Option<String> {
    let text = text.trim();
    let ends: Vec<usize> = text.char_indices().skip(1).map(|(at, _)| at).collect();
    let end = chance.pick(&ends)?;
    Some(text[..end].to_owned())
}

pub(super) fn truncated(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    container(source, chance, is_container, |value, chance| {
        cut(&spaced(value, chance), chance)
    })
}

pub(super) fn relaxed_truncated(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    container(source, chance, is_container, |value, chance| {
        let mut text = String::new();
        if chance.percent(50) {
            write_python(value, &mut text, ('[', ']'));
        } else {
            write_json5(value, &mut text, chance);
        }
        let text = cut(&text, chance)?;
        Some(if chance.percent(30) {
            format!("```json\n{text}\n```")
        } else {
            text
        })
    })
}

pub(super) fn key_twice(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let has_entries = |value: &Value| value.as_object().is_some_and(|entries| !entries.is_empty());
    container(source, chance, has_entries, |value, _| {
        let name = value.as_object()?.keys().next()?;
        Some(format!(
            "{{{}:null,{}",
            json!(name),
            &value.to_string()[1..]
        ))
    })
}

pub(super) fn with_prose(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    container(source, chance, is_container, |value, chance| {
        let forms = [
            format!("Here you are: {value}"),
            format!("{value} // as asked"),
            format!("{value}{value}"),
            format!("```json\n{value}\n```\nDone!"),
            format!("Sure:\n```json\n{value}\n```"),
            format!("json\n{value}"),
            format!("```\n{value}\n```\n```\n{value}\n```"),
        ];
        Some(chance.of(&forms).clone())
    })
}

pub(super) fn twice_encoded(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    container(source, chance, is_container, |value, _| {
        Some(json!(value.to_string()).to_string())
    })
}

/// Every scalar as its JSON text, as where all is written so.
pub(super) fn each_encoded(source: &Source<'_>, _: &mut Chance) -> Drawn {
    let scalars = places(&source.gold.args);
    let scalars = scalars
        .into_iter()
        .filter(|(_, value)| !is_container(value));
    let texts = scalars.map(|(at, value)| Change::Set(at, json!(value.to_string())));
    let texts: Vec<Change> = texts.collect();
    (!texts.is_empty()).then(|| Damage::of(texts))
}

/// An object in the text of one that has it under its own name, or in a wrapper.
pub(super) fn own_name_inside(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, _, name, value) = source.property(chance)?;
    let name = match chance.percent(50) {
        true => name,
        false => (*chance.of(&["arguments", "input", "params"])).to_owned(),
    };
    let sites = &source.gold.sites;
    let entries = value.as_object()?;
    let is_known = entries.contains_key(&name)
        || sites.maps.contains(&at)
        || (sites.absent.iter()).any(|(place, absent, _)| *place == at && *absent == name);
    (!is_known).then(|| Damage::set(at, json!(json!({name: value}).to_string())))
}

/// A list or an object as JSON text in which the backslashes of its texts are not escaped.
pub(super) fn under_escaped(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let has_one = |value: &Value| is_container(value) && value.to_string().contains("\\\\");
    let (at, value) = source.one(chance, has_one)?;
    Some(Damage::set(
        at,
        json!(value.to_string().replace("\\\\", "\\")),
    ))
}

/// What a text holds, where it was to be the text.
pub(super) fn json_for_its_text(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let at = chance.pick(&source.gold.sites.content)?;
    let text = source.gold.args.pointer(&at)?.as_str()?;
    Some(Damage::set(at, serde_json::from_str(text).ok()?))
}

/// Text that holds text. Where the inner one may stay a text, it may have been meant for one.
pub(super) fn text_in_text(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let has_parts = |value: &Value| is_container(value) && places(value).len() > 1;
    let (at, value) = source.one(chance, has_parts)?;
    let mut inside = places(value);
    inside.retain(|(at, part)| !at.is_empty() && is_container(part));
    let (part_at, part) = chance.pick(&inside)?;
    let mut holder = value.clone();
    *holder.pointer_mut(&part_at)? = json!(part.to_string());
    Some(Damage::set(&at, json!(holder.to_string())).or(Damage::set(&at, holder)))
}

fn write_json5(value: &Value, text: &mut String, chance: &mut Chance) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => text.push_str(&value.to_string()),
        Value::String(string) if chance.percent(70) => quote(string, '\'', text),
        Value::String(_) => text.push_str(&value.to_string()),
        Value::Array(items) => {
            text.push('[');
            for item in items {
                write_json5(item, text, chance);
                text.push_str(", ");
            }
            text.push(']');
        }
        Value::Object(entries) => {
            text.push_str("{\n");
            for (name, part) in entries {
                let plain = name
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'_');
                if plain && !name.is_empty() {
                    text.push_str(name);
                } else {
                    quote(name, '\'', text);
                }
                text.push_str(": ");
                write_json5(part, text, chance);
                let after = *chance.of(&[",\n", ", /* so */\n", ", // so\n"]);
                text.push_str(after);
            }
            text.push('}');
        }
    }
}

fn write_python(value: &Value, text: &mut String, (open, close): (char, char)) {
    match value {
        Value::Null => text.push_str("None"),
        Value::Bool(true) => text.push_str("True"),
        Value::Bool(false) => text.push_str("False"),
        Value::Number(number) => text.push_str(number.as_str()),
        Value::String(string) => {
            let mark = if string.contains('\'') && !string.contains('"') {
                '"'
            } else {
                '\''
            };
            quote(string, mark, text);
        }
        Value::Array(items) => {
            text.push(open);
            for (index, item) in items.iter().enumerate() {
                text.push_str(if index > 0 { ", " } else { "" });
                write_python(item, text, (open, close));
            }
            text.push(close);
        }
        Value::Object(entries) => {
            text.push('{');
            for (index, (name, part)) in entries.iter().enumerate() {
                text.push_str(if index > 0 { ", " } else { "" });
                quote(name, '\'', text);
                text.push_str(": ");
                write_python(part, text, (open, close));
            }
            text.push('}');
        }
    }
}

fn quote(string: &str, mark: char, text: &mut String) {
    text.push(mark);
    for character in string.chars() {
        match character {
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            '\\' => text.push_str("\\\\"),
            _ if character == mark => text.extend(['\\', mark]),
            _ => text.push(character),
        }
    }
    text.push(mark);
}
