//! Whether a text can only be one item of a list: not the list itself as one text, and not a word for none or all of it.

use serde_json::{Number, Value};

/// Formats in which two values in one text are invalid: such a text may contain characters that otherwise could join words.
const UNMISTAKABLE: [&str; 6] = ["date", "date-time", "email", "ipv4", "ipv6", "uuid"];
/// Words for nothing.
const NOTHING: &str = "null none nil undefined nan na nothing nobody noone nowhere empty blank void missing absent unset \
    unselected unspecified unknown unavailable tbd tba no not non without off dontcare \
    无 無 空 没有 未知 不详 暂无 未定 待定";
/// Words for everything, and for letting the tool choose.
const ALL: &str = "all any anything anyone anybody anywhere both each either every everything everyone everybody everywhere \
    entire complete whole whatever various several multiple mixed other others rest remaining same wildcard auto automatic \
    default defaults 全 全部 所有 一切 任何 任意 不限 默认 其他 多个";
/// Words that join others or exclude them.
const JOINING: &str = "and or to und oder bis et ou y e o i a vs versus plus with till until through thru except but nor etc";
/// Words that are no item as a whole.
const NO_ITEMS: &str = "yes true false on todo string array object list placeholder 0";

/// Whether a text is one item of a list whose items these schemas describe.
///
/// It is, if it is one word of ASCII letters, digits and `_` of which no part says otherwise. In other scripts, and with
/// characters that could join words, it is only where the schemas confirm the whole: it is one of their words and none of its
/// parts is, or their format makes two values impossible.
pub(super) fn is_single(text: &str, items: &[&Value]) -> bool {
    let is_in = |lists: &[&str], part: &str| lists.iter().any(|list| has(list, part));
    let is_no_item = is_in(&[NOTHING, ALL, NO_ITEMS], &folded(text));
    let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_joined = || parts(text).any(|part| is_in(&[NOTHING, ALL, JOINING], &part));
    let is_plain = || {
        let is_word = text.chars().all(is_letter) && text.contains(char::is_alphanumeric);
        is_word && (text.len() == 1 || !is_joined())
    };
    !is_no_item && (is_plain() || is_word(text, items) || has_format(text, items))
}

/// Whether a word means nothing, or has a part that does.
pub(super) fn is_for_nothing(word: &str) -> bool {
    has(NOTHING, &folded(word)) || parts(word).any(|part| has(NOTHING, &part))
}

/// Whether a number means none of them, or all.
pub(super) fn is_none_or_all(number: &Number) -> bool {
    matches!(number.as_str(), "0" | "-1")
}

/// Whether a word is in a list.
fn has(list: &str, word: &str) -> bool {
    list.split_ascii_whitespace().any(|known| known == word)
}

/// The letters and digits of a word, in lower case: `N/A` is `na`.
fn folded(word: &str) -> String {
    let letters = word.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

/// The words that were joined into one, in lower case: separated by anything but letters and digits, or by a capital.
fn parts(word: &str) -> impl Iterator<Item = String> {
    let mut spaced = String::with_capacity(word.len() + 8);
    let mut letters = word.chars().peekable();
    let mut before = ' ';
    while let Some(letter) = letters.next() {
        let follows_small = letter.is_uppercase() && !before.is_uppercase();
        let begins = letter.is_uppercase() && letters.peek().is_some_and(|c| c.is_lowercase());
        if follows_small || begins || !letter.is_alphanumeric() {
            spaced.push(' ');
        }
        spaced.push(letter);
        before = letter;
    }
    let parts: Vec<String> = spaced
        .split(|c: char| !c.is_alphanumeric())
        .map(str::to_lowercase)
        .collect();
    parts.into_iter()
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
