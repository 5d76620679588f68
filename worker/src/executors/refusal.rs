//! A tool's own words when it says no: `{"error": {"message": "…", "code": …}}`.

use fleet::wire::message::Message;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::output;

/// The message where a tool said no without a reason.
pub(crate) const NO_REASON: Message = Message::fixed(
    "the tool said no and gave no reason",
    "工具拒绝了请求，但没有说明原因",
);
/// The most bytes of a tool's own error code.
const CODE_MAX: usize = 128;

/// The message, and the code if there is one; `None` when the tool said something else, or nothing.
pub(crate) fn read(answer: &[u8]) -> Option<(String, Option<String>)> {
    #[derive(Deserialize)]
    struct RefusalBody {
        error: RefusalReason,
    }
    #[derive(Deserialize)]
    struct RefusalReason {
        message: String,
        /// Kept as text: a parsed value could become something that was never checked.
        #[serde(default)]
        code: Option<Box<RawValue>>,
    }

    let (json, _mended) = output::json(answer).ok()?;
    let RefusalReason { message, code } =
        serde_json::from_str::<RefusalBody>(json.get()).ok()?.error;
    let code = code.and_then(|code| match code.get().as_bytes().first() {
        Some(b'"') => serde_json::from_str::<String>(code.get()).ok(),
        Some(b'-' | b'0'..=b'9') => Some(code.get().to_owned()),
        Some(_) | None => None,
    });
    let bounded = |mut code: String| {
        code.truncate(code.floor_char_boundary(CODE_MAX));
        // The escape for NUL was replaced before; the character itself cannot occur in JSON.
        code
    };
    Some((message, code.map(bounded)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_speaks_for_itself() {
        let said = |answer: &str| read(answer.as_bytes());
        assert_eq!(
            said(r#"{"error":{"message":"sold out","code":"E1"}}"#),
            Some(("sold out".into(), Some("E1".into())))
        );
        for (answer, code) in [
            (r#"{"error":{"message":"m","code":7}}"#, Some("7")),
            (
                r#"{"error":{"message":"m","code":"\u0000"}}"#,
                Some("\u{fffd}"),
            ),
            (r#"{"error":{"message":"m","code":[]}}"#, None),
        ] {
            let (_, said) = said(answer).expect(answer);
            assert_eq!(said.as_deref(), code, "{answer}");
        }
        for silent in [
            "",
            "no",
            "{}",
            r#"{"error":"x"}"#,
            r#"{"error":{"message":3}}"#,
        ] {
            assert_eq!(said(silent), None, "{silent}");
        }
    }
}
