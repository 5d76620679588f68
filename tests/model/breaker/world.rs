//! What there is, and what can happen.

use fleet::breaker::{ALONE_MS, Breaker, BreakerState, BreakerTerms, Counted, PermitVerdict};
use stateright::{Model, Property};

use super::properties;

pub(super) const TERMS: BreakerTerms = BreakerTerms {
    calls: 2,
    failures: 50,
    slow: None,
    open_ms: 1,
    open_max_ms: 2,
    probes: 2,
};
/// The present generation, and any before it.
const PRESENT: i64 = 0;
const OLD: i64 = -1;
/// The moment in which everything happens: deadlines lie after it, or have come.
const NOW: i64 = 0;

/// A rule left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum BreakerMutant {
    /// A half-open breaker lets every call through.
    AllHalfOpen,
    /// What an attempt comes to counts, whatever generation it is of.
    GenerationIgnored,
    /// A round whose permits are lost goes on for ever.
    PermitNeverLapses,
}

/// How far an attempt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Phase {
    /// It has passed the gate, and is not claimed.
    Gated,
    /// It runs.
    Running,
    /// It has ended, and is not reported: whether the target answered.
    Ended(bool),
}

/// A call between the gate and the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Tried {
    pub(super) generation: i64,
    pub(super) is_probe: bool,
    pub(super) phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Process {
    /// What its snapshot says: of which generation, and whether it is closed.
    seen: (i64, bool),
    pub(super) tried: Option<Tried>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) breaker: Breaker,
    /// What is counted of the present generation.
    counted: Counted,
    pub(super) processes: [Process; 3],
    pub(super) target_works: bool,
    /// Probes of the present generation that reached the target.
    pub(super) probes_run: u8,
    /// Whether an attempt of an older generation has moved the breaker.
    pub(super) moved_by_old: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// It reads the breaker.
    Look(usize),
    /// A call comes to its gate.
    Pass(usize),
    /// The call at its gate is not claimed.
    NotClaimed(usize),
    Start(usize),
    End(usize),
    Report(usize),
    /// It is killed and started again.
    Crash(usize),
    /// The target stops working, or works again.
    TargetTurns,
    /// Until the next deadline.
    TimePasses,
}

pub(super) struct BreakerModel {
    pub(super) without: Option<BreakerMutant>,
}

impl BreakerModel {
    fn lacks(&self, rule: BreakerMutant) -> bool {
        self.without == Some(rule)
    }

    /// The next deadline has come.
    pub(super) fn later(&self, mut breaker: Breaker) -> Breaker {
        match breaker.state {
            BreakerState::Closed => {}
            BreakerState::Open => breaker.open_until = Some(NOW),
            BreakerState::HalfOpen if self.lacks(BreakerMutant::PermitNeverLapses) => {}
            BreakerState::HalfOpen => breaker.round_until = Some(NOW),
        }
        breaker
    }

    fn pass(&self, world: &mut World, at: usize) -> Option<()> {
        let process = world.processes[at];
        if process.tried.is_some() {
            return None;
        }
        let (generation, is_closed) = process.seen;
        let (generation, is_probe) = if is_closed {
            (generation, false)
        } else {
            if self.lacks(BreakerMutant::AllHalfOpen) {
                world.breaker.probes_out = 0;
            }
            let answer = world.breaker.permit(NOW, 1, &TERMS);
            world.renew();
            match answer.verdict {
                PermitVerdict::Closed => (PRESENT, false),
                PermitVerdict::Granted => (PRESENT, true),
                PermitVerdict::Refused | PermitVerdict::Unguarded => return None,
            }
        };
        world.processes[at].tried = Some(Tried {
            generation,
            is_probe,
            phase: Phase::Gated,
        });
        Some(())
    }

    fn report(&self, world: &mut World, at: usize) -> Option<()> {
        let tried = world.processes[at].tried.take()?;
        let Phase::Ended(answered) = tried.phase else {
            return None;
        };
        let counts = tried.generation == PRESENT || self.lacks(BreakerMutant::GenerationIgnored);
        if counts && world.breaker.state != BreakerState::Open {
            let one = Counted {
                calls: 1,
                failures: i64::from(!answered),
                slow: 0,
            };
            let sum = world.counted.and(one);
            let before = world.breaker;
            world.breaker.judge(sum, &[sum], ALONE_MS, NOW, &TERMS);
            world.moved_by_old |= tried.generation != PRESENT && world.breaker != before;
            // A window forgets: more than enough is as good as enough.
            world.counted = Counted {
                calls: sum.calls.min(TERMS.calls),
                failures: sum.failures.min(TERMS.calls),
                slow: 0,
            };
            world.renew();
        }
        Some(())
    }
}

impl World {
    fn first() -> Self {
        let process = Process {
            seen: (PRESENT, true),
            tried: None,
        };
        Self {
            breaker: Breaker::default(),
            counted: Counted::default(),
            processes: [process; 3],
            target_works: true,
            probes_run: 0,
            moved_by_old: false,
        }
    }

    /// Where a new generation has begun, everything else is of an older one.
    fn renew(&mut self) {
        if self.breaker.generation == PRESENT {
            return;
        }
        self.breaker.generation = PRESENT;
        self.counted = Counted::default();
        self.probes_run = 0;
        for process in &mut self.processes {
            process.seen.0 = OLD;
            if let Some(tried) = &mut process.tried {
                tried.generation = OLD;
            }
        }
    }

    /// Takes the call back that is at this gate.
    fn give_back(&mut self, at: usize) -> Option<()> {
        let tried = self.processes[at]
            .tried
            .filter(|tried| tried.phase == Phase::Gated)?;
        if tried.is_probe {
            self.breaker.give_back(tried.generation);
        }
        self.processes[at].tried = None;
        Some(())
    }

    fn go_on(&mut self, at: usize, from: Phase, to: Phase) -> Option<()> {
        let tried = self.processes[at].tried.as_mut();
        let tried = tried.filter(|tried| tried.phase == from)?;
        tried.phase = to;
        if to == Phase::Running && tried.is_probe && tried.generation == PRESENT {
            self.probes_run += 1;
        }
        Some(())
    }
}

impl Model for BreakerModel {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::first()]
    }

    fn actions(&self, _: &World, steps: &mut Vec<Step>) {
        for at in 0..3 {
            steps.extend([
                Step::Look(at),
                Step::Pass(at),
                Step::NotClaimed(at),
                Step::Start(at),
                Step::End(at),
                Step::Report(at),
                Step::Crash(at),
            ]);
        }
        steps.extend([Step::TargetTurns, Step::TimePasses]);
    }

    fn next_state(&self, before: &World, step: Step) -> Option<World> {
        let mut world = *before;
        let seen = (PRESENT, before.breaker.state == BreakerState::Closed);
        let done = match step {
            Step::Look(at) => {
                world.processes[at].seen = seen;
                Some(())
            }
            Step::Pass(at) => self.pass(&mut world, at),
            Step::NotClaimed(at) => world.give_back(at),
            Step::Start(at) => world.go_on(at, Phase::Gated, Phase::Running),
            Step::End(at) => world.go_on(at, Phase::Running, Phase::Ended(before.target_works)),
            Step::Report(at) => self.report(&mut world, at),
            Step::Crash(at) => {
                world.processes[at] = Process { seen, tried: None };
                Some(())
            }
            Step::TargetTurns => {
                world.target_works = !world.target_works;
                Some(())
            }
            Step::TimePasses => {
                world.breaker = self.later(world.breaker);
                Some(())
            }
        };
        done?;
        // The workers are alike.
        world.processes.sort_unstable();
        (world != *before).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
