//! Files beside the arguments of a call: their bounds, their names and types, and how they join the hash of the arguments.
//!
//! A name comes from a caller and becomes the name of a file for a program, so it is one name and no path, and shows what it is.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    ids::{FileId, InvalidName},
    invisible::first_invisible,
    wire::message::Message,
};

/// The most bytes of a file.
pub const BYTES_MAX: u64 = 32 * 1024 * 1024;
/// The most bytes of a chunk, and of what is read at a time.
pub const CHUNK_MAX: usize = 256 * 1024;
/// The most chunks of a file.
pub const CHUNKS_MAX: usize = 1024;
/// The most files that a call names.
pub const NAMED_MAX: usize = 16;

/// The most bytes of a name.
const NAME_MAX: usize = 255;
/// The most bytes of a type.
const MIME_MAX: usize = 127;

/// A file of a call, as its tool is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFile {
    /// The file.
    pub file_id: FileId,
    /// Its name: one name and no path, but nothing that has to be unique.
    pub name: String,
    /// Its type, as its caller has said it; nobody has looked.
    pub mime: String,
    /// How many bytes it has.
    pub bytes: u64,
    /// SHA-256 of its bytes, in hexadecimal digits.
    #[serde(with = "digits")]
    pub sha256: [u8; 32],
}

/// The hash of a call's arguments and its files, in their order. Without files it is that of the arguments.
///
/// A promise: later versions compare it with stored ones. The byte before it begins no JSON text, so no arguments have such a hash.
pub fn hash(args_hash: [u8; 32], files: &[FileId]) -> [u8; 32] {
    if files.is_empty() {
        return args_hash;
    }
    let mut hash = Sha256::new()
        .chain_update([1])
        .chain_update("files")
        .chain_update([0])
        .chain_update(args_hash);
    for file in files {
        hash.update(file.0.as_bytes());
    }
    hash.finalize().into()
}

/// The files of a list with commas; `None`: it is none, has more than [`NAMED_MAX`], or has one twice.
pub fn read_list(text: &str) -> Option<Vec<FileId>> {
    let mut files = Vec::new();
    for id in text.split(',') {
        let file = id.trim().parse().ok()?;
        if files.len() == NAMED_MAX || files.contains(&file) {
            return None;
        }
        files.push(file);
    }
    Some(files)
}

/// The name of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileName(String);

impl FileName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FileName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let is_one = (1..=NAME_MAX).contains(&text.len())
            && !text.contains(['/', '\\'])
            && !matches!(text, "." | "..")
            && !text.chars().any(char::is_control)
            && first_invisible(text).is_none();
        is_one.then(|| Self(text.to_owned())).ok_or(InvalidName {
            what: "file name",
            rule: Message::fixed(
                "1 to 255 bytes of UTF-8 without /, \\ and characters that cannot be seen or turn the direction of text, and neither . nor ..",
                "是 1 到 255 字节的 UTF-8，不含 /、\\、不可见字符和改变文字方向的字符，也不能是 . 或 ..",
            ),
        })
    }
}

/// The type of a file: `application/pdf`, in small letters and without parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MimeType(String);

impl MimeType {
    /// The type as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for MimeType {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let is_type = text.len() <= MIME_MAX
            && text
                .split_once('/')
                .is_some_and(|(kind, of)| is_mime_name(kind) && is_mime_name(of));
        is_type
            .then(|| Self(text.to_ascii_lowercase()))
            .ok_or(InvalidName {
                what: "file type",
                rule: Message::fixed(
                    "a media type such as application/pdf, of at most 127 bytes and without parameters",
                    "是 application/pdf 这样的媒体类型，最多 127 字节，不带参数",
                ),
            })
    }
}

/// As RFC 6838 has them.
fn is_mime_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
    name.bytes().all(allowed) && name.starts_with(|first: char| first.is_ascii_alphanumeric())
}

/// Types that a tool takes: `application/pdf`, `image/*` or `*/*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MimePattern(String);

impl MimePattern {
    /// Whether it takes this type. `mime` is in small letters.
    pub fn takes(&self, mime: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some("*/") => true,
            Some(kind) => mime.starts_with(kind),
            None => self.0 == mime,
        }
    }
}

impl FromStr for MimePattern {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let every = |kind: &str| kind == "*" || is_mime_name(kind);
        let pattern = match text.strip_suffix("/*") {
            Some(kind) if text.len() <= MIME_MAX && every(kind) => Some(text.to_ascii_lowercase()),
            Some(_) => None,
            None => text.parse().ok().map(|MimeType(text)| text),
        };
        pattern.map(Self).ok_or(InvalidName {
            what: "type of files",
            rule: Message::fixed(
                "a media type such as application/pdf, image/* or */*",
                "是 application/pdf、image/* 或 */* 这样的媒体类型",
            ),
        })
    }
}

impl TryFrom<String> for MimePattern {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<MimePattern> for String {
    fn from(pattern: MimePattern) -> Self {
        pattern.0
    }
}

impl fmt::Display for MimePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A hash as hexadecimal digits.
mod digits {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(hash: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hex::encode(hash))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(from)?;
        let mut hash = [0; 32];
        hex::decode_to_slice(&text, &mut hash)
            .map_err(|_other| D::Error::custom("a hash has 64 hexadecimal digits"))?;
        Ok(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_name_and_shows_what_it_is() {
        let long = "é".repeat(128);
        for wrong in [
            "",
            ".",
            "..",
            "../../etc/passwd",
            "/etc/passwd",
            "a\\b",
            "a\0b",
            "a\nb",
            "invoice\u{202e}fdp.exe",
            "a\u{200b}b",
            "a\u{85}b",
            &long,
        ] {
            assert!(wrong.parse::<FileName>().is_err(), "{wrong:?}");
        }
        for right in [
            "report.pdf",
            "...",
            ".profile",
            "报告 1.pdf",
            "a b",
            &long[2..],
        ] {
            assert!(right.parse::<FileName>().is_ok(), "{right:?}");
        }
    }

    #[test]
    fn a_type_has_two_names_and_no_parameters() {
        let long = format!("a/{}", "b".repeat(126));
        for wrong in [
            "",
            "pdf",
            "application/",
            "/pdf",
            "a/b/c",
            "text/plain; charset=utf-8",
            "image/*",
            "a b/c",
            "-a/b",
            &long,
        ] {
            assert!(wrong.parse::<MimeType>().is_err(), "{wrong:?}");
        }
        let mime: MimeType = "Image/SVG+xml".parse().unwrap();
        assert_eq!(mime.as_str(), "image/svg+xml");
        assert!(long[..127].parse::<MimeType>().is_ok());
    }

    #[test]
    fn a_pattern_takes_one_type_those_of_a_kind_or_all() {
        let takes = |pattern: &str, mime| pattern.parse::<MimePattern>().unwrap().takes(mime);
        assert!(takes("image/*", "image/png") && !takes("image/*", "imagery/png"));
        assert!(takes("Application/PDF", "application/pdf"));
        assert!(!takes("application/pdf", "application/pdfx"));
        assert!(takes("*/*", "text/plain"));
        for wrong in ["*", "*/png", "image/", "image/**", "image"] {
            assert!(wrong.parse::<MimePattern>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_hash_has_the_files_and_their_order_in_it_and_without_files_is_that_of_the_arguments() {
        let id = |text: &str| text.parse::<FileId>().unwrap();
        let first = id("01890a5d-ac96-774b-bcce-b302099a8057");
        let second = id("01890a5d-ac96-774b-bcce-b302099a8058");
        assert_eq!(hash([7; 32], &[]), [7; 32]);
        let one = hash([7; 32], &[first]);
        assert_ne!(one, hash([8; 32], &[first]));
        assert_ne!(one, hash([7; 32], &[first, second]));
        assert_ne!(
            hash([7; 32], &[second, first]),
            hash([7; 32], &[first, second])
        );
        // A promise.
        let expected = Sha256::digest(
            [
                &[1][..],
                b"files\0",
                &[7; 32],
                first.0.as_bytes(),
                second.0.as_bytes(),
            ]
            .concat(),
        );
        assert_eq!(hash([7; 32], &[first, second])[..], expected[..]);
    }
}
