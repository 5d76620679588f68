//! Draws the numbers and texts of which gold is made.

use proptest::{
    strategy::{Strategy, ValueTree},
    string::string_regex,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::{Number, Value};

use crate::random::Chance;

/// Words of everyday, and such as look like something else.
const TEXTS: [&str; 44] = [
    "Paris",
    "New York",
    "北京",
    "São Paulo",
    "milk",
    "blue",
    "a,b",
    "first; second",
    "5",
    "42",
    "-3",
    "9007199254740993",
    "0.5",
    "true",
    "false",
    "null",
    "None",
    "yes",
    "it's",
    "say \"hi\"",
    "O'Brien",
    "[1,2]",
    "[\"a\"]",
    "{}",
    "{\"a\":1}",
    "{'a': 1}",
    "```",
    "line one\nline two",
    "tab\there",
    " padded ",
    "C:\\temp",
    "50%",
    "5 kg",
    "1,000",
    "2026-03-04",
    "NaN",
    "// note",
    "x",
    "read/write",
    "rock & roll",
    "AC-DC",
    "😀",
    "1e3",
    "hello",
];

/// What several schemas say together about size.
pub(crate) struct Bounds<'s, 'a>(&'s [&'a Value]);

impl<'s, 'a> Bounds<'s, 'a> {
    pub(crate) const fn of(all: &'s [&'a Value]) -> Self {
        Self(all)
    }

    fn number(&self, keyword: &str, choose: fn(f64, f64) -> f64) -> Option<f64> {
        let found = self.0.iter().filter_map(|schema| schema[keyword].as_f64());
        found.reduce(choose)
    }

    pub(crate) fn least(&self, keyword: &str) -> usize {
        self.number(keyword, f64::max).map_or(0, |n| n as usize)
    }

    pub(crate) fn most(&self, keyword: &str) -> Option<usize> {
        self.number(keyword, f64::min).map(|n| n as usize)
    }
}

/// A number within its bounds, now and then one that a double does not hold.
pub(crate) fn leaf_number(
    integer: bool,
    bounds: &Bounds<'_, '_>,
    chance: &mut Chance,
) -> Option<Value> {
    let low = bounds.number("minimum", f64::max);
    let low = low.or_else(|| bounds.number("exclusiveMinimum", f64::max).map(|n| n + 1.0));
    let high = bounds.number("maximum", f64::min);
    let high = high.or_else(|| bounds.number("exclusiveMaximum", f64::min).map(|n| n - 1.0));
    let step = bounds.number("multipleOf", f64::max);
    let token = match (low, high) {
        (None, None) if step.is_none() && chance.percent(8) => "9007199254740993".to_owned(),
        (Some(low), None) if low > 1e15 => format!("{}", low as i64 + 1 + chance.below(99) as i64),
        (low, high) => {
            let low = low.unwrap_or_else(|| high.map_or(-20.0, |high| high - 60.0));
            let high = high.unwrap_or(low + 1500.0).max(low);
            let whole = low as i64 + chance.below((high - low) as usize + 1) as i64;
            let fraction = *chance.of(&["", "", ".5", ".25", ".10", ".0"]);
            if integer || step.is_some() || (whole as f64) + 1.0 > high {
                whole.to_string()
            } else {
                format!("{whole}{fraction}")
            }
        }
    };
    Some(Value::Number(Number::from_string_unchecked(token)))
}

/// A text that has the pattern, the format and the length asked for.
pub(crate) fn leaf_text(all: &[&Value], chance: &mut Chance) -> Option<String> {
    let word = |keyword: &str| all.iter().find_map(|schema| schema[keyword].as_str());
    if let Some(pattern) = word("pattern") {
        return matching(pattern, chance);
    }
    if word("contentMediaType").is_some() {
        return Some((*chance.of(&["[\"a\"]", "[5]", "{\"a\":1}"])).to_owned());
    }
    if let Some(format) = word("format") {
        return formatted(format, chance);
    }
    let bounds = Bounds::of(all);
    let (least, most) = (bounds.least("minLength"), bounds.most("maxLength"));
    let mut text = (*chance.of(&TEXTS)).to_owned();
    while text.chars().count() < least {
        text.push('k');
    }
    Some(match most {
        Some(most) => text.chars().take(most).collect(),
        None => text,
    })
}

fn matching(pattern: &str, chance: &mut Chance) -> Option<String> {
    let inner = pattern.trim_start_matches('^').trim_end_matches('$');
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&chance.next().to_le_bytes());
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    let strategy = string_regex(inner).expect("the schemas' patterns can be drawn from");
    let text = strategy.new_tree(&mut runner).ok()?.current();
    Some(text.chars().take(12).collect())
}

fn formatted(format: &str, chance: &mut Chance) -> Option<String> {
    let date = format!(
        "20{:02}-{:02}-{:02}",
        20 + chance.below(10),
        1 + chance.below(12),
        1 + chance.below(28)
    );
    Some(match format {
        "date" => date,
        "date-time" => format!("{date}T{:02}:30:00Z", chance.below(24)),
        "email" => format!("{}@example.org", chance.of(&["ann", "bo", "li.wei"])),
        "uuid" => format!(
            "0193{:04x}-7c3a-7000-8000-0242ac120002",
            chance.below(65_536)
        ),
        "uri" => format!("https://example.org/{}", chance.of(&["a", "b?c=1", "d#e"])),
        "hostname" => (*chance.of(&["example.org", "docs.example.com"])).to_owned(),
        "ipv4" => format!("10.0.0.{}", chance.below(256)),
        _ => return None,
    })
}
