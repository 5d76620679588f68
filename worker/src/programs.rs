//! The slots of programs: how many process tools run here at a time, apart from the slots of the worker.
//!
//! A program costs a process, and often an interpreter's start: a hundred at once on two cores would all run out of their time.
//! So each takes a slot *before* its claim, where waiting costs no attempt and none of its time.
//!
//! A call that waits holds a slot of the worker. So only a few may wait, and tenants share these places; the others are put
//! back into the ledger, each with an appointment. That leaves slots of the worker for calls of other executors.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use fleet::telemetry::metrics;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};

use crate::{
    appointments::Appointments,
    waiting::{Entered, Tenant, Waiting},
};

/// How long a call waits here for a slot: with its claim, less than NATS waits for an acknowledgement.
const WAIT_MAX: Duration = Duration::from_secs(3);

/// The slots of one worker. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Programs(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    all: usize,
    slots: Mutex<Slots>,
    appointments: Mutex<Appointments>,
}

/// The tenants that have slots and the calls that wait. While a slot is free no call waits.
#[derive(Debug)]
struct Slots {
    closed: bool,
    waiting: Waiting<oneshot::Sender<ProgramSlot>>,
}

/// A slot for one program. It travels with its attempt; dropping it hands it to the next call that waits.
#[derive(Debug)]
pub(crate) struct ProgramSlot {
    programs: Programs,
    tenant: Tenant,
    since: Instant,
}

/// The answer to a call that needs a slot.
#[derive(Debug)]
pub(crate) enum Turn {
    /// A slot.
    Now(ProgramSlot),
    /// Enough calls wait here already: the call comes again after this pause.
    Later(Duration),
}

impl Programs {
    /// `programs` slots, at least one, of a worker that has `slots` for everything.
    pub(crate) fn new(programs: usize, slots: usize) -> Self {
        let all = programs.max(1);
        Self(Arc::new(Shared {
            all,
            slots: Mutex::new(Slots {
                closed: false,
                waiting: Waiting::new(places(all, slots)),
            }),
            appointments: Mutex::default(),
        }))
    }

    /// No program starts any more: calls that wait are put back, and so are calls that come.
    pub(crate) fn close(&self) {
        let mut slots = self.slots();
        slots.closed = true;
        slots.waiting.keep(|_| false);
    }

    /// Takes a slot for a call of this tenant; waits a little where few others wait. Cancel-safe: a caller that gives up
    /// waiting gives up its place, and a slot that was just handed to it goes to the next.
    pub(crate) async fn turn(&self, tenant: Tenant) -> Turn {
        if let Some(slot) = self.wait(&tenant).await {
            return Turn::Now(slot);
        }
        let mut appointments = self.appointments();
        Turn::Later(appointments.next(Instant::now(), self.0.all, tenant))
    }

    /// The same without an appointment: `None` where none is free soon.
    pub(crate) async fn wait(&self, tenant: &Tenant) -> Option<ProgramSlot> {
        let waiting = {
            let mut slots = self.slots();
            if slots.closed {
                return None;
            }
            if slots.waiting.taken() < self.0.all {
                slots.waiting.take(tenant.clone());
                drop(slots);
                return Some(self.slot(tenant.clone()));
            }
            let (turn, waiting) = oneshot::channel();
            // Callers that gave up.
            slots.waiting.keep(|turn| !turn.is_closed());
            match slots.waiting.enter(tenant.clone(), turn) {
                Entered::Waits => {}
                // Dropping its sender tells it that it gets no slot.
                Entered::InsteadOf(other) => drop(other),
                Entered::Full => return None,
            }
            waiting
        };
        timeout(WAIT_MAX, waiting).await.ok()?.ok()
    }

    /// One that is free now, for a program that no single call waits for.
    pub(crate) fn free(&self) -> Option<ProgramSlot> {
        {
            let mut slots = self.slots();
            if slots.closed || slots.waiting.taken() >= self.0.all {
                return None;
            }
            slots.waiting.take(None);
        }
        Some(self.slot(None))
    }

    fn slot(&self, tenant: Tenant) -> ProgramSlot {
        metrics().programs(self.slots().waiting.taken());
        ProgramSlot {
            programs: self.clone(),
            tenant,
            since: Instant::now(),
        }
    }

    /// A slot of this tenant is free: hands it to the next call.
    fn hand_on(&self, tenant: &Tenant) {
        let next = {
            let mut slots = self.slots();
            slots.waiting.give_back(tenant);
            let next = slots.waiting.next();
            if let Some((tenant, _)) = &next {
                slots.waiting.take(tenant.clone());
            }
            metrics().programs(slots.waiting.taken());
            next
        };
        if let Some((tenant, turn)) = next {
            // A caller that has given up drops the slot, which hands it on.
            drop(turn.send(self.slot(tenant)));
        }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.0.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn appointments(&self) -> MutexGuard<'_, Appointments> {
        let appointments = self.0.appointments.lock();
        appointments.unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many calls may wait at a worker: at least half of the slots that programs leave stay free for everything else.
fn places(programs: usize, slots: usize) -> usize {
    programs.min(slots.saturating_sub(programs) / 2)
}

impl Drop for ProgramSlot {
    fn drop(&mut self) {
        self.programs.appointments().learn(self.since.elapsed());
        self.programs.hand_on(&self.tenant);
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::{JoinSet, yield_now};

    use super::*;

    fn tenant(name: &str) -> Tenant {
        Some(name.parse().unwrap())
    }

    async fn now(programs: &Programs, of: &str) -> ProgramSlot {
        match programs.turn(tenant(of)).await {
            Turn::Now(slot) => slot,
            Turn::Later(_) => panic!("a slot is free"),
        }
    }

    /// Has a call wait and returns once it does.
    async fn waits(
        programs: &Programs,
        of: &'static str,
        turns: &mut JoinSet<(&'static str, Turn)>,
    ) {
        let (of, waiting) = (of, programs.clone());
        turns.spawn(async move { (of, waiting.turn(tenant(of)).await) });
        for _ in 0..10 {
            yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_wait_and_the_others_come_again() {
        let programs = Programs::new(2, 256);
        let (first, _second) = (now(&programs, "a").await, now(&programs, "a").await);
        let mut turns = JoinSet::new();
        for _ in 0..2 {
            waits(&programs, "a", &mut turns).await;
        }
        assert_eq!(programs.slots().waiting.len(), 2);
        let late = programs.turn(tenant("a")).await;
        assert!(matches!(late, Turn::Later(_)));
        drop(first);
        let turns = turns.join_all().await;
        let served = turns
            .iter()
            .filter(|(_, turn)| matches!(turn, Turn::Now(_)));
        // The other one has waited for its maximum.
        assert_eq!(served.count(), 1);
        drop(turns);
        assert_eq!(programs.slots().waiting.taken(), 1);
        drop(now(&programs, "a").await);
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_slot_is_for_the_tenant_that_has_none() {
        let programs = Programs::new(2, 256);
        let (first, _second) = (now(&programs, "a").await, now(&programs, "a").await);
        let mut turns = JoinSet::new();
        for of in ["a", "a", "b"] {
            waits(&programs, of, &mut turns).await;
        }
        // The third took the place of the second.
        let (of, turn) = turns.join_next().await.unwrap().unwrap();
        assert!(
            of == "a" && matches!(turn, Turn::Later(_)),
            "{of}: {turn:?}"
        );
        drop(first);
        let (of, turn) = turns.join_next().await.unwrap().unwrap();
        assert!(of == "b" && matches!(turn, Turn::Now(_)), "{of}: {turn:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slot_handed_to_one_that_has_given_up_goes_on() {
        let programs = Programs::new(1, 256);
        let first = now(&programs, "a").await;
        let mut gone = JoinSet::new();
        waits(&programs, "b", &mut gone).await;
        gone.shutdown().await;
        drop(first);
        assert_eq!(programs.slots().waiting.taken(), 0);
        drop(now(&programs, "c").await);
    }

    #[tokio::test(start_paused = true)]
    async fn once_closed_nobody_waits() {
        let programs = Programs::new(1, 256);
        let first = now(&programs, "a").await;
        let mut turns = JoinSet::new();
        waits(&programs, "b", &mut turns).await;
        programs.close();
        let (_, turn) = turns.join_next().await.unwrap().unwrap();
        assert!(matches!(turn, Turn::Later(_)));
        drop(first);
        let turn = programs.turn(tenant("b")).await;
        assert!(matches!(turn, Turn::Later(_)));
    }

    #[test]
    fn what_waits_for_a_program_leaves_slots_to_everything_else() {
        for (programs, slots) in [(1, 1), (8, 4), (2, 3), (8, 64), (100, 256), (4096, 256)] {
            let places = places(programs, slots);
            let taken = programs.min(slots) + places;
            assert!(
                taken <= slots && slots - taken >= (slots.saturating_sub(programs)) / 2,
                "{programs} of {slots}: {places} wait"
            );
        }
    }
}
