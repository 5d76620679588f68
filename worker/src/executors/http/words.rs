//! What a refusal contains besides its status: a message and a pause.

use std::time::Duration;

use secrecy::SecretString;

use crate::executors::{output, redact::redact};
use serde_json::Value;
use time::{OffsetDateTime, format_description::well_known::Rfc2822};

/// The longest pause that a server may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);

/// The tool's own words: `error.message`, `message`, `error`, or `title` and `detail` of RFC 9457.
///
/// `None` when there are none, or the body is not JSON: a page of HTML is no message.
pub(in crate::executors) fn message(body: &[u8], secrets: &[SecretString]) -> Option<String> {
    let (body, _mended) = output::json(body).ok()?;
    let body: Value = serde_json::from_str(body.get()).ok()?;
    let said = |value: &Value| {
        value
            .as_str()
            .map(str::trim)
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let problem = || match (said(&body["title"]), said(&body["detail"])) {
        (Some(title), Some(detail)) => Some(format!("{title}: {detail}")),
        (title, detail) => title.or(detail),
    };
    let text = said(&body["error"]["message"])
        .or_else(|| said(&body["message"]))
        .or_else(|| said(&body["error"]))
        .or_else(problem)?;
    Some(redact(&text, secrets).unwrap_or(text))
}

/// The most bytes of an excerpt.
const EXCERPT_MAX: usize = 500;

/// The beginning of a body, on one line, without secrets and without characters that harm a terminal or Postgres; `None`: there is none.
pub(in crate::executors) fn excerpt(body: &[u8], secrets: &[SecretString]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    // Before anything is cut: half a secret would not be found.
    let masked = redact(&text, secrets);
    let text = masked.as_deref().unwrap_or(&text);
    let is_apart = |letter: char| letter.is_whitespace() || letter.is_control();
    let words = text.split(is_apart).filter(|word| !word.is_empty());
    let mut excerpt = String::new();
    for word in words {
        if excerpt.len() > EXCERPT_MAX {
            break;
        }
        if !excerpt.is_empty() {
            excerpt.push(' ');
        }
        excerpt.push_str(word);
    }
    excerpt.truncate(excerpt.floor_char_boundary(EXCERPT_MAX));
    (!excerpt.is_empty()).then_some(excerpt)
}

/// `Retry-After` in seconds, or as a date measured against the server's own `Date`, so that no clock has to agree.
pub(in crate::executors) fn pause(
    retry_after: Option<&str>,
    date: Option<&str>,
) -> Option<Duration> {
    let text = retry_after?.trim();
    let pause = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_not_a_number) => {
            let read = |text: &str| OffsetDateTime::parse(text.trim(), &Rfc2822).ok();
            let wait = read(text)? - read(date?)?;
            wait.try_into().unwrap_or(Duration::ZERO)
        }
    };
    Some(pause.min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tools_own_words_are_found() {
        let secrets = [SecretString::from("hunter2"), SecretString::from("")];
        for (body, expected) in [
            (
                r#"{"error":{"message":"no order","code":7}}"#,
                Some("no order"),
            ),
            (r#"{"message":"no order"}"#, Some("no order")),
            (r#"{"error":"no order"}"#, Some("no order")),
            (
                r#"{"title":"Gone","detail":"no order 7"}"#,
                Some("Gone: no order 7"),
            ),
            (r#"{"detail":"no order 7"}"#, Some("no order 7")),
            (
                r#"{"message":"the key hunter2 is bad"}"#,
                Some("the key [secret] is bad"),
            ),
            (r#"{"message":"  "}"#, None),
            (r#"{"message":7}"#, None),
            (r#"["message"]"#, None),
            (r#"{"message":"cut"#, None),
            ("<html>no</html>", None),
            ("", None),
        ] {
            assert_eq!(
                message(body.as_bytes(), &secrets).as_deref(),
                expected,
                "{body}"
            );
        }
    }

    #[test]
    fn an_excerpt_is_short_harmless_and_without_secrets() {
        let secrets = [SecretString::from("hunter/2")];
        let told = |body: &str| excerpt(body.as_bytes(), &secrets);
        assert_eq!(
            told("<h1>\r\n no\u{1b}[2J\0 hunter/2</h1>").as_deref(),
            Some("<h1> no [2J [secret]</h1>")
        );
        assert_eq!(told(" \n"), None);
        let long = told(&format!("{}hunter/2", "é".repeat(EXCERPT_MAX / 2 - 2))).unwrap();
        assert!(
            long.len() <= EXCERPT_MAX && !long.contains("hunt"),
            "{long}"
        );
    }

    #[test]
    fn a_pause_is_read_in_both_forms() {
        let date = "Wed, 21 Oct 2015 07:28:00 GMT";
        for (retry_after, date, expected) in [
            ("120", None, Some(120)),
            (" 0 ", None, Some(0)),
            ("99999999999", None, Some(86_400)),
            ("Wed, 21 Oct 2015 07:28:30 GMT", Some(date), Some(30)),
            ("Wed, 21 Oct 2015 07:27:00 GMT", Some(date), Some(0)),
            ("Wed, 21 Oct 2015 07:28:30 GMT", None, None),
            ("soon", Some(date), None),
            ("-5", Some(date), None),
            ("", None, None),
        ] {
            let expected = expected.map(Duration::from_secs);
            assert_eq!(pause(Some(retry_after), date), expected, "{retry_after}");
        }
        assert_eq!(pause(None, Some(date)), None);
    }
}
