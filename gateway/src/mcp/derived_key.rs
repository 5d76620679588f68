//! The key of a call whose client gives none: made of who asks for what, so that the same request sent again is the same call.

use bytes::Bytes;
use fleet::{
    arguments::{Limits, parse},
    canonical,
    ids::{IdempotencyKey, ToolName},
};
use sha2::{Digest, Sha256};

/// How the keys begin.
const BEGIN: &str = "mcp-";

/// What the keys of one request are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DerivedKey([u8; 32]);

impl DerivedKey {
    /// Of a call of this tool by who has this name. `files`: the header that names its files, which belong to what is asked for.
    ///
    /// Arguments that have no canonical form go in as they are: the door refuses them, and keys of refused calls stay free.
    pub(super) fn of(principal: &str, tool: &ToolName, arguments: &Bytes, files: &str) -> Self {
        let canonical = parse(arguments, &Limits::CONVERSATION).ok();
        let (kind, arguments) = match canonical {
            Some(value) => (b'c', canonical::hash(&value)),
            None => (b'r', Sha256::digest(arguments).into()),
        };
        // None of these contains the character that stands between them.
        let hash = Sha256::new()
            .chain_update("toolfleet mcp\0")
            .chain_update(principal)
            .chain_update([0])
            .chain_update(tool.as_str())
            .chain_update([0])
            .chain_update(files)
            .chain_update([0, kind])
            .chain_update(arguments)
            .finalize();
        Self(hash.into())
    }

    /// What the keys are made of.
    pub(super) const fn hash(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key with this number.
    pub(super) fn numbered(self, number: usize) -> IdempotencyKey {
        let key = format!("{BEGIN}{}-{number}", hex::encode(self.0));
        key.parse().expect("letters, digits and - are a key")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(principal: &str, tool: &str, arguments: &'static str, files: &str) -> DerivedKey {
        let arguments = Bytes::from_static(arguments.as_bytes());
        DerivedKey::of(principal, &tool.parse().unwrap(), &arguments, files)
    }

    #[test]
    fn the_same_request_has_the_same_key_however_it_is_written() {
        let first = of("ann", "charge", r#"{"a":1,"b":"x"}"#, "");
        assert_eq!(
            first,
            of("ann", "charge", r#"{ "b":"\u0078", "a" : 1 }"#, "")
        );
        for other in [
            of("bob", "charge", r#"{"a":1,"b":"x"}"#, ""),
            of("ann", "charge2", r#"{"a":1,"b":"x"}"#, ""),
            of("ann", "charge", r#"{"a":1.0,"b":"x"}"#, ""),
            of("ann", "charge", r#"{"a":1,"b":"x"}"#, "[]"),
            of("ann", "charge", r#"{"a":1,"a":1,"b":"x"}"#, ""),
            of("ann", "charge", "[]", ""),
        ] {
            assert_ne!(first, other);
        }
        assert_ne!(first.numbered(0), first.numbered(1));
        assert!(first.numbered(7).as_str().starts_with("mcp-"));
    }
}
