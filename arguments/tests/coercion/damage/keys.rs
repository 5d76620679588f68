//! Damage to names, to where properties stand, and to the arguments as a whole.

use serde_json::{Value, json};

use super::{Change, Damage, Source, chatter, spelling};
use crate::{
    pointer::{split, under},
    random::Chance,
};

type Drawn = Option<Damage>;

const WRAPPERS: [&str; 8] = [
    "arguments",
    "args",
    "parameters",
    "params",
    "input",
    "tool_input",
    "action_input",
    "kwargs",
];

/// A key that the tool does not know, for else it would be the property that was sent.
fn wrapper(source: &Source<'_>, chance: &mut Chance) -> Option<String> {
    let name = if chance.percent(15) {
        source.tool
    } else {
        *chance.of(&WRAPPERS)
    };
    let mut absent = source.gold.sites.absent.iter();
    let declared = absent.any(|(at, absent, _)| at.is_empty() && absent == name)
        || source.gold.args.get(name).is_some();
    (!declared).then(|| name.to_owned())
}

pub(super) fn wrapped(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    Some(Damage::wrap(wrapper(source, chance)?, false))
}

pub(super) fn wrapped_as_text(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    Some(Damage::wrap(wrapper(source, chance)?, true))
}

pub(super) fn wrapped_twice(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let entries = source.gold.args.as_object()?;
    let removed = entries.keys().map(|name| Change::Remove(under("", name)));
    let mut changes: Vec<Change> = removed.collect();
    let inner = wrapper(source, chance)?;
    changes.push(Change::Add(String::new(), inner, source.gold.args.clone()));
    Some(Damage::of(changes).wrapped(wrapper(source, chance)?, false, None))
}

/// Not under a name that the tool knows: then it is that property that was sent.
pub(super) fn wrapped_in_other_name(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let names = [
        "data",
        "payload",
        "request",
        "body",
        "json",
        "query",
        "arg0",
        "Arguments",
        "function",
        "value",
    ];
    let name = *chance.of(&names);
    is_unknown(source, "", name)?;
    Some(Damage::wrap(name, chance.percent(25)))
}

pub(super) fn wrapped_with_company(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let name = *chance.of(&["name", "reasoning", "tool", "id", "type"]);
    let beside = if chance.percent(50) {
        chatter(chance)
    } else {
        json!(source.tool)
    };
    is_unknown(source, "", name)?;
    let company = Some((name.to_owned(), beside));
    Some(Damage::default().wrapped(wrapper(source, chance)?, chance.percent(25), company))
}

pub(super) fn wrapped_but_one(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (name, value) = chance.pick(&source.gold.args.as_object()?.iter().collect::<Vec<_>>())?;
    let company = Some((name.clone(), value.clone()));
    let rest = Damage::of(vec![Change::Remove(under("", name))]);
    Some(rest.wrapped(wrapper(source, chance)?, false, company))
}

/// As in the protocol of a vendor: the tool's name, and its arguments beside it.
pub(super) fn wrapped_with_name(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    called(source, chance, |tool, _| tool.to_owned())
}

pub(super) fn wrapped_with_other_name(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    is_unknown(source, "", "name")?;
    called(source, chance, |tool, chance| {
        chance
            .of(&[format!("other_{tool}"), "search".to_owned()])
            .clone()
    })
}

fn called(
    source: &Source<'_>,
    chance: &mut Chance,
    name: impl FnOnce(&str, &mut Chance) -> String,
) -> Drawn {
    let key = wrapper(source, chance)?;
    let company = Some(("name".to_owned(), json!(name(source.tool, chance))));
    Some(Damage::default().wrapped(key, chance.percent(25), company))
}

/// The value under a name that is none, and nothing under its own, or under another that is absent.
pub(super) fn misnamed_beside_nothing(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, parent, name, value) = source.property(chance)?;
    let nothing = chance.of(&[json!(null), json!("")]).clone();
    let new = match chance.below(3) {
        0 => (*chance.of(&["arg0", "value", "x", "extra"])).to_owned(),
        1 => spelling::other_word(&name, chance),
        _ => spelling::misspelt(&name, chance),
    };
    is_unknown(source, &parent, &new)?;
    let mut changes = vec![Change::Add(parent.clone(), new, value.clone())];
    let absent: Vec<_> = source
        .gold
        .sites
        .absent
        .iter()
        .filter(|(place, ..)| *place == parent)
        .collect();
    match chance.pick(&absent) {
        Some((_, absent, _)) if chance.percent(50) => {
            changes.push(Change::Remove(at));
            changes.push(Change::Add(parent, absent.clone(), nothing));
        }
        _ => changes.push(Change::Set(at, nothing)),
    }
    Some(Damage::of(changes))
}

/// An integer or a boolean under the name of a text that is absent.
pub(super) fn under_name_of_text(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, parent, _, value) = source.property(chance)?;
    (value.is_number() || value.is_boolean()).then_some(())?;
    let absent = source.gold.sites.absent.iter();
    let texts: Vec<_> = absent
        .filter(|(place, _, text)| *place == parent && *text)
        .collect();
    let (_, name, _) = chance.pick(&texts)?;
    // The boolean or integer may be the value of both: of a text that may also be one, it is.
    Some(Damage::moved(&at, value.clone(), &parent, name.clone()))
}

pub(super) fn unknown_added(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let names = [
        "reasoning",
        "explanation",
        "_meta",
        "confidence",
        "thought_process",
        "requestId",
        "$comment",
        "理由",
    ];
    let (at, entries) = source.object(chance)?;
    let name = *chance.of(&names);
    is_unknown(source, &at, name)?;
    (!entries.contains_key(name)).then(|| Damage::add(at, name, chatter(chance)))
}

/// Whether the object is not a map: in one, any name is a good one.
fn is_closed(source: &Source<'_>, at: &str) -> Option<()> {
    let maps = &source.gold.sites.maps;
    (!maps.iter().any(|map| map == at)).then_some(())
}

/// Whether a name is one that the object does not know; else another property would be sent, and not a wrong name.
fn is_unknown(source: &Source<'_>, at: &str, name: &str) -> Option<()> {
    is_closed(source, at)?;
    let mut absent = source.gold.sites.absent.iter();
    (!absent.any(|(place, absent, _)| place == at && absent == name)).then_some(())
}

fn renamed(source: &Source<'_>, chance: &mut Chance, to: fn(&str, &mut Chance) -> String) -> Drawn {
    let (at, parent, name, value) = source.property(chance)?;
    let new = to(&name, chance);
    is_unknown(source, &parent, &new)?;
    Some(Damage::moved(&at, value.clone(), &parent, new))
}

pub(super) fn synonym(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    renamed(source, chance, spelling::other_word)
}

pub(super) fn other_case(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    renamed(source, chance, spelling::other_case)
}

pub(super) fn misspelt(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    renamed(source, chance, spelling::misspelt)
}

/// Under a name that models have for their own talk: where it is missed, it was none.
pub(super) fn named_as_talk(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    renamed(source, chance, |_, chance| {
        (*chance.of(&["reasoning", "explanation", "thoughts"])).to_owned()
    })
}

/// A value of which no rule can make what it was.
fn wrong(value: &Value, chance: &mut Chance) -> Value {
    match value {
        Value::Null => json!("nothing"),
        Value::Bool(_) => json!("yes"),
        Value::Number(n) => json!(format!("{n} or so")),
        Value::String(text) if chance.percent(50) => json!({"value": text}),
        Value::String(text) => json!([text, text]),
        Value::Array(_) => json!("one, two and three"),
        Value::Object(_) => json!("as before"),
    }
}

fn renamed_and_wrong(
    source: &Source<'_>,
    chance: &mut Chance,
    to: fn(&str, &mut Chance) -> String,
) -> Drawn {
    let (at, parent, name, value) = source.property(chance)?;
    let new = to(&name, chance);
    is_unknown(source, &parent, &new)?;
    if new == name {
        return None;
    }
    let value = wrong(value, chance);
    Some(Damage::moved(&at, value, &parent, new))
}

pub(super) fn synonym_and_wrong(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    renamed_and_wrong(source, chance, spelling::other_word)
}

pub(super) fn other_case_and_wrong(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    renamed_and_wrong(source, chance, spelling::other_case)
}

pub(super) fn dropped(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, ..) = source.property(chance)?;
    Some(Damage::of(vec![Change::Remove(at)]))
}

pub(super) fn moved_up(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    moved_up_as(source, chance, |name, _| name.to_owned())
}

pub(super) fn moved_up_renamed(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    moved_up_as(source, chance, spelling::other_word)
}

fn moved_up_as(
    source: &Source<'_>,
    chance: &mut Chance,
    to: fn(&str, &mut Chance) -> String,
) -> Drawn {
    let (at, parent, name, value) = source.property(chance)?;
    let name = to(&name, chance);
    let mut outer = split(&parent)?.0;
    while !source.gold.args.pointer(outer)?.is_object() {
        outer = split(outer)?.0;
    }
    is_unknown(source, outer, &name)?;
    Some(Damage::moved(&at, value.clone(), outer, name))
}

pub(super) fn moved_down(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, parent, name, value) = source.property(chance)?;
    let siblings = source.gold.args.pointer(&parent)?.as_object()?.iter();
    let objects: Vec<&String> = siblings
        .filter(|(sibling, value)| **sibling != name && value.is_object())
        .map(|(sibling, _)| sibling)
        .collect();
    let into = under(&parent, chance.pick(&objects)?);
    is_unknown(source, &into, &name)?;
    Some(Damage::moved(&at, value.clone(), &into, name))
}

pub(super) fn moved_into_wrapper(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, parent, name, value) = source.property(chance)?;
    let wrapper = *chance.of(&["location", "data", "filter", "options", "settings", "info"]);
    is_unknown(source, &parent, wrapper)?;
    Some(Damage::moved(&at, json!({name: value}), &parent, wrapper))
}

pub(super) fn flattened(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, parent, name, value) = source.property(chance)?;
    let entries = value.as_object().filter(|entries| !entries.is_empty())?;
    let style = chance.below(3);
    let mut changes = vec![Change::Remove(at)];
    for (inner, value) in entries {
        let flat = match style {
            0 => inner.clone(),
            1 => format!("{name}.{inner}"),
            _ => format!("{name}_{inner}"),
        };
        is_unknown(source, &parent, &flat)?;
        changes.push(Change::Add(parent.clone(), flat, value.clone()));
    }
    Some(Damage::of(changes))
}

/// The items of a tuple are the ones of which this is seen.
pub(super) fn items_swapped(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let asked = |value: &Value| value.as_array().is_some_and(|items| items.len() > 1);
    let (at, value) = source.one(chance, asked)?;
    let mut items = value.as_array()?.clone();
    let last = items.len() - 1;
    items.swap(0, 1 + chance.below(last));
    Some(Damage::set(at, Value::Array(items)))
}

fn is_scalar(value: &Value) -> bool {
    !(value.is_array() || value.is_object())
}

/// Two scalars that do not stand in the same object or list.
pub(super) fn swapped_across(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (one, first) = source.one(chance, is_scalar)?;
    let (two, second) = source.one(chance, is_scalar)?;
    let (around_one, around_two) = (split(&one)?.0, split(&two)?.0);
    (around_one != around_two).then(|| {
        Damage::of(vec![
            Change::Set(one.clone(), second.clone()),
            Change::Set(two.clone(), first.clone()),
        ])
    })
}

pub(super) fn swapped(source: &Source<'_>, chance: &mut Chance) -> Drawn {
    let (at, entries) = source.object(chance)?;
    let entries: Vec<_> = entries.iter().collect();
    let ((one, first), (two, second)) = (chance.pick(&entries)?, chance.pick(&entries)?);
    (one != two).then(|| {
        Damage::of(vec![
            Change::Set(under(&at, one), second.clone()),
            Change::Set(under(&at, two), first.clone()),
        ])
    })
}
