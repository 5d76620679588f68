//! How many requests about files are in hand, and how many at work: each may bring or want 256 KiB, and all of them share the
//! connections to Postgres and to NATS with the calls.

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
const IN_HAND_MAX: usize = 256;
/// Of these, those of one tenant.
const OF_TENANT_MAX: usize = 32;
/// Those that are at work, at Postgres or on their way out: one of each tenant, so that tenants take turns.
const AT_WORK_MAX: usize = 3;

/// The room of one dispatcher. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct FileRoom(Arc<SharedRoom>);

#[derive(Debug)]
struct SharedRoom {
    at_work: Arc<Semaphore>,
    in_hand: Mutex<HashMap<Label, FilesOfTenant>>,
}

/// The requests of one tenant that are in hand, and the turn among them.
#[derive(Debug, Clone)]
struct FilesOfTenant {
    count: usize,
    turn: Arc<Semaphore>,
}

/// One request in hand. Dropping it lets another one in.
#[derive(Debug)]
pub(crate) struct FileInHand {
    tenant: Label,
    turn: Arc<Semaphore>,
    room: FileRoom,
}

/// The turn of one request, until its answer is on its way. Dropping it gives the turn to another.
#[derive(Debug)]
pub(crate) struct FileTurn {
    _at_work: [OwnedSemaphorePermit; 2],
    _in_hand: FileInHand,
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
        let all: usize = in_hand.values().map(|of| of.count).sum();
        let own = in_hand.get(tenant).map_or(0, |of| of.count);
        if own >= OF_TENANT_MAX || all >= IN_HAND_MAX {
            let what = Message::fixed(
                "too many requests about files are waiting here; send the next one when one before it is answered",
                "等待处理的文件请求太多；请在前面的请求得到回答后再发送下一个",
            );
            return Err(Refusal::of_file(Code::Overloaded, what));
        }
        let of = in_hand
            .entry(tenant.clone())
            .or_insert_with(|| FilesOfTenant {
                count: 0,
                turn: Arc::new(Semaphore::new(1)),
            });
        of.count += 1;
        Ok(FileInHand {
            tenant: tenant.clone(),
            turn: Arc::clone(&of.turn),
            room: self.clone(),
        })
    }

    fn in_hand(&self) -> MutexGuard<'_, HashMap<Label, FilesOfTenant>> {
        self.0
            .in_hand
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileInHand {
    /// Waits for its turn. Cancel-safe: dropping it lets another one in.
    pub(crate) async fn turn(self) -> FileTurn {
        let closed = "nothing closes it";
        let own = Arc::clone(&self.turn).acquire_owned().await.expect(closed);
        let at_work = Arc::clone(&self.room.0.at_work).acquire_owned().await;
        FileTurn {
            _at_work: [own, at_work.expect(closed)],
            _in_hand: self,
        }
    }
}

impl Drop for FileInHand {
    fn drop(&mut self) {
        let mut in_hand = self.room.in_hand();
        if let Some(of) = in_hand.get_mut(&self.tenant) {
            of.count -= 1;
            if of.count == 0 {
                in_hand.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn tenant(n: usize) -> Label {
        format!("tenant-{n}").parse().unwrap()
    }

    #[tokio::test]
    async fn tenants_leave_room_for_each_other_and_take_turns() {
        let room = FileRoom::default();
        let mut all: Vec<Vec<FileInHand>> = (0..IN_HAND_MAX / OF_TENANT_MAX)
            .map(|n| {
                let own = (0..OF_TENANT_MAX).map(|_| room.enter(&tenant(n)).unwrap());
                own.collect()
            })
            .collect();
        let code = |n| room.enter(&tenant(n)).unwrap_err().code;
        assert_eq!((code(0), code(99)), (Code::Overloaded, Code::Overloaded));
        let first = all[0].pop().unwrap().turn().await;
        // Its tenant's next one waits for it, others do not.
        let mut second = Box::pin(all[0].pop().unwrap().turn());
        assert!(second.as_mut().now_or_never().is_none());
        let others = [
            all[1].pop().unwrap().turn().await,
            all[2].pop().unwrap().turn().await,
        ];
        let mut fourth = Box::pin(all[3].pop().unwrap().turn());
        assert!(fourth.as_mut().now_or_never().is_none());
        drop(first);
        // The one that has waited longest for the work of all.
        assert!(second.as_mut().now_or_never().is_none());
        let fourth = fourth.as_mut().now_or_never().unwrap();
        drop((fourth, others));
        let second = second.as_mut().now_or_never().unwrap();
        drop((second, all));
        assert!(room.in_hand().is_empty());
        assert_eq!(room.0.at_work.available_permits(), AT_WORK_MAX);
    }
}
