//! A write that was taken back from a program before it was answered: the program may do it yet.
//!
//! So it takes nothing new (another one is started for new calls), and ends when the calls that it has are over. Until it is gone
//! nothing says that the write was not done, unless the program answers it after all: then it is done with it, and goes on.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{
    sync::oneshot,
    time::{Instant, timeout_at},
};

use super::{
    came::Came,
    hear::Hear,
    link::ServerLink,
    serving::{Arrived, AwaitedAnswer, SharedProcess},
    stdio::{END_MAX, ServerProcess},
};

/// How long a program that nobody else calls has to answer what was taken back.
const ANSWER_MAX: Duration = Duration::from_millis(250);

/// What may still come to a write that was taken back.
pub(super) struct LateAnswer {
    process: Arc<SharedProcess>,
    /// `None`: it was answered with a task, and nothing else will come.
    came: Option<(u64, oneshot::Receiver<Arrived>)>,
    /// When its attempt must be over.
    ends_at: Instant,
}

/// What became of it.
pub(super) enum Became {
    /// The program has answered it.
    Answered(Came),
    /// The program has ended.
    Gone,
    /// Neither: the program goes on for its other calls.
    LivesOn,
}

impl LateAnswer {
    /// Of the request with this id. From now on the program takes no new calls.
    pub(super) fn of(process: &ServerProcess, id: u64, limit: usize) -> Self {
        let (came, answer) = oneshot::channel();
        let waiting = AwaitedAnswer {
            came,
            limit,
            hear: Hear::default(),
        };
        let mut late = Self::of_task(process);
        late.process.waiting().insert(id, waiting);
        late.came = Some((id, answer));
        late
    }

    /// Of a task of the program.
    pub(super) fn of_task(process: &ServerProcess) -> Self {
        let process = Arc::clone(process.shared());
        process.doubts.fetch_add(1, Ordering::AcqRel);
        Self {
            process,
            came: None,
            ends_at: Instant::now() + END_MAX,
        }
    }

    /// Waits for an answer, or until the program is gone, as long as an attempt may. The program ends with its last call, which may
    /// be this.
    pub(super) async fn wait(mut self, process: Arc<ServerProcess>, link: &ServerLink) -> Became {
        let ends_at = self.ends_at;
        if let Some(came) = self.answer(Instant::now() + ANSWER_MAX).await {
            self.process.doubts.fetch_sub(1, Ordering::AcqRel);
            return Became::Answered(came);
        }
        link.retire(&process);
        drop(process);
        let shared = Arc::clone(&self.process);
        tokio::select! {
            biased;
            Some(came) = self.answer(ends_at) => Became::Answered(came),
            all_gone = shared.is_gone_by(ends_at) => match all_gone {
                true => Became::Gone,
                false => Became::LivesOn,
            }
        }
    }

    /// Its answer, if that comes by then. Cancel-safe until it has come.
    async fn answer(&mut self, until: Instant) -> Option<Came> {
        let (id, came) = self.came.as_mut()?;
        let arrived = timeout_at(until, &mut *came).await.ok()?.ok()?;
        let id = *id;
        self.came = None;
        Some(arrived.read(id).await)
    }
}

impl Drop for LateAnswer {
    fn drop(&mut self) {
        if let Some((id, _)) = self.came {
            self.process.waiting().remove(&id);
        }
    }
}
