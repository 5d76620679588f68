//! Reads the body of a request: so many bytes, in so much time, and only where there is room for it among all others.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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

use crate::{
    asked::Asked,
    refusal::Refused,
    room::{FREE, LARGEST, RoomOf},
};

/// Arguments of a call, as over NATS: those of a model. A dispatcher knows which tool is one, and refuses longer ones of all others.
pub(crate) const CALL_MAX: usize = Limits::CONVERSATION.bytes;
/// What needs no room once it has been read: arguments of most tools.
const KEPT_MAX: usize = Limits::DEFAULT.bytes;
/// A message of MCP: the arguments of a call, and what stands around them.
pub(crate) const MESSAGE_MAX: usize = CALL_MAX + 64 * 1024;
/// A request of a vendor's API: a conversation may be long.
pub(crate) const MODEL_MAX: usize = 1024 * 1024;
/// A batch, as over NATS.
pub(crate) const BATCH_MAX: usize = 8 * 1024 * 1024;
/// What is handed in for a call, with the form around the largest answer.
pub(crate) const OUTPUT_MAX: usize = LARGEST;
/// A reason, and what stands around it.
pub(crate) const FORM_MAX: usize = 32 * 1024;
/// A control, as over NATS.
pub(crate) const CONTROL_MAX: usize = 64 * 1024;
/// How long a body may take.
const TIME_MAX: Duration = Duration::from_secs(30);
/// How long that of a request may take that does not say who asks.
const STRANGERS_TIME_MAX: Duration = Duration::from_secs(10);
/// Longer bodies are taken apart on a blocking thread: meanwhile this one has others to serve.
pub(crate) const SHORT: usize = 64 * 1024;

/// The room for bodies in memory. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct BodyRoom(Arc<Room>);

#[derive(Debug)]
struct Room {
    bytes: usize,
    taken: Mutex<TakenRoom>,
}

/// The room that is taken, in bytes.
#[derive(Debug, Default)]
struct TakenRoom {
    by_all: usize,
    /// Of those who did not say who asks.
    by_strangers: usize,
    /// Of each token, by its id.
    by_token: HashMap<String, usize>,
}

/// The room of one body. Dropping it frees it.
#[derive(Debug)]
struct HeldRoom {
    room: BodyRoom,
    bytes: usize,
    whose: RoomOf,
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
    /// So many MiB, shared as [`RoomOf::share`] says.
    pub(crate) fn new(mib: usize) -> Self {
        Self(Arc::new(Room {
            bytes: mib * 1024 * 1024,
            taken: Mutex::default(),
        }))
    }

    fn hold(&self, whose: RoomOf) -> HeldRoom {
        HeldRoom {
            room: self.clone(),
            bytes: 0,
            whose,
        }
    }

    fn taken(&self) -> MutexGuard<'_, TakenRoom> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TakenRoom {
    /// What counts for this one, beside what counts for all.
    fn own(&mut self, whose: &RoomOf) -> Option<&mut usize> {
        match whose {
            RoomOf::Anyone => None,
            RoomOf::Stranger => Some(&mut self.by_strangers),
            RoomOf::Token(id) => Some(self.by_token.entry(id.clone()).or_default()),
        }
    }
}

impl HeldRoom {
    /// Takes so much more room. Whether there is as much.
    fn grow(&mut self, bytes: usize) -> bool {
        let all = self.room.0.bytes;
        let most = self.whose.share(all);
        let mut taken = self.room.taken();
        let fits = |taken: usize, most: usize| taken + bytes <= most;
        let own = taken.own(&self.whose).map_or(0, |own| *own);
        let has_room = fits(taken.by_all, all) && fits(own, most);
        if has_room {
            taken.by_all += bytes;
            if let Some(own) = taken.own(&self.whose) {
                *own += bytes;
            }
            self.bytes += bytes;
        }
        taken.by_token.retain(|_token, bytes| *bytes > 0);
        has_room
    }
}

impl Drop for HeldRoom {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut taken = self.room.taken();
        taken.by_all -= self.bytes;
        if let Some(own) = taken.own(&self.whose) {
            *own -= self.bytes;
        }
        taken.by_token.retain(|_token, bytes| *bytes > 0);
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
    let whose = RoomOf::of(asked.who());
    let most = if whose == RoomOf::Stranger {
        STRANGERS_TIME_MAX
    } else {
        TIME_MAX
    };
    let size = Size {
        bytes_max,
        announced,
    };
    let reading = gather(body, size, room.hold(whose));
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
    if whole.len() <= KEPT_MAX {
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
        let first = gathered(8 * MIB, room.hold(RoomOf::Anyone)).await.unwrap();
        let _second = gathered(8 * MIB, room.hold(RoomOf::Anyone)).await.unwrap();
        assert!(gathered(MIB, room.hold(RoomOf::Anyone)).await.is_err());
        assert!(gathered(FREE, room.hold(RoomOf::Stranger)).await.is_ok());
        drop(first);
        let third = gathered(KEPT_MAX, room.hold(RoomOf::Anyone)).await.unwrap();
        let taken = room.taken().by_all;
        assert_eq!((third.len(), taken), (KEPT_MAX, 8 * MIB - FREE));
    }

    #[tokio::test]
    async fn strangers_have_a_part_of_the_room() {
        let room = BodyRoom::new(64);
        let mut strangers = Vec::new();
        while let Ok(body) = gathered(MIB, room.hold(RoomOf::Stranger)).await {
            strangers.push(body);
        }
        assert_eq!(strangers.len(), 8);
        assert!(gathered(8 * MIB, room.hold(RoomOf::Anyone)).await.is_ok());
        strangers.clear();
        assert_eq!(room.taken().by_all, 0);
        assert_eq!(room.taken().by_strangers, 0);
    }

    #[tokio::test]
    async fn a_token_has_half_of_the_room() {
        let room = BodyRoom::new(64);
        let of = |id: &str| RoomOf::Token(id.to_owned());
        let mut bodies = Vec::new();
        while let Ok(body) = gathered(MIB, room.hold(of("a"))).await {
            bodies.push(body);
        }
        assert_eq!(bodies.len(), 32);
        let other = gathered(8 * MIB, room.hold(of("b"))).await.unwrap();
        bodies.clear();
        assert!(gathered(MIB, room.hold(of("a"))).await.is_ok());
        drop(other);
        assert!(room.taken().by_token.is_empty());
        assert_eq!(room.taken().by_all, 0);
    }
}
