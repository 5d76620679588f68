//! Damage to numbers.

use serde_json::{Number, Value, json};

use super::{Damage, Source};
use crate::random::Chance;

type Drawn = Option<Damage>;

/// Damages one of the values that `asked` lets through.
pub(super) fn to_one(
    source: &Source<'_>,
    chance: &mut Chance,
    asked: fn(&Value) -> bool,
    make: impl FnOnce(&Value, &mut Chance) -> Option<Value>,
) -> Drawn {
    let (at, value) = source.one(chance, asked)?;
    Some(Damage::read_as(&at, make(value, chance)?))
}

pub(super) fn token(value: &Value) -> String {
    value.to_string()
}

pub(super) fn exactly(token: impl Into<String>) -> Value {
    Value::Number(Number::from_string_unchecked(token.into()))
}

fn is_integer(value: &Value) -> bool {
    value.is_number() && token(value).parse::<i64>().is_ok()
}

/// An integer that is small enough to calculate with.
fn small(value: &Value) -> Option<i64> {
    token(value)
        .parse()
        .ok()
        .filter(|n| (0..1_000_000_000).contains(n))
}

pub(super) fn number_as_text(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    to_one(source, chance, Value::is_number, |value, chance| {
        let before = chance.of(&["", "", " ", "\n"]);
        let after = chance.of(&["", "", " ", "\t"]);
        Some(json!(format!("{before}{}{after}", token(value))))
    })
}

pub(super) fn integer_as_decimal_text(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    to_one(source, chance, is_integer, |value, chance| {
        Some(json!(format!(
            "{}{}",
            token(value),
            chance.of(&[".0", ".00", "e0"])
        )))
    })
}

pub(super) fn integral_float(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    to_one(source, chance, is_integer, |value, chance| {
        Some(exactly(format!(
            "{}{}",
            token(value),
            chance.of(&[".0", ".00"])
        )))
    })
}

fn grouped(value: &Value, mark: &str) -> Option<String> {
    let n = small(value).filter(|n| (1_000..1_000_000).contains(n))?;
    Some(format!("{}{mark}{:03}", n / 1_000, n % 1_000))
}

pub(super) fn thousands(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    to_one(source, chance, is_integer, |value, chance| {
        let mark = chance.of(&[",", " ", "_", "'", "\u{a0}", "\u{202f}"]);
        Some(json!(grouped(value, mark)?))
    })
}

/// As half of Europe writes it, for integers alone: where a decimal may stand `1.230` cannot be told from a correct
/// 1.230. Of a union with such a place for it, that is what it is.
pub(super) fn thousands_by_point(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let at = chance.pick(&source.gold.sites.integers)?;
    let text = grouped(source.gold.args.pointer(&at)?, ".")?;
    let as_decimal = Damage::set(at.clone(), exactly(text.clone()));
    Some(Damage::read_as(&at, json!(text)).or(as_decimal))
}

/// The same wherever a number may stand, if it ends in 0: hardly anyone writes three decimals and the last of them 0.
pub(super) fn round_thousands_by_point(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    to_one(source, chance, is_integer, |value, chance| {
        let n = small(value)?;
        let (thousands, rest) = match n {
            1..1_000 => (n, 0),
            1_000..1_000_000 if n % 10 == 0 => (n / 1_000, n % 1_000),
            _ => return None,
        };
        Some(json!(format!(
            "{}{thousands}.{rest:03}",
            chance.of(&["", " "])
        )))
    })
}

pub(super) fn percent(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    to_one(source, chance, Value::is_number, |value, chance| {
        Some(json!(format!(
            "{}{}",
            token(value),
            chance.of(&["%", " %", " percent"])
        )))
    })
}

pub(super) fn unit(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    to_one(source, chance, Value::is_number, |value, chance| {
        let n = token(value);
        let forms = [
            format!("{n} kg"),
            format!("{n}px"),
            format!("${n}"),
            format!("{n} €"),
            format!("~{n}"),
        ];
        Some(json!(chance.of(&forms)))
    })
}

pub(super) fn hexadecimal(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    to_one(source, chance, is_integer, |value, chance| {
        let n = small(value)?;
        Some(json!(chance.of(&[
            format!("{n:#x}"),
            format!("{n:#b}"),
            format!("{n:#o}")
        ])))
    })
}

pub(super) fn in_words(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    to_one(source, chance, Value::is_number, |_, chance| {
        Some(json!(chance.of(&[
            "five",
            "zero",
            "two hundred",
            "a few",
            "三"
        ])))
    })
}

pub(super) fn other_grammar(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    to_one(source, chance, is_integer, |value, chance| {
        let n = small(value)?;
        let wide: String = n
            .to_string()
            .chars()
            .filter_map(|digit| char::from_u32(digit as u32 - '0' as u32 + '０' as u32))
            .collect();
        let forms = [
            format!("+{n}"),
            format!("0{n}"),
            format!("{n}."),
            format!("{n},0"),
            format!("({n})"),
            format!("{n}\u{a0}"),
            format!("- {n}"),
            format!("{n}/1"),
            wide,
        ];
        Some(json!(chance.of(&forms)))
    })
}

pub(super) fn not_a_number(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    to_one(source, chance, Value::is_number, |_, chance| {
        Some(json!(chance.of(&[
            "NaN",
            "Infinity",
            "-Infinity",
            "n/a",
            "unknown",
            "-",
            "null",
            "None"
        ])))
    })
}

/// Where any number fits, it is another number, but no mistake.
pub(super) fn fraction(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, value) = source.one(chance, is_integer)?;
    let digits = chance.of(&["5", "9", "0000000000000000000001"]);
    let near = format!("{}.{digits}", token(value));
    let as_number = Damage::set(at.clone(), exactly(near.clone()));
    Some(if chance.percent(50) {
        Damage::read_as(&at, json!(near)).or(as_number)
    } else {
        as_number
    })
}

pub(super) fn too_large(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    to_one(source, chance, Value::is_number, |_, chance| {
        let texts = [
            "1e400",
            "18446744073709551616",
            "9007199254740992.5000000000000000000000000000000000000000000001x",
        ];
        Some(json!(chance.of(&texts)))
    })
}
