//! Brings the body of a request to the dispatchers, a piece at a time: the next one is read when the last one is kept.

use std::time::Duration;

use axum::{
    body::{Body, BodyDataStream},
    http::StatusCode,
};
use bytes::{Bytes, BytesMut};
use fleet::{
    ids::FileId,
    said,
    wire::{code::Code, message::Message},
};
use fleet_client::Answer;
use futures_util::StreamExt;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout_at};
use tokio_util::task::TaskTracker;

use super::door::{FileDoor, NewFile, NoFile, PIECE_MAX};
use crate::refusal::Refused;

/// How long a piece of a body may take to come.
const PIECE_TIME_MAX: Duration = Duration::from_secs(30);
/// How long all of it may take.
const TIME_MAX: Duration = Duration::from_secs(10 * 60);

/// Makes a file of a body. Where it fails, or is dropped, the file that was begun is deleted.
///
/// # Errors
///
/// The door refuses the file, nobody answers, or the body is not what was announced.
pub(crate) async fn upload(
    door: &FileDoor,
    tasks: &TaskTracker,
    file: NewFile,
    announced: Option<[u8; 32]>,
    body: Body,
) -> Result<(FileId, Answer), NoFile> {
    let mut open = OpenFile {
        file: door.begin(&file).await?,
        is_done: false,
        door: door.clone(),
        tasks: tasks.clone(),
    };
    let over_at = Instant::now() + TIME_MAX;
    let mut body = Pieces::of(body);
    let (mut hash, mut sent) = (Sha256::new(), 0);
    loop {
        let until = over_at.min(Instant::now() + PIECE_TIME_MAX);
        let piece = timeout_at(until, body.next()).await;
        let piece = piece.unwrap_or_else(|_elapsed| Err(too_slow()))?;
        if piece.is_empty() {
            break;
        }
        hash.update(&piece);
        let offset = sent;
        sent += piece.len() as u64;
        if sent > file.bytes {
            return Err(not_as_announced(file.bytes).into());
        }
        door.piece(open.file, offset, &piece).await?;
    }
    if sent != file.bytes {
        return Err(not_as_announced(file.bytes).into());
    }
    // The door compares with what its caller has announced, and else with what was read here.
    let hash = announced.unwrap_or_else(|| hash.finalize().into());
    let answer = door.finish(open.file, &hex::encode(hash)).await?;
    open.is_done = true;
    Ok((open.file, answer))
}

/// A file that is begun and not whole. Dropping it has it deleted, unless it is done.
struct OpenFile {
    file: FileId,
    is_done: bool,
    door: FileDoor,
    tasks: TaskTracker,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let (door, file) = (self.door.clone(), self.file);
        self.tasks.spawn(async move {
            if door.delete(file).await.is_err() {
                tracing::debug!(%file, "a file that is not whole is left to its expiry");
            }
        });
    }
}

/// A body in pieces of [`PIECE_MAX`] bytes.
struct Pieces {
    body: BodyDataStream,
    /// What came behind the last piece.
    rest: Bytes,
}

impl Pieces {
    fn of(body: Body) -> Self {
        Self {
            body: body.into_data_stream(),
            rest: Bytes::new(),
        }
    }

    /// The next piece; an empty one at the end. Each but the last has [`PIECE_MAX`] bytes.
    async fn next(&mut self) -> Result<Bytes, Refused> {
        let mut piece = BytesMut::with_capacity(PIECE_MAX);
        loop {
            let room = PIECE_MAX - piece.len();
            let taken = self.rest.split_to(self.rest.len().min(room));
            piece.extend_from_slice(&taken);
            if piece.len() == PIECE_MAX {
                return Ok(piece.freeze());
            }
            match self.body.next().await {
                Some(Ok(next)) => self.rest = next,
                Some(Err(_broken)) => return Err(broken()),
                None => return Ok(piece.freeze()),
            }
        }
    }
}

fn broken() -> Refused {
    let what = Message::fixed("the body broke off", "请求体中途断开");
    Refused::new(Code::TruncatedArguments, what)
}

fn too_slow() -> Refused {
    let (piece, all) = (PIECE_TIME_MAX.as_secs(), TIME_MAX.as_secs() / 60);
    let what = said!(
        "the body came too slowly: 256 KiB have {piece} s, and all of it {all} minutes",
        "请求体到达得太慢：每 256 KiB 最多 {piece} 秒，全部最多 {all} 分钟"
    );
    let refused = Refused::new(Code::TruncatedArguments, what);
    refused.status(StatusCode::REQUEST_TIMEOUT)
}

fn not_as_announced(bytes: u64) -> Refused {
    let what = said!(
        "the body does not have the {bytes} bytes that Content-Length announces",
        "请求体的长度不是 Content-Length 声明的 {bytes} 字节"
    );
    Refused::new(Code::TruncatedArguments, what)
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    #[tokio::test]
    async fn a_body_comes_in_pieces_of_one_size_however_it_was_sent() {
        let sent: Vec<Result<Bytes, std::io::Error>> = [100_000, 300_000, 1, 0, 200_000]
            .iter()
            .map(|length| Ok(Bytes::from(vec![7; *length])))
            .collect();
        let mut pieces = Pieces::of(Body::from_stream(stream::iter(sent)));
        let mut lengths = Vec::new();
        loop {
            let piece = pieces.next().await.unwrap();
            lengths.push(piece.len());
            if piece.is_empty() {
                break;
            }
        }
        assert_eq!(lengths, [262_144, 262_144, 600_001 - 2 * 262_144, 0]);
    }

    #[tokio::test]
    async fn a_body_that_breaks_off_is_no_body() {
        let sent = [
            Ok(Bytes::from_static(b"a")),
            Err(std::io::Error::other("gone")),
        ];
        let mut pieces = Pieces::of(Body::from_stream(stream::iter(sent)));
        assert!(pieces.next().await.is_err());
    }
}
