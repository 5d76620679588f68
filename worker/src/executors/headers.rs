//! The headers that every request carries besides the arguments, the same for all kinds of tools that have headers.

use fleet::{
    outcome::ToolFailure,
    wire::{code::Code, message::Message},
};

use secrecy::ExposeSecret;

use super::{AttemptContext, later};
use crate::handover::urls::FileUrl;

/// The header of the idempotency key, which all attempts of a call share.
pub(crate) const KEY: &str = "Idempotency-Key";

/// The header with the ids of the files of the call.
pub(crate) const FILES: &str = "Toolfleet-Files";
/// The header of each file and the URL at which it is. One line, as of a list: many clients of NATS keep one line of a name.
pub(crate) const FILE_URLS: &str = "Toolfleet-File-Urls";

/// Names and values in a stable order: the key first, then the facts, the token of an answer that may come later, the files, and the trace.
/// Values are one line of ASCII, and each name stands there once.
///
/// # Errors
///
/// `unavailable` when the key is not a valid header value.
pub(crate) fn headers(context: &AttemptContext) -> Result<Vec<(String, String)>, ToolFailure> {
    let mut headers = vec![(KEY.to_owned(), key(context)?.to_owned())];
    for (name, value) in context.facts() {
        headers.push((fact_name(name), one_line(&value)));
    }
    if let Some(token) = &context.completion_token {
        headers.push((later::TOKEN.to_owned(), token.expose_secret().to_owned()));
    }
    if !context.files.is_empty() {
        let ids = context
            .files
            .list()
            .iter()
            .map(|file| file.file_id.to_string());
        let ids: Vec<String> = ids.collect();
        headers.push((FILES.to_owned(), ids.join(",")));
    }
    let urls = context.handed.urls().iter();
    let urls = urls.map(|FileUrl { file, url, .. }| format!("{file} {}", url.expose_secret()));
    let urls: Vec<String> = urls.collect();
    if !urls.is_empty() {
        headers.push((FILE_URLS.to_owned(), urls.join(", ")));
    }
    let trace = &context.trace;
    for (name, value) in [
        ("traceparent", &trace.traceparent),
        ("tracestate", &trace.tracestate),
        ("baggage", &trace.baggage),
    ] {
        // A trace that is no valid header is left out: it is no reason not to act.
        if let Some(value) = value.as_ref().filter(|value| is_line(value)) {
            headers.push((name.to_owned(), value.clone()));
        }
    }
    Ok(headers)
}

/// The key, as it stands in a header.
///
/// # Errors
///
/// `unavailable` when it is no valid header value.
pub(crate) fn key(context: &AttemptContext) -> Result<&str, ToolFailure> {
    let key = &context.idempotency_key;
    if is_line(key) {
        return Ok(key);
    }
    let what = Message::fixed(
        "the idempotency key cannot stand in a header: use visible ASCII",
        "幂等键不能放进请求头：请使用可见的 ASCII 字符",
    );
    Err(ToolFailure::new(Code::Unavailable, what))
}

/// The header of a fact: `call-id` is told as `Toolfleet-Call-Id`.
pub(crate) fn fact_name(fact: &str) -> String {
    let words = fact.split('-').map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_ascii_uppercase() + rest
    });
    words.fold("Toolfleet".to_owned(), |name, word| name + "-" + &word)
}

fn is_line(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

/// A fact as header text. Only the caller's meta may hold more than ASCII. It is JSON: white space between values means nothing
/// there, and every other character has an escape.
fn one_line(fact: &str) -> String {
    let mut line = String::with_capacity(fact.len());
    for character in fact.chars() {
        match character {
            ' '..='~' => line.push(character),
            '\t' | '\r' | '\n' => line.push(' '),
            _ => {
                let mut units = [0; 2];
                line.extend(
                    character
                        .encode_utf16(&mut units)
                        .iter()
                        .map(|unit| format!("\\u{unit:04x}")),
                );
            }
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn any_json_fits_one_header_line() {
        let meta = "{\r\n\t\"a\": \"é\u{1f600}\u{7f}\"}";
        let line = one_line(meta);
        assert_eq!(line, r#"{   "a": "\u00e9\ud83d\ude00\u007f"}"#);
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(read(&line), read(meta));
    }

    #[test]
    fn a_fact_has_the_name_that_the_documents_give() {
        assert_eq!(fact_name("call-id"), "Toolfleet-Call-Id");
        assert_eq!(fact_name("attempt"), "Toolfleet-Attempt");
    }
}
