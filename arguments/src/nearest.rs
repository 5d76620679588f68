//! Finds the word that was probably meant.

/// The candidate with the fewest edits, if those are at most half of its letters; case does not count.
///
/// At most 200 candidates of at most 64 characters are compared.
pub fn nearest<'c>(found: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    let found: Vec<char> = found.trim().to_lowercase().chars().take(65).collect();
    let distance = |candidate: &'c str| {
        let letters: Vec<char> = candidate.to_lowercase().chars().take(65).collect();
        let edits = edits(&found, &letters);
        (edits * 2 <= letters.len().max(found.len()) && letters.len().max(found.len()) <= 64)
            .then_some((edits, candidate))
    };
    candidates
        .take(200)
        .filter_map(distance)
        .min()
        .map(|(_, candidate)| candidate)
}

/// The Levenshtein distance.
fn edits(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_near() {
        let meant = |found: &str| nearest(found, ["celsius", "fahrenheit", "kelvin"].into_iter());
        assert_eq!(meant("Celcius"), Some("celsius"));
        assert_eq!(meant(" FAHRENHEIT "), Some("fahrenheit"));
        assert_eq!(meant("kelv"), Some("kelvin"));
        assert_eq!(meant("pounds"), None);
        assert_eq!(meant(""), None);
        assert_eq!(meant(&"celsius".repeat(1_000)), None);
    }
}
