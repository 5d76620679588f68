//! The requests about files that are no chunks.

use fleet::{
    files::CHUNK_MAX,
    ids::{FileId, Label},
    said,
    store::{
        StoreError,
        files::{self, FileBegun, FileDeleted, FileFinished, FileQuota, FileRow, NewFile},
    },
    wire::{code::Code, message::Message},
};
use serde::Serialize;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{
    forms::FileOp,
    headers::{BYTES, FILE, MIME, OFFSET},
    refusals::no_such_file,
};
use crate::{
    answer::{Answer, bytes_max},
    door::Door,
    refusal::Refusal,
};

/// How many files a list has.
const LISTED_MAX: u32 = 100;

/// Where a file stands.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum FileState {
    Open,
    Ready,
    Deleted,
}

/// A file in an answer.
#[derive(Debug, Serialize)]
struct ToldFile {
    file_id: FileId,
    state: FileState,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// Of one that is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    received: Option<u64>,
    /// Of one that is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    /// Of one that was begun just now.
    #[serde(skip_serializing_if = "Option::is_none")]
    chunk_bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

#[derive(Debug, Serialize)]
struct FileList {
    files: Vec<ToldFile>,
    /// Whether there are older ones.
    more: bool,
}

impl ToldFile {
    const fn new(file_id: FileId, state: FileState) -> Self {
        Self {
            file_id,
            state,
            name: None,
            mime: None,
            bytes: None,
            received: None,
            sha256: None,
            chunk_bytes: None,
            expires_at: None,
        }
    }

    fn of(row: FileRow) -> Self {
        let state = match row.sha256 {
            Some(_) => FileState::Ready,
            None => FileState::Open,
        };
        Self {
            name: Some(row.name),
            mime: Some(row.mime),
            bytes: Some(row.bytes),
            received: row.sha256.is_none().then_some(row.received),
            sha256: row.sha256.map(hex::encode),
            expires_at: Some(instant(row.expires_at)),
            ..Self::new(row.file_id, state)
        }
    }
}

fn instant(at: OffsetDateTime) -> String {
    at.format(&Rfc3339)
        .expect("Postgres has only times that can be written")
}

fn json(answer: &impl Serialize) -> Answer {
    Answer::json(serde_json::to_string(answer).expect("an answer has only string keys"))
}

fn unreadable(error: StoreError) -> Refusal {
    Refusal::unreadable(&error)
}

/// Answers it.
pub(super) async fn answer(door: &Door, tenant: &Label, body: &[u8]) -> Result<Answer, Refusal> {
    let pool = &door.pool;
    match FileOp::read(body)? {
        FileOp::Begin { name, mime, bytes } => {
            let file_id = FileId::generate();
            let new = NewFile {
                file_id,
                tenant,
                name: &name,
                mime: &mime,
                bytes,
            };
            begin(door, &new).await
        }
        FileOp::Finish { file, sha256 } => finish(door, tenant, file, sha256).await,
        FileOp::Describe { file } => {
            let found = files::find(pool, tenant, file).await.map_err(unreadable)?;
            let row = found.ok_or_else(no_such_file)?;
            Ok(json(&ToldFile::of(row)))
        }
        FileOp::Read { file, at } => read(door, tenant, file, at).await,
        FileOp::Delete { file } => {
            let deleted = files::delete(pool, tenant, file).await;
            match deleted.map_err(unreadable)? {
                FileDeleted::Now => Ok(json(&ToldFile::new(file, FileState::Deleted))),
                FileDeleted::Named => {
                    let what = Message::fixed(
                        "an open call names the file; it can be deleted when that call is over",
                        "有未结束的调用使用这个文件；调用结束后才能删除",
                    );
                    Err(Refusal::of_file(Code::Conflict, what))
                }
                FileDeleted::NotFound => Err(no_such_file()),
            }
        }
        FileOp::List { before } => {
            let listed = files::list(pool, tenant, before, LISTED_MAX + 1).await;
            let mut files: Vec<_> = listed.map_err(unreadable)?;
            let most = LISTED_MAX as usize;
            let more = files.len() > most;
            files.truncate(most);
            let files = files.into_iter().map(ToldFile::of).collect();
            Ok(json(&FileList { files, more }))
        }
    }
}

/// How many bytes a message of this server can carry beside its headers, up to those of a chunk.
fn chunk_bytes(door: &Door) -> usize {
    bytes_max(&door.bus).min(CHUNK_MAX)
}

async fn begin(door: &Door, new: &NewFile<'_>) -> Result<Answer, Refusal> {
    let begun = files::begin(&door.pool, new, door.file_quota).await;
    match begun.map_err(unreadable)? {
        FileBegun::Open { expires_at } => Ok(json(&ToldFile {
            received: Some(0),
            chunk_bytes: Some(chunk_bytes(door)),
            expires_at: Some(instant(expires_at)),
            ..ToldFile::new(new.file_id, FileState::Open)
        })),
        FileBegun::OverQuota { files, bytes } => {
            let FileQuota {
                files: files_max,
                bytes: most,
            } = door.file_quota;
            let what = said!(
                "the tenant keeps {files} files with {bytes} bytes, those that were begun included; it may keep {files_max} files with {most} bytes (0: any)",
                "该租户已保存 {files} 个文件，共 {bytes} 字节（含尚未完成的）；最多可保存 {files_max} 个文件、{most} 字节（0 表示不限）"
            );
            Err(Refusal::of_file(Code::QuotaExceeded, what))
        }
    }
}

async fn finish(
    door: &Door,
    tenant: &Label,
    file: FileId,
    said_hash: [u8; 32],
) -> Result<Answer, Refusal> {
    let finished = files::finish(&door.pool, tenant, file, &said_hash).await;
    match finished.map_err(unreadable)? {
        FileFinished::Ready(row) => Ok(json(&ToldFile::of(row))),
        FileFinished::Short { received, bytes } => {
            let what = said!(
                "the file was announced with {bytes} bytes and has {received}",
                "文件声明为 {bytes} 字节，已收到 {received} 字节"
            );
            let refusal = Refusal::of_file(Code::Conflict, what);
            Err(refusal
                .with_details(move |_| serde_json::json!({"received": received, "bytes": bytes})))
        }
        FileFinished::Differs { sha256 } => {
            let (found, said) = (hex::encode(sha256), hex::encode(said_hash));
            let what = said!(
                "the bytes that were received have the SHA-256 {found} and not {said}",
                "收到的内容的 SHA-256 是 {found}，不是 {said}"
            );
            let refusal = Refusal::of_file(Code::Conflict, what);
            Err(refusal.with_details(move |_| serde_json::json!({"sha256": found, "said": said})))
        }
        FileFinished::NotFound => Err(no_such_file()),
    }
}

async fn read(door: &Door, tenant: &Label, file: FileId, at: u64) -> Result<Answer, Refusal> {
    let part = files::read_part(&door.pool, tenant, file, at, chunk_bytes(door)).await;
    let part = part.map_err(unreadable)?.ok_or_else(no_such_file)?;
    if part.data.is_empty() {
        let bytes = part.bytes;
        let what = said!(
            "the file has {bytes} bytes, so offset must be less than that",
            "文件有 {bytes} 字节，offset 必须小于这个数"
        );
        return Err(Refusal::of_file(Code::InvalidArguments, what).at("/offset"));
    }
    Ok(Answer::bytes(
        part.data,
        vec![
            (FILE, file.to_string()),
            (OFFSET, at.to_string()),
            (BYTES, part.bytes.to_string()),
            (MIME, part.mime),
        ],
    ))
}
