//! Masks secrets in messages about failures and in answers: a tool may repeat the secret that it was given.

use fleet::{
    obstacle::Obstacle,
    outcome::{Outcome, ToolFailure},
    said,
    secrets::SecretError,
    wire::code::Code,
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, value::RawValue};

/// The failure of a tool whose secret this worker lacks; another worker may have it.
pub fn missing_secret(error: &SecretError) -> ToolFailure {
    let what = said!("{error}", "工具需要的密钥不可用：{error}");
    let failure = ToolFailure::new(Code::Unavailable, what);
    match error.secret() {
        Some(name) => failure.with_details(Obstacle::details_of_secret(name)),
        None => failure,
    }
}

/// The text with each of these secrets masked; `None` where there is none. For
/// [`Outcome::reworded`](fleet::outcome::Outcome::reworded).
pub fn redact(text: &str, secrets: &[SecretString]) -> Option<String> {
    let found: Vec<&str> = secrets
        .iter()
        .flat_map(looked_for)
        .filter(|secret| !secret.is_empty() && text.contains(secret))
        .collect();
    let redacted = |text: String, secret: &&str| text.replace(*secret, "[secret]");
    (!found.is_empty()).then(|| found.iter().fold(text.to_owned(), redacted))
}

/// How many bytes at the end of the text may be the beginning of one of these secrets, whose rest is still to come.
pub(crate) fn begun(text: &str, secrets: &[SecretString]) -> usize {
    let of_one = |secret: &str| {
        let secret = secret.as_bytes();
        let longest = text.len().min(secret.len().saturating_sub(1));
        let begins = |length: &usize| text.as_bytes().ends_with(&secret[..*length]);
        (1..=longest).rev().find(begins).unwrap_or(0)
    };
    let lengths = secrets.iter().flat_map(looked_for).map(of_one);
    lengths.max().unwrap_or(0)
}

/// A secret, and where it is a scheme and what it is for, as in `Bearer …`, that alone: a tool that was handed the whole header
/// repeats its second word.
fn looked_for(secret: &SecretString) -> impl Iterator<Item = &str> {
    let whole = secret.expose_secret();
    let of_scheme = whole.split_once(' ').map(|(_scheme, rest)| rest.trim());
    [whole]
        .into_iter()
        .chain(of_scheme.filter(|rest| rest.len() >= TELLING))
}

/// Shorter secrets, in bytes, are not looked for in answers: they would be found in much that is none, and a masked answer would
/// outgrow its limit by more than a third.
const TELLING: usize = 6;

/// The secrets that an answer of a tool must not repeat, for [`veil`]: without those of fewer than 6 bytes, and none where the
/// manifest says `redact_results: false`.
pub fn hidden(secrets: Vec<SecretString>, redact_results: bool) -> Vec<SecretString> {
    if !redact_results {
        return Vec::new();
    }
    let is_telling = |secret: &SecretString| secret.expose_secret().len() >= TELLING;
    secrets.into_iter().filter(is_telling).collect()
}

/// The outcome with these secrets, of [`hidden`], masked in the tool's answer. Costs nothing where there are none.
pub fn veil(outcome: Outcome, hidden: &[SecretString]) -> Outcome {
    match outcome {
        Outcome::Applied { result, flaw } => Outcome::Applied {
            result: match veiled(result.get(), hidden) {
                None => result,
                Some(text) => {
                    RawValue::from_string(text).expect("a string was replaced by another")
                }
            },
            flaw,
        },
        other => other,
    }
}

/// The outcome without the token with which the tool may answer later, in whatever it says: who reads that could answer for it.
pub(crate) fn without_token(outcome: Outcome, token: &SecretString) -> Outcome {
    without(outcome, &of_token(token))
}

/// The outcome without these, in whatever it says.
pub(crate) fn without(outcome: Outcome, hidden: &[SecretString]) -> Outcome {
    veil(outcome.reworded(|text| redact(text, hidden)), hidden)
}

/// What must not be repeated of a token. What proves it is behind the call's id, which is no secret.
pub(crate) fn of_token(token: &SecretString) -> [SecretString; 2] {
    let proof = token.expose_secret().rsplit('.').next();
    [token.clone(), SecretString::from(proof.unwrap_or_default())]
}

/// Valid JSON with these secrets masked; `None` where it has none. All else stays as it is written.
pub(crate) fn veiled(json: &str, hidden: &[SecretString]) -> Option<String> {
    let occurs = |text: &str| {
        hidden
            .iter()
            .flat_map(looked_for)
            .any(|secret| text.contains(secret))
    };
    // A secret may be written with escapes.
    if hidden.is_empty() || !(occurs(json) || json.contains('\\')) {
        return None;
    }
    let (mut text, mut rest, mut found) = (String::with_capacity(json.len()), json, false);
    while let Some(first) = rest.chars().next() {
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || "+-.".contains(letter);
        let length = match first {
            '"' => end_of_string(rest),
            word if is_word(word) => rest.find(|letter| !is_word(letter)).unwrap_or(rest.len()),
            other => other.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        rest = after;
        let masked = match serde_json::from_str(token) {
            Ok(Value::String(said)) if occurs(&said) => redact(&said, hidden),
            Ok(Value::Number(_))
                if hidden
                    .iter()
                    .flat_map(looked_for)
                    .any(|secret| secret == token) =>
            {
                redact(token, hidden)
            }
            _others => None,
        };
        found |= masked.is_some();
        match masked {
            Some(masked) => text.push_str(&Value::from(masked).to_string()),
            None => text.push_str(token),
        }
    }
    found.then_some(text)
}

/// The length of the string at the beginning of valid JSON.
fn end_of_string(json: &str) -> usize {
    let mut escaped = false;
    let mut inside = json.bytes().skip(1);
    let end = inside.position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.map_or(json.len(), |at| at + 2).min(json.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_masked_without_its_scheme_too() {
        let secrets = ["Bearer hunter/2!".into(), "Basic abc".into()];
        let masked = |text| redact(text, &secrets);
        assert_eq!(
            masked("Bad token hunter/2!").as_deref(),
            Some("Bad token [secret]")
        );
        assert_eq!(
            masked("got Bearer hunter/2!.").as_deref(),
            Some("got [secret].")
        );
        assert_eq!(masked("abc").as_deref(), None);
        assert_eq!(
            veiled(r#"{"tok":"hunter/2!","all":"bearer hunter/2!"}"#, &secrets).as_deref(),
            Some(r#"{"tok":"[secret]","all":"bearer [secret]"}"#)
        );
    }

    #[test]
    fn a_tool_does_not_tell_the_token_with_which_it_may_answer_later() {
        let token = SecretString::from("01a22098-043d-7082-a05f-e020ab8629c6.9f00c2");
        let result = RawValue::from_string(r#"{"tok":"9f00c2"}"#.to_owned()).unwrap();
        let told = without_token(Outcome::Applied { result, flaw: None }, &token);
        let Outcome::Applied { result, .. } = told else {
            panic!("{told:?}")
        };
        assert_eq!(result.get(), r#"{"tok":"[secret]"}"#);
        let said =
            fleet::wire::message::Message::verbatim("01a22098-043d-7082-a05f-e020ab8629c6.9f00c2");
        let told = without_token(
            Outcome::Unknown(ToolFailure::new(Code::Unavailable, said)),
            &token,
        );
        let failure = told.failure().unwrap();
        assert_eq!(failure.message.told(fleet::call::Language::En), "[secret]");
    }

    #[test]
    fn a_secret_is_masked_in_an_answer_however_it_is_written() {
        let hidden = hidden(
            vec!["hunter/2".into(), "12345678".into(), "short".into()],
            true,
        );
        for (answer, told) in [
            (
                r#"{"echo":"Bearer hunter/2!"}"#,
                r#"{"echo":"Bearer [secret]!"}"#,
            ),
            (
                r#"["hunter\/2","\u0068unter/2"]"#,
                r#"["[secret]","[secret]"]"#,
            ),
            (r#"{"hunter/2":12345678}"#, r#"{"[secret]":"[secret]"}"#),
        ] {
            assert_eq!(veiled(answer, &hidden).as_deref(), Some(told));
        }
        for answer in [
            r#"{"a":1.50,"b":"short","c":"\n\"x"}"#,
            "123456789",
            r#"{"b":9007199254740993}"#,
        ] {
            assert_eq!(veiled(answer, &hidden), None, "{answer}");
        }
        assert_eq!(
            veiled(
                r#""hunter/2""#,
                &super::hidden(vec!["hunter/2".into()], false)
            ),
            None
        );
    }
}
