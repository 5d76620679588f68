use serde_json::json;

use super::*;
use crate::arguments::Schema;

fn schema() -> Value {
    serde_json::from_str(include_str!("../../../../schemas/manifest.json")).unwrap()
}

fn told(manifest: &Value) -> Vec<String> {
    let schema = schema();
    let unfit = Schema::compile(&schema).unwrap().validate(manifest);
    let told = unfit.items().iter();
    let told = told.map(|one| format!("{}: {}", one.path, sentence(one, manifest, &schema)));
    told.collect()
}

/// Every place of the schema, with its path; `*` for a place that may have any name.
fn places<'s>(
    schema: &'s Value,
    node: &'s Value,
    path: &str,
    found: &mut Vec<(String, &'s Value)>,
) {
    let node = follow(schema, node);
    found.push((path.to_owned(), node));
    for (name, inner) in node["properties"].as_object().into_iter().flatten() {
        places(schema, inner, &format!("{path}/{name}"), found);
    }
    for inner in node["prefixItems"].as_array().into_iter().flatten() {
        places(schema, inner, &format!("{path}/0"), found);
    }
}

#[test]
fn every_field_has_an_example_that_fits_it() {
    let schema = schema();
    let mut all = Vec::new();
    places(&schema, &schema, "", &mut all);
    for (path, node) in all
        .into_iter()
        .filter(|(path, _)| !path.is_empty() && path != "/executor/http/body")
    {
        let example = example(&schema, node).unwrap_or_else(|| panic!("{path} has no example"));
        let mut alone = node.clone();
        alone["$defs"] = schema["$defs"].clone();
        let fits = Schema::compile(&alone).unwrap().validate(&example);
        assert!(fits.is_empty(), "{path}: {fits:?}");
    }
}

#[test]
fn what_is_said_never_repeats_a_text_that_may_be_a_secret() {
    let told = told(&json!({
        "name": "t", "version": 1, "description": "d", "effect": "read", "input_schema": {"type": "object"},
        "executor": {"process": {"command": ["a"], "env": "TOKEN=hunter2:x", "cwd": ""}},
    }));
    assert_eq!(
        told,
        [
            "/executor/process/cwd: it is empty; write something such as /srv/tools",
            "/executor/process/env: a text is not an object; write {API_KEY: secret://API_KEY}",
        ]
    );
}

#[test]
fn a_name_that_is_none_is_mended_in_what_to_write() {
    assert_eq!(name_meant("Get Weather", false), "get_weather");
    assert_eq!(name_meant("get-weather", false), "get_weather");
    assert_eq!(name_meant("A.b-c", true), "a_b-c");
    assert_eq!(name_meant("天气", false), "a name such as get_weather");
}
