//! The sessions that are followed at the moment: one consumer and one log for each, however many read it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use fleet::store::PgPool;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    follow::Follower,
    keeper::{Keeper, SessionOf},
    log::SessionLog,
    place::EventId,
};

/// All of them. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Sessions(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    keeper: Keeper,
    views: PgPool,
    tasks: TaskTracker,
    stopping: CancellationToken,
    followed: Mutex<HashMap<SessionOf, Followed>>,
}

#[derive(Debug)]
struct Followed {
    log: Arc<SessionLog>,
    readers: usize,
    stop: CancellationToken,
}

/// Somebody who reads a session. Dropping the last one of a session ends its consumer.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) of: SessionOf,
    pub(super) log: Arc<SessionLog>,
    sessions: Sessions,
}

impl Sessions {
    /// None yet. `tasks` gets what follows them, until `stopping`.
    pub(crate) fn new(
        keeper: Keeper,
        views: PgPool,
        tasks: TaskTracker,
        stopping: CancellationToken,
    ) -> Self {
        Self(Arc::new(Inner {
            keeper,
            views,
            tasks,
            stopping,
            followed: Mutex::default(),
        }))
    }

    /// Who has the stream.
    pub(crate) fn keeper(&self) -> &Keeper {
        &self.0.keeper
    }

    /// Where the rows are.
    pub(super) fn views(&self) -> &PgPool {
        &self.0.views
    }

    /// One more reader, who wants what is behind this place. Follows the session from there where nobody does yet.
    pub(super) fn read(&self, of: &SessionOf, behind: EventId) -> Reader {
        let mut followed = self.followed();
        let one = followed
            .entry(of.clone())
            .or_insert_with(|| self.follow(of, behind));
        one.readers += 1;
        Reader {
            of: of.clone(),
            log: Arc::clone(&one.log),
            sessions: self.clone(),
        }
    }

    fn follow(&self, of: &SessionOf, behind: EventId) -> Followed {
        let log = Arc::new(SessionLog::new(behind));
        let stop = self.0.stopping.child_token();
        let follower = Follower {
            of: of.clone(),
            keeper: self.0.keeper.clone(),
            views: self.0.views.clone(),
            log: Arc::clone(&log),
        };
        let following = stop.clone().run_until_cancelled_owned(follower.run());
        self.0.tasks.spawn(following);
        Followed {
            log,
            readers: 0,
            stop,
        }
    }

    fn followed(&self) -> MutexGuard<'_, HashMap<SessionOf, Followed>> {
        let followed = self.0.followed.lock();
        followed.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reader {
    /// Who has the stream.
    pub(super) fn keeper(&self) -> &Keeper {
        self.sessions.keeper()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut followed = self.sessions.followed();
        if let Some(one) = followed.get_mut(&self.of) {
            one.readers -= 1;
            if one.readers == 0 {
                one.stop.cancel();
                followed.remove(&self.of);
            }
        }
    }
}
