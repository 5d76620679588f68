//! The hash that the sender of a body announces, as RFC 9530 has it: `Content-Digest` or `Repr-Digest: sha-256=:…:`. Pure.

use axum::http::HeaderMap;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use fleet::wire::{code::Code, message::Message};

use crate::{
    headers::{CONTENT_DIGEST, REPR_DIGEST},
    refusal::Refused,
};

/// The SHA-256 that is announced; `None` where none is. Other algorithms are left out, as the standard says. A file is sent as it is, so
/// both headers mean the same.
///
/// # Errors
///
/// `header_invalid`: it cannot be read, or two are announced that differ.
pub(crate) fn announced(headers: &HeaderMap) -> Result<Option<[u8; 32]>, Refused> {
    let mut found = None;
    for name in [CONTENT_DIGEST, REPR_DIGEST] {
        for line in headers.get_all(&name) {
            let text = line.to_str().map_err(|_not_ascii| wrong())?;
            for member in text.split(',') {
                let Some(digest) = sha_256(member)? else {
                    continue;
                };
                if found.is_some_and(|before| before != digest) {
                    return Err(wrong());
                }
                found = Some(digest);
            }
        }
    }
    Ok(found)
}

/// The digest of one member of the list, if it is of this algorithm.
fn sha_256(member: &str) -> Result<Option<[u8; 32]>, Refused> {
    let (algorithm, value) = member.trim().split_once('=').ok_or_else(wrong)?;
    if !algorithm.eq_ignore_ascii_case("sha-256") {
        return Ok(None);
    }
    let text = value
        .strip_prefix(':')
        .and_then(|value| value.strip_suffix(':'));
    let bytes = text.and_then(|text| STANDARD.decode(text).ok());
    let digest = bytes.and_then(|bytes| bytes.try_into().ok());
    digest.map(Some).ok_or_else(wrong)
}

/// The same header, of what the gateway sends: of a hash in hexadecimal digits. `None` where it is none.
pub(crate) fn written(sha256: &str) -> Option<String> {
    let bytes = hex::decode(sha256).ok()?;
    Some(format!("sha-256=:{}:", STANDARD.encode(bytes)))
}

fn wrong() -> Refused {
    let what = Message::fixed(
        "Content-Digest and Repr-Digest must be as sha-256=:BASE64:, and say the same",
        "Content-Digest 和 Repr-Digest 必须形如 sha-256=:BASE64:，并且一致",
    );
    Refused::new(Code::HeaderInvalid, what)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    fn read(lines: &[(&str, &str)]) -> Result<Option<[u8; 32]>, ()> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        announced(&headers).map_err(|_refused| ())
    }

    #[test]
    fn one_hash_is_announced_or_none() {
        let zeros = format!("sha-256=:{}:", STANDARD.encode([0; 32]));
        let ones = format!("sha-256=:{}:", STANDARD.encode([1; 32]));
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[("Content-Digest", &zeros)]), Ok(Some([0; 32])));
        let both = [
            ("Repr-Digest", zeros.as_str()),
            ("Content-Digest", zeros.as_str()),
        ];
        assert_eq!(read(&both), Ok(Some([0; 32])));
        let with_another = format!("sha-512=:AA==:, {ones}");
        assert_eq!(read(&[("Repr-Digest", &with_another)]), Ok(Some([1; 32])));
        assert_eq!(read(&[("Repr-Digest", "sha-512=:AA==:")]), Ok(None));
        let differ = format!("{zeros}, {ones}");
        for wrong in [
            differ.as_str(),
            "",
            "sha-256",
            "sha-256=AA==",
            "sha-256=:AA==:",
            "sha-256=:?:",
        ] {
            assert_eq!(read(&[("Content-Digest", wrong)]), Err(()), "{wrong}");
        }
        assert_eq!(written(&"01".repeat(32)), Some(ones));
        assert_eq!(written("no"), None);
    }
}
