//! Holds what a gateway answers against the document that describes its API: the status must be one that the operation has, the body must
//! fit the schema of that answer, and so must the headers.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use jsonschema::Validator;
use serde_json::{Value, json};

use crate::web_answer::WebAnswer;

/// Schemas that were compiled, by where their answer stands in the document.
static COMPILED: LazyLock<Mutex<HashMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);

/// What is wrong with the answer to the request with this first line; nothing where the document has no such operation, or where the answer
/// is not the gateway's: what is no HTTP is turned away below it.
pub fn problem(line: &str, answer: &WebAnswer) -> Option<String> {
    let mut words = line.split(' ');
    let (method, path) = (words.next()?.to_lowercase(), words.next()?);
    let path = path.split('?').next().unwrap_or_default();
    if answer.header("Toolfleet-Answer").is_empty() {
        return None;
    }
    let document = gateway::document();
    let described = template(document, path)?;
    let operation = document["paths"][described].get(&method)?;
    let status = answer.status.to_string();
    let told = |what: &str| {
        Some(format!(
            "{line}: {status} {what}: {}",
            answer.text().chars().take(400).collect::<String>()
        ))
    };
    let Some(response) = operation["responses"].get(&status) else {
        return told("is not described");
    };
    let response = followed(document, response);
    for (name, header) in response["headers"].as_object().into_iter().flatten() {
        let (value, header) = (answer.header(name), followed(document, header));
        if value.is_empty() {
            if header["required"] == true {
                return told(&format!("has no header {name}"));
            }
            continue;
        }
        let numeric = value.parse::<u64>().map(|number| json!(number));
        let value = match header["schema"]["type"] == "integer" {
            true => numeric.unwrap_or_default(),
            false => json!(value),
        };
        let place = format!("{method} {described} {status} header {name}");
        if !fits(&place, &header["schema"], &value) {
            return told(&format!("has a header {name} that does not fit"));
        }
    }
    let kind = answer.header("Content-Type");
    if response.get("content").is_none() && kind.is_empty() {
        return (!answer.text().is_empty()).then(|| told("has a body").unwrap_or_default());
    }
    if kind == "text/event-stream" {
        let is_described = response["content"].get(kind).is_some();
        return (!is_described).then(|| told("is a stream").unwrap_or_default());
    }
    // The bytes of a file are of any kind.
    if response["content"].get("*/*").is_some() {
        return None;
    }
    let schema = &response["content"]["application/json"]["schema"];
    let body = answer.json();
    let name = format!("{method} {described} {status}");
    if kind != "application/json" || !fits(&name, schema, &body) {
        return told("does not fit its schema");
    }
    None
}

/// The path of the document that this one is an example of. A path that is written out comes before a template.
fn template<'a>(document: &'a Value, path: &str) -> Option<&'a str> {
    let paths = document["paths"].as_object()?;
    let same = |template: &str| {
        let (template, path) = (template.split('/'), path.split('/'));
        template.clone().count() == path.clone().count()
            && template
                .zip(path)
                .all(|(there, here)| there == here || there.starts_with('{') && !here.is_empty())
    };
    let found = paths.get_key_value(path).map(|(name, _)| name);
    let found = found.or_else(|| paths.keys().find(|template| same(template)));
    found.map(String::as_str)
}

/// What a reference leads to.
fn followed<'a>(document: &'a Value, part: &'a Value) -> &'a Value {
    let target = part["$ref"]
        .as_str()
        .and_then(|target| target.strip_prefix('#'));
    target
        .and_then(|pointer| document.pointer(pointer))
        .unwrap_or(part)
}

/// Whether a value fits a schema of the document, which may refer to its components.
fn fits(name: &str, schema: &Value, value: &Value) -> bool {
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let validator = compiled.entry(name.to_owned()).or_insert_with(|| {
        let components = gateway::document()["components"].clone();
        let whole = json!({ "allOf": [schema], "components": components });
        let validator = jsonschema::draft202012::new(&whole);
        Arc::new(validator.unwrap_or_else(|error| panic!("{name}: {error}")))
    });
    let validator = Arc::clone(validator);
    drop(compiled);
    validator.is_valid(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> WebAnswer {
        let own = [
            ("Content-Type", "application/json"),
            ("Toolfleet-Answer", "gateway"),
        ];
        let lines = own.iter().chain(headers);
        WebAnswer {
            status,
            headers: lines
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            body: body.into(),
        }
    }

    #[test]
    fn an_answer_that_is_not_described_is_found() {
        let line = "GET /v1/breakers?limit=1 HTTP/1.1";
        let page = r#"{"breakers":[],"before":null}"#;
        assert_eq!(problem(line, &answer(200, &[], page)), None);
        assert_eq!(
            problem("GET /nowhere HTTP/1.1", &answer(500, &[], "")),
            None
        );
        for wrong in [
            answer(201, &[], page),
            answer(200, &[], r#"{"breakers":[]}"#),
            answer(200, &[], "[]"),
            answer(200, &[], ""),
        ] {
            assert!(problem(line, &wrong).is_some(), "{wrong:?}");
        }
        let again = [("Retry-After", "soon")];
        let line = "POST /v1/call/look HTTP/1.1";
        let accepted = r#"{"call_id":"0193a1b2-c3d4-7e5f-8a6b-0123456789ab","tool":"look","state":"queued","replayed":false,"accepted_at":"2026-11-28T19:49:07Z"}"#;
        assert_eq!(problem(line, &answer(202, &[], accepted)), None);
        assert!(problem(line, &answer(202, &again, accepted)).is_some());
        assert!(problem(line, &answer(200, &[], accepted)).is_some());
    }
}
