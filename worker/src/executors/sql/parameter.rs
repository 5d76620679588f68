//! A JSON value as the text of a parameter. The server reads it as the parameter's type, or refuses it.

use fleet::{said, wire::message::Message};
use serde_json::Value;

use super::statement::{Parameter, Shape};

/// The text that the server reads as the parameter's type; `None` is NULL.
///
/// # Errors
///
/// A sentence: the value has no text of that type.
pub(super) fn text(value: &Value, parameter: &Parameter) -> Result<Option<String>, Message> {
    match (value, parameter.shape) {
        (Value::Null, _) => Ok(None),
        (value, Shape::Json) => Ok(Some(value.to_string())),
        (Value::Array(items), Shape::Array) => array(items, parameter, false).map(Some),
        (Value::Array(items), Shape::Jsons) => array(items, parameter, true).map(Some),
        (Value::Array(_) | Value::Object(_), _) => Err(refused(value, parameter)),
        // A string may hold an array in the server's own form.
        (value, Shape::Scalar | Shape::Array | Shape::Jsons) => Ok(Some(scalar(value))),
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        // A number is sent with its own digits, as the caller wrote them.
        other => other.to_string(),
    }
}

/// `{"a","b",NULL,{…}}`, with every item in quotes.
fn array(items: &[Value], parameter: &Parameter, json: bool) -> Result<String, Message> {
    let mut parts = Vec::with_capacity(items.len());
    for item in items {
        parts.push(match item {
            Value::Null => "NULL".to_owned(),
            Value::Array(items) if !json => array(items, parameter, false)?,
            Value::Object(_) if !json => return Err(refused(item, parameter)),
            item if json => quoted(&item.to_string()),
            item => quoted(&scalar(item)),
        });
    }
    Ok(format!("{{{}}}", parts.join(",")))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn refused(value: &Value, parameter: &Parameter) -> Message {
    let what = if value.is_object() {
        Message::fixed("an object", "对象")
    } else {
        Message::fixed("an array", "数组")
    };
    let words = &parameter.type_words;
    said!("{what} cannot be a {words}", "{what}不能作为 {words}", what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &str, shape: Shape) -> Result<Option<String>, String> {
        let value: Value = serde_json::from_str(value).unwrap();
        let parameter = Parameter {
            type_name: "public.thing".to_owned(),
            type_words: "thing".to_owned(),
            shape,
        };
        text(&value, &parameter).map_err(|refused| refused.to_string())
    }

    #[test]
    fn a_value_becomes_the_text_of_its_type() {
        for (value, shape, expected) in [
            ("null", Shape::Scalar, None),
            ("null", Shape::Json, None),
            ("\"a'b\"", Shape::Scalar, Some("a'b")),
            (
                "12345678901234567890.10",
                Shape::Scalar,
                Some("12345678901234567890.10"),
            ),
            ("true", Shape::Scalar, Some("true")),
            ("\"x\"", Shape::Json, Some("\"x\"")),
            ("{\"a\":[1]}", Shape::Json, Some("{\"a\":[1]}")),
            (
                "[1,null,\"a\\\"b\\\\\"]",
                Shape::Array,
                Some(r#"{"1",NULL,"a\"b\\"}"#),
            ),
            (
                "[[1,2],[3,4]]",
                Shape::Array,
                Some(r#"{{"1","2"},{"3","4"}}"#),
            ),
            ("[]", Shape::Array, Some("{}")),
            (
                "[{\"a\":1},[2],null]",
                Shape::Jsons,
                Some(r#"{"{\"a\":1}","[2]",NULL}"#),
            ),
            ("\"{1,2}\"", Shape::Array, Some("{1,2}")),
        ] {
            assert_eq!(of(value, shape), Ok(expected.map(str::to_owned)), "{value}");
        }
    }

    #[test]
    fn what_has_no_text_is_refused_in_a_sentence() {
        assert_eq!(
            of("{}", Shape::Scalar),
            Err("an object cannot be a thing".into())
        );
        assert_eq!(
            of("[1]", Shape::Scalar),
            Err("an array cannot be a thing".into())
        );
        assert_eq!(
            of("[{}]", Shape::Array),
            Err("an object cannot be a thing".into())
        );
    }
}
