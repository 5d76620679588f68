//! **Does this token hold?** The tokens as they were last read, and what is said of one then. Pure: who asks gives the moment.
//!
//! - They are read each second and at the bell (`keep`), so a token that is revoked is refused within two seconds, and a new one is taken.
//!   Who has let somebody in with a token and still serves them, on an open stream, asks again with [`TokenCache::again`] each second.
//! - While they cannot be read, what was read last counts for [`TokenCache::HOLDS`]; after that nothing is said of any token,
//!   neither that it holds nor that it does not. Nothing is known before they were read once, either.
//! - A token ends by itself at its moment in the ledger's clock, whether or not the ledger can be asked then. No clock of this machine is
//!   compared with it: what is left of the token is counted from the moment in which the question was sent, so it never lives longer here
//!   than there.
//! - The hash is compared in constant time, and an id that is unknown costs the same comparison.

use std::{collections::HashMap, sync::Arc, time::Duration};

use subtle::ConstantTimeEq as _;
use tokio::time::Instant;

use super::{
    row::{LiveTokens, TokenRow},
    text::parse,
};

/// What is said of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenLookup {
    /// It holds, and allows this.
    Live(Arc<TokenRow>),
    /// There is none, it is wrong, revoked or expired: nothing tells these apart.
    Unknown,
    /// The tokens could not be read for too long.
    Unavailable,
}

/// The tokens as they were last read.
#[derive(Debug, Default)]
pub struct TokenCache {
    known: HashMap<String, KnownToken>,
    /// When the ledger was asked for them; `None`: it never answered.
    asked_at: Option<Instant>,
}

#[derive(Debug)]
struct KnownToken {
    row: Arc<TokenRow>,
    /// When it is over by itself.
    over_at: Option<Instant>,
}

impl KnownToken {
    fn is_over(&self, now: Instant) -> bool {
        self.over_at.is_some_and(|over_at| over_at <= now)
    }
}

impl TokenCache {
    /// How long the tokens count that were read last, while the ledger does not answer.
    pub const HOLDS: Duration = Duration::from_secs(60);

    /// Takes in what the ledger answered, asked at this moment; an answer to an older question than the last one is nothing new.
    pub fn put(&mut self, live: LiveTokens, asked_at: Instant) {
        if self.asked_at.is_some_and(|last| last > asked_at) {
            return;
        }
        let LiveTokens { rows, at } = live;
        let known = rows.into_iter().map(|row| {
            let left = row.expires_at.map(|expires_at| {
                let left: Result<Duration, _> = (expires_at - at).try_into();
                // It was over when it was read.
                left.unwrap_or_default()
            });
            // Beyond what an instant can name: for ever.
            let over_at = left.and_then(|left| asked_at.checked_add(left));
            let row = Arc::new(row);
            (row.token_id.clone(), KnownToken { row, over_at })
        });
        self.known = known.collect();
        self.asked_at = Some(asked_at);
    }

    /// What is said of this text.
    pub fn look(&self, text: &str, now: Instant) -> TokenLookup {
        let Some((id, hash)) = parse(text) else {
            return TokenLookup::Unknown;
        };
        if !self.counts(now) {
            return TokenLookup::Unavailable;
        }
        let known = self.known.get(id).filter(|known| !known.is_over(now));
        let expected = known.map_or(&[0; 32], |known| &known.row.hash);
        let is_right: bool = expected.ct_eq(&hash).into();
        match known {
            Some(known) if is_right => TokenLookup::Live(Arc::clone(&known.row)),
            Some(_) | None => TokenLookup::Unknown,
        }
    }

    /// What is said now of a token that held before, named by its id; its rights are the same for as long as it lives.
    pub fn again(&self, token_id: &str, now: Instant) -> TokenLookup {
        if !self.counts(now) {
            return TokenLookup::Unavailable;
        }
        let known = self.known.get(token_id).filter(|known| !known.is_over(now));
        known.map_or(TokenLookup::Unknown, |known| {
            TokenLookup::Live(Arc::clone(&known.row))
        })
    }

    /// Whether what was read last counts.
    fn counts(&self, now: Instant) -> bool {
        self.asked_at
            .is_some_and(|asked_at| now.saturating_duration_since(asked_at) < Self::HOLDS)
    }
}

#[cfg(test)]
mod tests {
    use time::{Duration as Span, OffsetDateTime};

    use super::*;
    use crate::tokens::{row::tests::row, text::NewSecret};

    const SECOND: Duration = Duration::from_secs(1);
    const AT: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    fn token() -> (NewSecret, TokenRow) {
        let secret = NewSecret::generate();
        let row = row(secret.id(), *secret.hash());
        (secret, row)
    }

    fn live(rows: &[&TokenRow]) -> LiveTokens {
        LiveTokens {
            rows: rows.iter().copied().cloned().collect(),
            at: AT,
        }
    }

    fn read(rows: &[&TokenRow], at: Instant) -> TokenCache {
        let mut cache = TokenCache::default();
        cache.put(live(rows), at);
        cache
    }

    const fn is_live(said: &TokenLookup) -> bool {
        matches!(said, TokenLookup::Live(_))
    }

    #[test]
    fn the_token_that_was_made_holds_and_no_other_does() {
        let now = Instant::now();
        let ((secret, row), (other, _)) = (token(), token());
        let cache = read(&[&row], now);
        assert_eq!(
            cache.look(secret.expose(), now),
            TokenLookup::Live(Arc::new(row))
        );
        let mixed = format!("tf_{}_{}", secret.id(), &other.expose()[16..]);
        let mut last = secret.expose().to_owned();
        let end = if last.ends_with('A') { "B" } else { "A" };
        last.replace_range(last.len() - 1.., end);
        for wrong in [other.expose(), &mixed, &last, "", "tf_", secret.id()] {
            assert_eq!(cache.look(wrong, now), TokenLookup::Unknown, "{wrong}");
        }
    }

    #[test]
    fn a_hash_of_zeros_lets_nobody_in() {
        let now = Instant::now();
        let (secret, row) = token();
        let zeros = TokenRow {
            hash: [0; 32],
            ..row
        };
        let cache = read(&[&zeros], now);
        assert_eq!(cache.look(secret.expose(), now), TokenLookup::Unknown);
    }

    #[test]
    fn a_revoked_token_is_unknown_from_the_next_reading_on_and_a_new_one_known() {
        let now = Instant::now();
        let ((old, old_row), (new, new_row)) = (token(), token());
        let mut cache = read(&[&old_row], now);
        assert!(!is_live(&cache.look(new.expose(), now)));
        assert!(is_live(&cache.again(old.id(), now)));
        cache.put(live(&[&new_row]), now + SECOND);
        let now = now + SECOND;
        assert_eq!(cache.look(old.expose(), now), TokenLookup::Unknown);
        assert_eq!(cache.again(old.id(), now), TokenLookup::Unknown);
        assert!(is_live(&cache.look(new.expose(), now)));
    }

    #[test]
    fn an_answer_that_comes_late_brings_no_revoked_token_back() {
        let now = Instant::now();
        let (secret, row) = token();
        let mut cache = read(&[], now + SECOND);
        cache.put(live(&[&row]), now);
        let said = cache.look(secret.expose(), now + SECOND);
        assert_eq!(said, TokenLookup::Unknown);
    }

    #[test]
    fn without_the_ledger_known_tokens_hold_for_a_minute_and_then_nothing_is_said() {
        let now = Instant::now();
        let ((secret, row), (other, _)) = (token(), token());
        let never = TokenCache::default();
        assert_eq!(never.look(secret.expose(), now), TokenLookup::Unavailable);
        assert_eq!(never.again(secret.id(), now), TokenLookup::Unavailable);
        assert_eq!(never.look("nonsense", now), TokenLookup::Unknown);

        let mut cache = read(&[&row], now);
        let last = now + TokenCache::HOLDS - Duration::from_nanos(1);
        assert!(is_live(&cache.look(secret.expose(), last)));
        assert_eq!(cache.look(other.expose(), last), TokenLookup::Unknown);
        let after = now + TokenCache::HOLDS;
        for said in [
            cache.look(secret.expose(), after),
            cache.look(other.expose(), after),
            cache.again(secret.id(), after),
        ] {
            assert_eq!(said, TokenLookup::Unavailable);
        }
        // The ledger is back.
        cache.put(live(&[&row]), after);
        assert!(is_live(&cache.look(secret.expose(), after)));
    }

    #[test]
    fn a_token_ends_at_its_moment_whether_the_ledger_answers_or_not() {
        let now = Instant::now();
        let (secret, row) = token();
        let expires_at = |seconds| TokenRow {
            expires_at: Some(AT + Span::seconds(seconds)),
            ..row.clone()
        };
        let cache = read(&[&expires_at(30)], now);
        let last = now + 30 * SECOND - Duration::from_nanos(1);
        assert!(is_live(&cache.look(secret.expose(), last)));
        assert!(is_live(&cache.again(secret.id(), last)));
        let over = now + 30 * SECOND;
        assert_eq!(cache.look(secret.expose(), over), TokenLookup::Unknown);
        assert_eq!(cache.again(secret.id(), over), TokenLookup::Unknown);
        for over in [0, -1, -1_000_000] {
            let cache = read(&[&expires_at(over)], now);
            assert_eq!(cache.look(secret.expose(), now), TokenLookup::Unknown);
        }
        let far = TokenRow {
            expires_at: Some(OffsetDateTime::new_utc(
                time::Date::MAX,
                time::Time::MIDNIGHT,
            )),
            ..row
        };
        assert!(is_live(&read(&[&far], now).look(secret.expose(), now)));
    }
}
