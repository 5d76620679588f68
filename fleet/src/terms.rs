//! The words of a text, as tools and sub-agents are found by them. Pure, and linear in the length of a text.
//!
//! A word is a run of letters and digits, in lower case and, where it is English, without its ending. Chinese and Japanese are written
//! without spaces: there two neighbouring characters are a word. `stem` takes endings off, and `common` has the words that say nothing.

mod common;
mod stem;

use std::borrow::Cow;

use self::{common::is_common, stem::stem};

/// A longer run of letters is data, such as Base64, and no word.
const WORD_MAX: usize = 64;

/// Letters that stand together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LetterRun<'t> {
    /// Of a script with spaces between its words.
    Spaced(&'t str),
    /// Chinese characters and kana.
    Unspaced(&'t str),
}

/// The words that a text is searched by: those that say something, in the order of the text. A word in camelCase is followed by its
/// parts.
pub fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for run in runs(text) {
        match run {
            LetterRun::Spaced(run) => {
                let mut all = camel_parts(run);
                if all.len() > 1 {
                    all.insert(0, run);
                }
                let all = all.into_iter().map(folded);
                let telling = all.filter(|word| !is_number(word) && !is_common(word));
                words.extend(telling.map(|word| stem(&word)));
            }
            LetterRun::Unspaced(run) => {
                let pairs = pairs(run).filter(|pair| !is_common(pair));
                words.extend(pairs.map(str::to_owned));
            }
        }
    }
    words
}

/// The words of a name such as `get_weather` or `getWeather`, all of them.
pub fn name_words(name: &str) -> Vec<String> {
    let mut words = Vec::new();
    for run in runs(name) {
        match run {
            LetterRun::Spaced(run) => {
                words.extend(camel_parts(run).into_iter().map(|part| stem(&folded(part))));
            }
            LetterRun::Unspaced(run) => words.extend(pairs(run).map(str::to_owned)),
        }
    }
    words
}

/// All words of a text, one after the other, and Chinese characters each by itself: what a phrase is looked for in.
///
/// An empty text stands where Chinese is interrupted, as by a comma.
pub fn sequence(text: &str) -> Vec<String> {
    let mut sequence = Vec::new();
    let mut was_unspaced = false;
    for run in runs(text) {
        match run {
            LetterRun::Spaced(run) => {
                sequence.push(stem(&folded(run)));
                was_unspaced = false;
            }
            LetterRun::Unspaced(run) => {
                sequence.extend(was_unspaced.then(String::new));
                sequence.extend(run.chars().map(|character| character.to_string()));
                was_unspaced = true;
            }
        }
    }
    sequence
}

/// How much of a word it is, in halves: each two neighbouring characters share one with the next two.
pub fn halves(word: &str) -> usize {
    if word.starts_with(is_unspaced) { 1 } else { 2 }
}

/// Whether a phrase says so little that it stands in nearly every text: one Chinese character, or words such as `the` alone.
pub fn says_nothing(phrase: &str) -> bool {
    runs(phrase).all(|run| match run {
        LetterRun::Spaced(run) => is_common(&folded(run)),
        LetterRun::Unspaced(run) => run.chars().nth(1).is_none() || is_common(run),
    })
}

fn runs(text: &str) -> impl Iterator<Item = LetterRun<'_>> {
    let stretches = text.split(|character: char| !character.is_alphanumeric());
    let runs = stretches.flat_map(|stretch| {
        let mut rest = stretch;
        std::iter::from_fn(move || {
            let is_unspaced = is_unspaced(rest.chars().next()?);
            let end = rest.find(|next| self::is_unspaced(next) != is_unspaced);
            let (run, behind) = rest.split_at(end.unwrap_or(rest.len()));
            rest = behind;
            Some(if is_unspaced {
                LetterRun::Unspaced(run)
            } else {
                LetterRun::Spaced(run)
            })
        })
    });
    let is_data = |run: &LetterRun<'_>| matches!(run, LetterRun::Spaced(run) if run.chars().nth(WORD_MAX).is_some());
    runs.filter(move |run| !is_data(run))
}

const fn is_unspaced(character: char) -> bool {
    matches!(
        character,
        '\u{3005}'..='\u{3007}'
            | '\u{3040}'..='\u{30ff}'
            | '\u{3400}'..='\u{4dbf}'
            | '\u{4e00}'..='\u{9fff}'
            | '\u{f900}'..='\u{faff}'
            | '\u{20000}'..='\u{3ffff}'
    )
}

/// The parts of `getWeather` and `HTTPServer`: a capital begins one behind a small letter, and before one.
fn camel_parts(run: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut begin, mut before) = (0, None::<char>);
    let mut characters = run.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let next = characters.peek().map(|(_, next)| *next);
        let behind_small =
            before.is_some_and(|before| before.is_lowercase() || before.is_numeric());
        let before_small =
            before.is_some_and(char::is_uppercase) && next.is_some_and(char::is_lowercase);
        if character.is_uppercase() && (behind_small || before_small) {
            parts.push(&run[begin..at]);
            begin = at;
        }
        before = Some(character);
    }
    parts.push(&run[begin..]);
    parts
}

/// In lower case; letters as wide as a Chinese character are the usual ones.
fn folded(word: &str) -> Cow<'_, str> {
    if word
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    {
        return Cow::Borrowed(word);
    }
    let narrow = |character: char| match character {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(character) - 0xfee0),
        _usual => None,
    };
    let narrow = word.chars().map(|it| narrow(it).unwrap_or(it));
    Cow::Owned(narrow.flat_map(char::to_lowercase).collect())
}

fn is_number(word: &str) -> bool {
    word.chars().all(char::is_numeric)
}

/// Each two neighbouring characters; one that stands alone is by itself.
fn pairs(run: &str) -> impl Iterator<Item = &str> {
    let begins = run.char_indices().map(|(at, _)| at);
    let ends = run.char_indices().map(|(at, it)| at + it.len_utf8());
    let alone = run.chars().nth(1).is_none().then_some(run);
    let pairs = begins.zip(ends.skip(1));
    pairs.map(|(begin, end)| &run[begin..end]).chain(alone)
}

#[cfg(test)]
mod tests;
