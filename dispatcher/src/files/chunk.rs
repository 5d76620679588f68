//! A chunk of a file: raw bytes, and in headers whose they are and where.

use fleet::{
    files::{CHUNK_MAX, CHUNKS_MAX},
    ids::{FileId, Label},
    said,
    store::files::{self, ChunkTaken},
    wire::{code::Code, message::Message},
};

use super::{
    forms,
    headers::{FILE, OFFSET},
    refusals,
};
use crate::{answer::Answer, door::Door, refusal::Refusal};

/// Where a chunk belongs.
pub(super) struct Place {
    file: FileId,
    at: u64,
}

impl Place {
    /// Reads it from the headers of a request. `None`: the request is no chunk.
    pub(super) fn read(lines: &[(&str, &str)]) -> Result<Option<Self>, Refusal> {
        let (file, at) = (one(lines, FILE)?, one(lines, OFFSET)?);
        match (file, at) {
            (None, None) => Ok(None),
            (Some(file), Some(at)) => {
                let digits = !at.is_empty() && at.bytes().all(|byte| byte.is_ascii_digit());
                let at = at.parse().ok().filter(|_| digits);
                let at = at.ok_or_else(|| {
                    let what = said!(
                        "header {OFFSET} must be a number of bytes",
                        "请求头 {OFFSET} 必须是字节数"
                    );
                    Refusal::of_file(Code::HeaderInvalid, what)
                })?;
                let file = forms::file_id(file)?;
                Ok(Some(Self { file, at }))
            }
            (Some(_), None) | (None, Some(_)) => {
                let what = said!(
                    "a chunk has both headers, {FILE} and {OFFSET}",
                    "一个分块同时带有 {FILE} 和 {OFFSET} 两个请求头"
                );
                Err(Refusal::of_file(Code::HeaderInvalid, what))
            }
        }
    }
}

fn one<'a>(lines: &[(&str, &'a str)], name: &'static str) -> Result<Option<&'a str>, Refusal> {
    let mut found = lines
        .iter()
        .filter(|(header, _)| header.eq_ignore_ascii_case(name))
        .map(|(_, value)| *value);
    let first = found.next();
    if found.next().is_some() {
        let what = said!(
            "header {name} must be given once",
            "请求头 {name} 必须只出现一次"
        );
        return Err(Refusal::of_file(Code::HeaderInvalid, what));
    }
    Ok(first)
}

/// Takes a chunk into the ledger.
pub(super) async fn take(
    door: &Door,
    tenant: &Label,
    place: Place,
    data: &[u8],
) -> Result<Answer, Refusal> {
    if data.is_empty() {
        let what = Message::fixed("a chunk has at least one byte", "一个分块至少有一个字节");
        return Err(Refusal::of_file(Code::InvalidArguments, what));
    }
    if data.len() > CHUNK_MAX {
        let count = data.len();
        let what = said!(
            "the chunk has {count} bytes; {CHUNK_MAX} are the most",
            "这个分块有 {count} 字节；最多 {CHUNK_MAX} 字节"
        );
        return Err(Refusal::of_file(Code::PayloadTooLarge, what));
    }
    let Place { file, at } = place;
    let taken = files::write_chunk(&door.pool, tenant, file, at, data).await;
    let conflict = |what: Message, received: u64| {
        let refusal = Refusal::of_file(Code::Conflict, what);
        refusal.with_details(move |_| serde_json::json!({"received": received}))
    };
    match taken.map_err(|error| Refusal::unreadable(&error))? {
        ChunkTaken::There { received, is_ready } => {
            let state = if is_ready { "ready" } else { "open" };
            let answer = serde_json::json!({"file_id": file, "state": state, "received": received});
            Ok(Answer::json(answer.to_string()))
        }
        ChunkTaken::Differs { received } => {
            let what = said!(
                "the file has other bytes at {at}",
                "文件在 {at} 处已有不同的内容"
            );
            Err(conflict(what, received))
        }
        ChunkTaken::Gap { received } => {
            let what = said!(
                "no chunk of the file begins at {at}, and the next one begins at {received}",
                "文件中没有从 {at} 开始的分块，下一个分块从 {received} 开始"
            );
            Err(conflict(what, received))
        }
        ChunkTaken::Beyond { received, bytes } => {
            let what = said!(
                "the file was announced with {bytes} bytes, and with this chunk it would have more",
                "文件声明为 {bytes} 字节，加上这个分块就超出了"
            );
            let refusal = Refusal::of_file(Code::PayloadTooLarge, what);
            Err(refusal
                .with_details(move |_| serde_json::json!({"received": received, "bytes": bytes})))
        }
        ChunkTaken::TooMany => {
            let what = said!(
                "the file has {CHUNKS_MAX} chunks already; send larger ones, of up to {CHUNK_MAX} bytes",
                "文件已有 {CHUNKS_MAX} 个分块；请发送更大的分块，每个最多 {CHUNK_MAX} 字节"
            );
            Err(Refusal::of_file(Code::PayloadTooLarge, what))
        }
        ChunkTaken::NotFound => Err(refusals::no_such_file()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    #[test]
    fn a_chunk_has_both_headers_once_and_anything_else_is_no_chunk_or_refused() {
        let read = |lines: &[(&str, &str)]| Place::read(lines).map_err(|refusal| refusal.code);
        assert!(read(&[("Toolfleet-Language", "zh")]).unwrap().is_none());
        let place = read(&[("toolfleet-file", ID), (OFFSET, "262144")]);
        let place = place.unwrap().unwrap();
        assert_eq!((place.file.to_string().as_str(), place.at), (ID, 262_144));
        for (lines, code) in [
            (vec![(FILE, ID)], Code::HeaderInvalid),
            (vec![(OFFSET, "0")], Code::HeaderInvalid),
            (
                vec![(FILE, ID), (FILE, ID), (OFFSET, "0")],
                Code::HeaderInvalid,
            ),
            (vec![(FILE, ID), (OFFSET, "-1")], Code::HeaderInvalid),
            (vec![(FILE, ID), (OFFSET, "+1")], Code::HeaderInvalid),
            (vec![(FILE, ID), (OFFSET, "")], Code::HeaderInvalid),
            (
                vec![(FILE, ID), (OFFSET, "99999999999999999999")],
                Code::HeaderInvalid,
            ),
            (
                vec![(FILE, "../../etc/passwd"), (OFFSET, "0")],
                Code::InvalidId,
            ),
        ] {
            assert_eq!(read(&lines).err(), Some(code), "{lines:?}");
        }
    }
}
