//! Whether any arguments can give everything that a schema requires.
//!
//! A closed object refuses a property that it does not declare. If it also requires that property, no value fits it. For the
//! arguments themselves, or for a part that every call must have, that refuses every call. In an optional part it only makes
//! the part unusable, and `lint` warns of it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{input::properties, problem::ManifestProblem};
use crate::arguments::{Schema, inner, keywords, pointer_segment};

/// How many levels of required properties are followed; deeper ones are not checked.
const LEVELS_MAX: usize = 16;
/// Keywords that may declare properties in a way that is not followed here.
const MAY_DECLARE: [&str; 8] = [
    "anyOf",
    "oneOf",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "additionalProperties",
    "$dynamicRef",
];

/// A schema and its place.
type Placed<'v> = (&'v Value, String);

/// Everything that an input schema requires and refuses in every call, as a problem each.
pub(super) fn refused(root: &Value) -> Vec<ManifestProblem> {
    let mut search = Search {
        root,
        seen: BTreeSet::new(),
        found: BTreeSet::new(),
    };
    search.object(&[(root, String::new())], 0);
    let problem = |(path, name): &(String, String)| {
        ManifestProblem::new(
            format!("/input_schema{path}/required"),
            format!(
                "{name:?} is required, and not declared where no other property is allowed, so every call would be refused; \
                 add it to properties, or take it out of required"
            ),
        )
    };
    search.found.iter().map(problem).collect()
}

/// What an input schema says of the value at a JSON pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScalarPlace {
    /// Every call has a text, a number, or true or false there.
    Required,
    /// It is not declared, in properties alone.
    Undeclared,
    /// A call may leave it out, or what it is in.
    Optional,
    /// It may be an object, a list or null, or what it is in may be no object.
    NoScalar,
}

/// The types of a value that can be told apart by its text.
const SCALARS: [&str; 4] = ["string", "number", "integer", "boolean"];

impl ScalarPlace {
    /// Of this pointer. `anyOf`, `oneOf` and `if` are not followed: what only they declare is undeclared.
    pub(super) fn of(root: &Value, pointer: &str) -> Self {
        let search = Search {
            root,
            seen: BTreeSet::new(),
            found: BTreeSet::new(),
        };
        let mut parts = search.parts(&[(root, String::new())]);
        for (level, segment) in pointer.split('/').skip(1).enumerate() {
            let is_object = |(schema, _): &Placed<'_>| keywords::types(schema) == ["object"];
            if level > 0 && !parts.iter().any(is_object) {
                return Self::NoScalar;
            }
            let name = segment.replace("~1", "/").replace("~0", "~");
            let below: Vec<Placed<'_>> = parts
                .iter()
                .filter_map(|(schema, place)| {
                    let below = schema.get("properties")?.get(&name)?;
                    Some((below, format!("{place}/properties/{segment}")))
                })
                .collect();
            if below.is_empty() {
                return Self::Undeclared;
            }
            let requires =
                |(schema, _): &Placed<'_>| keywords::required(schema).contains(&name.as_str());
            if !parts.iter().any(requires) {
                return Self::Optional;
            }
            parts = search.parts(&below);
        }
        let is_scalar = |(schema, _): &Placed<'_>| {
            let types = keywords::types(schema);
            !types.is_empty() && types.iter().all(|name| SCALARS.contains(name))
        };
        match parts.iter().any(is_scalar) {
            true => Self::Required,
            false => Self::NoScalar,
        }
    }
}

/// The pointers that could stand in the place of one that an input schema lets no call have; `None` where a call may have it, or where that
/// is not certain. `anyOf`, `oneOf` and `if` are not followed.
pub(super) fn dead_end(root: &Value, pointer: &str) -> Option<Vec<String>> {
    let search = Search {
        root,
        seen: BTreeSet::new(),
        found: BTreeSet::new(),
    };
    let (mut parts, mut above) = (search.parts(&[(root, String::new())]), String::new());
    for (level, segment) in pointer.split('/').skip(1).enumerate() {
        let holds_nothing = |(schema, _): &Placed<'_>| {
            let types = keywords::types(schema);
            let holds = |name: &&str| ["object", "array"].contains(name);
            !types.is_empty() && !types.iter().any(holds)
        };
        if level > 0 && parts.iter().any(holds_nothing) {
            return Some(Vec::new());
        }
        let is_object = |(schema, _): &Placed<'_>| keywords::types(schema) == ["object"];
        let name = segment.replace("~1", "/").replace("~0", "~");
        if (level == 0 || parts.iter().any(is_object))
            && parts.iter().any(|part| search.refuses(part, &name))
        {
            let there = parts.iter().flat_map(|(schema, _)| properties(schema));
            let there = there.map(|(name, _)| format!("{above}/{}", pointer_segment(name)));
            return Some(there.collect::<BTreeSet<_>>().into_iter().collect());
        }
        let below: Vec<Placed<'_>> = parts
            .iter()
            .filter_map(|(schema, place)| {
                let below = schema.get("properties")?.get(&name)?;
                Some((below, format!("{place}/properties/{segment}")))
            })
            .collect();
        if below.is_empty() {
            return None;
        }
        parts = search.parts(&below);
        above = format!("{above}/{segment}");
    }
    None
}

struct Search<'v> {
    root: &'v Value,
    /// Sets of places that were checked together, for schemas that contain themselves.
    seen: BTreeSet<Vec<String>>,
    /// The places that require it, and the property.
    found: BTreeSet<(String, String)>,
}

impl<'v> Search<'v> {
    /// One object of every call, which must fit all of these schemas.
    fn object(&mut self, schemas: &[Placed<'v>], level: usize) {
        let parts = self.parts(schemas);
        let mut places: Vec<String> = parts.iter().map(|(_, place)| place.clone()).collect();
        places.sort_unstable();
        if level > LEVELS_MAX || !self.seen.insert(places) {
            return;
        }
        for (schema, place) in &parts {
            for name in keywords::required(schema) {
                if parts.iter().any(|part| self.refuses(part, name)) {
                    self.found.insert((place.clone(), name.to_owned()));
                }
                let below: Vec<Placed<'v>> = parts
                    .iter()
                    .filter_map(|(schema, place)| {
                        let below = schema.get("properties")?.get(name)?;
                        let place = format!("{place}/properties/{}", pointer_segment(name));
                        Some((below, place))
                    })
                    .collect();
                let is_object = |(schema, _): &Placed<'_>| keywords::types(schema) == ["object"];
                if self.parts(&below).iter().any(is_object) {
                    self.object(&below, level + 1);
                }
            }
        }
    }

    /// These schemas, and what each of them refers to or is a conjunction of.
    fn parts(&self, schemas: &[Placed<'v>]) -> Vec<Placed<'v>> {
        let mut parts: Vec<Placed<'v>> = Vec::new();
        let mut left = schemas.to_vec();
        while let Some((schema, place)) = left.pop() {
            if parts.iter().any(|(_, known)| *known == place) {
                continue;
            }
            let target = schema.get("$ref").and_then(Value::as_str);
            let target = target.and_then(|target| target.strip_prefix('#'));
            if let Some(place) = target
                && let Some(schema) = self.root.pointer(place)
            {
                left.push((schema, place.to_owned()));
            }
            let all = inner(schema)
                .into_iter()
                .filter(|below| below.keyword == "allOf");
            left.extend(all.map(|below| (below.schema, format!("{place}{}", below.place))));
            parts.push((schema, place));
        }
        parts
    }

    /// Whether a schema refuses every object that has this property.
    fn refuses(&self, part: &Placed<'v>, name: &str) -> bool {
        let (schema, _) = part;
        if schema.pointer(&format!("/properties/{}", pointer_segment(name)))
            == Some(&Value::Bool(false))
        {
            return true;
        }
        let closed = Some(&Value::Bool(false));
        if schema.get("additionalProperties") == closed && !declares(schema, name) {
            return true;
        }
        if schema.get("unevaluatedProperties") != closed {
            return false;
        }
        let parts = self.parts(std::slice::from_ref(part));
        let may = |(schema, _): &Placed<'_>| {
            MAY_DECLARE
                .iter()
                .any(|keyword| schema.get(keyword).is_some())
                || declares(schema, name)
        };
        !parts.iter().any(may)
    }
}

/// Whether a schema itself declares a property of this name.
fn declares(schema: &Value, name: &str) -> bool {
    let properties = schema.get("properties");
    if properties.is_some_and(|properties| properties.get(name).is_some()) {
        return true;
    }
    let patterns = schema.get("patternProperties").and_then(Value::as_object);
    let mut patterns = patterns.into_iter().flat_map(|patterns| patterns.keys());
    patterns.any(|pattern| {
        let only = json!({"patternProperties": {pattern: true}, "additionalProperties": false});
        // An invalid pattern is a problem of its own.
        Schema::compile(&only).map_or(true, |only| only.is_valid(&json!({name: null})))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(schema: &Value) -> Vec<String> {
        let problems = refused(schema).into_iter();
        problems.map(|problem| problem.path).collect()
    }

    #[test]
    fn what_is_required_and_refused_in_every_call_is_a_problem() {
        let closed = json!({"type": "object", "properties": {"a": {}}, "required": ["b"], "additionalProperties": false});
        assert_eq!(found(&closed), ["/input_schema/required"]);
        let problem = &refused(&closed)[0];
        assert!(
            problem
                .message
                .starts_with("\"b\" is required, and not declared"),
            "{problem:?}"
        );
        let inside = json!({"type": "object", "properties": {"a": closed}, "required": ["a"]});
        assert_eq!(
            found(&inside),
            ["/input_schema/properties/a/required"],
            "what is required of what is required"
        );
        for (schema, place) in [
            (
                json!({"type": "object", "$ref": "#/$defs/d", "$defs": {"d": closed}}),
                "/input_schema/$defs/d/required",
            ),
            (
                json!({"type": "object", "properties": {"a": {}}, "additionalProperties": false, "allOf": [{"required": ["b"]}]}),
                "/input_schema/allOf/0/required",
            ),
            (
                json!({"type": "object", "allOf": [{"properties": {"a": {}}}], "required": ["b"], "unevaluatedProperties": false}),
                "/input_schema/required",
            ),
            (
                json!({"type": "object", "properties": {"b": false}, "required": ["b"]}),
                "/input_schema/required",
            ),
            (
                json!({"type": "object", "patternProperties": {"^x_": {}}, "required": ["y_1"], "additionalProperties": false}),
                "/input_schema/required",
            ),
        ] {
            assert_eq!(found(&schema), [place], "{schema}");
        }
    }

    #[test]
    fn a_place_is_a_required_scalar_only_if_every_call_has_one_there() {
        use ScalarPlace::{NoScalar, Optional, Required, Undeclared};

        let schema = json!({
            "type": "object", "required": ["a~b", "account", "n", "any", "list", "null", "named", "both"],
            "properties": {
                "a~b": {"type": "boolean"},
                "account": {"type": "object", "required": ["id"], "properties": {
                    "id": {"type": ["string", "integer"]}, "name": {"type": "string"}}},
                "open": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}},
                "n": {"type": "number"},
                "any": {},
                "list": {"type": "array", "items": {"type": "string"}},
                "null": {"type": ["string", "null"]},
                "named": {"$ref": "#/$defs/name"},
                "both": {"allOf": [{"type": "string"}, {"maxLength": 9}]},
                "may_be": {"type": ["object", "null"], "required": ["id"], "properties": {"id": {"type": "string"}}},
            },
            "allOf": [{"required": ["may_be"]}],
            "$defs": {"name": {"type": "string"}},
        });
        for (pointer, place) in [
            ("/a~0b", Required),
            ("/account/id", Required),
            ("/n", Required),
            ("/named", Required),
            ("/both", Required),
            ("/account/name", Optional),
            ("/open/id", Optional),
            ("/account", NoScalar),
            ("/any", NoScalar),
            ("/list", NoScalar),
            ("/list/0", NoScalar),
            ("/null", NoScalar),
            ("/may_be/id", NoScalar),
            ("/n/id", NoScalar),
            ("/else", Undeclared),
            ("/account/else", Undeclared),
            ("/", Undeclared),
        ] {
            assert_eq!(ScalarPlace::of(&schema, pointer), place, "{pointer}");
        }
    }

    #[test]
    fn what_some_call_can_give_is_none() {
        let closed = json!({"type": "object", "properties": {"a": {}}, "required": ["b"], "additionalProperties": false});
        for schema in [
            json!({"type": "object", "properties": {"a": {}}, "required": ["b"]}),
            json!({"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": false}),
            json!({"type": "object", "properties": {"a": {}}, "required": ["b"], "additionalProperties": {"type": "string"}}),
            json!({"type": "object", "patternProperties": {"^x_": {}}, "required": ["x_1"], "additionalProperties": false}),
            // A call may leave it out, or give null.
            json!({"type": "object", "properties": {"a": closed}}),
            json!({"type": "object", "properties": {"a": {"anyOf": [closed, {"type": "null"}]}}, "required": ["a"]}),
            json!({"type": "object", "properties": {"a": {"type": "array", "items": closed}}, "required": ["a"]}),
            json!({"type": "object", "allOf": [{"properties": {"b": {}}}], "required": ["b"], "unevaluatedProperties": false}),
            json!({"type": "object", "anyOf": [{"properties": {"b": {}}}], "required": ["b"], "unevaluatedProperties": false}),
        ] {
            assert!(found(&schema).is_empty(), "{schema}");
        }
        // A schema that contains itself ends too.
        let endless =
            json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]});
        assert!(found(&endless).is_empty());
    }
}
