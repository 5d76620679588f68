//! The URL at which a tool fetches a file of its call from a gateway.
//!
//! Whoever has it may read that one file until a moment: it has an HMAC-SHA256 over the tenant, the file and that moment, under a
//! key of the ledger. There are two keys, the one that signs and the one before it, so that a new key ends no attempt that goes on.

use std::fmt;

use ring::hmac;

use crate::ids::{FileId, Label};

/// What is signed first, so that no other HMAC under the same key means the same.
const WHAT: &str = "toolfleet file";

/// One file of a tenant, until a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileGrant<'a> {
    /// Whose file it is.
    pub tenant: &'a Label,
    /// The file.
    pub file: FileId,
    /// When it is over, in seconds since the Unix epoch by the ledger's clock.
    pub until: i64,
}

impl FileGrant<'_> {
    /// What is signed. None of its lines can have a line end.
    fn text(&self) -> String {
        let Self {
            tenant,
            file,
            until,
        } = self;
        format!("{WHAT}\n{tenant}\n{file}\n{until}")
    }

    /// Its place below a gateway's own URL, with this signature.
    pub fn path(&self, signature: &str) -> String {
        let Self {
            tenant,
            file,
            until,
        } = self;
        format!("/v1/files/{file}/signed?tenant={tenant}&until={until}&signature={signature}")
    }
}

/// The keys of a ledger. Nothing prints them.
#[derive(Clone)]
pub struct FileKeys {
    current: hmac::Key,
    previous: Option<hmac::Key>,
}

impl fmt::Debug for FileKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileKeys")
    }
}

impl FileKeys {
    /// From the bytes that the ledger has.
    pub fn new(current: &[u8], previous: Option<&[u8]>) -> Self {
        let key = |bytes: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, bytes);
        Self {
            current: key(current),
            previous: previous.map(key),
        }
    }

    /// The signature, 64 hexadecimal digits; a secret until the grant is over.
    pub fn sign(&self, grant: &FileGrant<'_>) -> String {
        hex::encode(hmac::sign(&self.current, grant.text().as_bytes()))
    }

    /// A signature of something that is no grant, 64 hexadecimal digits. `what` says of what, and stands for nothing else under these keys.
    pub fn sign_other(&self, what: &str, text: &str) -> String {
        hex::encode(hmac::sign(&self.current, other(what, text).as_bytes()))
    }

    /// Whether one of the keys has signed that. Compared in constant time, with both.
    pub fn have_signed_other(&self, what: &str, text: &str, signature: &str) -> bool {
        self.have_signed_text(&other(what, text), signature)
    }

    /// Whether one of the keys has signed it. Compared in constant time, with both. Says nothing of the moment.
    pub fn have_signed(&self, grant: &FileGrant<'_>, signature: &str) -> bool {
        self.have_signed_text(&grant.text(), signature)
    }

    fn have_signed_text(&self, text: &str, signature: &str) -> bool {
        // In no other letters than it was written with: those are the ones that are masked where a tool repeats them.
        let is_written = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let decoded = signature.bytes().all(is_written);
        let Some(signature) = decoded.then(|| hex::decode(signature).ok()).flatten() else {
            return false;
        };
        let is_of = |key: &hmac::Key| hmac::verify(key, text.as_bytes(), &signature).is_ok();
        let of_previous = self.previous.as_ref().is_some_and(is_of);
        is_of(&self.current) || of_previous
    }
}

/// No grant is the same text: `what` is another one.
fn other(what: &str, text: &str) -> String {
    debug_assert!(what != WHAT && !what.contains('\n'), "{what} is of grants");
    format!("{what}\n{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_grant_is_signed_for_one_purpose() {
        let keys = FileKeys::new(b"first", None);
        let signature = keys.sign_other("toolfleet a", "text");
        assert!(keys.have_signed_other("toolfleet a", "text", &signature));
        assert!(!keys.have_signed_other("toolfleet b", "text", &signature));
        assert!(!keys.have_signed_other("toolfleet a", "texts", &signature));
        assert!(!keys.have_signed_other("toolfleet a", "text", ""));
        let renewed = FileKeys::new(b"second", Some(b"first"));
        assert!(renewed.have_signed_other("toolfleet a", "text", &signature));
    }

    #[test]
    fn a_signature_is_of_one_file_one_tenant_one_moment_and_two_keys() {
        let (acme, beta): (Label, Label) = ("acme".parse().unwrap(), "beta".parse().unwrap());
        let grant = FileGrant {
            tenant: &acme,
            file: FileId::generate(),
            until: 1_800_000_000,
        };
        let keys = FileKeys::new(b"first", None);
        let signature = keys.sign(&grant);
        assert_eq!(signature.len(), 64);
        assert!(keys.have_signed(&grant, &signature));
        let renewed = FileKeys::new(b"second", Some(b"first"));
        assert!(renewed.have_signed(&grant, &signature));
        assert!(renewed.have_signed(&grant, &renewed.sign(&grant)));
        let twice = FileKeys::new(b"third", Some(b"second"));
        assert!(!twice.have_signed(&grant, &signature));
        let others = [
            FileGrant {
                tenant: &beta,
                ..grant
            },
            FileGrant {
                file: FileId::generate(),
                ..grant
            },
            FileGrant {
                until: grant.until + 1,
                ..grant
            },
        ];
        for other in others {
            assert!(!keys.have_signed(&other, &signature), "{other:?}");
        }
        let upper = signature.to_ascii_uppercase();
        for wrong in ["", "00", &signature[1..], &signature[2..], "é", &upper] {
            assert!(!keys.have_signed(&grant, wrong), "{wrong}");
        }
        assert!(!format!("{keys:?}").contains("first"));
        let path = grant.path(&signature);
        let expected = format!(
            "/v1/files/{}/signed?tenant=acme&until=1800000000&signature={signature}",
            grant.file
        );
        assert_eq!(path, expected);
    }
}
