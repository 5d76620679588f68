//! Values that were sent in each other's place.

use std::{iter, ptr};

use serde_json::Value;

use super::{kind, places, pointer};

/// Values that are looked at before it is given up, and taken for crossed.
const VISITS_MAX: usize = 50_000;

/// Whether the value at `place`, or one around it, does not belong there, but where one beside it stands, and that one
/// here.
///
/// Then nobody knows which was meant: both as they are, or both as they could be read where they stand.
pub(super) fn is_crossed(root: &Value, args: &Value, place: &str) -> bool {
    let mut looking = Looking {
        root,
        visits: VISITS_MAX,
    };
    let outwards = iter::successors(Some(place), |place| Some(pointer::split(place)?.0));
    let is_crossed = outwards
        .map_while(|place| Some((place, pointer::split(place)?)))
        .any(|(place, (outer, name))| {
            let parts = args.pointer(outer).zip(args.pointer(place));
            parts.is_some_and(|(parent, value)| {
                let around = places::schemas_at(root, args, outer);
                looking.finds(value, &name, parent, &around)
            })
        });
    is_crossed || looking.visits == 0
}

struct Looking<'s> {
    root: &'s Value,
    visits: usize,
}

impl<'s> Looking<'s> {
    /// One of the parts of `parent` that could change places with this one.
    fn finds(&mut self, value: &Value, name: &str, parent: &Value, around: &[&'s Value]) -> bool {
        // The items of a list are all alike, but for those of a tuple.
        if parent.is_array() && !places::is_tuple(around) {
            return false;
        }
        let here = places::below(around, parent, name);
        !self.fits(value, &here)
            && places::parts(parent).any(|(other, beside)| {
                let there = places::below(around, parent, &other);
                // Where the same is said of both, this one fits there as little as here.
                self.visit().is_some()
                    && !is_same(&here, &there)
                    && self.fits(beside, &here)
                    && self.fits(value, &there)
            })
    }

    fn visit(&mut self) -> Option<()> {
        self.visits = self.visits.checked_sub(1)?;
        Some(())
    }

    /// Whether a value is of a kind that these schemas allow, and so is all that is in it.
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
        let crossed = |args: Value, place: &str| is_crossed(&schema, &args, place);
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
