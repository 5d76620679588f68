//! Every random choice of a run, as a function of the seed and of what is chosen.
//!
//! There is no generator whose state passes from one choice to the next: what one part draws does not depend on how often
//! another has drawn before it, so the same call behaves the same in every run of a seed, whatever the order.

use sha2::{Digest, Sha256};

/// What is drawn for the `index`-th thing of a kind.
pub fn draw(seed: u64, index: u64, salt: &str) -> u64 {
    let mut hash = Sha256::new();
    hash.update(seed.to_le_bytes());
    hash.update(index.to_le_bytes());
    hash.update(salt);
    let [a, b, c, d, e, f, g, h, ..]: [u8; 32] = hash.finalize().into();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// The same, below a bound that is not zero.
pub fn below(seed: u64, index: u64, salt: &str, bound: u64) -> u64 {
    draw(seed, index, salt) % bound
}

/// Whether something happens that happens so many times in a thousand.
pub fn happens(seed: u64, index: u64, salt: &str, per_mille: u64) -> bool {
    below(seed, index, salt, 1_000) < per_mille
}

/// One of several, each as often as its weight says.
///
/// # Panics
///
/// There is none, or all weights are zero.
pub fn weighted<T: Copy>(seed: u64, index: u64, salt: &str, choices: &[(T, u64)]) -> T {
    let total = choices.iter().map(|(_, weight)| weight).sum();
    let mut left = below(seed, index, salt, total);
    for (choice, weight) in choices {
        if left < *weight {
            return *choice;
        }
        left -= weight;
    }
    unreachable!("the weights add up to {total}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_depends_on_seed_index_and_salt_alone() {
        assert_eq!(draw(7, 3, "mode"), draw(7, 3, "mode"));
        assert_ne!(draw(7, 3, "mode"), draw(8, 3, "mode"));
        assert_ne!(draw(7, 3, "mode"), draw(7, 4, "mode"));
        assert_ne!(draw(7, 3, "mode"), draw(7, 3, "tool"));
    }

    #[test]
    fn weights_are_kept() {
        let chosen = (0..10_000)
            .filter(|n| weighted(1, *n, "coin", &[(true, 9), (false, 1)]))
            .count();
        assert!((8_700..9_300).contains(&chosen), "{chosen}");
    }
}
