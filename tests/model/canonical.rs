//! Worlds whose differences can never be noticed are made one, so that there are few enough to look at all.
//!
//! No process can notice how an attempt is called; what a process intends to say that no guard will let pass; what is
//! remembered of an attempt that no worker can report about; and whether a worker process that has to do with nothing is an
//! old one or a new one. A mutant that lacks such a guard is looked at without that simplification.

use fleet::call::State;

use crate::{
    protocol::Protocol,
    rules::Mutant,
    state::{
        Attempt, Job, Ledger, Registered, Row, Step, System, WORKERS, Worker, bit, is_write, slot,
    },
};

impl Protocol {
    /// The same world in its simplest words.
    pub(crate) fn in_simplest_words(&self, s: &mut System) {
        if !self.lacks(Mutant::CompleteByState) && !self.lacks(Mutant::CountedAttempts) {
            self.forget_vain_steps(s);
        }
        s.forget_what_nobody_reports();
        if !self.lacks(Mutant::CountedAttempts) {
            s.rename();
        }
    }

    /// What a worker is about to do that will change nothing.
    fn forget_vain_steps(&self, s: &mut System) {
        let (ledger, backup) = (s.ledger, s.backup);
        let is_open = |job: &Job| ledger.open[usize::from(job.call)].is_some();
        let holds = |ledger: &Ledger, job: &Job| {
            ledger.open[usize::from(job.call)].is_some_and(|row| row.is_of(job.attempt))
        };
        let is_held =
            |job: &Job| holds(&ledger, job) || backup.is_some_and(|backup| holds(&backup, job));
        for (index, worker) in s.workers.iter_mut().enumerate() {
            let is_live = ledger.registered[index] == Registered::Live;
            worker.late = worker
                .late
                .filter(|late| is_open(&late.job) && (late.worker_was_live || is_live));
            // Given back is only what runs.
            let in_doubt = |job: &Job| {
                let row = ledger.open[usize::from(job.call)];
                row.is_some_and(|row| row.state == State::InDoubt)
            };
            worker.given_up = worker
                .given_up
                .filter(|job| worker.late.is_some() || (is_held(job) && !in_doubt(job)));
            let vain = match &worker.step {
                Step::Asking(claim) => !is_open(&claim.job),
                Step::Ended(job, _) => !is_held(job),
                Step::Claimed(job) => !is_write(self.config.effect) && !is_held(job),
                Step::Gone | Step::Idle | Step::Silent(_) | Step::Unsure(_) => false,
            };
            if vain {
                worker.step = Step::Idle;
            }
        }
    }
}

impl System {
    fn forget_what_nobody_reports(&mut self) {
        let remembered = self.workers;
        let remembers =
            |attempt: Attempt| remembered.iter().any(|worker| worker.remembers(attempt));
        for ledger in [Some(&mut self.ledger), self.backup.as_mut()]
            .into_iter()
            .flatten()
        {
            for row in ledger.open.iter_mut().flatten() {
                let reportable = row.attempt.is_some_and(remembers);
                if row.state == State::InDoubt && !reportable {
                    (row.attempt, row.worker) = (None, None);
                }
            }
            for row in ledger.history.iter_mut().flatten() {
                let attempt = row.attempt.filter(|attempt| remembers(*attempt));
                *row = Row {
                    state: row.state,
                    ended: row.ended,
                    known: row.known,
                    attempt,
                    ..Row::QUEUED
                };
            }
        }
        for worker in 0..WORKERS {
            if self.is_exchangeable(worker) {
                self.workers[worker] = Worker::IDLE;
                self.ledger.registered[worker] = Registered::Live;
            }
        }
    }

    /// Whether a new process in the slot could not be told from what is there.
    fn is_exchangeable(&self, worker: usize) -> bool {
        let Worker {
            step,
            late,
            given_up,
            orphan,
        } = self.workers[worker];
        let named = |ledger: &Ledger| {
            let names =
                |row: &Row| row.worker == Some(slot(worker)) || row.suspects & bit(worker) != 0;
            ledger.open.iter().flatten().any(names)
        };
        matches!(step, Step::Gone | Step::Idle)
            && late.is_none()
            && given_up.is_none()
            && orphan.is_none()
            && !named(&self.ledger)
            && !self.backup.as_ref().is_some_and(named)
    }

    /// Names attempts in the order in which one comes across them.
    fn rename(&mut self) {
        let mut names = Names::default();
        for ledger in [Some(&mut self.ledger), self.backup.as_mut()]
            .into_iter()
            .flatten()
        {
            for row in ledger.open.iter_mut().chain(&mut ledger.history).flatten() {
                row.attempt = row.attempt.map(|old| names.of(old));
            }
        }
        for worker in &mut self.workers {
            for job in worker.jobs_mut() {
                job.attempt = names.of(job.attempt);
            }
        }
    }
}

#[derive(Default)]
struct Names {
    new: [Attempt; 16],
    given: Attempt,
}

impl Names {
    fn of(&mut self, old: Attempt) -> Attempt {
        let name = &mut self.new[usize::from(old)];
        if *name == 0 {
            self.given += 1;
            *name = self.given;
        }
        *name
    }
}
