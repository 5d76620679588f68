//! Characters that a person does not see and a program or a model reads.
//!
//! `toolfleet.has_invisible` in the ledger knows the same ones; a test compares the two.

/// Whether this character is not seen, or turns the direction of others, behind the one before it.
///
/// Joiners between letters that are not ASCII are a part of writing: of emoji, of Persian and of Indian scripts.
pub fn is_invisible(before: Option<char>, character: char) -> bool {
    match character {
        '\u{200c}' | '\u{200d}' => {
            !before.is_some_and(|before| before >= '\u{250}' && !is_invisible(None, before))
        }
        // Soft hyphen, grapheme joiner, Arabic mark, fillers of Hangul and Khmer, Mongolian selectors.
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        // Zero width, marks of direction, the other line ends, operators that are not seen.
        | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        // Fillers, selectors of a variation that are no emoji's, the byte order mark, annotations.
        | '\u{3164}' | '\u{fe00}'..='\u{fe0d}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
        // Marks of music; tags, which spell whole sentences; more selectors.
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}' => true,
        _ => false,
    }
}

/// Whether this character looks like a space and is another one: two texts that look alike are not the same then.
///
/// Such blanks are a part of writing in many languages, so no text is refused for one.
pub const fn is_other_blank(character: char) -> bool {
    matches!(
        character,
        '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}'
    )
}

/// Whether this character is hardly seen, or has a look that is none of its own.
///
/// They are a blank of Braille, joiners, selectors of a variation, marks of shorthand, of hieroglyphs and of Kaithi, what stands for an
/// object, and letters for private use. Many are a part of writing or of emoji, so no text is refused for one.
pub const fn is_seldom_seen(character: char) -> bool {
    matches!(
        character,
        '\u{200c}' | '\u{200d}' | '\u{2800}' | '\u{fe00}'..='\u{fe0f}' | '\u{fffc}' | '\u{110bd}' | '\u{110cd}'
            | '\u{13430}'..='\u{1345f}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{ffffd}' | '\u{100000}'..='\u{10fffd}'
    )
}

/// The first character that is not seen of a text.
pub fn first_invisible(text: &str) -> Option<char> {
    let mut before = None;
    text.chars()
        .find(|character| is_invisible(before.replace(*character), *character))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_is_found_and_what_belongs_to_a_script_is_not() {
        for hidden in [
            '\u{200b}',
            '\u{200d}',
            '\u{ad}',
            '\u{feff}',
            '\u{202e}',
            '\u{e0041}',
            '\u{e0100}',
            '\u{2060}',
        ] {
            assert_eq!(first_invisible(&format!("pay{hidden}ment")), Some(hidden));
        }
        for seen in [
            "Zürich 苏黎世",
            "👩\u{200d}🚀",
            "❤\u{fe0f}",
            "می\u{200c}خواهم",
            "क\u{94d}\u{200d}ष",
        ] {
            assert_eq!(first_invisible(seen), None, "{seen}");
        }
    }
}
