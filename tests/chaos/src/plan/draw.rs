//! Draws a plan from a seed.

use std::{collections::BTreeMap, iter::repeat_n};

use fleet::checkpoint::{Checkpoint, Role};

use super::{Entry, Kind, Member, Plan, Server, What, When};
use crate::{
    seed::{below, happens, weighted},
    wire::{
        nats::{self, Message},
        postgres::{self, Refusal, Statement},
    },
};

/// About how often clients ask in a second. The real number is counted; this one only spreads the faults.
const ASKED_PER_SECOND: u64 = 60;
/// How often a statement or a message of a kind passes one wire in a second, about.
const PASSING_PER_SECOND: u64 = 6;
/// How many of a thousand seeds have a kind of fault.
const ARMED_PER_MILLE: u64 = 500;
/// Every seed has this kind: without it no breaker opens by itself, and half of the runs would prove nothing of them.
const ALWAYS_ARMED: &str = "break the target";
/// So many times as often as others a place is chosen that a process seldom comes to.
const RARE_PLACES: usize = 3;

/// How often clients ask in so many seconds, about.
pub(super) const fn asked_in(seconds: u64) -> u64 {
    ASKED_PER_SECOND * seconds
}

/// A kind of fault: how often it strikes in a minute, and one of it.
type Source = (&'static str, u64, fn(&mut Dice<'_>) -> Entry);

impl Plan {
    /// The plan of a seed.
    pub fn draw(seed: u64, seconds: u64, mode: Kind) -> Self {
        let mut entries = Vec::new();
        for (salt, per_minute, one) in SOURCES {
            let is_armed = *salt == ALWAYS_ARMED
                || happens(seed, 0, &format!("{salt} armed"), ARMED_PER_MILLE);
            if !is_armed {
                continue;
            }
            let most = (per_minute * seconds).div_ceil(60);
            let times = 1 + below(seed, 0, &format!("{salt} times"), most);
            entries.extend((0..times).map(|index| {
                one(&mut Dice {
                    seed,
                    seconds: match mode {
                        Kind::Safety => seconds,
                        Kind::Liveness => seconds / 2,
                    },
                    index: index * 1_000,
                    salt,
                })
            }));
        }
        number_starts(&mut entries);
        Self {
            seed,
            seconds,
            mode,
            noise_per_mille: weighted(seed, 0, "noise", &[(0, 5), (5, 3), (50, 2)]),
            entries,
        }
    }
}

/// Each start of a process ends or stops at one place: the first one of its plan, the second at the next, and so on.
fn number_starts(entries: &mut [Entry]) {
    let mut starts = BTreeMap::new();
    for entry in entries {
        if let When::Checkpoint(member, start, _, _) = &mut entry.when {
            let number = starts.entry(*member).or_insert(0);
            *number += 1;
            *start = *number;
        }
    }
}

/// What one entry is drawn with: every throw is another.
struct Dice<'a> {
    seed: u64,
    seconds: u64,
    index: u64,
    salt: &'a str,
}

impl Dice<'_> {
    fn throw(&mut self, bound: u64) -> u64 {
        self.index += 1;
        below(self.seed, self.index, self.salt, bound)
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        let count = u64::try_from(choices.len()).expect("few choices");
        let chosen = usize::try_from(self.throw(count)).expect("below a length");
        choices[chosen]
    }

    fn number(&mut self, from: u32, to: u32) -> u32 {
        from + u32::try_from(self.throw(u64::from(to - from))).expect("below a u32")
    }

    fn dispatcher(&mut self) -> Member {
        self.one_of(&Member::PROCESSES[..2])
    }

    fn worker(&mut self) -> Member {
        self.one_of(&Member::PROCESSES[2..])
    }

    fn process(&mut self) -> Member {
        self.one_of(&Member::PROCESSES)
    }

    /// Some time in the run; not at its very beginning.
    fn asked(&mut self) -> When {
        let asked = asked_in(self.seconds);
        When::Asked(20 + self.throw(asked.saturating_sub(20).max(1)))
    }

    fn passing(&mut self) -> u64 {
        1 + self.throw((PASSING_PER_SECOND * self.seconds).max(1))
    }

    fn at(&mut self, what: What) -> Entry {
        Entry {
            when: self.asked(),
            what,
        }
    }

    fn statement(&mut self, fault: postgres::Fault) -> Entry {
        let (member, statement) = self.one_of(&[
            (Member::Dispatcher(0), Statement::Accept),
            (Member::Dispatcher(1), Statement::Accept),
            (Member::Worker(0), Statement::Claim),
            (Member::Worker(1), Statement::Claim),
            (Member::Worker(2), Statement::Claim),
            (Member::Worker(0), Statement::Complete),
            (Member::Worker(1), Statement::Complete),
            (Member::Worker(2), Statement::Complete),
            (Member::Worker(0), Statement::Beat),
            (Member::Dispatcher(0), Statement::Other),
            (Member::Dispatcher(1), Statement::Other),
            (Member::Worker(1), Statement::Other),
            (Member::Tools, Statement::Commit),
            (Member::Tools, Statement::Commit),
            (Member::Tools, Statement::Other),
        ]);
        let nth = match statement {
            // Rarer than the others.
            Statement::Commit => 1 + self.throw(self.seconds.max(1)),
            _ => self.passing(),
        };
        Entry {
            when: When::Statement(member, statement, nth),
            what: What::Statement(fault),
        }
    }

    fn message(&mut self, fault: nats::Fault) -> Entry {
        let choices = [
            (Member::Dispatcher(0), Message::Publish),
            (Member::Dispatcher(1), Message::Publish),
            (Member::Dispatcher(0), Message::PubAck),
            (Member::Dispatcher(0), Message::Request),
            (Member::Dispatcher(1), Message::Request),
            (Member::Dispatcher(1), Message::Reply),
            (Member::Worker(0), Message::Deliver),
            (Member::Worker(1), Message::Deliver),
            (Member::Worker(2), Message::Deliver),
            (Member::Worker(0), Message::Ack),
            (Member::Worker(1), Message::Ack),
            (Member::Worker(2), Message::Reply),
            (Member::Clients, Message::Request),
            (Member::Clients, Message::Reply),
            (Member::Worker(0), Message::Tool),
        ];
        // A tool that is asked twice does it twice, and rightly so.
        let twice = matches!(fault, nats::Fault::Duplicate | nats::Fault::RepeatLast);
        let (member, message) = self.one_of(&choices[..choices.len() - usize::from(twice)]);
        Entry {
            when: When::Message(member, message, self.passing()),
            what: What::Message(fault),
        }
    }

    fn checkpoint(&mut self, member: Member, roles: &[Role]) -> When {
        let places: Vec<Checkpoint> = Checkpoint::ALL
            .iter()
            .copied()
            // No tool of this fleet answers later or asks.
            .filter(|place| {
                let is_of_later = matches!(place, Checkpoint::InputTaken | Checkpoint::Parked);
                !is_of_later && roles.contains(&place.role())
            })
            .flat_map(|place| repeat_n(place, if place.is_rare() { RARE_PLACES } else { 1 }))
            .collect();
        let place = self.one_of(&places);
        // What the sweep does is rare, and so is what has to do with a breaker, a rate or somebody who is waited for; what every
        // call passes is not worth stopping at the first time only.
        let times = match place.role() {
            Role::Sweep => 1 + self.number(0, 2),
            Role::Dispatcher | Role::Worker if place.is_rare() => 1 + self.number(0, 3),
            Role::Dispatcher | Role::Worker => 2 + self.number(0, 60),
        };
        When::Checkpoint(member, 0, place, times)
    }
}

const DISPATCHERS_PLACES: [Role; 2] = [Role::Dispatcher, Role::Sweep];

const SOURCES: &[Source] = &[
    ("kill a worker", 10, |dice| {
        let worker = dice.worker();
        dice.at(What::Kill(worker))
    }),
    ("kill a dispatcher", 5, |dice| {
        let dispatcher = dice.dispatcher();
        dice.at(What::Kill(dispatcher))
    }),
    ("kill both dispatchers", 1, |dice| {
        dice.at(What::KillDispatchers)
    }),
    ("worker ends at a place", 10, |dice| {
        let member = dice.worker();
        Entry {
            when: dice.checkpoint(member, &[Role::Worker]),
            what: What::Kill(member),
        }
    }),
    ("dispatcher ends at a place", 6, |dice| {
        let member = dice.dispatcher();
        Entry {
            when: dice.checkpoint(member, &DISPATCHERS_PLACES),
            what: What::Kill(member),
        }
    }),
    ("worker stops at a place", 4, |dice| {
        let member = dice.worker();
        Entry {
            when: dice.checkpoint(member, &[Role::Worker]),
            what: What::Pause(member, dice.one_of(&[3_000, 9_000, 18_000, 25_000])),
        }
    }),
    ("dispatcher stops at a place", 2, |dice| {
        let member = dice.dispatcher();
        Entry {
            when: dice.checkpoint(member, &DISPATCHERS_PLACES),
            what: What::Pause(member, dice.one_of(&[2_000, 8_000, 16_000])),
        }
    }),
    ("pause a worker", 3, |dice| {
        let (worker, pause) = (dice.worker(), dice.one_of(&[1_000, 8_000, 22_000, 30_000]));
        dice.at(What::Pause(worker, pause))
    }),
    ("pause a dispatcher", 1, |dice| {
        let (dispatcher, pause) = (dice.dispatcher(), dice.one_of(&[1_000, 6_000, 16_000]));
        dice.at(What::Pause(dispatcher, pause))
    }),
    ("roll out", 1, |dice| dice.at(What::RollOut)),
    ("kill Postgres", 1, |dice| {
        dice.at(What::KillServer(Server::Postgres))
    }),
    ("restart Postgres", 1, |dice| {
        dice.at(What::RestartServer(Server::Postgres))
    }),
    ("pause Postgres", 1, |dice| {
        let pause = dice.number(500, 8_000);
        dice.at(What::PauseServer(Server::Postgres, pause))
    }),
    ("kill NATS", 2, |dice| {
        dice.at(What::KillServer(Server::Nats))
    }),
    ("restart NATS", 1, |dice| {
        dice.at(What::RestartServer(Server::Nats))
    }),
    ("pause NATS", 1, |dice| {
        let pause = dice.number(500, 8_000);
        dice.at(What::PauseServer(Server::Nats, pause))
    }),
    ("wipe NATS", 1, |dice| dice.at(What::WipeNats)),
    ("roll NATS back", 2, |dice| dice.at(What::RollBackNats)),
    ("damage NATS", 1, |dice| dice.at(What::DamageNats)),
    ("delete the stream", 1, |dice| dice.at(What::DeleteStream)),
    ("delete a consumer", 1, |dice| dice.at(What::DeleteConsumer)),
    ("without Postgres", 2, |dice| {
        let (member, while_) = (dice.process(), dice.number(1_000, 17_000));
        dice.at(What::Isolate(member, Server::Postgres, while_))
    }),
    ("without NATS", 2, |dice| {
        let (member, while_) = (dice.process(), dice.number(1_000, 10_000));
        dice.at(What::Isolate(member, Server::Nats, while_))
    }),
    ("deaf", 2, |dice| {
        let (member, while_) = (dice.process(), dice.number(500, 12_000));
        dice.at(What::Deafen(member, while_))
    }),
    ("slow", 1, |dice| {
        let (member, late, while_) = (
            dice.process(),
            dice.one_of(&[50, 500]),
            dice.number(2_000, 8_000),
        );
        dice.at(What::Slow(member, late, while_))
    }),
    ("cut Postgres", 8, |dice| {
        let member = dice.process();
        dice.at(What::Cut(member, Server::Postgres))
    }),
    ("cut NATS", 4, |dice| {
        let member = dice.process();
        dice.at(What::Cut(member, Server::Nats))
    }),
    ("end sessions", 8, |dice| dice.at(What::EndSessions)),
    ("lock the table", 2, |dice| {
        let while_ = dice.number(500, 4_000);
        dice.at(What::LockTable(while_))
    }),
    ("exhaust connections", 1, |dice| {
        let while_ = dice.number(500, 5_000);
        dice.at(What::Exhaust(while_))
    }),
    ("break tools", 1, |dice| {
        let while_ = dice.number(1_000, 8_000);
        dice.at(What::BreakTools(while_))
    }),
    (ALWAYS_ARMED, 6, |dice| {
        let while_ = dice.number(2_000, 8_000);
        dice.at(What::BreakTarget(while_))
    }),
    ("starve files", 1, |dice| {
        let (worker, while_) = (dice.worker(), dice.number(1_000, 8_000));
        dice.at(What::StarveFiles(worker, 40, while_))
    }),
    ("move a clock", 2, |dice| {
        let (member, seconds) = (dice.process(), dice.one_of(&[-3_600, -60, 60, 3_600]));
        dice.at(What::MoveClock(member, seconds))
    }),
    ("move the clock of Postgres", 1, |dice| {
        let seconds = dice.one_of(&[-1, 5, 90, 600]);
        dice.at(What::MovePostgresClock(seconds))
    }),
    ("statement cut before", 20, |dice| {
        dice.statement(postgres::Fault::CutBefore)
    }),
    ("statement cut after", 20, |dice| {
        dice.statement(postgres::Fault::CutAfter)
    }),
    ("statement lost in an outage", 3, |dice| {
        let outage = dice.one_of(&[2_000, 17_000, 25_000]);
        dice.statement(postgres::Fault::Outage(outage))
    }),
    ("statement cut within", 8, |dice| {
        dice.statement(postgres::Fault::CutWithin)
    }),
    ("statement answer late", 6, |dice| {
        let late = dice.one_of(&[300, 3_000, 12_000]);
        dice.statement(postgres::Fault::DelayAnswer(late))
    }),
    ("statement late", 6, |dice| {
        let late = dice.one_of(&[300, 3_000, 12_000]);
        dice.statement(postgres::Fault::DelayQuestion(late))
    }),
    ("statement answer swallowed", 3, |dice| {
        dice.statement(postgres::Fault::SwallowAnswer)
    }),
    ("statement refused", 20, |dice| {
        let refusal = dice.one_of(&Refusal::ALL);
        dice.statement(postgres::Fault::Error(refusal))
    }),
    ("statement trickles", 3, |dice| {
        dice.statement(postgres::Fault::Trickle)
    }),
    ("message dropped", 20, |dice| {
        dice.message(nats::Fault::Drop)
    }),
    ("message duplicated", 20, |dice| {
        dice.message(nats::Fault::Duplicate)
    }),
    ("message delayed", 20, |dice| {
        let late = dice.one_of(&[200, 2_000, 12_000]);
        dice.message(nats::Fault::Delay(late))
    }),
    ("message reordered", 20, |dice| {
        dice.message(nats::Fault::Reorder)
    }),
    ("message repeated", 20, |dice| {
        dice.message(nats::Fault::RepeatLast)
    }),
    ("message cut", 4, |dice| dice.message(nats::Fault::Cut)),
];

impl What {
    /// How many names there are that a plan can draw.
    #[cfg(test)]
    pub(super) const NAMES: usize = 46;
}
