//! Damage to booleans, words and texts.

use serde_json::{Value, json};

use super::{
    Change, Damage, Source,
    numbers::{exactly, to_one, token},
};
use crate::{gold::NOTHING, pointer::under, random::Chance};

type Drawn = Option<Damage>;

pub(super) fn boolean_as_text(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    to_one(source, chance, Value::is_boolean, |value, chance| {
        let word = token(value);
        let title = format!("{}{}", word[..1].to_uppercase(), &word[1..]);
        let padded = format!(" {word}\n");
        Some(json!(chance.of(&[
            word.to_uppercase(),
            title,
            padded,
            word
        ])))
    })
}

/// Only a text that can be told from the integer: of `007` the zeros would be lost before anything was sent.
pub(super) fn integer_for_text(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let is_integer_text = |value: &Value| {
        let text = value.as_str().unwrap_or_default();
        text.parse::<i64>().is_ok_and(|n| n.to_string() == text)
    };
    to_one(source, chance, is_integer_text, |value, _| {
        Some(exactly(value.as_str()?))
    })
}

pub(super) fn boolean_for_text(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let chosen = &source.gold.sites.chosen;
    let is_free = |at: &str| !chosen.iter().any(|place| place == at);
    let (at, value) = source.one(chance, |value| boolean_of(value).is_some())?;
    let boolean = boolean_of(value).filter(|_| is_free(&at))?;
    Some(Damage::read_as(&at, json!(boolean)))
}

/// Where only one of the allowed words says it; of two it cannot be known which.
pub(super) fn boolean_for_word(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, word) = source.chosen(chance)?;
    Some(Damage::read_as(&at, json!(boolean_of(&json!(word))?)))
}

fn boolean_of(value: &Value) -> Option<bool> {
    value.as_str()?.to_ascii_lowercase().parse().ok()
}

/// Not where the tool has a word of its own for nothing: what it means there, is not known.
pub(super) fn null_for_absent(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let sites = &source.gold.sites;
    let (at, name, _) = chance.pick(&sites.absent)?;
    let is_in_doubt = sites.in_doubt.contains(&under(&at, &name));
    (!is_in_doubt).then(|| Damage::add(at, name, Value::Null))
}

fn absent_not_text(source: &Source<'_>, chance: &mut Chance, value: Value) -> Drawn {
    let (at, name, text) = chance.pick(&source.gold.sites.absent)?;
    (!text).then(|| Damage::add(at, name, value))
}

pub(super) fn empty_for_absent(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    absent_not_text(source, chance, json!(""))
}

pub(super) fn null_text_for_absent(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let text = *chance.of(&["null", "None", "undefined", "N/A", "-"]);
    let (at, name, is_text) = chance.pick(&source.gold.sites.absent)?;
    // Of "None" where the tool takes "none", that is meant.
    let in_lower_case = Damage::add(&at, &name, json!(text.to_ascii_lowercase()));
    (!is_text).then(|| Damage::add(at, name, json!(text)).or(in_lower_case))
}

pub(super) fn word_in_other_case(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, word) = source.chosen(chance)?;
    let padded = format!(" {word} ");
    let forms = [word.to_uppercase(), word.to_lowercase(), padded];
    Some(Damage::set(at, json!(chance.of(&forms))))
}

pub(super) fn word_nearly(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, word) = source.chosen(chance)?;
    let mut letters = word.chars();
    letters.next_back();
    let forms = [
        word.replace(['_', '-', ' '], "."),
        word.replace(['_', '-', ' '], ""),
        letters.as_str().to_owned(),
        word.chars().take(1).collect(),
        format!("{word}s"),
        format!("{word}."),
        format!("\"{word}\""),
        format!("the {word}"),
    ];
    let form = chance.of(&forms);
    // Of a short word such a form may be another of the words.
    (form.len() > 2 && form != word).then(|| Damage::set(at, json!(form)))
}

pub(super) fn word_by_index(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, word) = source.chosen(chance)?;
    // A word that is a number itself may be meant by it.
    if word.parse::<f64>().is_ok() {
        return None;
    }
    Some(Damage::read_as(&at, json!(chance.below(3))))
}

pub(super) fn yes_no(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    to_one(source, chance, Value::is_boolean, |value, chance| {
        let (yes, no) = *chance.of(&[
            ("yes", "no"),
            ("on", "off"),
            ("Y", "N"),
            ("t", "f"),
            ("enabled", "disabled"),
            ("是", "否"),
        ]);
        Some(json!(if value == &json!(true) { yes } else { no }))
    })
}

/// Where a number or a text fits as well, that is what it is.
pub(super) fn one_zero(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, value) = source.one(chance, Value::is_boolean)?;
    let number = json!(i32::from(value == &json!(true)));
    if chance.percent(50) {
        return Some(Damage::read_as(&at, number));
    }
    let as_number = Damage::set(at.clone(), number.clone());
    Some(Damage::read_as(&at, json!(number.to_string())).or(as_number))
}

pub(super) fn other_date(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let is_date = |value: &Value| {
        value
            .as_str()
            .is_some_and(|text| text.starts_with("20") && text.get(4..5) == Some("-"))
    };
    to_one(source, chance, is_date, |value, chance| {
        let text = value.as_str()?;
        let (year, month, day) = (text.get(..4)?, text.get(5..7)?, text.get(8..10)?);
        let forms = [
            format!("{day}.{month}.{year}"),
            format!("{month}/{day}/{year}"),
            format!("{year}/{month}/{day}"),
            format!("{year}{month}{day}"),
            format!("March {day}, {year}"),
            "tomorrow".to_owned(),
            format!("{year}-{month}-{day} 10:00"),
            format!(" {text}"),
        ];
        Some(json!(chance.of(&forms)))
    })
}

/// Nothing and the empty text are not among them: they say that there is no value.
fn is_scalar(value: &Value) -> bool {
    !matches!(value, Value::Array(_) | Value::Object(_) | Value::Null) && value != ""
}

pub(super) fn object_for_scalar(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    to_one(source, chance, is_scalar, |value, chance| {
        Some(match chance.below(4) {
            0 => json!({"name": value}),
            1 => json!({"type": "string", "value": value}),
            2 => json!({"$value": value}),
            _ => json!({"value": value}),
        })
    })
}

pub(super) fn scalar_for_object(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    to_one(source, chance, Value::is_object, |value, _| {
        // The text of an object would be one.
        let is_text_of_object = |text: &str| text.trim_start().starts_with('{');
        let says_nothing_else =
            |part: &&Value| is_scalar(part) && !part.as_str().is_some_and(is_text_of_object);
        value.as_object()?.values().find(says_nothing_else).cloned()
    })
}

/// Nothing, where a word or `false` says it and something else is filled in.
pub(super) fn nothing_for_its_word(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let sites = &source.gold.sites;
    let value = |at: &&String| source.gold.args.pointer(at);
    let is_word = |at: &&String| {
        value(at)
            .and_then(Value::as_str)
            .is_some_and(|word| NOTHING.contains(&word))
    };
    let words = sites.chosen.iter().filter(is_word);
    let booleans = sites
        .filled
        .iter()
        .filter(|at| value(at) == Some(&json!(false)));
    let at = chance.pick(&words.chain(booleans).collect::<Vec<_>>())?;
    let nothing = chance.of(&[json!(null), json!("")]).clone();
    Some(Damage::set(at.as_str(), nothing))
}

/// An integer for a text of which the schema shows that it is none.
pub(super) fn integer_for_shown_text(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let at = chance.pick(&source.gold.sites.shown)?;
    Some(Damage::set(at, json!(1 + chance.below(30))))
}

/// A value under the name of another that is absent, and nothing under its own. Where the value fits there, or nothing fits where
/// it stood, that may be what was meant; and the text of a list or an object is taken for one.
pub(super) fn moved_beside_nothing(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, parent, _, value) = source.property(chance)?;
    let is_container = |text: &str| text.trim_start().starts_with(['[', '{']);
    let is_taken = value.is_null() || value == "" || value.as_str().is_some_and(is_container);
    (!is_taken).then_some(())?;
    let absent = source.gold.sites.absent.iter();
    let names: Vec<_> = absent.filter(|(place, ..)| *place == parent).collect();
    let (_, name, _) = chance.pick(&names)?;
    let nothing = chance.of(&[json!(null), json!("")]).clone();
    let fits = |damage: &Damage| {
        let args = damage.of_args(&source.gold.args);
        args.is_none_or(|args| source.schema.is_valid(&args))
    };
    let may_be_meant = fits(&Damage::moved(&at, value.clone(), &parent, name))
        || fits(&Damage::set(at.as_str(), nothing.clone()));
    (!may_be_meant).then(|| {
        Damage::of(vec![
            Change::Set(at, nothing),
            Change::Add(parent, name.clone(), value.clone()),
        ])
    })
}
