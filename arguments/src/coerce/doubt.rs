//! What a mending leaves in doubt when it is looked at as a whole, though each of its changes is certain by itself.

use std::{collections::BTreeSet, iter};

use serde_json::{Map, Value};

use super::{
    crossed::{self, VISITS_MAX},
    edit::Draft,
    readings,
    rule::Rule,
    single::{is_none_or_all, is_single},
};
use crate::{
    kind,
    limits::Limits,
    parse::parse_any,
    pointer,
    schema::{keywords, places},
};

/// Whether something else may have been meant by what was `sent`, without its wrapper, and was mended so.
pub(super) fn remains(root: &Value, sent: &Value, mended: &Draft) -> bool {
    let is_reading = |change| is_only_a_reading(root, &mended.args, change);
    mended.changes.iter().any(is_reading)
        || (mended.any(is_removal) && has_other_names(root, &mended.args))
        || (mended.any(is_removal) && may_be_of_removed(root, sent, mended))
        || (mended.any(is_text_of_scalar) && may_be_elsewhere(root, sent, mended))
        || keeps_texts(root, mended)
        || keeps_brackets(root, mended)
}

const fn is_removal(rule: Rule) -> bool {
    matches!(rule, Rule::NullRemoved | Rule::EmptyRemoved)
}

const fn is_text_of_scalar(rule: Rule) -> bool {
    matches!(rule, Rule::IntegerToString | Rule::BooleanToString)
}

/// Whether a change tells what could be read there, and so makes other readings uncertain, but is never made itself.
fn is_only_a_reading(root: &Value, args: &Value, (place, rule): &(String, Rule)) -> bool {
    let schemas = places::schemas_at(root, args, place);
    match rule {
        // As free text, and not as one of some words.
        Rule::BooleanToString => {
            let lists = |schema: &&Value| keywords::values(schema).is_some();
            let is_text = |schema: &&Value| keywords::types(schema).contains(&"string");
            let mut free = schemas.iter().filter(|schema| !lists(schema));
            free.any(is_text) || !schemas.iter().any(lists)
        }
        Rule::ValueToArray => match args.pointer(place).and_then(|list| list.get(0)) {
            Some(Value::String(text)) => !is_single(text, &places::of_items(root, &schemas)),
            Some(Value::Object(entries)) => is_box(entries),
            Some(Value::Number(number)) => is_none_or_all(number),
            _other => false,
        },
        // Of an item, the brackets may be those of all of them.
        Rule::ArrayToValue => !pointer::is_property(args, place),
        _made => false,
    }
}

/// Whether an object holds nothing but a list: it may be the list that was to stand there.
fn is_box(entries: &Map<String, Value>) -> bool {
    entries.len() == 1 && entries.values().all(Value::is_array)
}

/// Whether a property stands where its object declares others and not this one: it may be what was sent as nothing.
fn has_other_names(root: &Value, args: &Value) -> bool {
    let mut has = false;
    places::visit(root, args, &mut |schemas, value| {
        let declared = places::declared(schemas);
        let mut names = value.as_object().into_iter().flat_map(Map::keys);
        let is_other = |name: &String| !declared.contains_key(&**name);
        has |= !declared.is_empty() && names.any(is_other);
    });
    has
}

/// Whether a value that was mended would fit as it was sent where something was left out that was sent as nothing: the two may
/// have been swapped. Not where it must stand where it does, and not the text of a list or an object, which is no other text.
fn may_be_of_removed(root: &Value, sent: &Value, mended: &Draft) -> bool {
    let of = |is: fn(Rule) -> bool| mended.changes.iter().filter(move |(_, rule)| is(*rule));
    let removed: Vec<_> = of(is_removal)
        .map(|(place, _)| places::outermost_at(root, sent, place))
        .collect();
    let is_other = |rule: Rule| {
        let is_container = matches!(
            rule,
            Rule::StringToArray | Rule::StringToObject | Rule::RelaxedJson
        );
        !is_container && !is_removal(rule) && rule != Rule::Unwrap
    };
    // What a change is in may have been swapped as a whole.
    let changed: BTreeSet<&str> = of(is_other)
        .flat_map(|(place, _)| outwards(property(sent, place)))
        .filter(|place| pointer::is_property(sent, place))
        .collect();
    let mut visits = VISITS_MAX;
    changed.into_iter().any(|place| {
        let value = sent
            .pointer(place)
            .filter(|_| !is_required(root, sent, place));
        value.is_some_and(|value| {
            let mut removed = removed.iter();
            removed.any(|schemas| crossed::fits(root, value, schemas, &mut visits))
        })
    })
}

/// Whether texts were read as what they are the text of, and one is left that may have been written the same way: it stands in
/// quotes, or, beside such as were scalars, it is the text of a scalar that may stand there as well, as where nothing is said.
fn keeps_texts(root: &Value, mended: &Draft) -> bool {
    let is_scalar = |rule: Rule| {
        matches!(
            rule,
            Rule::StringToInteger | Rule::StringToNumber | Rule::StringToBoolean
        )
    };
    let is_container = |rule: Rule| {
        matches!(
            rule,
            Rule::StringToArray | Rule::StringToObject | Rule::RelaxedJson
        )
    };
    let are_scalars = mended.any(is_scalar);
    let mut keeps = false;
    if are_scalars || mended.any(is_container) {
        places::visit(root, &mended.args, &mut |schemas, value| {
            keeps |= places::parts(value).any(|(name, part)| {
                let text = part.as_str().unwrap_or_default();
                let here = || places::below(schemas, value, &name);
                is_quoted(text) || (are_scalars && may_be_scalar(root, text, &here()))
            });
        });
    }
    keeps
}

/// Whether a text is that of a number, a boolean or null, and these schemas take that, too.
fn may_be_scalar(root: &Value, text: &str, here: &[&Value]) -> bool {
    let null = (text == "null").then_some(Value::Null);
    let scalar = readings::scalar(text).or(null);
    scalar.is_some_and(|scalar| {
        let kind = kind::kind_of(&scalar);
        let may_be = |schema: &&Value| places::may_be(root, schema, kind, Some(&scalar));
        here.is_empty() || here.iter().any(may_be)
    })
}

/// Whether a text is wholly one that stands in quotes.
fn is_quoted(text: &str) -> bool {
    let inside = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    let is_whole = |quote: char| {
        let escaped = ['\\', quote].iter().collect::<String>();
        inside(quote).is_some_and(|inside| !inside.replace(&escaped, "").contains(quote))
    };
    is_whole('"') || is_whole('\'')
}

/// Whether brackets were taken, and others are left around what would fit without them, too.
fn keeps_brackets(root: &Value, mended: &Draft) -> bool {
    let mut keeps = false;
    if mended.any(|rule| rule == Rule::ArrayToValue) {
        places::visit(root, &mended.args, &mut |schemas, value| {
            keeps |= value.is_object()
                && places::parts(value).any(|(name, part)| {
                    let here = places::below(schemas, value, &name);
                    may_be_bracketed(root, part, &here)
                });
        });
    }
    keeps
}

fn may_be_bracketed(root: &Value, value: &Value, here: &[&Value]) -> bool {
    match value {
        Value::String(text) => is_list_of_one(text),
        Value::Array(items) if items.len() == 1 => {
            let kind = kind::kind_of(&items[0]);
            let may_be = |schema: &&Value| places::may_be(root, schema, kind, Some(&items[0]));
            here.is_empty() || here.iter().any(may_be)
        }
        _stands_alone => false,
    }
}

fn is_list_of_one(text: &str) -> bool {
    let list = || parse_any(text.as_bytes(), &Limits::DEFAULT).ok();
    let is_list = text.trim_ascii_start().starts_with('[');
    is_list && list().is_some_and(|list| list.as_array().is_some_and(|items| items.len() == 1))
}

/// Whether a scalar that became a text may belong somewhere else: something else was wrong too, or a property that could
/// have it as it was is missing while this one need not be there.
fn may_be_elsewhere(root: &Value, sent: &Value, mended: &Draft) -> bool {
    if mended.any(|rule| rule != Rule::Unwrap && !is_text_of_scalar(rule)) {
        return true;
    }
    let mut absent = places::absent(root, sent);
    absent.extend(of_other_names(root, sent));
    let texts = mended
        .changes
        .iter()
        .filter(|(_, rule)| is_text_of_scalar(*rule));
    let texts: BTreeSet<&str> = texts.map(|(place, _)| property(sent, place)).collect();
    let mut visits = VISITS_MAX;
    texts.into_iter().any(|place| {
        let value = sent.pointer(place).expect("nothing else was changed");
        let mut would_take = |other: &&Value| crossed::fits(root, value, &[*other], &mut visits);
        !is_required(root, sent, place) && absent.iter().any(&mut would_take)
    })
}

/// What the objects of these arguments say of properties that they do not name: of such, one is always missing.
fn of_other_names<'s>(root: &'s Value, args: &Value) -> Vec<&'s Value> {
    let mut said = Vec::new();
    places::visit(root, args, &mut |schemas, value| {
        let schemas = schemas.iter().filter(|_| value.is_object());
        said.extend(schemas.flat_map(|schema| {
            let words = ["additionalProperties", "unevaluatedProperties"];
            let named = words.map(|word| schema.get(word));
            let patterns = schema.get("patternProperties").and_then(Value::as_object);
            let patterns = patterns.into_iter().flat_map(Map::values);
            let others = named.into_iter().flatten().chain(patterns);
            others.filter(|schema| schema.is_object())
        }));
    });
    said
}

/// The property at a place, or in which the place is as an item.
fn property<'p>(args: &Value, mut place: &'p str) -> &'p str {
    while !pointer::is_property(args, place)
        && let Some((outer, _)) = pointer::split(place)
    {
        place = outer;
    }
    place
}

/// A place, and those that it is in.
fn outwards(place: &str) -> impl Iterator<Item = &str> {
    iter::successors(Some(place), |place| Some(pointer::split(place)?.0))
}

/// Whether it is certain that a property must be there. What only a branch of a union requires is not certain: another branch
/// may have been meant.
fn is_required(root: &Value, args: &Value, place: &str) -> bool {
    let requires = |schema: &&Value, name: &str| {
        let certain = places::certain(root, &[schema]);
        let mut required = certain.iter().flat_map(|schema| keywords::required(schema));
        required.any(|required| required == name)
    };
    pointer::split(place).is_some_and(|(outer, name)| {
        let around = places::outermost_at(root, args, outer);
        around.iter().all(|schema| requires(schema, &name))
    })
}
