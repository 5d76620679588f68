//! What holds of `Schema::fit` whatever is put into it.

use arguments::{Coercing, Coercion, Level, Limits, Rule, Schema, canonical, parse_any};
use serde_json::Value;

use crate::{
    judge::{adds_defaults_alone, tells_of},
    pointer::{places, split},
    wrapped::is_wrapped,
};

const CHANGES_MAX: usize = 64;
const DEFAULTS_MAX: usize = 256;
const PATH_BYTES: usize = 512;

/// Says which law is broken; nothing when all hold.
pub(crate) fn broken(schema: &Schema, sent: &Value, how: Coercing<'_>) -> Result<(), String> {
    let law = |name: &str, holds: bool| {
        if holds {
            Ok(())
        } else {
            Err(format!("{name} ({})", how.level))
        }
    };
    let first = schema.fit(sent.clone(), how);
    let again = schema.fit(sent.clone(), how);
    let is_valid = !is_wrapped(schema, sent, how.tool) && schema.is_valid(sent);
    let fitted = match (first, again) {
        (Err(one), Err(two)) => {
            law("the same is said twice", one == two)?;
            law("what fits is not refused", !is_valid)?;
            law("something is wrong with what is refused", !one.is_empty())?;
            return law(
                "what is wrong is what is wrong with what was sent",
                tells_of(&one, schema, sent),
            );
        }
        (Ok(one), Ok(two)) if one == two => one,
        _ => return law("the same comes out twice", false),
    };
    law("what comes out fits", schema.is_valid(&fitted.args))?;
    if is_valid {
        law(
            "what fits gets defaults alone",
            adds_defaults_alone(sent, &fitted),
        )?;
    }
    let changed = canonical::to_text(sent) != canonical::to_text(&fitted.args);
    law(
        "what changes is told, and nothing else",
        changed != fitted.coercions.is_empty(),
    )?;
    law(
        "nothing is done where it is off",
        how.level != Level::Off || !changed,
    )?;
    let again = schema.fit(fitted.args.clone(), how);
    law(
        "what came out stays as it is",
        again.is_ok_and(|again| again.coercions.is_empty() && again.args == fitted.args),
    )?;
    let defaults = fitted
        .coercions
        .iter()
        .filter(|c| c.rule == Rule::Default)
        .count();
    law("there are not too many defaults", defaults <= DEFAULTS_MAX)?;
    law(
        "there are not too many changes",
        fitted.coercions.len() - defaults <= CHANGES_MAX,
    )?;
    for coercion in &fitted.coercions {
        let told = format!("{} {}", coercion.path, coercion.rule);
        law(
            &format!("{told}: the level has the rule"),
            allows(how.level, coercion.rule),
        )?;
        law(
            &format!("{told}: the path is there"),
            points(&fitted.args, coercion),
        )?;
    }
    if let Some(name) = new_key(sent, &fitted.args, &fitted.coercions) {
        law(&format!("there is no new key {name}"), false)?;
    }
    let passes =
        |value: &Value| parse_any(canonical::to_text(value).as_bytes(), &Limits::DEFAULT).is_ok();
    law(
        "what came through the door would come through it",
        !passes(sent) || passes(&fitted.args),
    )
}

fn allows(level: Level, rule: Rule) -> bool {
    let read = matches!(
        rule,
        Rule::RelaxedJson | Rule::ValueToArray | Rule::ArrayToValue
    );
    match level {
        Level::Off => false,
        Level::Safe => !read,
        Level::Read => true,
    }
}

/// Whether the path of a change is that of a value that is there, or of one that was left out of an object that is.
fn points(args: &Value, coercion: &Coercion) -> bool {
    let path = &coercion.path;
    if path.len() > PATH_BYTES {
        return false;
    }
    let removed = matches!(coercion.rule, Rule::NullRemoved | Rule::EmptyRemoved);
    if path.ends_with('…') && path.len() > PATH_BYTES - 8 {
        return true;
    }
    if removed {
        split(path).is_some_and(|(parent, _)| args.pointer(parent).is_some_and(Value::is_object))
    } else {
        args.pointer(path).is_some()
    }
}

/// A key that was neither sent, nor stood in a text that was sent, nor came with a default.
fn new_key(sent: &Value, args: &Value, coercions: &[Coercion]) -> Option<String> {
    let is_key_of = |whole: &Value, at: &str| {
        let (parent, name) = split(at)?;
        whole.pointer(parent)?.is_object().then_some(name)
    };
    let keys = |whole: &Value| -> Vec<(String, String)> {
        let all = places(whole).into_iter();
        all.filter_map(|(at, _)| Some((at.clone(), is_key_of(whole, &at)?)))
            .collect()
    };
    let sent_keys = keys(sent);
    let sent_letters = letters(&sent.to_string());
    let by_default = |at: &str| {
        coercions
            .iter()
            .any(|c| c.rule == Rule::Default && at.starts_with(&c.path))
    };
    // In a text, control characters may be spelt in too many ways to look for them.
    let in_text =
        |name: &str| name.contains(char::is_control) || sent_letters.contains(&letters(name));
    let is_new = |(at, name): &(String, String)| {
        !sent_keys.iter().any(|(_, sent)| sent == name) && !in_text(name) && !by_default(at)
    };
    keys(args).into_iter().find(is_new).map(|(at, _)| at)
}

/// A text without all that may be escaped in it.
fn letters(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).collect()
}
