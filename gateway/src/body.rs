//! Reads the body of a request: so many bytes, in so much time, and only where there is room for it among all others.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    body::Body,
    http::{
        StatusCode,
        header::{CONTENT_ENCODING, CONTENT_LENGTH},
    },
};
use bytes::Bytes;
use fleet::{
    arguments::Limits,
    said,
    wire::{code::Code, message::Message},
};
use futures_util::StreamExt;
use tokio::time::timeout;

use crate::{asked::Asked, refusal::Refused};

/// Arguments of a call, as over NATS.
pub(crate) const CALL_MAX: usize = Limits::DEFAULT.bytes;
/// A batch, as over NATS.
pub(crate) const BATCH_MAX: usize = 8 * 1024 * 1024;
/// What is handed in for a call, with the form around the largest answer.
pub(crate) const OUTPUT_MAX: usize = Limits::ANSWER.bytes + 16 * 1024;
/// A reason, and what stands around it.
pub(crate) const FORM_MAX: usize = 32 * 1024;
/// A control, as over NATS.
pub(crate) const CONTROL_MAX: usize = 64 * 1024;
/// The bytes of each body that take no room of others: the number of connections bounds them. So large bodies keep no small one out.
const FREE: usize = 16 * 1024;
/// How long a body may take.
const TIME_MAX: Duration = Duration::from_secs(30);
/// How long that of a request may take that does not say who asks.
const STRANGERS_TIME_MAX: Duration = Duration::from_secs(10);
/// Longer bodies are taken apart on a blocking thread: meanwhile this one has others to serve.
const SHORT: usize = 64 * 1024;

/// The room for bodies in memory. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct BodyRoom(Arc<Room>);

#[derive(Debug)]
struct Room {
    all: Part,
    /// The part of those who did not say who asks.
    strangers: Part,
}

/// So many bytes, of which some are taken.
#[derive(Debug)]
struct Part {
    most: usize,
    taken: AtomicUsize,
}

/// The room of one body. Dropping it frees it.
#[derive(Debug)]
struct HeldRoom {
    room: BodyRoom,
    bytes: usize,
    is_strangers: bool,
}

/// A body with its room.
struct Kept {
    bytes: Vec<u8>,
    _held: HeldRoom,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl BodyRoom {
    /// So many MiB; an eighth for strangers, and at least the room for one of their bodies.
    pub(crate) fn new(mib: usize) -> Self {
        let all = mib * 1024 * 1024;
        let part = |most| Part {
            most,
            taken: AtomicUsize::new(0),
        };
        Self(Arc::new(Room {
            all: part(all),
            strangers: part((all / 8).max(OUTPUT_MAX)),
        }))
    }

    fn hold(&self, is_strangers: bool) -> HeldRoom {
        HeldRoom {
            room: self.clone(),
            bytes: 0,
            is_strangers,
        }
    }
}

impl Part {
    fn take(&self, bytes: usize) -> bool {
        let more = |taken: usize| Some(taken + bytes).filter(|taken| *taken <= self.most);
        self.taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    fn free(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl HeldRoom {
    /// Takes so much more room. Whether there is as much.
    fn grow(&mut self, bytes: usize) -> bool {
        let Room { all, strangers } = &*self.room.0;
        if self.is_strangers && !strangers.take(bytes) {
            return false;
        }
        if !all.take(bytes) {
            if self.is_strangers {
                strangers.free(bytes);
            }
            return false;
        }
        self.bytes += bytes;
        true
    }
}

impl Drop for HeldRoom {
    fn drop(&mut self) {
        let Room { all, strangers } = &*self.room.0;
        all.free(self.bytes);
        if self.is_strangers {
            strangers.free(self.bytes);
        }
    }
}

/// All of a body. A large one keeps its room until it is dropped, a small one until it is read: its call may wait for minutes.
///
/// # Errors
///
/// It is larger than this, takes too long, is compressed, or breaks off; or there is no room for it.
pub(crate) async fn read(
    room: &BodyRoom,
    asked: &Asked,
    body: Body,
    bytes_max: usize,
) -> Result<Bytes, Refused> {
    let headers = &asked.headers;
    let encoding = headers.get(CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| encoding != "identity") {
        return Err(compressed());
    }
    let announced = headers.get(CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|bytes| bytes > bytes_max) {
        return Err(too_large(bytes_max));
    }
    let is_strangers = asked.is_strangers();
    let most = if is_strangers {
        STRANGERS_TIME_MAX
    } else {
        TIME_MAX
    };
    let size = Size {
        bytes_max,
        announced,
    };
    let reading = gather(body, size, room.hold(is_strangers));
    timeout(most, reading).await.unwrap_or_else(|_elapsed| {
        let seconds = most.as_secs();
        let what = said!(
            "the body did not come within {seconds} s",
            "请求体没有在 {seconds} 秒内到达"
        );
        let refused = Refused::new(Code::TruncatedArguments, what);
        Err(refused.status(StatusCode::REQUEST_TIMEOUT))
    })
}

/// Does what may take long with a body of so many bytes.
///
/// # Errors
///
/// The gateway stops.
pub(crate) async fn aside<T: Send + 'static>(
    bytes: usize,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refused> {
    if bytes <= SHORT {
        return Ok(job());
    }
    let done = tokio::task::spawn_blocking(job).await;
    done.map_err(|_broken_off| {
        let what = Message::fixed("this gateway is about to stop", "这个网关即将停止");
        Refused::later(Code::Unavailable, what)
    })
}

/// How large a body may be.
#[derive(Debug, Clone, Copy)]
struct Size {
    bytes_max: usize,
    announced: Option<usize>,
}

async fn gather(body: Body, size: Size, mut held: HeldRoom) -> Result<Bytes, Refused> {
    let bytes_max = size.bytes_max;
    let most = size.announced.unwrap_or(bytes_max);
    let mut pieces = body.into_data_stream();
    let mut whole = Vec::with_capacity(most.min(FREE));
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_broken| {
            let what = Message::fixed("the body broke off", "请求体中途断开");
            Refused::new(Code::TruncatedArguments, what)
        })?;
        let needed = whole.len() + piece.len();
        if needed > bytes_max {
            return Err(too_large(bytes_max));
        }
        if needed > whole.capacity() {
            // Only for what has come: who announces much takes no room by that.
            let wanted = (2 * whole.capacity()).min(most).max(needed);
            let room = wanted.saturating_sub(FREE) - held.bytes;
            if !held.grow(room) {
                return Err(no_room());
            }
            whole.reserve_exact(wanted - whole.len());
        }
        whole.extend_from_slice(&piece);
    }
    if whole.len() <= CALL_MAX {
        return Ok(whole.into());
    }
    Ok(Bytes::from_owner(Kept {
        bytes: whole,
        _held: held,
    }))
}

fn no_room() -> Refused {
    let what = Message::fixed(
        "this gateway reads as many bodies as it has room for (GATEWAY_BODIES_MAX_MIB)",
        "这个网关正在读取的请求体已达上限（GATEWAY_BODIES_MAX_MIB）",
    );
    Refused::later(Code::Overloaded, what)
}

/// The body is not as it is.
pub(crate) fn compressed() -> Refused {
    let what = Message::fixed(
        "the body must not be compressed: leave out Content-Encoding",
        "请求体不能压缩：请去掉 Content-Encoding",
    );
    let refused = Refused::new(Code::HeaderInvalid, what);
    refused.status(StatusCode::UNSUPPORTED_MEDIA_TYPE)
}

fn too_large(bytes_max: usize) -> Refused {
    let what = said!(
        "the body may have {bytes_max} bytes",
        "请求体最多 {bytes_max} 字节"
    );
    Refused::new(Code::PayloadTooLarge, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    async fn gathered(bytes: usize, held: HeldRoom) -> Result<Bytes, Refused> {
        let size = Size {
            bytes_max: BATCH_MAX,
            announced: None,
        };
        gather(Body::from(vec![b' '; bytes]), size, held).await
    }

    #[tokio::test]
    async fn large_bodies_share_a_room_until_they_are_dropped_and_small_ones_need_none() {
        let room = BodyRoom::new(16);
        let first = gathered(8 * MIB, room.hold(false)).await.unwrap();
        let _second = gathered(8 * MIB, room.hold(false)).await.unwrap();
        assert!(gathered(MIB, room.hold(false)).await.is_err());
        assert!(gathered(FREE, room.hold(true)).await.is_ok());
        drop(first);
        let third = gathered(CALL_MAX, room.hold(false)).await.unwrap();
        let taken = room.0.all.taken.load(Ordering::Relaxed);
        assert_eq!((third.len(), taken), (CALL_MAX, 8 * MIB - FREE));
    }

    #[tokio::test]
    async fn strangers_have_a_part_of_the_room() {
        let room = BodyRoom::new(64);
        let mut strangers = Vec::new();
        while let Ok(body) = gathered(MIB, room.hold(true)).await {
            strangers.push(body);
        }
        assert_eq!(strangers.len(), 8);
        assert!(gathered(8 * MIB, room.hold(false)).await.is_ok());
        strangers.clear();
        assert_eq!(room.0.all.taken.load(Ordering::Relaxed), 0);
        assert_eq!(room.0.strangers.taken.load(Ordering::Relaxed), 0);
    }
}
