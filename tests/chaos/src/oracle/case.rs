//! The facts and their indexes.

use std::collections::{BTreeMap, HashMap};

use fleet::{call::State, manifest::Policy};
use serde_json::Value;

use super::{
    facts::{
        Approval, Attempt, Call, Decision, Event, Facts, How, Moment, Struck, ToolRow, WorkerRow,
        text,
    },
    verdict::Breach,
};
use crate::{
    effects::{Did, Mark, Mode},
    history::{Entry, Op, Phase},
    plan::Member,
};

/// The facts and their indexes.
#[derive(Debug)]
pub struct Case<'a> {
    /// All of them.
    pub facts: &'a Facts,
    /// The ledger's calls.
    pub calls: BTreeMap<&'a str, &'a Call>,
    /// The ledger's calls by the clients' number.
    pub by_n: BTreeMap<u64, Vec<&'a Call>>,
    /// Tools by name.
    pub tools: BTreeMap<&'a str, &'a ToolRow>,
    /// Workers by id.
    pub workers: BTreeMap<&'a str, &'a WorkerRow>,
    /// What clients asked, by the number of the call.
    pub asked: BTreeMap<u64, Asked<'a>>,
    /// Answers, in the order in which they came.
    pub told: Vec<Told<'a>>,
    attempts: HashMap<&'a str, Vec<&'a Attempt>>,
    events: HashMap<&'a str, Vec<&'a Event>>,
    decisions: HashMap<&'a str, Vec<&'a Decision>>,
    marks: HashMap<&'a str, Vec<&'a Mark>>,
    tables: HashMap<(&'a str, u64), u64>,
    members: HashMap<u32, Member>,
}

/// What clients asked about one of their calls.
#[derive(Debug, Clone)]
pub struct Asked<'a> {
    /// Its tool.
    pub tool: &'a str,
    /// How its tool was told to behave.
    pub mode: Mode,
    /// Whether it was ever submitted.
    pub submitted: bool,
    /// Whether its key was sent with other arguments.
    pub misused: bool,
    /// Whether a client cancelled it.
    pub cancelled: bool,
    /// Submissions that were neither answered with a call nor certainly refused.
    pub uncertain: bool,
}

/// An answer.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// The line.
    pub entry: &'a Entry,
    /// All of it.
    pub answer: &'a Value,
    /// The call that it names.
    pub call: Option<&'a str>,
    /// The word for where it stands: a state, or `refused`.
    pub state: &'a str,
    /// The code of its error.
    pub code: Option<&'a str>,
}

impl Told<'_> {
    /// Whether it says how the call ended, with its result.
    pub fn is_end(&self) -> bool {
        let terminal = self.state.parse().is_ok_and(State::is_terminal);
        terminal && self.answer.get("outcome").is_some()
    }

    /// Whether it certainly left nothing.
    pub fn is_refusal(&self) -> bool {
        self.state == "refused" && text(self.answer, "/effect") != Some("unknown")
    }
}

/// Whether an operation brings a call.
pub const fn submits(op: Op) -> bool {
    match op {
        Op::Submit | Op::SubmitAsync | Op::Batch | Op::Replay => true,
        Op::Misuse
        | Op::Get
        | Op::Attach
        | Op::Cancel
        | Op::Settle
        | Op::Approve
        | Op::Deny
        | Op::OtherArguments
        | Op::Output
        | Op::BadOutput
        | Op::OtherOutput => false,
    }
}

impl<'a> Case<'a> {
    /// Of these facts.
    pub fn of(facts: &'a Facts) -> Self {
        let mut case = Self {
            facts,
            calls: BTreeMap::new(),
            by_n: BTreeMap::new(),
            tools: BTreeMap::new(),
            workers: BTreeMap::new(),
            asked: BTreeMap::new(),
            told: Vec::new(),
            attempts: HashMap::new(),
            events: HashMap::new(),
            decisions: HashMap::new(),
            marks: HashMap::new(),
            tables: HashMap::new(),
            members: HashMap::new(),
        };
        let ledger = &facts.ledger;
        for call in &ledger.calls {
            case.calls.insert(&call.call_id, call);
            if let Some(n) = call.n {
                case.by_n.entry(n).or_default().push(call);
            }
        }
        for attempt in &ledger.attempts {
            let of_call = case.attempts.entry(&attempt.call_id).or_default();
            of_call.push(attempt);
        }
        for event in &ledger.events {
            case.events.entry(&event.call_id).or_default().push(event);
        }
        for decision in &ledger.decisions {
            let of_call = case.decisions.entry(&decision.call_id).or_default();
            of_call.push(decision);
        }
        for events in case.events.values_mut() {
            events.sort_by_key(|event| event.revision);
        }
        for attempts in case.attempts.values_mut() {
            attempts.sort_by_key(|attempt| (attempt.number, attempt.late));
        }
        case.tools
            .extend(ledger.tools.iter().map(|tool| (tool.tool.as_str(), tool)));
        let workers = ledger.workers.iter();
        case.workers
            .extend(workers.map(|worker| (worker.worker_id.as_str(), worker)));
        for mark in &facts.marks {
            case.marks.entry(&mark.call).or_default().push(mark);
        }
        for (tool, n, times) in &facts.tables {
            *case.tables.entry((tool, *n)).or_default() += times;
        }
        let processes = facts.injected.processes.iter();
        case.members
            .extend(processes.map(|process| (process.pid, process.member)));
        for entry in &facts.history {
            case.hear(entry);
        }
        case
    }

    fn hear(&mut self, entry: &'a Entry) {
        let asked = self.asked.entry(entry.n).or_insert_with(|| Asked {
            tool: &entry.tool,
            mode: entry.mode,
            submitted: false,
            misused: false,
            cancelled: false,
            uncertain: false,
        });
        asked.submitted |= submits(entry.op);
        asked.misused |= entry.op == Op::Misuse;
        asked.cancelled |= entry.op == Op::Cancel;
        let Some(answer) = entry
            .answer
            .as_ref()
            .filter(|_| entry.phase == Phase::Answered)
        else {
            asked.uncertain |= entry.phase != Phase::Asked && submits(entry.op);
            return;
        };
        let told = Told {
            entry,
            answer,
            call: text(answer, "/call_id"),
            state: text(answer, "/state").unwrap_or_default(),
            code: text(answer, "/error/code"),
        };
        asked.uncertain |= submits(entry.op) && told.call.is_none() && !told.is_refusal();
        self.told.push(told);
    }

    /// A call's attempts in their order, late evidence behind its attempt.
    pub fn attempts(&self, call: &str) -> &[&'a Attempt] {
        self.attempts.get(call).map_or(&[], Vec::as_slice)
    }

    /// A call's moves in their order.
    pub fn events(&self, call: &str) -> &[&'a Event] {
        self.events.get(call).map_or(&[], Vec::as_slice)
    }

    /// What was said about a call that waited for a yes.
    pub fn decisions(&self, call: &str) -> &[&'a Decision] {
        self.decisions.get(call).map_or(&[], Vec::as_slice)
    }

    /// How many have to say yes before anything of a call runs, if anybody has to.
    pub fn yeses_needed(&self, call: &Call) -> Option<usize> {
        let Approval { count, above } = self.tools.get(call.tool.as_str())?.approval?;
        let is_needed = above.is_none_or(|above| call.amount.is_some_and(|amount| amount > above));
        is_needed.then_some(count)
    }

    /// What must, and must not, have happened before a call of this tool.
    pub fn policy(&self, tool: &str) -> Option<&'a Policy> {
        self.tools.get(tool)?.policy.as_ref()
    }

    /// Whether the caller of a call runs it.
    pub fn is_handed(&self, call: &Call) -> bool {
        let tool = self.tools.get(call.tool.as_str());
        tool.is_some_and(|tool| tool.executor == "client")
    }

    /// A moment of the clients' history.
    pub fn moment(&self, entry: &Entry) -> Moment {
        let began = self.facts.injected.clients_began;
        began.saturating_add_unsigned(entry.at_ms)
    }

    /// What tools did for a call.
    pub fn marks(&self, call: &str) -> &[&'a Mark] {
        self.marks.get(call).map_or(&[], Vec::as_slice)
    }

    /// How often a call's effect took place.
    pub fn applied(&self, call: &Call) -> u64 {
        if self.is_sql(&call.tool) {
            let n = call.n.unwrap_or(u64::MAX);
            return self
                .tables
                .get(&(call.tool.as_str(), n))
                .copied()
                .unwrap_or(0);
        }
        let marks = self.marks(&call.call_id).iter();
        marks.filter(|mark| mark.did == Did::Applied).count() as u64
    }

    /// Whether a tool leaves rows instead of lines.
    pub fn is_sql(&self, tool: &str) -> bool {
        self.tools
            .get(tool)
            .is_some_and(|tool| tool.executor == "sql")
    }

    /// How a call's tool was told to behave.
    pub fn mode(&self, call: &Call) -> Option<Mode> {
        Some(self.asked.get(&call.n?)?.mode)
    }

    /// The process that runs under a worker's id.
    pub fn place_of(&self, worker: &str) -> Option<(Member, u32)> {
        let pid = self.workers.get(worker)?.pid;
        Some((*self.members.get(&pid)?, pid))
    }

    /// Faults that struck a worker's process, its wires or a server within a time.
    pub fn struck(
        &self,
        worker: Option<&str>,
        hows: &'a [How],
        from: Moment,
        until: Moment,
    ) -> impl Iterator<Item = &'a Struck> {
        let place = worker.and_then(|worker| self.place_of(worker));
        self.facts.injected.struck.iter().filter(move |struck| {
            let it = match (struck.pid, struck.member) {
                (Some(pid), _) => place.is_some_and(|(_, mine)| mine == pid),
                (None, Some(member)) => place.is_some_and(|(mine, _)| mine == member),
                (None, None) => true,
            };
            it && hows.contains(&struck.how) && struck.from <= until && struck.until >= from
        })
    }

    /// Metrics of this name with these labels, summed over all others.
    pub fn metric(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let of_name = self.facts.metrics.iter().filter(|(key, _)| {
            let (base, rest) = key.split_once('{').unwrap_or((key, ""));
            let has = |(label, value): &(&str, &str)| {
                rest.split([',', '}'])
                    .any(|pair| pair == format!("{label}=\"{value}\""))
            };
            base == name && labels.iter().all(has)
        });
        let sum: f64 = of_name.map(|(_, value)| value).sum();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "counters are whole and not negative"
        )]
        let times = sum.max(0.0).round() as u64;
        times
    }
}

/// A breach about a call.
pub fn breach(rule: &'static str, call: &str, text: impl Into<String>) -> Breach {
    Breach {
        rule,
        call: Some(call.to_owned()),
        text: text.into(),
    }
}

/// A breach about no call of the ledger.
pub fn at_large(rule: &'static str, text: impl Into<String>) -> Breach {
    Breach {
        rule,
        call: None,
        text: text.into(),
    }
}
