//! The canonical form, held against the vectors that are published for every language.

use std::{fs, path::Path};

use arguments::{Limits, ParseError, canonical, parse_any};
use serde::Deserialize;
use serde_json::{Number, Value};

#[derive(Deserialize)]
struct Published {
    vectors: Vec<Vector>,
    invalid: Vec<Invalid>,
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    input: String,
    canonical: String,
    sha256: String,
    /// The code with which it is refused as arguments, although it has a form.
    refused: Option<String>,
}

#[derive(Deserialize)]
struct Invalid {
    name: String,
    input: String,
    code: String,
}

fn published() -> Published {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/canonical.json");
    let text = fs::read_to_string(path).expect("the vectors are there");
    serde_json::from_str(&text).expect("the vectors are JSON")
}

fn read(text: &str) -> Result<Value, ParseError> {
    parse_any(text.as_bytes(), &Limits::DEFAULT)
}

#[test]
fn every_vector_has_its_text_and_its_hash() {
    let vectors = published().vectors;
    assert!(vectors.len() >= 60, "only {} vectors", vectors.len());
    for vector in vectors {
        let name = &vector.name;
        assert_eq!(
            hex::encode(canonical::hash_text(&vector.canonical)),
            vector.sha256,
            "{name}"
        );
        let value = match (read(&vector.input), &vector.refused) {
            (Ok(value), None) => value,
            (Err(error), Some(code)) => {
                assert_eq!(error.code.as_str(), code, "{name}");
                continue;
            }
            (found, _) => panic!("{name}: {found:?}"),
        };
        assert_eq!(canonical::to_text(&value), vector.canonical, "{name}");
        assert_eq!(
            hex::encode(canonical::hash(&value)),
            vector.sha256,
            "{name}"
        );
        // The canonical text is its own canonical text.
        let again = read(&vector.canonical).expect("a canonical text can be read");
        assert_eq!(canonical::to_text(&again), vector.canonical, "{name}");
    }
}

#[test]
fn numbers_beyond_what_is_accepted_are_written_as_they_are_too() {
    let numbers = published().vectors.into_iter().filter(|vector| {
        let code = vector.refused.as_deref();
        code.is_some_and(|code| code.starts_with("number_"))
    });
    let mut seen = 0;
    for vector in numbers {
        let number = Number::from_string_unchecked(vector.input);
        let text = canonical::to_text(&Value::Number(number));
        assert_eq!(text, vector.canonical, "{}", vector.name);
        seen += 1;
    }
    assert!(seen > 0, "no such vector");
}

#[test]
fn what_has_no_form_is_refused() {
    for case in published().invalid {
        let error = read(&case.input).expect_err(&case.name);
        assert_eq!(error.code.as_str(), case.code, "{}", case.name);
    }
}
