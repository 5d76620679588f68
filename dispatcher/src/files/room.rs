//! How many requests about files are in hand, and how many at work: each may bring or want 256 KiB, and all of them share the connections to
//! Postgres and to NATS with the calls.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use fleet::{
    ids::Label,
    wire::{code::Code, message::Message},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::refusal::Refusal;

/// Requests about files in hand. Further ones are refused.
const IN_HAND_MAX: usize = 96;
/// Of these, those of one tenant.
const OF_TENANT_MAX: usize = 64;
/// Those that are at work: at Postgres, or on their way out.
const AT_WORK_MAX: usize = 2;

/// The room of one dispatcher. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct FileRoom(Arc<SharedRoom>);

#[derive(Debug)]
struct SharedRoom {
    at_work: Arc<Semaphore>,
    in_hand: Mutex<HashMap<Label, usize>>,
}

/// One request in hand. Dropping it lets another one in.
#[derive(Debug)]
pub(crate) struct FileInHand {
    tenant: Label,
    room: FileRoom,
}

/// The turn of one request, until its answer is on its way. Dropping it gives the turn to another.
#[derive(Debug)]
pub(crate) struct FileTurn {
    _in_hand: FileInHand,
    _at_work: OwnedSemaphorePermit,
}

impl Default for FileRoom {
    fn default() -> Self {
        Self(Arc::new(SharedRoom {
            at_work: Arc::new(Semaphore::new(AT_WORK_MAX)),
            in_hand: Mutex::default(),
        }))
    }
}

impl FileRoom {
    /// One more request of this tenant.
    ///
    /// # Errors
    ///
    /// `overloaded`: there are as many as may be.
    pub(crate) fn enter(&self, tenant: &Label) -> Result<FileInHand, Refusal> {
        let mut in_hand = self.in_hand();
        let own = in_hand.get(tenant).copied().unwrap_or_default();
        if own >= OF_TENANT_MAX || in_hand.values().sum::<usize>() >= IN_HAND_MAX {
            let what = Message::fixed(
                "too many requests about files are waiting here; send the next one when one before it is answered",
                "等待处理的文件请求太多；请在前面的请求得到回答后再发送下一个",
            );
            return Err(Refusal::of_file(Code::Overloaded, what));
        }
        in_hand.insert(tenant.clone(), own + 1);
        Ok(FileInHand {
            tenant: tenant.clone(),
            room: self.clone(),
        })
    }

    fn in_hand(&self) -> MutexGuard<'_, HashMap<Label, usize>> {
        self.0
            .in_hand
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileInHand {
    /// Waits for its turn. Cancel-safe: dropping it lets another one in.
    pub(crate) async fn turn(self) -> FileTurn {
        let at_work = Arc::clone(&self.room.0.at_work).acquire_owned().await;
        FileTurn {
            _in_hand: self,
            _at_work: at_work.expect("nothing closes it"),
        }
    }
}

impl Drop for FileInHand {
    fn drop(&mut self) {
        let mut in_hand = self.room.in_hand();
        if let Some(count) = in_hand.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                in_hand.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_tenant_leaves_room_for_others_and_two_are_at_work() {
        let room = FileRoom::default();
        let (acme, beta): (Label, Label) = ("acme".parse().unwrap(), "beta".parse().unwrap());
        let mut own: Vec<FileInHand> = (0..OF_TENANT_MAX)
            .map(|_| room.enter(&acme).unwrap())
            .collect();
        assert_eq!(room.enter(&acme).unwrap_err().code, Code::Overloaded);
        let others: Vec<FileInHand> = (OF_TENANT_MAX..IN_HAND_MAX)
            .map(|_| room.enter(&beta).unwrap())
            .collect();
        assert_eq!(room.enter(&beta).unwrap_err().code, Code::Overloaded);
        let turns = [
            own.pop().unwrap().turn().await,
            own.pop().unwrap().turn().await,
        ];
        let mut third = Box::pin(own.pop().unwrap().turn());
        assert!(third.as_mut().now_or_never().is_none());
        drop(turns);
        assert!(third.as_mut().now_or_never().is_some());
        drop((third, own, others));
        assert!(room.in_hand().is_empty());
        assert_eq!(room.0.at_work.available_permits(), AT_WORK_MAX);
    }
}
