//! One kind of load: the tool, the arguments and the key of its requests, as a template. A call fills in its tag.

use anyhow::Context;
use async_nats::{HeaderMap, HeaderValue};
use bytes::{Bytes, BytesMut};
use fleet::{
    call::{Effect, Priority},
    ids::Label,
    wire::subjects::Subjects,
};

use crate::{
    effects::Tag,
    tools::{self, Fault, Kind},
};

/// How calls reach the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Via {
    /// One connection to NATS
    Nats,
    /// A gateway, on a connection for each caller
    Http,
    /// The same in the Model Context Protocol, with a key in each request that has one over NATS
    Mcp,
    /// The same as its clients ask that know of no keys
    McpWithoutKeys,
}

impl Via {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nats => "nats",
            Self::Http => "http",
            Self::Mcp => "mcp",
            Self::McpWithoutKeys => "mcp_without_keys",
        }
    }

    /// What is spoken to a gateway; `None`: nothing is.
    pub const fn spoken(self) -> Option<Spoken> {
        match self {
            Self::Nats => None,
            Self::Http => Some(Spoken::Api),
            Self::Mcp => Some(Spoken::Mcp { keys: true }),
            Self::McpWithoutKeys => Some(Spoken::Mcp { keys: false }),
        }
    }
}

/// What is spoken to a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spoken {
    /// Its API.
    Api,
    /// The Model Context Protocol.
    Mcp {
        /// Whether requests say the keys of their calls.
        keys: bool,
    },
}

/// How calls are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Each caller waits for the result
    Sync,
    /// Each caller waits until the call is accepted; then all of them are waited for
    Async,
    /// Many calls in one request; then all of them are waited for
    Batch,
}

impl Mode {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Async => "async",
            Self::Batch => "batch",
        }
    }
}

/// One thing that is measured.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    pub(crate) effect: Effect,
    pub(crate) mode: Mode,
    /// The run of the bench, and the number of the workload in it.
    pub(crate) run: u32,
    pub(crate) number: u32,
    /// Requests in the air at a time; an open loop has no such limit.
    pub(crate) in_flight: usize,
    /// Calls per second, whether earlier ones were answered or not; `None`: a closed loop.
    pub(crate) rate: Option<u32>,
    /// Calls in a batch.
    pub(crate) batch: usize,
    /// Size of the arguments and of the result.
    pub(crate) bytes: usize,
    pub(crate) result_bytes: u32,
    /// How long the tool takes.
    pub(crate) takes_ms: u32,
    /// How many of a hundred go wrong.
    pub(crate) failures: u8,
    /// How many of a hundred ask what was asked before.
    pub(crate) hits: u8,
    /// Which of the tools with this effect is called.
    pub(crate) kind: Kind,
    /// How its calls reach the fleet.
    pub(crate) via: Via,
    pub(crate) tenants: u32,
    pub(crate) copies: u32,
    pub(crate) priority: Option<Priority>,
    /// The prefix of its tenants' names.
    pub(crate) tenant: &'static str,
    /// Whether its calls go to a queue without workers.
    pub(crate) parked: bool,
    /// The most calls.
    pub(crate) limit: Option<u64>,
}

impl Workload {
    /// The same servers, with so many reads of another tenant, in batches, whose results no caller waits for.
    pub(crate) fn beside(&self, number: u32, calls: u64, parked: bool) -> Self {
        Self {
            effect: Effect::Read,
            mode: Mode::Batch,
            number,
            in_flight: 4_000,
            rate: None,
            bytes: 60,
            result_bytes: 0,
            takes_ms: 0,
            batch: usize::try_from(calls).map_or(1_000, |calls| calls.clamp(1, 1_000)),
            failures: 0,
            hits: 0,
            kind: Kind::Plain,
            via: Via::Nats,
            tenants: 1,
            copies: 0,
            priority: None,
            tenant: if parked {
                "bench-held"
            } else {
                "bench-backlog"
            },
            parked,
            limit: Some(calls),
            ..self.clone()
        }
    }

    /// Its name in reports.
    pub(crate) fn name(&self) -> String {
        let mut name = self.effect.to_string();
        let via = (self.via != Via::Nats).then_some(self.via.as_str());
        let words = self.kind.suffix().into_iter().chain(via);
        for word in words.chain([self.mode.as_str()]) {
            name.push('_');
            name.push_str(word);
        }
        name
    }

    /// The call whose question the call of this number asks: itself, or one of the [`REPEATED`] before it.
    pub(crate) fn question(&self, number: u64) -> u64 {
        if self.hits == 0 || place(number) >= u64::from(self.hits) || number == 0 {
            return number;
        }
        // Spread over them, and the same in every run. Of any hundred in sequence one asks for the first time.
        let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let back = 1 + mixed % REPEATED.min(number);
        let earlier = (0..=number - back).rev().take(100);
        let mut first = earlier.filter(|one| place(*one) >= u64::from(self.hits));
        first.next().unwrap_or(0)
    }

    /// Calls in one request.
    pub(crate) const fn calls_per_request(&self) -> usize {
        match self.mode {
            Mode::Sync | Mode::Async => 1,
            Mode::Batch => self.batch,
        }
    }

    /// How the call of this number goes wrong, if it does.
    pub(crate) fn fault(&self, number: u64) -> Option<Fault> {
        let place = place(number);
        if place >= u64::from(self.failures) {
            return None;
        }
        let kind = usize::try_from(number / 100 + place).unwrap_or_default() % Fault::ALL.len();
        let fault = Fault::ALL[kind];
        // A statement cannot say that it has not started.
        let possible = self.effect != Effect::Transaction || fault != Fault::NotStarted;
        possible.then_some(fault)
    }

    /// Whether its calls have keys.
    fn has_keys(&self) -> bool {
        self.effect != Effect::Read
    }
}

/// From how many calls before it a call repeats the question of one.
const REPEATED: u64 = 10_000;

/// Where a call stands among a hundred: spread evenly, and the same in every run.
const fn place(number: u64) -> u64 {
    number.wrapping_mul(61) % 100
}

/// One request, ready to be sent.
pub(crate) struct Request {
    pub(crate) subject: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Makes the requests of a workload.
pub(crate) struct Requests {
    workload: Workload,
    /// By tenant, then by tool; of a batch only by tenant.
    subjects: Vec<String>,
    tools: Vec<String>,
    headers: HeaderMap,
    /// The first without a fault, then one for each.
    bodies: Vec<Vec<u8>>,
}

const OPENING: &[u8] = b"{\"id\":\"";

impl Requests {
    pub(crate) fn new(workload: &Workload, subjects: &Subjects) -> anyhow::Result<Self> {
        let original = &tools::name(workload.effect, workload.kind);
        let tools: Vec<String> = if workload.parked {
            vec![tools::PARKED.to_owned()]
        } else {
            (0..=workload.copies)
                .map(|copy| tools::copy_name(original, copy))
                .collect()
        };
        let mut all = Vec::new();
        for tenant in 0..workload.tenants.max(1) {
            let tenant: Label = match tenant {
                0 => workload.tenant.to_owned(),
                tenant => format!("{}-{tenant}", workload.tenant),
            }
            .parse()
            .context("name a tenant")?;
            match workload.mode {
                Mode::Batch => all.push(subjects.batch(&tenant)),
                Mode::Sync | Mode::Async => {
                    all.extend(tools.iter().map(|tool| subjects.call(&tenant, tool)));
                }
            }
        }
        let mut headers = HeaderMap::new();
        if workload.mode == Mode::Async {
            headers.insert("Prefer", "respond-async");
        }
        if let Some(priority) = workload.priority {
            headers.insert("Toolfleet-Priority", priority.as_str());
        }
        let faults = std::iter::once(None).chain(Fault::ALL.map(Some));
        Ok(Self {
            bodies: faults.map(|fault| body(workload, fault)).collect(),
            workload: workload.clone(),
            subjects: all,
            tools,
            headers,
        })
    }

    /// The request whose first call has this number.
    pub(crate) fn make(&self, number: u64) -> Request {
        let calls = u64::try_from(self.workload.calls_per_request()).unwrap_or(u64::MAX);
        let of = usize::try_from(number / calls).unwrap_or_default() % self.subjects.len();
        let mut headers = self.headers.clone();
        let body = if self.workload.mode == Mode::Batch {
            self.batch(number)
        } else {
            let (body, tag) = self.arguments(number);
            if self.workload.has_keys() {
                let key: HeaderValue = tag.parse().expect("a tag is a fit header");
                headers.insert("Idempotency-Key", key);
            }
            body.freeze()
        };
        Request {
            subject: self.subjects[of].clone(),
            headers,
            body,
        }
    }

    fn arguments(&self, number: u64) -> (BytesMut, String) {
        let number = self.workload.question(number);
        let fault = self.workload.fault(number);
        let body = &self.bodies[fault.map_or(0, |fault| fault as usize + 1)];
        let mut filled = BytesMut::from(body.as_slice());
        let tag = Tag {
            run: self.workload.run,
            workload: self.workload.number,
            number,
        };
        let place = OPENING.len()..OPENING.len() + Tag::LENGTH;
        tag.write(&mut filled[place.clone()]);
        let text = std::str::from_utf8(&filled[place]).expect("hexadecimal digits");
        let text = text.to_owned();
        (filled, text)
    }

    fn batch(&self, first: u64) -> Bytes {
        let mut body = BytesMut::from(&b"{\"calls\":["[..]);
        for place in 0..self.workload.batch {
            let number = first + place as u64;
            let (arguments, tag) = self.arguments(number);
            let tool = &self.tools[usize::try_from(number).unwrap_or_default() % self.tools.len()];
            if place > 0 {
                body.extend_from_slice(b",");
            }
            body.extend_from_slice(format!("{{\"tool\":\"{tool}\",").as_bytes());
            if self.workload.has_keys() {
                body.extend_from_slice(format!("\"idempotency_key\":\"{tag}\",").as_bytes());
            }
            body.extend_from_slice(b"\"args\":");
            body.extend_from_slice(&arguments);
            body.extend_from_slice(b"}");
        }
        body.extend_from_slice(b"]}");
        body.freeze()
    }
}

/// Arguments of the requested size, or as small as they can be.
fn body(workload: &Workload, fault: Option<Fault>) -> Vec<u8> {
    let mut rest = String::new();
    if workload.result_bytes > 0 {
        rest.push_str(&format!(",\"result_bytes\":{}", workload.result_bytes));
    }
    if workload.takes_ms > 0 && workload.effect != Effect::Transaction {
        rest.push_str(&format!(",\"takes_ms\":{}", workload.takes_ms));
    }
    if let Some(fault) = fault {
        rest.push_str(&format!(",\"fault\":\"{}\"", fault.as_str()));
    }
    let tag = "0".repeat(Tag::LENGTH);
    let opening = std::str::from_utf8(OPENING).expect("ASCII");
    let bare = format!("{opening}{tag}\",\"pad\":\"\"{rest}}}").len();
    let pad = "x".repeat(workload.bytes.saturating_sub(bare));
    format!("{opening}{tag}\",\"pad\":\"{pad}\"{rest}}}").into_bytes()
}

/// A small one, for tests.
#[cfg(test)]
pub(crate) fn sample(effect: Effect, mode: Mode) -> Workload {
    Workload {
        effect,
        mode,
        run: 1,
        number: 2,
        in_flight: 4,
        rate: None,
        batch: 3,
        bytes: 60,
        result_bytes: 0,
        takes_ms: 0,
        failures: 0,
        hits: 0,
        kind: Kind::Plain,
        via: Via::Nats,
        tenants: 1,
        copies: 0,
        priority: None,
        tenant: "bench",
        parked: false,
        limit: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{sample as workload, *};

    fn requests(workload: &Workload) -> Requests {
        Requests::new(workload, &Subjects::new("toolfleet".parse().unwrap())).unwrap()
    }

    #[test]
    fn arguments_are_as_large_as_asked_and_carry_their_tag() {
        for bytes in [60, 1024, 65_536] {
            let workload = Workload {
                bytes,
                ..workload(Effect::Once, Mode::Sync)
            };
            let request = requests(&workload).make(9);
            assert_eq!(request.body.len(), bytes);
            let sent: Value = serde_json::from_slice(&request.body).unwrap();
            let tag = Tag::parse(sent["id"].as_str().unwrap()).unwrap();
            assert_eq!((tag.run, tag.workload, tag.number), (1, 2, 9));
            let key = request.headers.get("Idempotency-Key").unwrap();
            assert_eq!(key.as_str(), sent["id"].as_str().unwrap());
            assert_eq!(request.subject, "toolfleet.v1.bench.call.bench_once");
        }
    }

    #[test]
    fn a_read_has_no_key_and_calls_go_around_tenants_and_tools() {
        let workload = Workload {
            tenants: 2,
            copies: 1,
            ..workload(Effect::Read, Mode::Sync)
        };
        let requests = requests(&workload);
        let mut subjects: Vec<String> = (0..4).map(|n| requests.make(n).subject).collect();
        assert!(requests.make(0).headers.get("Idempotency-Key").is_none());
        subjects.dedup();
        assert_eq!(subjects.len(), 4, "{subjects:?}");
    }

    #[test]
    fn as_many_calls_repeat_a_question_as_asked_and_all_of_them_one_that_was_asked_first() {
        for hits in [0, 1, 50, 90, 99] {
            let workload = Workload {
                hits,
                kind: Kind::Cached,
                ..workload(Effect::Read, Mode::Sync)
            };
            let repeats = (20_000..21_000).filter(|n| workload.question(*n) != *n);
            assert_eq!(repeats.count(), usize::from(hits) * 10, "{hits}");
            // Few ask what somebody asks at the same time.
            let near = (1_000..10_000).filter(|n| *n - workload.question(*n) <= 20);
            assert!(near.filter(|n| workload.question(*n) != *n).count() < 200);
            for number in 0..21_000 {
                let asked = workload.question(number);
                assert!(asked <= number && number - asked <= REPEATED + 100);
                assert_eq!(workload.question(asked), asked, "{hits}, {number}");
            }
            let sent = requests(&workload).make(20_050);
            assert_eq!(sent.subject, "toolfleet.v1.bench.call.bench_read_cached");
            let first = requests(&workload).make(workload.question(20_050));
            assert_eq!(sent.body, first.body);
        }
    }

    #[test]
    fn what_goes_on_beside_is_of_another_tenant() {
        let beside = workload(Effect::Once, Mode::Sync).beside(7, 5_000, true);
        let request = requests(&Workload { batch: 1, ..beside }).make(0);
        assert_eq!(request.subject, "toolfleet.v1.bench-held.batch");
        let sent: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(sent["calls"][0]["tool"], tools::PARKED);
    }

    #[test]
    fn a_batch_is_one_body_of_many_calls() {
        let request = requests(&workload(Effect::Idempotent, Mode::Batch)).make(6);
        let sent: Value = serde_json::from_slice(&request.body).unwrap();
        let calls = sent["calls"].as_array().unwrap();
        assert_eq!(calls.len(), 3);
        assert_eq!(calls[2]["args"]["id"], calls[2]["idempotency_key"]);
        assert_eq!(request.subject, "toolfleet.v1.bench.batch");
    }

    #[test]
    fn as_many_calls_go_wrong_as_asked_and_a_statement_always_starts() {
        let count = |effect, failures| {
            let workload = Workload {
                failures,
                ..workload(effect, Mode::Sync)
            };
            let faults: Vec<Fault> = (0..1000).filter_map(|n| workload.fault(n)).collect();
            (faults.len(), faults.contains(&Fault::NotStarted))
        };
        assert_eq!(count(Effect::Once, 0), (0, false));
        assert_eq!(count(Effect::Once, 9), (90, true));
        assert_eq!(count(Effect::Read, 100), (1000, true));
        let (of_transactions, not_started) = count(Effect::Transaction, 9);
        assert!(of_transactions < 90 && !not_started);
    }
}
