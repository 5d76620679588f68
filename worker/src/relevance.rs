//! How well tools fit what is said: by the words of their names and descriptions. Pure.
//!
//! Linear in the length of all texts, and what a tool scores does not depend on the tools beside it.

use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use fleet::terms;

/// For a name that is said as a whole.
const WHOLE_NAME: u32 = 10;
/// For each part of a name.
const PART: u32 = 3;
/// For a word of a description, and for so many at most.
const DESCRIBED: u32 = 2;
const DESCRIBED_MAX: usize = 3;
/// How rare a word is that one tool alone has.
const RAREST: u32 = 10_000;
/// How much of what is said is looked at, in bytes: the end of it.
const SAID_MAX: usize = 256 * 1024;
/// How much of a description is looked at, in bytes: as much as a manifest may have.
const DESCRIPTION_MAX: usize = 4 * 1024;

/// Where no more than so many words are said, in halves, one of them is enough to go by.
const FEW: usize = 4;

/// What is said.
#[derive(Debug, Default)]
pub(crate) struct SaidWords {
    words: HashSet<String>,
    /// How many words these are, in halves.
    halves: usize,
    /// Each two words that stand one behind the other.
    neighbours: HashSet<[String; 2]>,
}

impl SaidWords {
    /// Of these texts, the last one first.
    pub(crate) fn of(texts: &[&str]) -> Self {
        let (mut said, mut left) = (Self::default(), SAID_MAX);
        for text in texts.iter().rev() {
            let begin = text.ceil_char_boundary(text.len().saturating_sub(left));
            left -= text.len() - begin;
            said.take(&text[begin..]);
        }
        said.halves = said.words.iter().map(|word| terms::halves(word)).sum();
        said
    }

    fn take(&mut self, text: &str) {
        self.words.extend(terms::words(text));
        for all in [terms::sequence(text), terms::name_words(text)] {
            for pair in all.array_windows::<2>() {
                self.neighbours.insert(pair.clone());
            }
        }
    }

    /// Whether all words of a name are said, each behind the one before.
    fn has_name(&self, parts: &[String]) -> bool {
        match parts {
            [] => false,
            [only] => self.words.contains(only),
            [..] => parts
                .array_windows::<2>()
                .all(|pair| self.neighbours.contains(pair)),
        }
    }
}

/// The words by which a tool is found.
#[derive(Debug)]
pub(crate) struct ToolWords {
    /// Those of its name, in their order.
    name: Vec<String>,
    /// The name as one word, where it has several.
    joined: Option<String>,
    description: HashSet<String>,
}

impl ToolWords {
    /// Of a tool with this name and this description.
    pub(crate) fn of(name: &str, description: &str) -> Self {
        let parts = terms::name_words(name);
        let letters: String = name.chars().filter(|it| it.is_alphanumeric()).collect();
        let joined = terms::words(&letters.to_lowercase()).into_iter().next();
        let end = description.floor_char_boundary(DESCRIPTION_MAX);
        Self {
            joined: joined.filter(|_| parts.len() > 1),
            name: parts,
            description: terms::words(&description[..end]).into_iter().collect(),
        }
    }

    /// Its words that are said.
    fn shared(&self, said: &SaidWords) -> HashSet<&str> {
        let all = self
            .name
            .iter()
            .chain(&self.joined)
            .chain(&self.description);
        let shared = all.filter(|word| said.words.contains(*word));
        shared.map(String::as_str).collect()
    }

    fn is_named(&self, said: &SaidWords) -> bool {
        let joined = self.joined.as_ref();
        joined.is_some_and(|joined| said.words.contains(joined)) || said.has_name(&self.name)
    }

    /// How well it fits what is said; 0: not at all.
    fn score(&self, said: &SaidWords) -> u32 {
        let is_said = |word: &&String| said.words.contains(*word);
        let parts: HashSet<&String> = self.name.iter().filter(is_said).collect();
        let described = self.description.iter().filter(is_said);
        let described = described.take(DESCRIBED_MAX).count();
        let whole = if self.is_named(said) { WHOLE_NAME } else { 0 };
        whole + count(parts.len()) * PART + count(described) * DESCRIBED
    }
}

fn count(many: usize) -> u32 {
    u32::try_from(many).unwrap_or(u32::MAX / 100)
}

/// The tools that fit what is said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RankedTools {
    /// Their places, the best first: by their scores, of equals those with the rarer words, and then the first.
    pub(crate) places: Vec<usize>,
    /// Whether there is enough to go by. One word of many may stand there by chance: some tool has two, or is named.
    pub(crate) is_sure: bool,
}

impl RankedTools {
    /// Those of these tools.
    pub(crate) fn of(said: &SaidWords, tools: &[ToolWords]) -> Self {
        let shared: Vec<HashSet<&str>> = tools.iter().map(|tool| tool.shared(said)).collect();
        let mut tools_with: HashMap<&str, u32> = HashMap::new();
        for word in shared.iter().flatten() {
            *tools_with.entry(word).or_default() += 1;
        }
        let rarity =
            |n: usize| -> u32 { shared[n].iter().map(|word| RAREST / tools_with[word]).sum() };
        let scored = tools.iter().enumerate();
        let scored = scored.map(|(n, tool)| (tool.score(said), n));
        let mut fitting: Vec<_> = scored.filter(|(score, _)| *score > 0).collect();
        fitting.sort_by_cached_key(|(score, n)| (Reverse((*score, rarity(*n))), *n));
        let is_known = |n: usize| shared[n].len() > 1 || tools[n].is_named(said);
        Self {
            is_sure: said.halves <= FEW || fitting.iter().any(|(_, n)| is_known(*n)),
            places: fitting.into_iter().map(|(_, n)| n).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
