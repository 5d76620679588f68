//! What a request about a file says: one JSON object with `op`, and the fields of that op and no others.

use fleet::{
    arguments::Limits,
    files::{BYTES_MAX, FileName, MimeType},
    ids::{FileId, InvalidName},
    said,
    wire::{code::Code, message::Message},
};
use serde::Deserialize;

use crate::{form, refusal::Refusal};

/// A request that is no chunk.
#[derive(Debug)]
pub(super) enum FileOp {
    /// Announces a file.
    Begin {
        name: FileName,
        mime: MimeType,
        bytes: u64,
    },
    /// All of its chunks are there.
    Finish { file: FileId, sha256: [u8; 32] },
    /// What it is.
    Describe { file: FileId },
    /// Some of its bytes.
    Read { file: FileId, at: u64 },
    /// It is needed no more.
    Delete { file: FileId },
    /// The tenant's files.
    List { before: Option<FileId> },
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OpName {
    Begin,
    Finish,
    Describe,
    Read,
    Delete,
    List,
}

/// Fields of all ops. Which of them belong to which is said by [`FileOp::of`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRequest {
    op: OpName,
    file_id: Option<String>,
    name: Option<String>,
    mime: Option<String>,
    bytes: Option<u64>,
    sha256: Option<String>,
    offset: Option<u64>,
    before: Option<String>,
}

static ANY: Message = Message::fixed(
    "op: begin, finish, describe, read, delete or list, and what belongs to it",
    "op: begin、finish、describe、read、delete 或 list，以及相应的字段",
);
static BEGIN: Message = Message::fixed(
    "op: begin, name, mime, bytes",
    "op: begin, name, mime, bytes",
);
static FINISH: Message = Message::fixed(
    "op: finish, file_id, sha256: 64 hexadecimal digits",
    "op: finish, file_id, sha256: 64 个十六进制数字",
);
static READ: Message = Message::fixed(
    "op: read, file_id, offset: a number of bytes",
    "op: read, file_id, offset: 字节数",
);
static ONE: Message = Message::fixed(
    "op: describe or delete, file_id",
    "op: describe 或 delete, file_id",
);
static LIST: Message = Message::fixed(
    "op: list, and perhaps before: a file_id",
    "op: list，可以再加 before: file_id",
);

/// A name of 255 bytes, all of them escaped, a type and the rest.
const LIMITS: Limits = Limits {
    bytes: 4096,
    ..Limits::DEFAULT
};

impl FileOp {
    /// Reads it.
    pub(super) fn read(body: &[u8]) -> Result<Self, Refusal> {
        let asked: FileRequest = form::of_form(form::parse(body, &LIMITS)?, &ANY)?;
        Self::of(asked)
    }

    fn of(asked: FileRequest) -> Result<Self, Refusal> {
        let FileRequest {
            op,
            file_id: file,
            name,
            mime,
            bytes,
            sha256,
            offset,
            before,
        } = asked;
        match (op, file, name, mime, bytes, sha256, offset, before) {
            (OpName::Begin, None, Some(name), Some(mime), Some(bytes), None, None, None) => {
                Ok(Self::Begin {
                    name: named("name", &name)?,
                    mime: named("mime", &mime)?,
                    bytes: announced(bytes)?,
                })
            }
            (OpName::Finish, Some(file), None, None, None, Some(sha256), None, None) => {
                let mut hash = [0; 32];
                hex::decode_to_slice(&sha256, &mut hash)
                    .map_err(|_other| form::mismatch(&FINISH).at("/sha256"))?;
                let (file, sha256) = (file_id(&file)?, hash);
                Ok(Self::Finish { file, sha256 })
            }
            (OpName::Describe, Some(file), None, None, None, None, None, None) => {
                let file = file_id(&file)?;
                Ok(Self::Describe { file })
            }
            (OpName::Read, Some(file), None, None, None, None, Some(at), None) => {
                let file = file_id(&file)?;
                Ok(Self::Read { file, at })
            }
            (OpName::Delete, Some(file), None, None, None, None, None, None) => {
                let file = file_id(&file)?;
                Ok(Self::Delete { file })
            }
            (OpName::List, None, None, None, None, None, None, before) => {
                let before = before.as_deref().map(file_id).transpose()?;
                Ok(Self::List { before })
            }
            (op, ..) => Err(form::mismatch(match op {
                OpName::Begin => &BEGIN,
                OpName::Finish => &FINISH,
                OpName::Describe | OpName::Delete => &ONE,
                OpName::Read => &READ,
                OpName::List => &LIST,
            })),
        }
    }
}

/// The file that a request names.
pub(super) fn file_id(text: &str) -> Result<FileId, Refusal> {
    text.parse().map_err(|_rule| {
        let what = Message::fixed(
            "a file id is a UUIDv7 in hyphenated form",
            "file_id 必须是带连字符的 UUIDv7",
        );
        Refusal::of_file(Code::InvalidId, what)
    })
}

fn named<T: std::str::FromStr<Err = InvalidName>>(field: &str, text: &str) -> Result<T, Refusal> {
    text.parse().map_err(|bad: InvalidName| {
        let rule = bad.rule;
        let what = said!("{field} must be {rule}", "{field} 必须{rule}", rule);
        Refusal::of_file(Code::InvalidArguments, what).at(format!("/{field}"))
    })
}

fn announced(bytes: u64) -> Result<u64, Refusal> {
    let (code, what) = match bytes {
        0 => (
            Code::InvalidArguments,
            Message::fixed("a file has at least one byte", "文件至少有一个字节"),
        ),
        1..=BYTES_MAX => return Ok(bytes),
        _ => (
            Code::PayloadTooLarge,
            said!(
                "a file may have {BYTES_MAX} bytes; this one would have {bytes}",
                "文件最多 {BYTES_MAX} 字节；这个文件有 {bytes} 字节"
            ),
        ),
    };
    Err(Refusal::of_file(code, what).at("/bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    fn refused(body: &str) -> Code {
        let read = FileOp::read(body.as_bytes());
        read.map_err(|refusal| refusal.code)
            .expect_err(&format!("{body} is no request"))
    }

    #[test]
    fn each_op_has_its_fields_and_no_others() {
        for body in [
            r#"{}"#.to_owned(),
            r#"{"op":"upload"}"#.to_owned(),
            r#"{"op":"begin"}"#.to_owned(),
            r#"{"op":"begin","name":"a","mime":"a/b"}"#.to_owned(),
            r#"{"op":"begin","name":"a","mime":"a/b","bytes":-1}"#.to_owned(),
            r#"{"op":"begin","name":"a","mime":"a/b","bytes":1.5}"#.to_owned(),
            r#"{"op":"begin","name":"a","mime":"a/b","bytes":"1"}"#.to_owned(),
            r#"{"op":"begin","name":1,"mime":"a/b","bytes":1}"#.to_owned(),
            r#"{"op":"begin","name":"../../etc/passwd","mime":"a/b","bytes":1}"#.to_owned(),
            r#"{"op":"begin","name":"a","mime":"pdf","bytes":1}"#.to_owned(),
            r#"{"op":"begin","name":"a","mime":"a/b","bytes":0}"#.to_owned(),
            format!(r#"{{"op":"describe","file_id":"{ID}","name":"a"}}"#),
            format!(r#"{{"op":"read","file_id":"{ID}"}}"#),
            format!(r#"{{"op":"read","file_id":"{ID}","offset":-1}}"#),
            format!(r#"{{"op":"finish","file_id":"{ID}","sha256":"00"}}"#),
            format!(r#"{{"op":"list","file_id":"{ID}"}}"#),
            format!(r#"{{"op":"delete","file_id":"{ID}","actor":"ann"}}"#),
        ] {
            assert_eq!(refused(&body), Code::InvalidArguments, "{body}");
        }
        let large = r#"{"op":"begin","name":"a","mime":"a/b","bytes":33554433}"#;
        assert_eq!(refused(large), Code::PayloadTooLarge);
        assert_eq!(
            refused(r#"{"op":"describe","file_id":"7"}"#),
            Code::InvalidId
        );
        assert_eq!(refused("nothing"), Code::MalformedJson);
        let last = r#"{"op":"begin","name":"a.pdf","mime":"application/pdf","bytes":33554432}"#;
        assert!(matches!(
            FileOp::read(last.as_bytes()),
            Ok(FileOp::Begin {
                bytes: 33_554_432,
                ..
            })
        ));
        let all = FileOp::read(br#"{"op":"list"}"#);
        assert!(matches!(all, Ok(FileOp::List { before: None })));
    }
}
