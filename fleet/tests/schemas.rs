//! The schemas of what crosses the border: each compiles, and each example fits or does not as its folder says.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use fleet::{
    arguments::{Limits, Schema, parse_any},
    call, manifest,
    wire::{code::Code, envelope},
};
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("the folder can be listed").path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    files
}

fn read(path: &Path) -> Value {
    let text = fs::read_to_string(path).expect("the file can be read");
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => parse_any(text.as_bytes(), &Limits::DEFAULT)
            .unwrap_or_else(|error| panic!("{path:?}: {error}")),
        Some("yaml") => {
            yaml_serde::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"))
        }
        other => panic!("{path:?}: an example is a .json or .yaml file, not {other:?}"),
    }
}

/// Every schema with its name.
fn schemas() -> Vec<(String, Schema)> {
    let compile = |path: PathBuf| {
        let name = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .expect("a schema has a plain name")
            .to_owned();
        let schema = Schema::compile(&read(&path))
            .unwrap_or_else(|problems| panic!("{name}: {problems:#?}"));
        (name, schema)
    };
    let is_schema = |path: &PathBuf| {
        path.extension()
            .is_some_and(|extension| extension == "json")
            && path
                .file_name()
                // Vectors, and a document that refers to schemas.
                .is_some_and(|name| name != "canonical.json" && name != "openapi.json")
    };
    files(&folder())
        .into_iter()
        .filter(is_schema)
        .map(compile)
        .collect()
}

fn examples(name: &str, kind: &str) -> Vec<PathBuf> {
    let files = files(&folder().join(name).join("examples").join(kind));
    assert!(!files.is_empty(), "{name} has no {kind} example");
    files
}

#[test]
fn every_example_fits_or_fails_as_its_folder_says() {
    for (name, schema) in schemas() {
        for path in examples(&name, "valid") {
            let violations = schema.validate(&read(&path));
            assert!(
                violations.is_empty(),
                "{}: {}",
                path.display(),
                violations.summary()
            );
        }
        for path in examples(&name, "invalid") {
            assert!(!schema.is_valid(&read(&path)), "{} fits", path.display());
        }
    }
}

#[test]
fn manifests_are_read_as_their_folder_says() {
    for path in examples("manifest", "valid") {
        let parsed = manifest::parse(&fs::read_to_string(&path).unwrap());
        let manifest =
            parsed.unwrap_or_else(|problems| panic!("{}: {problems:#?}", path.display()));
        assert_eq!(manifest::lint(&manifest), [], "{}", path.display());
    }
    for path in examples("manifest", "invalid") {
        assert!(
            manifest::parse(&fs::read_to_string(&path).unwrap()).is_err(),
            "{}",
            path.display()
        );
    }
}

#[test]
fn an_example_is_an_error_where_the_program_would_say_so() {
    let mut outcomes = BTreeSet::new();
    for path in examples("envelopes", "valid") {
        let example = read(&path);
        let Some(outcome) = example.get("outcome").and_then(Value::as_str) else {
            continue;
        };
        let expected = envelope::is_error(outcome.parse().unwrap());
        assert_eq!(example["is_error"], expected, "{}", path.display());
        outcomes.insert(outcome.to_owned());
    }
    assert_eq!(outcomes.len(), call::CallOutcome::ALL.len(), "{outcomes:?}");
}

#[test]
fn the_words_of_the_program_stand_in_the_schema() {
    let (_, schema) = schemas()
        .into_iter()
        .find(|(name, _)| name == "envelopes")
        .unwrap();
    let words = |pointer: &str| -> Vec<String> {
        let list = schema
            .source()
            .pointer(pointer)
            .unwrap_or_else(|| panic!("{pointer}"));
        list.as_array()
            .unwrap()
            .iter()
            .map(|word| word.as_str().unwrap().to_owned())
            .collect()
    };
    let mut sent: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
    let mut codes = words("/$defs/code/enum");
    sent.sort_unstable();
    codes.sort_unstable();
    assert_eq!(
        codes, sent,
        "a code stands there once it is sent, and not before"
    );
    let field = |name: &str| words(&format!("/$defs/result/properties/{name}/enum"));
    assert_eq!(
        field("outcome"),
        call::CallOutcome::ALL
            .iter()
            .map(|word| word.as_str())
            .collect::<Vec<_>>()
    );
    assert_eq!(
        field("source"),
        call::Source::ALL
            .iter()
            .map(|word| word.as_str())
            .collect::<Vec<_>>()
    );
    assert_eq!(
        field("effect"),
        call::EffectKnown::ALL
            .iter()
            .map(|word| word.as_str())
            .collect::<Vec<_>>()
    );
    let states = words("/$defs/accepted/properties/state/enum");
    let all = call::State::ALL.iter();
    assert_eq!(states, all.map(|word| word.as_str()).collect::<Vec<_>>());
    let awaited = call::Awaiting::ALL.iter();
    assert_eq!(
        words("/$defs/awaiting/properties/for/enum"),
        awaited.map(|word| word.as_str()).collect::<Vec<_>>()
    );
}
