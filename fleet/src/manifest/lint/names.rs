//! Names that confuse models, and descriptions without content.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::warnings::Warnings;
use crate::arguments::{WRAPPERS, pointer_segment};

/// The names of the properties of one object; `top`: they are the arguments themselves.
pub(super) fn lint(
    properties: &Map<String, Value>,
    place: &str,
    top: bool,
    tool: &str,
    warnings: &mut Warnings,
) {
    let mut alike: BTreeMap<String, &str> = BTreeMap::new();
    let (mut snake, mut camel) = (None, None);
    for name in properties.keys() {
        let path = format!("{place}/properties/{}", pointer_segment(name));
        if top && (WRAPPERS.contains(&name.as_str()) || name == tool) {
            warnings.add(
                &*path,
                format!(
                    "models wrap all of their arguments in {name:?} by mistake, which cannot be told from this property; \
                     name it after what it holds"
                ),
            );
        }
        if !is_plain(name) {
            let plain = plain(name);
            let instead = if plain.is_empty() {
                "a name of letters, digits and _".to_owned()
            } else {
                format!("{plain:?}")
            };
            warnings.add(
                &*path,
                format!(
                    "models misspell a name with anything but letters, digits and _, or with a digit first, and some vendors \
                     refuse it; write {instead}, and say the rest in the description"
                ),
            );
        }
        if let Some(other) = alike.insert(folded(name), name) {
            warnings.add(
                &*path,
                format!(
                    "differs from {other:?} only in case or separators, so a model mixes them up; name one after what \
                     makes it another"
                ),
            );
        }
        let humps = name.starts_with(|first: char| first.is_ascii_lowercase())
            && name.contains(|letter: char| letter.is_ascii_uppercase());
        match (name.contains('_'), humps) {
            (true, false) => _ = snake.get_or_insert(name),
            (false, true) => _ = camel.get_or_insert(name),
            (true, true) | (false, false) => {}
        }
    }
    if let (Some(snake), Some(camel)) = (snake, camel) {
        warnings.add(
            format!("{place}/properties"),
            format!(
                "{snake:?} and {camel:?} are spelt in two ways, so a model spells others wrong; write one of them throughout"
            ),
        );
    }
}

/// Whether a description only repeats the name, or says hardly anything.
pub(super) fn is_useless(description: &str, name: &str) -> bool {
    weight(description) < 10 || is_name_again(description, name)
}

pub(super) fn is_name_again(description: &str, name: &str) -> bool {
    let words = description.to_lowercase();
    let words = words.trim_matches(|c: char| !c.is_alphanumeric());
    let bare = ["the ", "a ", "an "]
        .iter()
        .find_map(|article| words.strip_prefix(article))
        .unwrap_or(words);
    [bare, words]
        .iter()
        .any(|said| folded(said) == folded(name))
}

/// How much a text says: its number of characters, where a character that is a word of its own counts for three.
pub(super) fn weight(text: &str) -> usize {
    let letter = |c: char| if c.is_ascii() { 1 } else { c.len_utf8() };
    text.trim().chars().map(letter).sum()
}

/// A name without case and separators.
pub(super) fn folded(name: &str) -> String {
    let letters = name.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

fn is_plain(name: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(first) && name.chars().all(|c| first(c) || c.is_ascii_digit())
}

/// The nearest plain name; empty if nothing of it is left.
fn plain(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let plain: String = name.chars().map(letter).collect();
    let parts: Vec<&str> = plain.split('_').filter(|part| !part.is_empty()).collect();
    let plain = parts.join("_");
    if plain.starts_with(|first: char| first.is_ascii_digit()) {
        return format!("n_{plain}");
    }
    plain
}
