//! Values that were sent in each other's place.

use std::{iter, ptr};

use jsonschema::JsonType;
use serde_json::Value;

use crate::{
    kind,
    limits::Limits,
    parse::parse_any,
    pointer,
    schema::{keywords, places},
};

/// How many values are looked at for one call. After that every value counts as crossed.
pub(super) const VISITS_MAX: usize = 100_000;

/// Whether the value at `place`, or one around it, does not fit there but fits where another value stands, which in turn fits
/// here. The other value is a sibling; or, for a scalar or a list of one scalar, any value in the arguments. A text that contains
/// a list or an object counts as that too.
///
/// Then it is unknown what was meant: the two values in exchanged places, or each as it can be read in its own place. Looked-at
/// values are counted in `visits`.
pub(super) fn is_crossed(root: &Value, args: &Value, place: &str, visits: &mut usize) -> bool {
    let mut looking = Looking { root, visits };
    let mut outwards = iter::successors(Some(place), |place| Some(pointer::split(place)?.0));
    let is_crossed = outwards.any(|place| looking.finds_beside(args, place))
        || looking.finds_far(args, place)
        || looking.finds_tag(args, place);
    is_crossed || *visits == 0
}

/// Whether a value, and everything in it, is of a kind that one of these schemas allows. Looked-at values are counted in
/// `visits`; when those are used up, the answer is yes.
pub(super) fn fits(root: &Value, value: &Value, schemas: &[&Value], visits: &mut usize) -> bool {
    let mut looking = Looking { root, visits };
    let fits = looking.fits(value, schemas);
    fits || *visits == 0
}

struct Looking<'s, 'v> {
    root: &'s Value,
    visits: &'v mut usize,
}

impl<'s> Looking<'s, '_> {
    /// Whether the value at a place could change places with a sibling.
    fn finds_beside(&mut self, args: &Value, place: &str) -> bool {
        let Some((outer, name)) = pointer::split(place) else {
            return false;
        };
        let Some((parent, value)) = args.pointer(outer).zip(args.pointer(place)) else {
            return false;
        };
        let around = places::schemas_at(self.root, args, outer);
        // The items of a list are alike, except those of a tuple.
        if parent.is_array() && !places::is_tuple(&around) {
            return false;
        }
        let here = places::below(&around, parent, &name);
        let fits_here = self.fits(value, &here[..]);
        places::parts(parent).any(|(other, beside)| {
            let there = places::below(&around, parent, &other);
            self.could_change((value, &here[..]), (beside, &there[..]), fits_here)
        })
    }

    /// Whether the scalar at a place, or the list of scalars, could change places with any other.
    fn finds_far(&mut self, args: &Value, place: &str) -> bool {
        let Some(value) = args.pointer(place).filter(|value| is_single(value)) else {
            return false;
        };
        let here = places::outermost_at(self.root, args, place);
        let fits_here = self.fits(value, &here[..]);
        let mut found = false;
        places::visit(self.root, args, &mut |schemas, container| {
            if found || self.visit().is_none() {
                found = true;
                return;
            }
            // Its own item is not another value.
            let others = (!ptr::eq(container, value)).then_some(container);
            let others = others.into_iter().flat_map(places::parts);
            let singles = others.filter(|(_, part)| is_single(part));
            for (name, other) in singles {
                let there = places::below(schemas, container, &name);
                // A list is not meant for a place about which the schema says nothing.
                let is_said = is_scalar(value) || !there.is_empty();
                let (one, two) = ((value, &here[..]), (other, &there[..]));
                found = found || (is_said && self.could_change(one, two, fits_here));
            }
        });
        found
    }

    /// Whether the value would fit but for the branch of a union that a word beside it, or around it, chooses; and whether that
    /// word could have changed places with another.
    fn finds_tag(&mut self, args: &Value, place: &str) -> bool {
        let here = places::outermost_at(self.root, args, place);
        let fits = (args.pointer(place)).is_some_and(|value| self.fits(value, &here));
        let mut outwards = iter::successors(Some(place), |place| Some(pointer::split(place)?.0));
        fits && outwards.any(|outer| {
            let around = args.pointer(outer).filter(|around| around.is_object());
            let Some(around) = around.filter(|_| outer != place) else {
                return false;
            };
            let schemas = places::schemas_at(self.root, args, outer);
            places::parts(around).any(|(name, word)| {
                let there = places::below(&schemas, around, &name);
                is_scalar(word) && lists(self.root, &there) && self.finds_other(args, word, &there)
            })
        })
    }

    /// Whether another word anywhere could change places with this one.
    fn finds_other(&mut self, args: &Value, word: &Value, here: &[&'s Value]) -> bool {
        let mut found = false;
        places::visit(self.root, args, &mut |schemas, container| {
            let scalars = places::parts(container).filter(|(_, part)| is_scalar(part));
            for (name, other) in scalars {
                let there = places::below(schemas, container, &name);
                found = found
                    || self.visit().is_none()
                    || (other != word && self.fits(other, here) && self.fits_there(word, &there));
            }
        });
        found
    }

    /// Whether two values could change places. A value that fits its own place, apart from what its union says, may do so only
    /// as the text of a list or an object that cannot stand there as it is.
    fn could_change(
        &mut self,
        one: (&Value, &[&'s Value]),
        other: (&Value, &[&'s Value]),
        fits_here: bool,
    ) -> bool {
        let ((value, here), (beside, there)) = (one, other);
        if self.visit().is_none() {
            return true;
        }
        // Where both places have the same schema, a value that does not fit here does not fit there.
        !is_same(here, there)
            && self.fits_there(value, there)
            && ((!fits_here && self.fits(beside, here)) || self.fits_as_text(beside, here))
    }

    /// Whether this is the text of a list or an object that fits. Reading it counts as many looks as it has bytes.
    fn fits_as_text(&mut self, text: &Value, here: &[&'s Value]) -> bool {
        let is_container = |text: &&str| text.trim_ascii_start().starts_with(['[', '{']);
        let Some(text) = text.as_str().filter(is_container) else {
            return false;
        };
        let kinds = [JsonType::Array, JsonType::Object];
        let may_be = |kind| {
            here.iter()
                .any(|s| places::may_be(self.root, s, kind, None))
        };
        if !kinds.into_iter().any(may_be) {
            return false;
        }
        let Some(left) = self.visits.checked_sub(text.len()) else {
            *self.visits = 0;
            return true;
        };
        *self.visits = left;
        let inside = parse_any(text.as_bytes(), &Limits::DEFAULT);
        inside.is_ok_and(|inside| !is_scalar(&inside) && self.fits(&inside, here))
    }

    /// An open object says nothing about a property that it does not declare, so any value fits there.
    fn fits_there(&mut self, value: &Value, there: &[&'s Value]) -> bool {
        there.is_empty() || self.fits(value, there)
    }

    fn visit(&mut self) -> Option<()> {
        *self.visits = self.visits.checked_sub(1)?;
        Some(())
    }

    /// Whether a value, and everything in it, is of a kind that these schemas allow.
    fn fits(&mut self, value: &Value, schemas: &[&'s Value]) -> bool {
        if self.visit().is_none() {
            return false;
        }
        let kind = kind::kind_of(value);
        let may_be = |schema: &&Value| places::may_be(self.root, schema, kind, Some(value));
        if !schemas.iter().any(may_be) {
            return false;
        }
        if !(value.is_object() || value.is_array()) {
            return true;
        }
        let takes_any = |schema: &&Value| places::takes_other_names(self.root, schema);
        let is_closed = value.is_object() && !schemas.iter().any(takes_any);
        let all = places::in_place(self.root, schemas.to_vec());
        places::parts(value).all(|(name, part)| match places::below(&all, value, &name) {
            unknown if unknown.is_empty() => !is_closed,
            known => self.fits(part, &known),
        })
    }
}

/// Whether one of these schemas lists the allowed words.
fn lists(root: &Value, schemas: &[&Value]) -> bool {
    let all = places::in_place(root, schemas.to_vec());
    all.iter().any(|schema| keywords::values(schema).is_some())
}

fn is_scalar(value: &Value) -> bool {
    !(value.is_object() || value.is_array())
}

/// Whether a value is a scalar, or a list of one scalar.
fn is_single(value: &Value) -> bool {
    match value.as_array().map(Vec::as_slice) {
        Some([item]) => is_scalar(item),
        Some(_) => false,
        None => is_scalar(value),
    }
}

fn is_same(one: &[&Value], other: &[&Value]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| ptr::eq(*a, *b))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn two_are_crossed_if_both_belong_where_the_other_stands() {
        let schema = json!({
            "properties": {
                "days": {"type": "integer"},
                "zip": {"type": "string"},
                "mode": {"enum": ["fast", "careful"]},
                "size": {"enum": ["S", "FAST"]},
                "pair": {"prefixItems": [{"type": "string"}], "items": {"type": "number"}},
                "all": {"items": {"type": "integer"}},
                "words": {"items": {"type": "string"}},
            },
        });
        let crossed =
            |args: Value, place: &str| is_crossed(&schema, &args, place, &mut VISITS_MAX.clone());
        assert!(crossed(json!({"days": "5", "zip": 10115}), "/days"));
        assert!(crossed(json!({"days": "5", "zip": 10115}), "/zip"));
        assert!(crossed(json!({"mode": "FAST", "size": "fast"}), "/mode"));
        assert!(crossed(json!({"pair": [5, "a"]}), "/pair/0"));
        assert!(crossed(json!({"pair": [5, 6, "a"]}), "/pair/2"));
        assert!(crossed(json!({"all": ["5"], "words": [6]}), "/all/0"));
        assert!(crossed(json!({"all": ["5"], "words": []}), "/all/0"));
        assert!(!crossed(json!({"all": ["5"], "words": ["a"]}), "/all/0"));
        assert!(!crossed(json!({"days": "5", "zip": "10115"}), "/days"));
        assert!(!crossed(json!({"days": "5"}), "/days"));
        assert!(!crossed(json!({"days": "5", "mode": 7}), "/days"));
        assert!(!crossed(json!({"pair": [5, 6]}), "/pair/0"));
        assert!(!crossed(json!({"all": ["5", 6, "7"]}), "/all/0"));
        assert!(!crossed(json!("5"), ""));
    }
}
