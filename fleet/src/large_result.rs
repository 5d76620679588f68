//! **What do callers get of a large answer?** Its beginning and its end, its size, and how to read the rest. Pure.
//!
//! The answer itself stays as it is in the history. What callers get is decided once, when the call ends, and stored beside it, so
//! that every reader gets the same bytes.

mod part;
mod readable;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use self::{part::part_at, readable::readable};

use crate::{
    call::Language,
    ids::CallId,
    manifest::{LargeResult, READ_RESULT},
};

/// The text of an answer: of a JSON string what it says, of everything else its JSON with every character that can stand as itself.
/// Offsets and characters count in it.
///
/// # Errors
///
/// It is no JSON.
pub fn text_of(result: &RawValue) -> Result<String, serde_json::Error> {
    if result.get().starts_with('"') {
        return serde_json::from_str(result.get());
    }
    Ok(readable(result.get()).into_owned())
}

/// Whether this answer is what remained of one that the ledger did not take.
pub fn is_remainder(call: CallId, result: &RawValue) -> bool {
    #[derive(Deserialize)]
    struct Remainder {
        #[serde(rename = "$result")]
        call: CallId,
        lost: bool,
    }
    // Written by this program, so it begins with its first member.
    result.get().starts_with("{\"$result\"")
        && serde_json::from_str::<Remainder>(result.get())
            .is_ok_and(|remainder| remainder.lost && remainder.call == call)
}

/// What callers get in place of a large answer.
#[derive(Debug, Serialize)]
struct Preview<'a> {
    /// The call that has all of it.
    #[serde(rename = "$result")]
    call: CallId,
    /// Its bytes as JSON.
    bytes: usize,
    /// The characters of its text.
    characters: usize,
    /// The beginning and the end of its text.
    preview: String,
    /// How to read on.
    note: &'a str,
    /// That nothing more was kept.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    lost: bool,
}

/// What callers get of the answer of this call in place of it, JSON text; `None` where they get all of it.
///
/// Shorter than the answer, and the same for the same answer. Reads all of it once.
pub fn preview(
    call: CallId,
    result: &str,
    spec: &LargeResult,
    language: Language,
) -> Option<String> {
    if !spec.over.is_below(result) {
        return None;
    }
    let shortened = shortened(call, result, spec.preview, language, false)?;
    (shortened.len() < result.len()).then_some(shortened)
}

/// The same for an answer that the ledger does not take: this is all that there will be.
pub fn remains(
    call: CallId,
    result: &str,
    spec: &LargeResult,
    language: Language,
) -> Option<String> {
    shortened(call, result, spec.preview, language, true)
}

fn shortened(
    call: CallId,
    result: &str,
    bytes: usize,
    language: Language,
    lost: bool,
) -> Option<String> {
    let raw: &RawValue = serde_json::from_str(result).ok()?;
    let text = text_of(raw).ok()?;
    let note = match (language, lost) {
        (Language::En, false) => {
            "This is the beginning and the end. Read more with the tool read_result and this $result as ref."
        }
        (Language::Zh, false) => {
            "这里只有开头和结尾。需要其余内容时，请用工具 read_result，把此处的 $result 作为 ref。"
        }
        (Language::En, true) => "This is the beginning and the end. The rest was not kept.",
        (Language::Zh, true) => "这里只有开头和结尾，其余内容没有保存。",
    };
    debug_assert!(lost || note.contains(READ_RESULT));
    let preview = Preview {
        call,
        bytes: result.len(),
        characters: text.chars().count(),
        preview: ends(&text, bytes),
        note,
        lost,
    };
    serde_json::to_string(&preview).ok()
}

/// The beginning and the end of a text, three quarters and one quarter of so many bytes, cut between characters.
fn ends(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(bytes / 4 * 3);
    let tail = text.ceil_char_boundary(text.len() - bytes / 4);
    format!("{} … {}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::manifest::Threshold;

    const SPEC: LargeResult = LargeResult {
        over: Threshold::Bytes(4_000),
        preview: 1_000,
    };

    fn call() -> CallId {
        "0192a6a0-0000-7000-8000-000000000001".parse().unwrap()
    }

    fn previewed(result: &str, language: Language) -> Option<Value> {
        let preview = preview(call(), result, &SPEC, language)?;
        Some(serde_json::from_str(&preview).unwrap())
    }

    #[test]
    fn five_mb_of_chinese() {
        let text = "天气晴朗。".repeat(5_000_000 / 15);
        let result = json!(text).to_string();
        let preview = previewed(&result, Language::Zh).unwrap();
        assert_eq!(preview["$result"], call().to_string());
        assert_eq!(preview["bytes"], result.len());
        assert_eq!(preview["characters"], text.chars().count());
        let shown = preview["preview"].as_str().unwrap();
        assert!(shown.len() <= 1_010 && shown.len() > 980, "{}", shown.len());
        let (head, tail) = shown.split_once(" … ").unwrap();
        assert!(text.starts_with(head) && text.ends_with(tail));
        assert!(head.len() > 2 * tail.len());
        assert!(preview["note"].as_str().unwrap().contains("read_result"));
        assert_eq!(preview.get("lost"), None);
    }

    #[test]
    fn an_answer_that_is_not_large_is_left_as_it_is() {
        assert_eq!(
            previewed(&json!("a".repeat(3_998)).to_string(), Language::En),
            None
        );
        assert!(previewed(&json!("a".repeat(3_999)).to_string(), Language::En).is_some());
        let few = json!({"of": "little"}).to_string();
        assert_eq!(previewed(&few, Language::En), None);
    }

    #[test]
    fn what_the_ledger_does_not_take_is_marked_as_lost() {
        let remains = remains(call(), "[1,2,3]", &SPEC, Language::En).unwrap();
        let raw: &RawValue = serde_json::from_str(&remains).unwrap();
        assert!(is_remainder(call(), raw));
        let remains: Value = serde_json::from_str(&remains).unwrap();
        assert_eq!(
            (&remains["lost"], &remains["preview"]),
            (&json!(true), &json!("[1,2,3]"))
        );
    }

    proptest! {
        #[test]
        fn a_preview_is_valid_and_shorter_and_the_same_every_time(
            text in prop_oneof![
                prop::collection::vec(any::<char>(), 0..3_000).prop_map(|chars| chars.into_iter().collect::<String>()),
                "[\"\\\\\u{1}天a]{0,6000}",
            ],
            as_array in any::<bool>(),
        ) {
            let result = if as_array { json!([text, {"also": text}]) } else { json!(text) }.to_string();
            let preview = preview(call(), &result, &SPEC, Language::En);
            prop_assert_eq!(&preview, &super::preview(call(), &result, &SPEC, Language::En));
            if let Some(preview) = preview {
                prop_assert!(preview.len() < result.len());
                let read: Value = serde_json::from_str(&preview).unwrap();
                let shown = read["preview"].as_str().unwrap();
                prop_assert!(shown.len() <= SPEC.preview + " … ".len());
            }
        }
    }
}
