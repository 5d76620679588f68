//! Whether a schema keeps within the limits of strict mode.

use serde_json::Value;

use crate::arguments::keywords::{types, values};

/// The most levels of nested objects and arrays.
const LEVELS_MAX: usize = 10;
/// The most properties in all.
const PROPERTIES_MAX: usize = 5_000;
/// The most enum values in all.
const VALUES_MAX: usize = 1_000;
/// The most characters of all names and enum values.
const CHARACTERS_MAX: usize = 120_000;
/// The most characters of one enum with more than [`LONG_ENUM`] values.
const LONG_ENUM_CHARACTERS_MAX: usize = 15_000;
const LONG_ENUM: usize = 250;

/// The size of a strict schema, as its limits count.
#[derive(Default)]
pub(super) struct Size {
    levels: usize,
    properties: usize,
    values: usize,
    characters: usize,
    longest_enum: usize,
}

impl Size {
    pub(super) fn of(schema: &Value) -> Self {
        let mut size = Self::default();
        size.add(schema, 0);
        size
    }

    fn add(&mut self, schema: &Value, above: usize) {
        let kinds = types(schema);
        let is_level = kinds.contains(&"object") || kinds.contains(&"array");
        let level = above + usize::from(is_level);
        self.levels = self.levels.max(level);
        let options = values(schema).unwrap_or_default();
        let letters: usize = options
            .iter()
            .filter_map(|option| option.as_str())
            .map(|text| text.chars().count())
            .sum();
        self.values += options.len();
        self.characters += letters;
        if options.len() > LONG_ENUM {
            self.longest_enum = self.longest_enum.max(letters);
        }
        for word in ["properties", "$defs", "definitions"] {
            for (name, below) in schema
                .get(word)
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
            {
                self.properties += usize::from(word == "properties");
                self.characters += name.chars().count();
                self.add(below, if word == "properties" { level } else { 0 });
            }
        }
        let branches = schema.get("anyOf").and_then(Value::as_array);
        for below in schema
            .get("items")
            .into_iter()
            .chain(branches.into_iter().flatten())
        {
            self.add(below, level);
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let rows = [
            (self.levels, LEVELS_MAX, "levels of objects and arrays"),
            (self.properties, PROPERTIES_MAX, "properties"),
            (self.values, VALUES_MAX, "allowed values"),
            (
                self.characters,
                CHARACTERS_MAX,
                "characters of names and allowed values",
            ),
            (
                self.longest_enum,
                LONG_ENUM_CHARACTERS_MAX,
                "characters in one long enum",
            ),
        ];
        match rows.iter().find(|(found, most, _)| found > most) {
            Some((found, most, what)) => Err(format!(
                "the schema has {found} {what}; strict mode takes {most}"
            )),
            None => Ok(()),
        }
    }
}
