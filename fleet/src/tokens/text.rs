//! What a token looks like: `tf_<id>_<secret>`. The id has 12 hexadecimal digits and is no secret; the secret is 256 random bits, as 43
//! characters of base64url. The ledger has the SHA-256 of these 43 characters: there is nothing to guess that a slow hash would protect.

use std::fmt;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::rand::{SecureRandom as _, SystemRandom};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

/// What every token begins with, so that who finds one somewhere knows what it is.
const BEGINS: &str = "tf_";
const ID_DIGITS: usize = 12;
const SECRET_LENGTH: usize = 43;

/// The id of a token, and the hash of its secret; `None`: it does not look like one. The secret itself goes nowhere.
pub fn parse(text: &str) -> Option<(&str, [u8; 32])> {
    let (id, secret) = text.strip_prefix(BEGINS)?.split_once('_')?;
    let is_secret = secret.len() == SECRET_LENGTH
        && secret
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
    (is_id(id) && is_secret).then(|| (id, Sha256::digest(secret).into()))
}

/// The id in what a person has: the id itself, `tf_<id>`, or the whole token; `None`: none of these.
pub fn id_in(text: &str) -> Option<&str> {
    let rest = text.strip_prefix(BEGINS).unwrap_or(text);
    let (id, secret) = rest.split_once('_').unwrap_or((rest, ""));
    let is_whole = secret.is_empty() && !rest.ends_with('_') || parse(text).is_some();
    (is_id(id) && is_whole).then_some(id)
}

fn is_id(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
    text.len() == ID_DIGITS && text.bytes().all(is_digit)
}

/// A token that nobody has yet. It is shown once, and the ledger gets its id and its hash.
pub struct NewSecret {
    id: String,
    text: SecretString,
    hash: [u8; 32],
}

impl NewSecret {
    /// From the random numbers of the system.
    pub fn generate() -> Self {
        let (mut id, mut secret) = ([0; ID_DIGITS / 2], [0; 32]);
        let random = SystemRandom::new();
        for bytes in [&mut id[..], &mut secret[..]] {
            random
                .fill(bytes)
                .expect("the system gives random numbers for as long as it runs");
        }
        let id = hex::encode(id);
        let text = format!("{BEGINS}{id}_{}", BASE64_URL_SAFE_NO_PAD.encode(secret));
        let (_id, hash) = parse(&text).expect("it was just written as one is read");
        Self {
            id,
            text: text.into(),
            hash,
        }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The SHA-256 of its secret.
    pub const fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// The token. To be shown to who gets it, and to nobody else.
    pub fn expose(&self) -> &str {
        self.text.expose_secret()
    }
}

impl fmt::Debug for NewSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewSecret")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_token_is_read_as_what_the_ledger_has_of_it() {
        let (one, other) = (NewSecret::generate(), NewSecret::generate());
        assert_eq!(parse(one.expose()), Some((one.id(), *one.hash())));
        assert_eq!(one.expose().len(), 3 + 12 + 1 + 43);
        assert_ne!(one.id(), other.id());
        assert_ne!(one.hash(), other.hash());
    }

    #[test]
    fn the_hash_is_that_of_the_43_characters() {
        let secret = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA8";
        let text = format!("tf_0123456789ab_{secret}");
        // printf %s "$secret" | sha256sum
        let hash = "0f8d062dd0f4a5ff70fc0701b1a551648e2f0ff00c193f8a5612d736274fdc7e";
        let (id, found) = parse(&text).unwrap();
        assert_eq!((id, hex::encode(found)), ("0123456789ab", hash.to_owned()));
    }

    #[test]
    fn what_does_not_look_like_a_token_is_none() {
        let secret = "A".repeat(43);
        let like = |begins: &str, secret: &str| format!("{begins}{secret}");
        for text in [
            String::new(),
            "tf_".to_owned(),
            "tf__".to_owned(),
            like("tf_0123456789ab", &secret),
            like("tf_0123456789ab_", &secret[1..]),
            like("tf_0123456789ab_", &format!("{secret}A")),
            like("tf_0123456789ab_", &format!("{}=", &secret[1..])),
            like("tf_0123456789ab_", &format!("{}é", &secret[2..])),
            like("tf_0123456789aB_", &secret),
            like("tf_0123456789a_", &secret),
            like("TF_0123456789ab_", &secret),
            like(" tf_0123456789ab_", &secret),
            like("tf_0123456789ab_", &format!("{}\n", &secret[1..])),
        ] {
            assert_eq!(parse(&text), None, "{text:?}");
        }
        // A secret may have underscores: the id has none.
        let underscores = "_".repeat(43);
        assert!(parse(&like("tf_0123456789ab_", &underscores)).is_some());
    }

    #[test]
    fn an_id_is_found_in_what_a_person_has() {
        let whole = format!("tf_0123456789ab_{}", "A".repeat(43));
        for text in ["0123456789ab", "tf_0123456789ab", &whole] {
            assert_eq!(id_in(text), Some("0123456789ab"), "{text}");
        }
        for text in ["", "tf_", "0123456789AB", "0123456789ab_", &whole[..40]] {
            assert_eq!(id_in(text), None, "{text}");
        }
    }

    #[test]
    fn nothing_shows_a_secret_by_accident() {
        let token = NewSecret::generate();
        let shown = format!("{token:?}");
        assert!(shown.contains(token.id()) && shown.len() < 60, "{shown}");
        assert!(!shown.contains(&token.expose()[16..]), "{shown}");
    }
}
