//! What became of damaged arguments.

use arguments::{Coercing, Coercion, Fitted, Level, Rule, Schema, Violation, Violations};
use serde_json::{Map, Value};

use crate::{
    pointer::{split, under},
    wrapped::is_wrapped,
};

/// What became of one case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The damaged arguments fit as they are, and were left as they are; defaults aside.
    StillValid,
    /// What came out is what was there before the damage.
    Recovered,
    /// What came out may have been meant as well, see [`Case::variants`].
    Variant,
    /// They were refused.
    Refused,
    /// Something else came out, or what fits was touched. It must not happen.
    Third,
}

/// One case at one level.
pub(crate) struct Case<'a> {
    pub(crate) schema: &'a Schema,
    pub(crate) how: Coercing<'a>,
    pub(crate) damaged: &'a Value,
    /// What was there before the damage.
    pub(crate) gold: &'a Value,
    /// What fits and may have been meant as well: of several damages, gold after one that leaves it valid, which cannot be
    /// told from what was meant; and what was sent, read in another way.
    pub(crate) variants: &'a [Value],
}

impl Case<'_> {
    /// The verdict, and what came out.
    pub(crate) fn judge(&self) -> (Verdict, Option<Fitted>) {
        self.judge_of(self.schema.fit(self.damaged.clone(), self.how))
    }

    /// The same of what was made of it.
    pub(crate) fn judge_of(&self, fitted: Result<Fitted, Violations>) -> (Verdict, Option<Fitted>) {
        let wrapped = is_wrapped(self.schema, self.damaged, self.how.tool);
        if !wrapped && self.schema.is_valid(self.damaged) {
            let fitted = fitted.expect("what fits is not refused");
            let touched = !adds_defaults_alone(self.damaged, &fitted)
                || (self.how.level == Level::Off && !fitted.coercions.is_empty());
            let verdict = if touched {
                Verdict::Third
            } else {
                Verdict::StillValid
            };
            return (verdict, Some(fitted));
        }
        match fitted {
            Err(violations) => {
                assert!(
                    tells_of(&violations, self.schema, self.damaged),
                    "what is told is what is wrong with what was sent: {violations:?}"
                );
                (Verdict::Refused, None)
            }
            Ok(fitted) if self.how.level == Level::Off => (Verdict::Third, Some(fitted)),
            Ok(fitted) if self.is(self.gold, &fitted) => (Verdict::Recovered, Some(fitted)),
            Ok(fitted)
                if self
                    .variants
                    .iter()
                    .any(|variant| self.is(variant, &fitted)) =>
            {
                (Verdict::Variant, Some(fitted))
            }
            Ok(fitted) => (Verdict::Third, Some(fitted)),
        }
    }

    fn is(&self, meant: &Value, fitted: &Fitted) -> bool {
        let whole = self.schema.fit(meant.clone(), self.how);
        whole.is_ok_and(|whole| same(&whole.args, &fitted.args))
    }
}

/// Whether what is told is what is wrong with what was sent, or that it stands in a wrapper.
pub(crate) fn tells_of(violations: &Violations, schema: &Schema, sent: &Value) -> bool {
    let is_wrapper = |item: &Violation| {
        item.keyword == "wrapper"
            && sent
                .pointer(&item.path)
                .is_some_and(|_| split(&item.path).is_some())
    };
    violations.items().iter().any(is_wrapper) || *violations == schema.validate(sent)
}

/// Whether nothing was done to valid arguments but to fill in defaults, and each of them is told.
pub(crate) fn adds_defaults_alone(sent: &Value, fitted: &Fitted) -> bool {
    let told = |path: &str| fitted.coercions.iter().any(|c| c.path == path);
    // What is filled into a default is one, too.
    let absent = |path: &str| sent.pointer(path).is_none() && fitted.args.pointer(path).is_some();
    let defaults = |c: &Coercion| c.rule == Rule::Default && absent(&c.path);
    fitted.coercions.iter().all(defaults) && grown(sent, &fitted.args, "", &mut |path| told(path))
}

/// Whether a value is another with nothing but properties more, all of which are `allowed`.
fn grown(less: &Value, more: &Value, at: &str, allowed: &mut dyn FnMut(&str) -> bool) -> bool {
    match (less, more) {
        (Value::Array(less), Value::Array(more)) => {
            less.len() == more.len()
                && (less.iter().zip(more).enumerate())
                    .all(|(index, (l, m))| grown(l, m, &under(at, &index.to_string()), allowed))
        }
        (Value::Object(less), Value::Object(more)) => {
            less.keys().all(|name| more.contains_key(name))
                && more.iter().all(|(name, value)| match less.get(name) {
                    Some(before) => grown(before, value, &under(at, name), allowed),
                    None => allowed(&under(at, name)),
                })
        }
        // Numbers to the letter: 5.0 is not to become 5 where it fits.
        _ => less == more,
    }
}

/// Whether two values are the same, numbers being compared as the decimals they are.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            Decimal::of(one.as_str()) == Decimal::of(other.as_str())
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => same_entries(one, other),
        _ => one == other,
    }
}

fn same_entries(one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    one.len() == other.len()
        && one
            .iter()
            .all(|(name, value)| other.get(name).is_some_and(|found| same(value, found)))
}

/// A number without what may be written in more than one way.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    fn of(token: &str) -> Self {
        let unsigned = token.trim_start_matches('-');
        let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let exponent: i64 = exponent.parse().expect("an exponent is an integer");
        let digits = all.trim_matches('0');
        let trailing = all.len() - all.trim_end_matches('0').len();
        if digits.is_empty() {
            return Self {
                negative: false,
                digits: String::new(),
                exponent: 0,
            };
        }
        Self {
            negative: token.starts_with('-'),
            digits: digits.to_owned(),
            exponent: exponent - fraction.len() as i64 + trailing as i64,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn number(token: &str) -> Value {
        serde_json::from_str(token).unwrap()
    }

    #[test]
    fn numbers_are_the_same_as_the_decimals_they_are() {
        for (one, other) in [
            ("5", "5.0"),
            ("5", "50e-1"),
            ("-0.0", "0"),
            ("1200", "1.2e3"),
            ("0.10", "0.1"),
        ] {
            assert!(same(&number(one), &number(other)), "{one} {other}");
        }
        for (one, other) in [
            ("5", "-5"),
            ("9007199254740993", "9007199254740992"),
            ("10", "1"),
            ("0.1", "0.01"),
        ] {
            assert!(!same(&number(one), &number(other)), "{one} {other}");
        }
        assert!(!same(&json!({"a": 1}), &json!({"a": "1"})));
        assert!(!same(&json!({"a": 1}), &json!({"a": 1, "b": null})));
    }

    #[test]
    fn a_wrapper_that_runs_as_it_is_is_a_third_value() {
        let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        let schema = Schema::compile_input(&schema).unwrap();
        let (gold, how) = (
            json!({"city": "Oslo"}),
            Coercing {
                level: Level::Read,
                tool: "t",
            },
        );
        for damaged in [
            json!({"args": gold}),
            json!({"t": gold}),
            json!({"name": "t", "args": gold}),
            json!({"id": "c1", "type": "function", "function": {"name": "t", "arguments": gold}}),
            json!({"type": "function_call", "call_id": "c1", "name": "t", "arguments": gold, "status": "completed"}),
            json!({"type": "tool_use", "id": "c1", "name": "t", "input": gold, "caller": {"type": "direct"}}),
            json!({"functionCall": {"name": "t", "args": gold}, "thoughtSignature": "c2ln"}),
            json!({"Args": gold}),
        ] {
            let fitted = Fitted {
                args: damaged.clone(),
                coercions: Vec::new(),
            };
            let case = Case {
                schema: &schema,
                how,
                damaged: &damaged,
                gold: &gold,
                variants: &[],
            };
            assert_eq!(case.judge_of(Ok(fitted)).0, Verdict::Third, "{damaged}");
            let fitted = Fitted {
                args: gold.clone(),
                coercions: Vec::new(),
            };
            assert_eq!(case.judge_of(Ok(fitted)).0, Verdict::Recovered, "{damaged}");
        }
    }

    #[test]
    fn a_default_that_is_not_told_is_a_touch() {
        let fitted = |args: Value, paths: &[&str]| Fitted {
            args,
            coercions: paths
                .iter()
                .map(|path| Coercion {
                    path: (*path).to_owned(),
                    rule: Rule::Default,
                })
                .collect(),
        };
        let sent = json!({"a": {"b": 5}});
        assert!(adds_defaults_alone(
            &sent,
            &fitted(json!({"a": {"b": 5, "c": 1}}), &["/a/c"])
        ));
        assert!(!adds_defaults_alone(
            &sent,
            &fitted(json!({"a": {"b": 5, "c": 1}}), &[])
        ));
        assert!(!adds_defaults_alone(
            &sent,
            &fitted(json!({"a": {"b": 5}}), &["/a/c"])
        ));
        assert!(!adds_defaults_alone(&sent, &fitted(json!({"a": {}}), &[])));
        assert!(!adds_defaults_alone(
            &sent,
            &fitted(json!({"a": {"b": number("5.0")}}), &[])
        ));
    }
}
