//! Rules that are wrong on purpose, and that the judge finds them out: one that never says no proves nothing.

use arguments::{Coercing, Coercion, Fitted, Level, Rule, Violations};
use serde_json::{Number, Value, json};

use crate::{
    damage::{KINDS, Source},
    gold::draw,
    judge::{Case, Verdict},
    mutation::variants,
    pointer::places,
    random::Chance,
    tools::{Tool, tools},
};

const SEED: u64 = 0xbad;
/// Valid objects of each tool.
const GOLDS: usize = 30;

/// What a wrong rule makes of one value.
type WrongRule = fn(&Value) -> Option<Value>;

fn rounded(value: &Value) -> Option<Value> {
    let token = match value {
        Value::Number(number) => number.as_str(),
        Value::String(text) => text,
        _ => return None,
    };
    let number: f64 = token.parse().ok()?;
    let whole = number.is_finite().then(|| format!("{number:.0}"))?;
    Some(Value::Number(Number::from_string_unchecked(whole)))
}

fn split_at_commas(value: &Value) -> Option<Value> {
    let (first, rest) = value.as_str()?.split_once(',')?;
    let words = std::iter::once(first).chain(rest.split(',')).map(str::trim);
    Some(words.map(ToOwned::to_owned).collect())
}

/// As most languages have it: whatever is not empty is true.
fn truth(value: &Value) -> Option<Value> {
    Some(json!(!value.as_str()?.is_empty()))
}

fn without_unit(value: &Value) -> Option<Value> {
    let is_digit = |c: char| c.is_ascii_digit() || c == '.';
    let digits: String = value.as_str()?.chars().filter(|c| is_digit(*c)).collect();
    rounded(&json!(digits))
}

fn first_of_several(value: &Value) -> Option<Value> {
    value.as_array()?.first().cloned()
}

fn closed_for_it(value: &Value) -> Option<Value> {
    let text = value.as_str()?;
    let ends = ["]", "}", "\"]", "\"}", "}]", "]}"];
    ends.iter()
        .find_map(|end| serde_json::from_str(&format!("{text}{end}")).ok())
}

fn without_what_is_not_known(value: &Value) -> Option<Value> {
    let entries = value.as_object()?;
    let (last, _) = entries.iter().next_back()?;
    let kept = entries.iter().filter(|(name, _)| *name != last);
    Some(
        kept.map(|(name, part)| (name.clone(), part.clone()))
            .collect(),
    )
}

/// The first place at which the rule makes the whole fit.
fn fit(tool: &Tool, damaged: &Value, rule: WrongRule) -> Result<Fitted, Violations> {
    for (at, value) in places(damaged) {
        let mut args = damaged.clone();
        let Some(made) = rule(value) else { continue };
        *args.pointer_mut(&at).expect("it was found there") = made;
        if tool.schema.is_valid(&args) {
            let coercions = vec![Coercion {
                path: at,
                rule: Rule::StringToNumber,
            }];
            return Ok(Fitted { args, coercions });
        }
    }
    Err(tool.schema.validate(damaged))
}

/// How often each verdict was given on a rule, for one kind of damage.
fn verdicts(tools: &[Tool], kind: &str, rule: WrongRule) -> Vec<Verdict> {
    let kind = KINDS
        .iter()
        .find(|known| known.name == kind)
        .expect("such a kind");
    let mut verdicts = Vec::new();
    for (part, tool) in tools.iter().enumerate() {
        let mut chance = Chance::new(SEED, part as u64);
        let golds: Vec<_> = (0..GOLDS)
            .filter_map(|_| draw(&tool.schema, &mut chance))
            .collect();
        for gold in &golds {
            let source = Source {
                gold,
                tool: &tool.name,
                schema: &tool.schema,
            };
            let Some(damage) = (kind.draw)(&source, &mut chance) else {
                continue;
            };
            let Some(damaged) = damage.of_args(&gold.args) else {
                continue;
            };
            if tool.schema.is_valid(&damaged) {
                continue;
            }
            let case = Case {
                schema: &tool.schema,
                how: Coercing {
                    level: Level::Read,
                    tool: &tool.name,
                },
                damaged: &damaged,
                gold: &gold.args,
                variants: &variants(tool, gold, &damage, &damaged),
            };
            verdicts.push(case.judge_of(fit(tool, &damaged, rule)).0);
        }
    }
    verdicts
}

#[test]
fn wrong_rules_are_found_out() {
    let tools = tools(SEED);
    let rules: [(&str, &str, WrongRule); 7] = [
        ("rounding", "number: 5.5 for an integer", rounded),
        ("splitting", "list joined: comma", split_at_commas),
        ("truth", "boolean: yes, on", truth),
        ("taking off units", "number: 50%", without_unit),
        (
            "the first of two",
            "array of two for value",
            first_of_several,
        ),
        ("closing", "JSON text cut off", closed_for_it),
        (
            "leaving out",
            "key: another word",
            without_what_is_not_known,
        ),
    ];
    for (name, kind, rule) in rules {
        let verdicts = verdicts(&tools, kind, rule);
        let thirds = verdicts.iter().filter(|v| **v == Verdict::Third).count();
        println!(
            "{name}: {thirds} of {} became a third value",
            verdicts.len()
        );
        assert!(thirds > 0, "{name} is not found out");
    }
}
