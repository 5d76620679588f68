//! The slots of programs: how many process tools run here at a time, whatever the slots of the worker are.
//!
//! A program costs a process, and often an interpreter's start: a hundred at once on two cores all run out of their time. So
//! each takes a slot *before* its claim: waiting for one costs no attempt, and nothing of an attempt's time.
//!
//! What waits holds a slot of the worker, so only a few may; the others are put back into the ledger, each with an appointment:
//! one after the other, as fast as programs end here. Calls of other executors find the worker's slots free.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use fleet::telemetry::metrics;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};

/// How long a call waits here for a slot: with its claim, less than NATS waits for a word about its message.
const WAIT_MAX: Duration = Duration::from_secs(3);

/// The slots of one worker. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Programs(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    all: usize,
    free: Arc<Semaphore>,
    /// How many may wait for one.
    waiting: Semaphore,
    appointments: Mutex<Appointments>,
}

/// A slot for one program. It travels with its attempt, and dropping it gives it back.
#[derive(Debug)]
pub(crate) struct ProgramSlot {
    programs: Programs,
    since: Instant,
    permit: Option<OwnedSemaphorePermit>,
}

/// What a call that needs a slot is told.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Here it is.
    Now(ProgramSlot),
    /// Enough calls wait here already: it is to come again after so long.
    Later(Duration),
}

impl Programs {
    /// So many slots, at least one, of a worker that has `slots` for everything.
    pub(crate) fn new(programs: usize, slots: usize) -> Self {
        let all = programs.max(1);
        // At least half of what programs leave stays for everything else.
        let waiting = all.min(slots.saturating_sub(all) / 2);
        Self(Arc::new(Shared {
            all,
            free: Arc::new(Semaphore::new(all)),
            waiting: Semaphore::new(waiting),
            appointments: Mutex::default(),
        }))
    }

    /// No program starts any more: who waits is put back, as who comes.
    pub(crate) fn close(&self) {
        self.0.free.close();
    }

    /// Takes a slot, waiting a little where few others do. Cancel-safe: whoever gives up waiting gives up its place.
    pub(crate) async fn turn(&self) -> Turn {
        if let Ok(permit) = Arc::clone(&self.0.free).try_acquire_owned() {
            return Turn::Now(self.slot(permit));
        }
        if let Ok(_place) = self.0.waiting.try_acquire() {
            let waiting = Arc::clone(&self.0.free).acquire_owned();
            if let Ok(Ok(permit)) = timeout(WAIT_MAX, waiting).await {
                return Turn::Now(self.slot(permit));
            }
        }
        let mut appointments = self
            .0
            .appointments
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Turn::Later(appointments.next(Instant::now(), self.0.all))
    }

    fn slot(&self, permit: OwnedSemaphorePermit) -> ProgramSlot {
        metrics().programs(self.taken());
        ProgramSlot {
            programs: self.clone(),
            since: Instant::now(),
            permit: Some(permit),
        }
    }

    fn taken(&self) -> usize {
        self.0.all.saturating_sub(self.0.free.available_permits())
    }
}

impl Drop for ProgramSlot {
    fn drop(&mut self) {
        drop(self.permit.take());
        metrics().programs(self.programs.taken());
        self.programs
            .0
            .appointments
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .learn(self.since.elapsed());
    }
}

/// When the calls that are put back come again. Pure: the time is given.
#[derive(Debug)]
struct Appointments {
    /// How long a program holds its slot, smoothed.
    held: Duration,
    /// The last one that was given.
    last: Option<Instant>,
}

impl Default for Appointments {
    fn default() -> Self {
        Self {
            held: Duration::from_millis(250),
            last: None,
        }
    }
}

impl Appointments {
    /// The soonest that a call comes again.
    const MIN: Duration = Duration::from_millis(500);
    /// The latest: another worker may be idle by then. Long enough that thousands of calls do not come and go all the while.
    const MAX: Duration = Duration::from_secs(60);
    /// So many times as fast as programs end: rather is a call put back once more than a slot idle.
    const OVERBOOKED: u32 = 2;

    /// The pause of the next one.
    fn next(&mut self, now: Instant, slots: usize) -> Duration {
        let slots = u32::try_from(slots).unwrap_or(u32::MAX).max(1);
        let step = self.held / slots / Self::OVERBOOKED;
        let behind = self.last.map_or(now, |last| last + step);
        let at = behind.clamp(now + Self::MIN, now + Self::MAX);
        self.last = Some(at);
        at - now
    }

    /// A program held its slot for so long.
    fn learn(&mut self, held: Duration) {
        self.held = (self.held * 7 + held) / 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_few_wait_and_the_others_come_again() {
        let programs = Programs::new(2, 256);
        let turn = async || programs.turn().await;
        let (Turn::Now(first), Turn::Now(_second)) = (turn().await, turn().await) else {
            panic!("two slots are free");
        };
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..2 {
            let programs = programs.clone();
            waiting.spawn(async move { programs.turn().await });
        }
        while programs.0.waiting.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(matches!(turn().await, Turn::Later(_)));
        drop(first);
        let turns = waiting.join_all().await;
        let now = turns.iter().filter(|turn| matches!(turn, Turn::Now(_)));
        // The other one has waited for as long as it may.
        assert_eq!(now.count(), 1);
        assert_eq!(programs.0.waiting.available_permits(), 2);
        drop(turns);
        assert!(matches!(turn().await, Turn::Now(_)));
    }

    #[test]
    fn what_waits_for_a_program_leaves_slots_to_everything_else() {
        for (programs, slots) in [(1, 1), (8, 4), (2, 3), (8, 64), (100, 256), (4096, 256)] {
            let places = Programs::new(programs, slots).0.waiting.available_permits();
            let taken = programs.min(slots) + places;
            assert!(
                taken <= slots && slots - taken >= (slots.saturating_sub(programs)) / 2,
                "{programs} of {slots}: {places} wait"
            );
        }
    }

    #[test]
    fn calls_that_are_put_back_come_again_one_after_the_other() {
        let (mut appointments, now) = (Appointments::default(), Instant::now());
        appointments.held = Duration::from_secs(1);
        let pauses: Vec<Duration> = (0..2_000).map(|_| appointments.next(now, 10)).collect();
        assert_eq!(pauses[0], Duration::from_millis(500));
        assert_eq!(pauses[1], Duration::from_millis(550));
        assert_eq!(pauses[80], Duration::from_millis(4_500));
        assert_eq!(pauses[1_999], Appointments::MAX);
        // Once they have come, nobody waits for an appointment of the past.
        let later = now + Duration::from_secs(90);
        assert_eq!(appointments.next(later, 10), Appointments::MIN);
    }

    #[test]
    fn how_long_programs_take_is_learned() {
        let mut appointments = Appointments::default();
        for _ in 0..100 {
            appointments.learn(Duration::from_secs(2));
        }
        assert!(appointments.held > Duration::from_millis(1_990));
    }
}
