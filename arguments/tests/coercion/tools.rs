//! The tools whose arguments are damaged: written by hand, published by us, and grown from a seed.

use arguments::{Limits, Schema, canonical, parse};
use serde_json::Value;

use crate::{
    grow::{flat, grown},
    random::Chance,
};

const WRITTEN: [&str; 4] = [
    include_str!("schemas/flat.yaml"),
    include_str!("schemas/look.yaml"),
    include_str!("schemas/write.yaml"),
    include_str!("schemas/shapes.yaml"),
];
/// How many schemas are grown, and how many flat ones besides.
const GROWN: u64 = 60;
const FLAT: u64 = 30;

/// A tool as far as its arguments go.
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) schema: Schema,
}

/// All of them, always in the same order.
pub(crate) fn tools(seed: u64) -> Vec<Tool> {
    let written = WRITTEN.iter().flat_map(|text| {
        let schemas: Value = yaml_serde::from_str(text).expect("the schemas are YAML");
        let Value::Object(schemas) = schemas else {
            panic!("the schemas stand under the names of their tools");
        };
        schemas
    });
    let grown =
        (0..GROWN).map(|part| (format!("grown_{part}"), grown(&mut Chance::new(seed, part))));
    let flat = (0..FLAT).map(|part| {
        (
            format!("flat_{part}"),
            flat(&mut Chance::new(seed, GROWN + part)),
        )
    });
    written
        .chain(grown)
        .chain(flat)
        .map(|(name, schema)| {
            // As it would come out of a manifest: numbers as they were written.
            let schema = parse(canonical::to_text(&schema).as_bytes(), &Limits::DEFAULT);
            let schema = schema.unwrap_or_else(|error| panic!("{name}: {error}"));
            let schema = Schema::compile_input(&schema)
                .unwrap_or_else(|problems| panic!("{name}: {problems:#?}\n{schema}"));
            Tool { name, schema }
        })
        .collect()
}
