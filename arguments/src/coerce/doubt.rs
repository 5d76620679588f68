//! Doubts about a mending as a whole, although each of its changes is certain by itself.

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

/// Whether the arguments as `sent`, without their wrapper, may have meant something else than the mended ones.
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

/// Whether a change is made only to show what could be read there. It makes other readings uncertain, and is never the result.
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
        // The brackets around a single item may be meant for all items.
        Rule::ArrayToValue => !pointer::is_property(args, place),
        _made => false,
    }
}

/// Whether an object contains nothing but a list: the list itself may have been meant.
fn is_box(entries: &Map<String, Value>) -> bool {
    entries.len() == 1 && entries.values().all(Value::is_array)
}

/// Whether an object has an undeclared property beside declared ones. The removed property may have been meant by that name.
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

/// Whether a mended value would have fit as it was sent in the place of a removed property that was sent as nothing: the two
/// may have been swapped. Not where the value is required in its own place, and not for the text of a list or an object, which
/// is no other text.
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
    // A container of a change may have been swapped as a whole.
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

/// Whether texts were read as the values that they contain, and another text is left that may have been written the same way:
/// it stands in quotes; or, if scalars were read, it is the text of a scalar that may stand there too, or about which nothing
/// is said.
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

/// Whether a text is that of a number, a boolean or null, and these schemas allow that too.
fn may_be_scalar(root: &Value, text: &str, here: &[&Value]) -> bool {
    let null = (text == "null").then_some(Value::Null);
    let scalar = readings::scalar(text).or(null);
    scalar.is_some_and(|scalar| {
        let kind = kind::kind_of(&scalar);
        let may_be = |schema: &&Value| places::may_be(root, schema, kind, Some(&scalar));
        here.is_empty() || here.iter().any(may_be)
    })
}

/// Whether a text stands in quotes as a whole.
fn is_quoted(text: &str) -> bool {
    let inside = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    let is_whole = |quote: char| {
        let escaped = ['\\', quote].iter().collect::<String>();
        inside(quote).is_some_and(|inside| !inside.replace(&escaped, "").contains(quote))
    };
    is_whole('"') || is_whole('\'')
}

/// Whether brackets were removed, and others are left around a value that would fit without them too.
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

/// Whether a scalar that became a text may belong elsewhere: something else was wrong too, or a property is missing that could
/// have it as it was, while its own property is optional.
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

/// What the objects of these arguments say of properties that they do not name; at least one of those is always missing.
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

/// The property at a place; for an item, the property that contains it.
fn property<'p>(args: &Value, mut place: &'p str) -> &'p str {
    while !pointer::is_property(args, place)
        && let Some((outer, _)) = pointer::split(place)
    {
        place = outer;
    }
    place
}

/// A place, and the places that contain it.
fn outwards(place: &str) -> impl Iterator<Item = &str> {
    iter::successors(Some(place), |place| Some(pointer::split(place)?.0))
}

/// Whether a property is certainly required. A property that only a branch of a union requires is not, for another branch may
/// have been meant.
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
