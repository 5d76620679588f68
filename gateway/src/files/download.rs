//! Makes an answer of a file: its bytes as an attachment, a piece at a time, each asked for when the one before it is taken.

use std::{io, time::Duration};

use axum::{
    body::Body,
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{
            ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE,
            CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
        },
    },
    response::Response,
};
use bytes::Bytes;
use fleet::wire::{code::Code, message::Message};
use futures_util::stream;
use sha2::{Digest, Sha256};
use tokio::time::timeout;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use super::{
    digest,
    door::{FileDoor, NoFile, ReadyFile},
    naming,
    range::{WantedRange, wanted},
};
use crate::{
    edge::peers::Peer,
    events::places::StreamPlace,
    headers::{ANSWER, REPR_DIGEST, Speaker},
    refusal::Refused,
};

/// What a page that shows the file all the same may do: nothing.
const POLICY: HeaderValue = HeaderValue::from_static("sandbox; default-src 'none'");

/// How long a file may take to be sent, as long as one may take to come.
const TIME_MAX: Duration = Duration::from_secs(10 * 60);

/// Closes the connection when a file has been on its way for too long, unless this is dropped before.
pub(crate) fn bounded(tasks: &TaskTracker, peer: Peer) -> DropGuard {
    let sent = CancellationToken::new();
    let is_sent = sent.clone();
    tasks.spawn(async move {
        if timeout(TIME_MAX, is_sent.cancelled()).await.is_err() {
            tracing::debug!("a file is cut off: its reader is too slow");
            peer.close();
        }
    });
    sent.drop_guard()
}

/// The answer with a file, or with the part of it that the headers of the request want. `held` is dropped when it is sent.
///
/// # Errors
///
/// It does not have the bytes that are wanted.
pub(crate) fn response(
    door: FileDoor,
    file: ReadyFile,
    asked: &HeaderMap,
    held: (StreamPlace, DropGuard),
) -> Result<Response, Refused> {
    let bytes = file.bytes;
    let tag = format!("\"{}\"", file.sha256);
    let (first, end, status) = match wanted(asked, bytes, &tag) {
        WantedRange::All => (0, bytes, StatusCode::OK),
        WantedRange::Part(first, end) => (first, end, StatusCode::PARTIAL_CONTENT),
        WantedRange::Nothing => return Err(out_of_range(bytes)),
    };
    let mut lines = vec![
        (CONTENT_TYPE, file.mime.clone()),
        (CONTENT_LENGTH, (end - first).to_string()),
        (ETAG, tag),
        (ACCEPT_RANGES, "bytes".to_owned()),
    ];
    lines.extend(digest::written(&file.sha256).map(|digest| (REPR_DIGEST, digest)));
    if status == StatusCode::PARTIAL_CONTENT {
        let last = end - 1;
        lines.push((CONTENT_RANGE, format!("bytes {first}-{last}/{bytes}")));
    }
    let name = naming::attachment(&file.name);
    let sending = Sending {
        door,
        file,
        at: first,
        end,
        hash: (status == StatusCode::OK).then(Sha256::new),
        _held: held,
    };
    let pieces = stream::try_unfold(sending, Sending::next);
    let mut response = Response::new(Body::from_stream(pieces));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in lines {
        // What the ledger has was checked at the door; what is no header is left out.
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
    headers.insert(CONTENT_DISPOSITION, name);
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(ANSWER, Speaker::Door.value());
    Ok(response)
}

/// A file on its way out.
struct Sending {
    door: FileDoor,
    file: ReadyFile,
    /// The first byte that was not sent.
    at: u64,
    end: u64,
    /// Of what was sent, where all of it is.
    hash: Option<Sha256>,
    _held: (StreamPlace, DropGuard),
}

impl Sending {
    /// The next piece. An error ends the connection, so that nobody takes what came for the whole.
    async fn next(mut self) -> io::Result<Option<(Bytes, Self)>> {
        if self.at >= self.end {
            return Ok(None);
        }
        let read = self.door.read(self.file.file_id, self.at).await;
        let mut piece = read.map_err(|why| {
            let code = match &why {
                NoFile::Refused(_) => "it is refused",
                NoFile::Gateway(_) => "nobody answers",
            };
            tracing::debug!(file = %self.file.file_id, "a file is cut off: {code}");
            io::Error::other("the file cannot be read on")
        })?;
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        piece.truncate(left);
        self.at += piece.len() as u64;
        if let Some(hash) = &mut self.hash {
            hash.update(&piece);
            // Before its last bytes are out.
            if self.at == self.end {
                let sum = hash.finalize_reset();
                if hex::encode(sum) != self.file.sha256 {
                    tracing::error!(file = %self.file.file_id, "the bytes of a file are not those of its hash");
                    return Err(io::Error::other("the file is not what it was"));
                }
            }
        }
        Ok(Some((piece, self)))
    }
}

fn out_of_range(bytes: u64) -> Refused {
    let what = Message::fixed(
        "the file does not have the bytes that Range names",
        "文件没有 Range 指定的字节",
    );
    let length = HeaderValue::try_from(format!("bytes */{bytes}")).expect("a number is plain text");
    Refused::new(Code::InvalidArguments, what)
        .status(StatusCode::RANGE_NOT_SATISFIABLE)
        .with(CONTENT_RANGE, length)
}
