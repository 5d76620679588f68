//! Names of files in a folder that is made for a program: distinct, and harmless whatever a file is called. Pure.

/// The most bytes of a name in a folder.
const NAME_MAX: usize = 255;
/// The most bytes of an ending that is kept when a name is cut.
const ENDING_MAX: usize = 32;

/// The name of the file at this place, counted from 1: `1-report.pdf`.
pub(super) fn of(place: usize, name: &str) -> String {
    let harmless: String = name.chars().map(harmless).collect();
    let whole = format!("{place}-{harmless}");
    if whole.len() <= NAME_MAX {
        return whole;
    }
    let ending = whole.rfind('.').map_or("", |at| &whole[at..]).to_owned();
    let ending = if ending.len() <= ENDING_MAX {
        ending
    } else {
        String::new()
    };
    let room = NAME_MAX - ending.len();
    let stem = &whole[..whole.floor_char_boundary(room)];
    format!("{stem}{ending}")
}

/// The door lets none of these in; a program's folder does not depend on that.
fn harmless(letter: char) -> char {
    let turns = ['\u{200e}', '\u{200f}'].contains(&letter)
        || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if turns || letter.is_control() || matches!(letter, '/' | '\\') {
        '_'
    } else {
        letter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_file_is_called_its_name_stays_in_its_folder() {
        for (name, is) in [
            ("report.pdf", "1-report.pdf"),
            ("..", "1-.."),
            (".", "1-."),
            ("", "1-"),
            ("../../etc/passwd", "1-.._.._etc_passwd"),
            ("a\\b\0c\nd", "1-a_b_c_d"),
            ("\u{202e}fdp.exe", "1-_fdp.exe"),
            ("-rf", "1--rf"),
            ("\u{62a5}\u{544a}.pdf", "1-\u{62a5}\u{544a}.pdf"),
        ] {
            assert_eq!(of(1, name), is, "{name:?}");
        }
    }

    #[test]
    fn a_long_name_is_cut_before_its_ending() {
        for letter in ["x", "\u{20ac}", "\u{1f600}"] {
            let long = letter.repeat(255 / letter.len()) + ".pdf";
            let cut = of(16, &long);
            assert!(cut.len() <= NAME_MAX && cut.len() > NAME_MAX - 4, "{cut}");
            assert!(cut.starts_with("16-") && cut.ends_with(".pdf"), "{cut}");
        }
        let odd = format!("a.{}", "b".repeat(300));
        assert_eq!(of(1, &odd).len(), NAME_MAX);
    }

    #[test]
    fn equal_names_are_told_apart_by_their_places() {
        assert_ne!(of(1, "a"), of(2, "a"));
        assert_ne!(of(1, "1-a"), of(11, "-a"));
    }
}
