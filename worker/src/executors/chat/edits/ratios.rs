//! How far the estimates of tokens are from what a route's vendor counts, as its replies have shown.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use fleet::ids::Label;

/// Fewer tokens than this show nothing: a vendor adds some to every request.
const TOKENS_MIN: u64 = 200;
/// A thousand: the estimate is right.
const RIGHT: u64 = 1_000;
/// No count is believed that is further from the estimate.
const BOUNDS: std::ops::RangeInclusive<u64> = 250..=4_000;
/// How much the last reply counts: an eighth.
const NEWEST: u64 = 8;
/// The most routes that are known. One more is as new each time.
const ROUTES_MAX: usize = 10_000;

/// By tenant and target of a route, in thousandths: what one tenant sends says nothing of what others do.
#[derive(Debug, Default)]
pub(super) struct TokenRatios(Mutex<HashMap<String, u64>>);

impl TokenRatios {
    /// How many thousandths of an estimate a route counts.
    pub(super) fn of(&self, tenant: &Label, target: &str) -> u64 {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&key(tenant, target)).copied().unwrap_or(RIGHT)
    }

    /// A route has counted so many tokens of a request with this estimate.
    pub(super) fn counted(&self, tenant: &Label, target: &str, estimated: u64, counted: u64) {
        if estimated < TOKENS_MIN || counted == 0 {
            return;
        }
        let ratio =
            (counted.saturating_mul(RIGHT) / estimated).clamp(*BOUNDS.start(), *BOUNDS.end());
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = key(tenant, target);
        let is_room = known.len() < ROUTES_MAX;
        match known.get_mut(&key) {
            Some(old) => *old = (*old * (NEWEST - 1) + ratio) / NEWEST,
            None if is_room => {
                known.insert(key, ratio);
            }
            None => {}
        }
    }
}

fn key(tenant: &Label, target: &str) -> String {
    format!("{tenant} {target}")
}

/// An estimate, corrected.
pub(super) const fn corrected(tokens: u64, ratio: u64) -> u64 {
    tokens.saturating_mul(ratio).div_ceil(RIGHT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_believed_within_bounds_and_little_by_little() {
        let ratios = TokenRatios::default();
        let (acme, evil): (Label, Label) = ("acme".parse().unwrap(), "evil".parse().unwrap());
        let counted = |estimated, tokens| ratios.counted(&acme, "a", estimated, tokens);
        assert_eq!(ratios.of(&acme, "a"), 1_000);
        counted(199, 1_000);
        counted(1_000, 0);
        assert_eq!(ratios.of(&acme, "a"), 1_000);
        counted(1_000, 1_500);
        assert_eq!(
            (ratios.of(&acme, "a"), ratios.of(&acme, "b")),
            (1_500, 1_000)
        );
        assert_eq!(ratios.of(&evil, "a"), 1_000);
        assert_eq!(corrected(1_001, 1_500), 1_502);
        counted(1_000, 2_300);
        assert_eq!(ratios.of(&acme, "a"), 1_600);
        for _reply in 0..100 {
            counted(1_000, u64::MAX / 2);
        }
        assert!((3_900..=4_000).contains(&ratios.of(&acme, "a")));
    }
}
