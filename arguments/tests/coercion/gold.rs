//! Draws objects that fit a schema.
//!
//! All schemas that apply to one value are gathered (through `$ref`, `allOf` and one branch of each union) and a value is
//! drawn that has regard to all of them. It need not succeed: what does not fit is thrown away by the caller.

use std::collections::{BTreeMap, BTreeSet};

use arguments::{Limits, Schema, canonical, parse};
use serde_json::{Map, Value, json};

use crate::{
    leaves::{Bounds, leaf_number, leaf_text},
    pointer::under,
    random::Chance,
};

/// How deep values may be before as little as possible is put into them.
const DEPTH_MAX: usize = 5;

/// Words that say nothing.
pub(crate) const NOTHING: [&str; 6] = ["none", "no", "off", "unknown", "not_specified", "nothing"];

/// An object that fits, and what is known of how it came about.
#[derive(Debug, Clone)]
pub(crate) struct Gold {
    pub(crate) args: Value,
    pub(crate) sites: Sites,
}

/// Places of an object that only its schema knows of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sites {
    /// By the place of an object: the properties that it could have and has not, each with whether it is text.
    pub(crate) absent: Vec<(String, String, bool)>,
    /// Of these, the places of such as have a word for nothing, or are true where they are left out: what nothing means there, is
    /// not known.
    pub(crate) in_doubt: Vec<String>,
    /// Places of words that were chosen from a list.
    pub(crate) chosen: Vec<String>,
    /// Places of numbers where no decimal fits.
    pub(crate) integers: Vec<String>,
    /// Places of booleans that are true where they are left out.
    pub(crate) filled: Vec<String>,
    /// Places of texts of which the schema shows such as are no integers.
    pub(crate) shown: Vec<String>,
    /// Places of texts that hold JSON.
    pub(crate) content: Vec<String>,
    /// Places of objects that take properties of any name, with values of some schema.
    pub(crate) maps: Vec<String>,
}

/// An object that fits, or `None` when this draw made none.
pub(crate) fn draw(schema: &Schema, chance: &mut Chance) -> Option<Gold> {
    let mut drawing = Drawing {
        root: schema.source(),
        chance,
        sites: Sites::default(),
    };
    let args = drawing.value(&[schema.source()], "", 0)?;
    let sites = drawing.sites;
    // As it would come through the door.
    let args = parse(canonical::to_text(&args).as_bytes(), &Limits::DEFAULT).ok()?;
    schema.is_valid(&args).then_some(Gold { args, sites })
}

struct Drawing<'a, 'c> {
    root: &'a Value,
    chance: &'c mut Chance,
    sites: Sites,
}

impl<'a> Drawing<'a, '_> {
    fn value(&mut self, schemas: &[&'a Value], at: &str, depth: usize) -> Option<Value> {
        let mut all = Vec::new();
        for schema in schemas {
            self.gather(schema, depth, &mut all)?;
        }
        if let Some(only) = all.iter().find_map(|schema| schema.get("const")) {
            self.sites.chosen.push(at.to_owned());
            return Some(only.clone());
        }
        if let Some(words) = all.iter().find_map(|schema| schema["enum"].as_array()) {
            self.sites.chosen.push(at.to_owned());
            return self.chance.pick(words);
        }
        let kind = self.kind(&all, at)?;
        self.note(&all, at);
        Some(match kind {
            "null" => Value::Null,
            "boolean" => json!(self.chance.percent(50)),
            "integer" | "number" => leaf_number(kind == "integer", &Bounds::of(&all), self.chance)?,
            "string" => Value::String(leaf_text(&all, self.chance)?),
            "array" => self.array(&all, at, depth)?,
            _ => self.object(&all, at, depth)?,
        })
    }

    /// Every schema that applies to the same value, with one branch chosen of each union.
    fn gather(&mut self, schema: &'a Value, depth: usize, all: &mut Vec<&'a Value>) -> Option<()> {
        if schema == &Value::Bool(false) || all.len() > 30 {
            return None;
        }
        all.push(schema);
        if let Some(target) = schema["$ref"].as_str() {
            let target = self.root.pointer(target.trim_start_matches('#'))?;
            self.gather(target, depth, all)?;
        }
        for part in schema["allOf"].as_array().into_iter().flatten() {
            self.gather(part, depth, all)?;
        }
        for union in ["anyOf", "oneOf"] {
            if let Some(branches) = schema[union].as_array() {
                // Of a union that holds itself, the last branch is one that ends.
                let branch = if depth > DEPTH_MAX {
                    branches.last()?
                } else {
                    self.chance.of(branches)
                };
                self.gather(branch, depth, all)?;
            }
        }
        if schema.get("if").is_some() {
            let branch = if self.chance.percent(50) {
                self.gather(&schema["if"], depth, all)?;
                schema.get("then")
            } else {
                schema.get("else")
            };
            if let Some(branch) = branch {
                self.gather(branch, depth, all)?;
            }
        }
        Some(())
    }

    fn kind(&mut self, all: &[&'a Value], at: &str) -> Option<&'static str> {
        const KINDS: [&str; 7] = [
            "object", "array", "string", "integer", "number", "boolean", "null",
        ];
        let allows = |schema: &Value, kind: &str| match &schema["type"] {
            Value::String(only) => only == kind || (only == "number" && kind == "integer"),
            Value::Array(some) => some
                .iter()
                .any(|one| one == kind || (one == "number" && kind == "integer")),
            _ => implied(schema).is_none_or(|implied| implied == kind),
        };
        let possible: Vec<&'static str> = KINDS
            .into_iter()
            .filter(|kind| all.iter().all(|schema| allows(schema, kind)))
            .collect();
        let kind = self.chance.pick(&possible)?;
        if kind == "integer" && !possible.contains(&"number") {
            self.sites.integers.push(at.to_owned());
        }
        Some(kind)
    }

    fn array(&mut self, all: &[&'a Value], at: &str, depth: usize) -> Option<Value> {
        let bounds = Bounds::of(all);
        let fixed = all
            .iter()
            .find_map(|schema| schema["prefixItems"].as_array());
        let fixed = fixed.map_or(&[][..], Vec::as_slice);
        let rest: Vec<&Value> = all
            .iter()
            .filter_map(|schema| schema.get("items"))
            .collect();
        let closed = rest.contains(&&Value::Bool(false));
        let least = bounds.least("minItems").max(usize::from(
            all.iter().any(|schema| schema.get("contains").is_some()),
        ));
        let widest = if depth > DEPTH_MAX { 0 } else { 3 };
        let mut most = bounds.most("maxItems").unwrap_or(usize::MAX);
        if closed {
            most = most.min(fixed.len());
        }
        let length = (least + self.chance.below(widest + 1)).min(most);
        let unique = all.iter().any(|schema| schema["uniqueItems"] == true);
        let mut items: Vec<Value> = Vec::new();
        for index in 0..length {
            let place = under(at, &index.to_string());
            let contained = all.iter().find_map(|schema| schema.get("contains"));
            let item = match (fixed.get(index), contained) {
                (Some(schema), _) => self.value(&[schema], &place, depth + 1)?,
                (None, Some(schema)) if index == 0 => self.value(&[schema], &place, depth + 1)?,
                (None, _) => self.value(&rest, &place, depth + 1)?,
            };
            if unique && items.contains(&item) {
                // What was noted of the item left out stands for its successor, or for nothing.
                self.forget(&place);
                break;
            }
            items.push(item);
        }
        Some(Value::Array(items))
    }

    fn object(&mut self, all: &[&'a Value], at: &str, depth: usize) -> Option<Value> {
        let mut declared: BTreeMap<&str, Vec<&'a Value>> = BTreeMap::new();
        let mut required: BTreeSet<&str> = BTreeSet::new();
        for schema in all {
            for (name, value) in schema["properties"].as_object().into_iter().flatten() {
                declared.entry(name).or_default().push(value);
            }
            let names = schema["required"].as_array().into_iter().flatten();
            required.extend(names.filter_map(Value::as_str));
        }
        let mut entries = Map::new();
        let likely = if depth > DEPTH_MAX { 0 } else { 55 };
        for (name, schemas) in &declared {
            if !required.contains(name) && !self.chance.percent(likely) {
                self.note_absent(at, name, schemas);
                continue;
            }
            let place = under(at, name);
            let value = self.value(schemas, &place, depth + 1);
            match value {
                Some(value) => {
                    entries.insert((*name).to_owned(), value);
                }
                None if required.contains(name) => return None,
                None => self.forget(&place),
            }
        }
        for name in required {
            if !entries.contains_key(name) && !declared.contains_key(name) {
                entries.insert(name.to_owned(), json!(leaf_text(&[], self.chance)?));
            }
        }
        self.others(all, at, depth, &declared, &mut entries)?;
        Some(Value::Object(entries))
    }

    /// Entries of maps and of open objects.
    fn others(
        &mut self,
        all: &[&'a Value],
        at: &str,
        depth: usize,
        declared: &BTreeMap<&str, Vec<&'a Value>>,
        entries: &mut Map<String, Value>,
    ) -> Option<()> {
        const NAMES: [&str; 8] = [
            "alpha", "beta", "gamma", "12A", "7C", "x1", "münchen", "a b",
        ];
        let pattern = all
            .iter()
            .find_map(|schema| schema["patternProperties"].as_object()?.values().next());
        let other = all
            .iter()
            .find_map(|schema| schema.get("additionalProperties"));
        let schema = match (pattern, other) {
            (Some(schema), _) => schema,
            (None, Some(schema @ Value::Object(_))) => schema,
            (None, Some(_)) => return Some(()),
            (None, None) if declared.is_empty() && self.chance.percent(40) => &Value::Bool(true),
            (None, None) => return Some(()),
        };
        self.sites.maps.push(at.to_owned());
        let least = Bounds::of(all).least("minProperties");
        let wanted = if depth > DEPTH_MAX {
            least
        } else {
            least + self.chance.below(3)
        };
        for _ in 0..wanted {
            let name = *self.chance.of(&NAMES);
            if declared.contains_key(name) || entries.contains_key(name) {
                continue;
            }
            let value = if schema == &Value::Bool(true) {
                json!(leaf_text(&[], self.chance)?)
            } else {
                self.value(&[schema], &under(at, name), depth + 1)?
            };
            entries.insert(name.to_owned(), value);
        }
        Some(())
    }

    fn note_absent(&mut self, at: &str, name: &str, schemas: &[&'a Value]) {
        let listed =
            |schema: &&&Value| schema.get("enum").is_none() && schema.get("const").is_none();
        let text = schemas
            .iter()
            .filter(listed)
            .any(|schema| schema["type"] == "string");
        let sites = &mut self.sites;
        if schemas.iter().any(|schema| has_own_nothing(schema)) {
            sites.in_doubt.push(under(at, name));
        }
        sites.absent.push((at.to_owned(), name.to_owned(), text));
    }

    /// What the schemas of a value say besides what it may be.
    fn note(&mut self, all: &[&'a Value], at: &str) {
        let is_other = |text: &Value| {
            text.as_str()
                .is_some_and(|text| text.parse::<i64>().is_err())
        };
        let shows = |schema: &&Value| {
            let examples = schema["examples"].as_array().into_iter().flatten();
            examples.chain([&schema["default"]]).any(is_other)
        };
        let holds = |schema: &&Value| schema["contentMediaType"].is_string();
        let is_true = |schema: &&Value| schema["default"] == true;
        let sites = &mut self.sites;
        for (is_so, places) in [
            (all.iter().any(is_true), &mut sites.filled),
            (all.iter().any(shows), &mut sites.shown),
            (all.iter().any(holds), &mut sites.content),
        ] {
            places.extend(is_so.then(|| at.to_owned()));
        }
    }

    /// Of a value that was not taken after all, nothing is noted.
    fn forget(&mut self, place: &str) {
        let inside = |at: &str| {
            at.strip_prefix(place)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.sites.absent.retain(|(at, _, _)| !inside(at));
        self.sites.in_doubt.retain(|at| !inside(at));
        self.sites.chosen.retain(|at| !inside(at));
        self.sites.integers.retain(|at| !inside(at));
        self.sites.maps.retain(|at| !inside(at));
        self.sites.filled.retain(|at| !inside(at));
        self.sites.shown.retain(|at| !inside(at));
        self.sites.content.retain(|at| !inside(at));
    }
}

/// Whether a schema has a word of its own for nothing, or `false` is that, for `true` is filled in.
fn has_own_nothing(schema: &Value) -> bool {
    let words = schema["enum"].as_array().into_iter().flatten();
    let mut words = words.filter_map(Value::as_str);
    schema["default"] == true || words.any(|word| NOTHING.contains(&word))
}

/// The kind that a schema without `type` is about.
fn implied(schema: &Value) -> Option<&'static str> {
    let has = |keyword: &str| schema.get(keyword).is_some();
    if has("properties") || has("required") {
        Some("object")
    } else if has("items") || has("prefixItems") {
        Some("array")
    } else if has("pattern") || has("format") {
        Some("string")
    } else {
        None
    }
}
