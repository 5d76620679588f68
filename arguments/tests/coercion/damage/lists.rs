//! Damage to arrays, and to what should not be one.

use serde_json::{Map, Value, json};

use super::{Change, Damage, Source};
use crate::{
    pointer::{overlap, places},
    random::Chance,
};

type Drawn = Option<Damage>;

fn array_of(
    source: &Source<'_>,
    chance: &mut Chance,
    asked: impl Fn(&[Value]) -> bool,
) -> Option<(String, Vec<Value>)> {
    let asked = |value: &Value| value.as_array().is_some_and(|items| asked(items));
    let (at, value) = source.one(chance, asked)?;
    Some((at, value.as_array()?.clone()))
}

/// Nothing and the empty text are left out, for they say that there is no value, and so is the text of an array: it is
/// one.
pub(super) fn one_for_array(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let stands_alone = |item: &Value| match item {
        Value::Null => false,
        Value::String(text) => !text.is_empty() && !is_text_of_array(item),
        Value::Array(_) => !places(item).iter().any(|(_, part)| is_text_of_array(part)),
        _ => true,
    };
    let (at, items) = array_of(
        source,
        chance,
        |items| matches!(items, [item] if stands_alone(item)),
    )?;
    Some(Damage::set(at, items[0].clone()))
}

fn is_text_of_array(value: &Value) -> bool {
    (value.as_str()).is_some_and(|text| text.trim_start().starts_with('['))
}

pub(super) fn array_for_one(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, value) = source.one(chance, |_| true)?;
    Some(Damage::set(at, json!([value])))
}

pub(super) fn two_for_one(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, value) = source.one(chance, |value| !value.is_array())?;
    let second = if chance.percent(50) {
        value
    } else {
        &Value::Null
    };
    // Where a union takes an array of texts, that is what it is.
    let texts = json!([value.to_string(), second.to_string()]);
    Some(Damage::set(at.clone(), json!([value, second])).or(Damage::set(at, texts)))
}

pub(super) fn null_inside(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, mut items) = array_of(source, chance, |_| true)?;
    items.insert(chance.below(items.len() + 1), Value::Null);
    Some(Damage::set(at, Value::Array(items)))
}

pub(super) fn empty_container(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, value) = source.one(chance, |_| true)?;
    let empty = match value {
        // Of an array of one such object, it is the object.
        Value::Array(items) if items.is_empty() || items[0] == json!({}) => return None,
        Value::Array(_) => json!({}),
        Value::Object(_) => json!([]),
        _ => chance.of(&[json!([]), json!({})]).clone(),
    };
    Some(Damage::set(at, empty))
}

pub(super) fn as_index_map(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, items) = array_of(source, chance, |items| !items.is_empty())?;
    let numbered = items.into_iter().enumerate();
    let entries: Map<_, _> = numbered
        .map(|(index, item)| (index.to_string(), item))
        .collect();
    Some(Damage::set(at, Value::Object(entries)))
}

/// As programs write a map when they have none: `[["a", 1]]`, `[{"key": "a", "value": 1}]`.
pub(super) fn as_pairs(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, value) = source.one(chance, |value| {
        value.as_object().is_some_and(|entries| !entries.is_empty())
    })?;
    let with_names = chance.percent(50);
    let pair = |(name, part): (&String, &Value)| match with_names {
        true => json!({"key": name, "value": part}),
        false => json!([name, part]),
    };
    let pairs: Vec<Value> = value.as_object()?.iter().map(pair).collect();
    Some(Damage::set(at, Value::Array(pairs)))
}

pub(super) fn in_wrapper(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, items) = array_of(source, chance, |_| true)?;
    let name = *chance.of(&["item", "items", "list", "values", "element"]);
    Some(Damage::set(at, json!({name: items})))
}

fn joined(source: &Source<'_>, chance: &mut Chance, by: &[&str]) -> Drawn {
    let scalars = |items: &[Value]| {
        items.len() > 1
            && items
                .iter()
                .all(|item| item.is_string() || item.is_number())
    };
    let (at, items) = array_of(source, chance, scalars)?;
    let words: Vec<String> = items
        .iter()
        .map(|item| {
            item.as_str()
                .map_or_else(|| item.to_string(), ToOwned::to_owned)
        })
        .collect();
    Some(Damage::set(at, json!(words.join(*chance.of(by)))))
}

pub(super) fn joined_by_comma(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    joined(source, chance, &[",", ", "])
}

pub(super) fn joined_by_space(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    joined(source, chance, &[" ", "\n", "\t"])
}

pub(super) fn joined_by_semicolon(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    joined(source, chance, &[";", "; "])
}

/// By whatever may stand between words; not by nothing, and not by `_`, which only programs put between the parts of one.
pub(super) fn joined_otherwise(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let by = [
        "|", "/", "&", "+", "-", "–", "~", ".", ":", "=", "*", "#", "@", " and ", " or ", " - ",
        " | ", "\n", "\\", "\u{3000}", "\r\n", "、", "，", "；", "／", "｜", "和", "与", "及",
        "或", "以及", " 和 ", "·", "•", "→", "…",
    ];
    joined(source, chance, &by)
}

/// Two words in one, as programs write them.
pub(super) fn joined_to_one_word(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    if chance.percent(50) {
        return joined(source, chance, &["_and_", "_or_", "_to_", "_und_"]);
    }
    let is_word = |item: &Value| {
        let text = item.as_str().unwrap_or_default();
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase())
    };
    let (at, items) = array_of(source, chance, |items| {
        items.len() > 1 && items.iter().all(is_word)
    })?;
    let by = *chance.of(&["And", "Or", "To"]);
    let words = items.iter().filter_map(Value::as_str).map(|word| {
        let (first, rest) = word.split_at(1);
        format!("{}{rest}", first.to_uppercase())
    });
    let words: Vec<String> = words.collect();
    Some(Damage::set(at, json!(words.join(by))))
}

/// A number for none of them, or for all.
pub(super) fn number_for_list(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, _) = array_of(source, chance, |_| true)?;
    Some(Damage::set(at, json!(*chance.of(&[0, -1]))))
}

/// A list and a text, each in the other's place; the list as it is, or as its text.
pub(super) fn swapped_with_text(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let is_texts = |items: &[Value]| !items.is_empty() && items.iter().all(Value::is_string);
    let (list, items) = array_of(source, chance, is_texts)?;
    let (place, text) = source.one(chance, Value::is_string)?;
    (!overlap(&list, &place)).then_some(())?;
    let there = match items.len() > 1 || chance.percent(50) {
        true => json!(json!(items).to_string()),
        false => json!(items),
    };
    let changes = vec![Change::Set(list, text.clone()), Change::Set(place, there)];
    Some(Damage::of(changes))
}

/// A word for nothing, for all, or for what the tool is to choose.
pub(super) fn word_for_list(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, _) = array_of(source, chance, |_| true)?;
    let words = [
        "unknown",
        "default",
        "all",
        "All",
        "ALL",
        "none",
        "None",
        "any",
        "n/a",
        "N/A",
        "null",
        "no_preference",
        "not_specified",
        "NotSpecified",
        "all_of_them",
        "anyType",
        "string",
        "すべて",
        "все",
        "everything",
        "*",
        "-",
        "无",
        "全部",
        "所有",
        "默认",
        "任意",
        "不限",
        "未知",
    ];
    let word = *chance.of(&words);
    // Of "ALL" where the tool takes "all", that is meant.
    let in_lower_case = Damage::set(at.as_str(), json!(word.to_ascii_lowercase()));
    Some(Damage::set(at, json!(word)).or(in_lower_case))
}
