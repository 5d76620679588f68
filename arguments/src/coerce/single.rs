//! Which text can be one item of a list, and not several items joined to one text.

use serde_json::Value;

/// Letters that also join words: and, or, with.
const JOINING: &str = "和与與及跟或並并兼暨と";
/// Formats in which two values joined make no value: a text of one may hold characters that elsewhere join words.
const UNMISTAKABLE: [&str; 6] = ["date", "date-time", "email", "ipv4", "ipv6", "uuid"];
/// Words for nothing, for everything, and for what the tool is to choose.
const NO_ITEMS: [&str; 71] = [
    "null",
    "none",
    "nil",
    "undefined",
    "nan",
    "na",
    "nothing",
    "nobody",
    "noone",
    "nowhere",
    "empty",
    "blank",
    "void",
    "missing",
    "absent",
    "unset",
    "unspecified",
    "unknown",
    "unavailable",
    "tbd",
    "todo",
    "no",
    "yes",
    "false",
    "true",
    "off",
    "on",
    "all",
    "any",
    "anything",
    "anyone",
    "anybody",
    "anywhere",
    "both",
    "each",
    "either",
    "every",
    "everything",
    "everyone",
    "everybody",
    "everywhere",
    "whatever",
    "various",
    "several",
    "multiple",
    "mixed",
    "other",
    "others",
    "same",
    "auto",
    "automatic",
    "default",
    "defaults",
    "无",
    "無",
    "空",
    "没有",
    "未知",
    "不详",
    "暂无",
    "未定",
    "全",
    "全部",
    "所有",
    "一切",
    "任何",
    "任意",
    "不限",
    "默认",
    "其他",
    "多个",
];

/// Whether a text is one item of a list whose items these schemas describe.
///
/// What could join words is in it only where the schemas vouch for the whole: it is one of their words, and none of its
/// parts is, or their format makes two of it impossible.
pub(super) fn is_single(text: &str, items: &[&Value]) -> bool {
    let is_no_item = NO_ITEMS.iter().any(|word| text.eq_ignore_ascii_case(word));
    let is_letter = |c: char| (c.is_alphanumeric() || c == '_') && !JOINING.contains(c);
    let is_plain = text.chars().all(is_letter) && text.contains(char::is_alphanumeric);
    !is_no_item && (is_plain || is_word(text, items) || has_format(text, items))
}

fn is_word(text: &str, items: &[&Value]) -> bool {
    let options = items
        .iter()
        .filter_map(|schema| schema.get("enum")?.as_array());
    let words: Vec<&str> = options.flatten().filter_map(Value::as_str).collect();
    let is_part = |word: &&str| *word != text && !word.is_empty() && text.contains(*word);
    words.contains(&text) && !words.iter().any(is_part)
}

fn has_format(text: &str, items: &[&Value]) -> bool {
    let formats = items
        .iter()
        .filter_map(|schema| schema.get("format")?.as_str());
    let is_letter = |c: char| c.is_ascii_alphanumeric() || "-_.:@".contains(c);
    formats
        .into_iter()
        .any(|format| UNMISTAKABLE.contains(&format))
        && text.chars().all(is_letter)
}
