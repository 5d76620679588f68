//! The text of strangers: escaped, and what would lead the eye astray made visible.

use maud::{Markup, html};

/// How much of a text is shown before somebody asks for all of it, in bytes.
pub(super) const SHOWN_MAX: usize = 64 * 1024;

/// The text, with every character that is not seen or that turns the order of others written as its code.
pub(super) fn stranger(text: &str) -> Markup {
    html! {
        @for piece in pieces(text) {
            @match piece {
                TextPiece::Plain(text) => (text),
                TextPiece::Odd(odd) => span.odd title={ (code(odd)) } { (odd.escape_unicode().to_string()) },
            }
        }
    }
}

/// The same where there can be no markup, such as in a title.
pub(super) fn visible(text: &str) -> String {
    let mut visible = String::with_capacity(text.len());
    for piece in pieces(text) {
        match piece {
            TextPiece::Plain(text) => visible.push_str(text),
            TextPiece::Odd(odd) => visible.extend(odd.escape_unicode()),
        }
    }
    visible
}

/// The beginning of a text in one line of a table.
pub(super) fn beginning(text: &str, characters: usize) -> Markup {
    let end = text.char_indices().nth(characters).map(|(place, _)| place);
    html! {
        (stranger(&text[..end.unwrap_or(text.len())]))
        @if end.is_some() { "…" }
    }
}

/// The first bytes that are shown, at a boundary of characters, and whether that is all.
pub(super) fn cut(text: &str) -> (&str, bool) {
    if text.len() <= SHOWN_MAX {
        return (text, true);
    }
    (&text[..text.floor_char_boundary(SHOWN_MAX)], false)
}

#[derive(Debug, PartialEq, Eq)]
enum TextPiece<'a> {
    Plain(&'a str),
    Odd(char),
}

fn pieces(text: &str) -> impl Iterator<Item = TextPiece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        if is_odd(first) {
            rest = &rest[first.len_utf8()..];
            return Some(TextPiece::Odd(first));
        }
        let (plain, behind) = rest.split_at(rest.find(is_odd).unwrap_or(rest.len()));
        rest = behind;
        Some(TextPiece::Plain(plain))
    })
}

/// Whether a character is not seen, or changes how others are seen: controls, direction marks (Unicode's UAX 9), and what has no width.
pub(super) fn is_odd(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{ad}'
        | '\u{34f}'
        | '\u{61c}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{180e}'
        | '\u{200b}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{2800}'
        | '\u{3164}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e01ef}' => true,
        other => other.is_control(),
    }
}

fn code(character: char) -> String {
    format!("U+{:04X}", u32::from(character))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_text_and_odd_characters_are_seen() {
        let shown = stranger("<b>\u{202e}x\u{7}</b>\n").into_string();
        assert_eq!(
            shown,
            "&lt;b&gt;<span class=\"odd\" title=\"U+202E\">\\u{202e}</span>x<span class=\"odd\" title=\"U+0007\">\\u{7}</span>&lt;/b&gt;\n"
        );
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        assert_eq!(beginning("中文字", 2).into_string(), "中文…");
        assert_eq!(beginning("中文", 2).into_string(), "中文");
        let long = "中".repeat(SHOWN_MAX);
        let (shown, whole) = cut(&long);
        assert!(shown.len() <= SHOWN_MAX && shown.len() > SHOWN_MAX - 3 && !whole);
        assert_eq!(cut("short"), ("short", true));
    }

    #[test]
    fn pieces_are_the_whole_text() {
        let text = "a\u{200b}\u{200b}b\u{0}";
        let odd = ['\u{200b}', '\u{200b}'];
        let all: Vec<TextPiece<'_>> = pieces(text).collect();
        assert_eq!(
            all,
            [
                TextPiece::Plain("a"),
                TextPiece::Odd(odd[0]),
                TextPiece::Odd(odd[1]),
                TextPiece::Plain("b"),
                TextPiece::Odd('\0')
            ]
        );
    }
}
