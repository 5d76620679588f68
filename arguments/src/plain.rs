//! Finds characters of a JSON string that must be escaped.

/// How many bytes precede the first quote, backslash or control character.
pub(crate) fn length(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(chunk) = bytes[at..].first_chunk::<8>() {
        let marks = marks(u64::from_le_bytes(*chunk));
        if marks != 0 {
            return at + marks.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let rest = &bytes[at..];
    let is_plain = |byte: &u8| *byte >= 0x20 && *byte != b'"' && *byte != b'\\';
    at + rest
        .iter()
        .position(|byte| !is_plain(byte))
        .unwrap_or(rest.len())
}

/// Eight bytes at once: the lowest bit that is set belongs to the first byte that must be escaped.
///
/// A subtraction borrows from the next byte only where this one was found, so only later bytes can be marked wrongly.
const fn marks(word: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let quote = word ^ (ONES * b'"' as u64);
    let backslash = word ^ (ONES * b'\\' as u64);
    let control = word.wrapping_sub(ONES * 0x20) & !word;
    let quote = quote.wrapping_sub(ONES) & !quote;
    let backslash = backslash.wrapping_sub(ONES) & !backslash;
    (control | quote | backslash) & HIGH
}

#[cfg(test)]
mod tests {
    use super::length;

    /// The same, a byte at a time.
    fn slowly(bytes: &[u8]) -> usize {
        let special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
        bytes.iter().position(special).unwrap_or(bytes.len())
    }

    #[test]
    fn every_byte_is_known_at_every_place() {
        for byte in 0..=u8::MAX {
            for at in 0..20 {
                for other in [b' ', b'x', 0x7f, 0x80, 0xff, b'!', b'#', b'[', b']'] {
                    let mut bytes = [other; 20];
                    bytes[at] = byte;
                    assert_eq!(
                        length(&bytes),
                        slowly(&bytes),
                        "{byte:#x} at {at} in {other:#x}"
                    );
                }
            }
        }
        assert_eq!(length(b""), 0);
    }

    proptest::proptest! {
        #[test]
        fn the_first_of_several_is_found(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..40)) {
            proptest::prop_assert_eq!(length(&bytes), slowly(&bytes));
        }
    }
}
