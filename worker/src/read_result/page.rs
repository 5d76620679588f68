//! What is asked for of a result: a page of a text, whole items of an array, or the places where something stands. Pure.
//!
//! Pages count characters, never lines, so that one long line ends like every other text, and always say where the next begins.

use std::fmt;

use fleet::large_result::{part_at, readable, text_of};
use schemars::JsonSchema;
use serde::{
    Deserializer, Serialize,
    de::{Error, IgnoredAny, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) offset: usize,
    /// How many characters at most, at least one.
    pub(super) limit: usize,
    pub(super) search: Option<&'a str>,
    /// A JSON pointer; empty for all of it.
    pub(super) path: &'a str,
}

/// What there is of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Page {
    /// A page of a text.
    Text {
        /// The page.
        text: String,
        /// Where it begins.
        offset: usize,
        /// Where the next page begins; absent at the end.
        #[serde(skip_serializing_if = "Option::is_none")]
        next_offset: Option<usize>,
        /// How many characters there are in all.
        characters: usize,
    },
    /// Whole items of an array.
    Items {
        /// The items; in place of one that is larger than a page, its beginning and the path to read it with.
        items: Vec<Item>,
        /// The number of the first one.
        offset: usize,
        /// The number of the next one; absent at the end.
        #[serde(skip_serializing_if = "Option::is_none")]
        next_offset: Option<usize>,
        /// How many items there are in all.
        count: usize,
    },
    /// The places where something stands.
    Matches {
        /// At most as many as fit, with what stands around them.
        matches: Vec<Match>,
        /// Where to search on; absent when there are no more.
        #[serde(skip_serializing_if = "Option::is_none")]
        next_offset: Option<usize>,
        /// How many characters there are in all.
        characters: usize,
    },
}

/// An item of an array.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Item {
    /// All of it.
    Whole(#[schemars(with = "serde_json::Value")] Box<RawValue>),
    /// Its beginning.
    Beginning {
        /// Where the rest is.
        path: String,
        /// How many characters it has.
        characters: usize,
        /// How it begins.
        preview: String,
    },
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        serde_json::to_string(self).ok() == serde_json::to_string(other).ok()
    }
}

impl Eq for Item {}

/// A place where something stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Match {
    /// The character where it begins.
    offset: usize,
    /// What stands there, with some characters before and behind.
    text: String,
}

/// Why there is nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoPage {
    #[error(
        "path leads nowhere in this result; it begins with /, such as /items/3; read the result without path to see what it has"
    )]
    NoSuchPath,
    #[error("offset is behind the end; begin at 0, or go on from next_offset")]
    BehindTheEnd,
}

impl NoPage {
    pub(super) const fn code(self) -> &'static str {
        match self {
            Self::NoSuchPath => "no_such_path",
            Self::BehindTheEnd => "behind_the_end",
        }
    }
}

/// How much of an item that is larger than a page is shown.
const BEGINNING: usize = 200;
/// How many characters around a match are shown.
const AROUND: usize = 80;

/// The part of a result that is asked for.
pub(super) fn of(result: &RawValue, asked: &Asked<'_>) -> Result<Page, NoPage> {
    let part = part_at(result, asked.path).ok_or(NoPage::NoSuchPath)?;
    if let Some(search) = asked.search {
        return matches(&text(part)?, search, asked);
    }
    if part.get().starts_with('[') {
        return page_of_items(part, asked);
    }
    page_of_text(&text(part)?, asked)
}

fn text(part: &RawValue) -> Result<String, NoPage> {
    text_of(part).map_err(|_no_json| NoPage::NoSuchPath)
}

fn page_of_text(text: &str, asked: &Asked<'_>) -> Result<Page, NoPage> {
    let characters = text.chars().count();
    let (offset, limit) = (asked.offset, asked.limit.max(1));
    if offset > 0 && offset >= characters {
        return Err(NoPage::BehindTheEnd);
    }
    let page: String = text.chars().skip(offset).take(limit).collect();
    let next = offset.saturating_add(limit);
    Ok(Page::Text {
        text: page,
        offset,
        next_offset: (next < characters).then_some(next),
        characters,
    })
}

/// Takes as many whole items as fit, and counts the others.
struct Items<'a>(&'a Asked<'a>);

impl<'de> Visitor<'de> for Items<'_> {
    /// The page, and how many items there are.
    type Value = (Vec<Item>, usize);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut items: S) -> Result<Self::Value, S::Error> {
        let Asked { offset, path, .. } = *self.0;
        let limit = self.0.limit.max(1);
        let (mut page, mut taken, mut count) = (Vec::new(), 0, 0);
        while count < offset && items.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        while let Some(item) = items.next_element::<&RawValue>()? {
            let index = count;
            count += 1;
            let item = readable(item.get());
            let characters = item.chars().count();
            let is_larger = characters > limit;
            let shown = if is_larger {
                BEGINNING.min(limit)
            } else {
                characters
            };
            // At least one, so that every page moves on.
            if !page.is_empty() && taken + shown > limit {
                break;
            }
            taken += shown;
            page.push(if is_larger {
                Item::Beginning {
                    path: format!("{path}/{index}"),
                    characters,
                    preview: item.chars().take(shown).collect(),
                }
            } else {
                let whole = RawValue::from_string(item.into_owned());
                Item::Whole(whole.map_err(S::Error::custom)?)
            });
        }
        while items.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok((page, count))
    }
}

fn page_of_items(part: &RawValue, asked: &Asked<'_>) -> Result<Page, NoPage> {
    let offset = asked.offset;
    let mut reader = serde_json::Deserializer::from_str(part.get());
    let read = reader.deserialize_seq(Items(asked));
    let (items, count) = read.map_err(|_no_json| NoPage::NoSuchPath)?;
    if offset > 0 && offset >= count {
        return Err(NoPage::BehindTheEnd);
    }
    let next = offset + items.len();
    Ok(Page::Items {
        items,
        offset,
        next_offset: (next < count).then_some(next),
        count,
    })
}

fn matches(text: &str, search: &str, asked: &Asked<'_>) -> Result<Page, NoPage> {
    let characters = text.chars().count();
    let (offset, limit) = (asked.offset, asked.limit.max(1));
    if offset > 0 && offset >= characters {
        return Err(NoPage::BehindTheEnd);
    }
    // Of the same length as the text, byte by byte.
    let (plain, wanted) = (text.to_ascii_lowercase(), search.to_ascii_lowercase());
    let begin = byte_of(text, offset);
    let (mut found, mut taken, mut next_offset) = (Vec::new(), 0, None);
    let (mut seen_bytes, mut seen) = (begin, offset);
    for (at, _) in plain[begin..].match_indices(&wanted) {
        let at = begin + at;
        seen += text[seen_bytes..at].chars().count();
        seen_bytes = at;
        let around = around(text, at, at + wanted.len());
        let shown = around.chars().count();
        if !found.is_empty() && taken + shown > limit {
            next_offset = Some(seen);
            break;
        }
        taken += shown;
        found.push(Match {
            offset: seen,
            text: around.to_owned(),
        });
    }
    Ok(Page::Matches {
        matches: found,
        next_offset,
        characters,
    })
}

fn byte_of(text: &str, character: usize) -> usize {
    let at = text.char_indices().nth(character);
    at.map_or(text.len(), |(byte, _)| byte)
}

/// What stands between these bytes, with some characters before and behind.
fn around(text: &str, from: usize, to: usize) -> &str {
    let before = text[..from].char_indices().rev().take(AROUND).last();
    let behind = text[to..].char_indices().nth(AROUND);
    let from = before.map_or(from, |(byte, _)| byte);
    let to = behind.map_or(text.len(), |(byte, _)| to + byte);
    &text[from..to]
}

#[cfg(test)]
mod tests;
