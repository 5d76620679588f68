//! The answers to clients: the same for all of them, as the ledger has it, and in the promised words.

use std::collections::BTreeMap;

use fleet::{call::State, wire::code::Code};
use serde_json::Value;

use crate::{
    effects::{self, Mode, Tool},
    history::{Op, Phase},
    oracle::{
        case::{Case, Told, at_large, breach, submits},
        facts::text,
        verdict::Breach,
    },
};

pub(super) const ONE_END: &str = "everybody_is_told_one_end";
pub(super) const AS_IT_IS: &str = "told_as_it_is";
pub(super) const BACK: &str = "no_answer_goes_back";
pub(super) const CODES: &str = "codes_are_expected";

/// All clients that are told how a call ended are told the same, except `replayed`.
pub(super) fn everybody_is_told_one_end(case: &Case<'_>) -> Vec<Breach> {
    let mut first: BTreeMap<&str, Value> = BTreeMap::new();
    let mut breaches = Vec::new();
    for told in case.told.iter().filter(|told| told.is_end()) {
        let Some(call) = told.call else { continue };
        let mut answer = told.answer.clone();
        if let Some(fields) = answer.as_object_mut() {
            fields.remove("replayed");
        }
        let before = first.entry(call).or_insert_with(|| answer.clone());
        if *before != answer {
            let what = format!(
                "{:?} was told another end than somebody before: {}",
                told.entry.op,
                differing(before, &answer)
            );
            breaches.push(breach(ONE_END, call, what));
        }
    }
    breaches
}

/// Which members differ. Their values may be sensitive and are not shown.
fn differing(one: &Value, other: &Value) -> String {
    let members = one
        .as_object()
        .into_iter()
        .chain(other.as_object())
        .flat_map(|fields| fields.keys());
    let mut differ: Vec<&str> = members
        .filter(|name| one.get(name.as_str()) != other.get(name.as_str()))
        .map(String::as_str)
        .collect();
    differ.sort_unstable();
    differ.dedup();
    differ.join(", ")
}

/// A client that is told that a call is over is told what the ledger says; a call that it is told is in doubt was in doubt at some time.
pub(super) fn told_as_it_is(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for told in &case.told {
        let Some((id, call)) = told.call.and_then(|id| Some((id, case.calls.get(id)?))) else {
            continue;
        };
        let wrong = match told.state.parse::<State>() {
            Ok(State::InDoubt) => !case
                .events(id)
                .iter()
                .any(|event| event.to == State::InDoubt),
            Ok(State::AwaitingClient) => !case
                .events(id)
                .iter()
                .any(|event| event.to == State::AwaitingClient),
            Ok(state) if state.is_terminal() => state != call.state,
            Err(_) => true,
            Ok(_) => false,
        };
        let cancelled = text(told.answer, "/result") == Some("cancelled")
            && told.entry.op == Op::Cancel
            && call.state != State::Cancelled;
        if wrong || cancelled {
            let what = format!(
                "{:?} was told {:?}, and it is {}",
                told.entry.op, told.state, call.state
            );
            breaches.push(breach(AS_IT_IS, id, what));
        }
    }
    breaches
}

/// A client that asks after another was told of the end is told of the end.
pub(super) fn no_answer_goes_back(case: &Case<'_>) -> Vec<Breach> {
    let mut asked: BTreeMap<(u32, u64, u64), u64> = BTreeMap::new();
    for entry in case
        .facts
        .history
        .iter()
        .filter(|entry| entry.phase == Phase::Asked)
    {
        asked.insert((entry.client, entry.op_id, entry.n), entry.at_ms);
    }
    let is_over = |told: &Told<'_>| told.state.parse().is_ok_and(State::is_terminal);
    let mut over: BTreeMap<&str, u64> = BTreeMap::new();
    for told in case.told.iter().filter(|told| is_over(told)) {
        if let Some(call) = told.call {
            let at = over.entry(call).or_insert(told.entry.at_ms);
            *at = (*at).min(told.entry.at_ms);
        }
    }
    let mut breaches = Vec::new();
    for told in case.told.iter().filter(|told| !is_over(told)) {
        let place = (told.entry.client, told.entry.op_id, told.entry.n);
        let (Some(call), Some(asked)) = (told.call, asked.get(&place)) else {
            continue;
        };
        if over.get(call).is_some_and(|over| over < asked) {
            let what = format!(
                "{:?} was told {:?} after somebody had been told its end",
                told.entry.op, told.state
            );
            breaches.push(breach(BACK, call, what));
        }
    }
    breaches
}

/// Errors have codes that can come of this question, this tool and these faults.
pub(super) fn codes_are_expected(case: &Case<'_>) -> Vec<Breach> {
    let mut breaches = Vec::new();
    for told in &case.told {
        let (op, mode) = (told.entry.op, told.entry.mode);
        let Some(word) = told.code else {
            if told.call.is_none() {
                breaches.push(at_large(
                    CODES,
                    format!(
                        "{op:?} of {} was answered with neither a call nor a code",
                        told.entry.n
                    ),
                ));
            }
            continue;
        };
        let n = told.entry.n;
        let refused = Refused {
            op,
            misused: case.asked.get(&n).is_some_and(|asked| asked.misused),
            has_call: case.by_n.contains_key(&n),
            hands_out: matches!(op, Op::Approve | Op::OtherArguments)
                && effects::tool(&told.entry.tool).is_some_and(Tool::is_handed),
        };
        let fits = word.parse::<Code>().is_ok_and(|code| match told.call {
            Some(_) => of_a_call(code, mode, &told.entry.tool),
            None => refused.with(code),
        });
        if !fits {
            let call = told.call.unwrap_or("-");
            breaches.push(breach(
                CODES,
                call,
                format!(
                    "{op:?} of {} ({mode:?}) was answered {word}",
                    told.entry.tool
                ),
            ));
        }
    }
    breaches
}

/// Codes of a call that was accepted.
fn of_a_call(code: Code, mode: Mode, tool: &str) -> bool {
    match code {
        Code::Denied => effects::tool(tool).is_some_and(|tool| tool.yeses().is_some()),
        Code::Forbidden => effects::tool(tool).is_some_and(Tool::is_ruled),
        Code::CircuitOpen => effects::tool(tool).is_some_and(Tool::ends_with_open_circuit),
        Code::Timeout
        | Code::Unavailable
        | Code::ToolCrashed
        | Code::RetriesExhausted
        | Code::DeadlineExceeded
        | Code::Cancelled
        | Code::InDoubt
        | Code::NotApplied => true,
        // A statement says no and breaks in the same words.
        Code::ToolError => matches!(mode, Mode::Business | Mode::ErrorBefore | Mode::ErrorAfter),
        Code::OutputInvalid | Code::OutputTooLarge => matches!(mode, Mode::Garbage | Mode::Huge),
        _ => false,
    }
}

/// A question that was refused.
struct Refused {
    op: Op,
    /// Its number's key was sent with other arguments as well.
    misused: bool,
    /// Its number has a call.
    has_call: bool,
    /// A yes would hand it out at once.
    hands_out: bool,
}

impl Refused {
    /// Whether it may have been refused with this code.
    fn with(&self, code: Code) -> bool {
        match code {
            Code::Overloaded | Code::StoreUnavailable => true,
            // A pause that refuses; a known key is answered before it.
            Code::ToolPaused => submits(self.op) || self.hands_out,
            // Where its misuse came first, the key is another call's.
            Code::IdempotencyKeyReused => self.op == Op::Misuse || self.misused,
            Code::WorkerNotFenced => self.op == Op::Settle,
            Code::Conflict => matches!(
                self.op,
                Op::Settle
                    | Op::Approve
                    | Op::Deny
                    | Op::OtherArguments
                    | Op::Output
                    | Op::OtherOutput
            ),
            Code::AlreadyTerminal => {
                matches!(self.op, Op::Output | Op::BadOutput | Op::OtherOutput)
            }
            Code::InvalidArguments if self.op == Op::BadOutput => true,
            // A question for a call that does not exist.
            Code::NotFound | Code::InvalidId => {
                !self.has_call && matches!(self.op, Op::Get | Op::Cancel)
            }
            // Arguments that no tool may see; a number that has a call had none of these.
            Code::MalformedJson
            | Code::TruncatedArguments
            | Code::InvalidUnicode
            | Code::NulNotAllowed
            | Code::DuplicateKey
            | Code::DepthExceeded
            | Code::TooManyNodes
            | Code::NumberOutOfRange
            | Code::NumberTooLong
            | Code::InvalidArguments
            | Code::UnknownTool => !self.has_call && submits(self.op),
            _ => false,
        }
    }
}
