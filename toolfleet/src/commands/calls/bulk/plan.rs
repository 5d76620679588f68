//! What is to be done with many calls, before anything is done.

use std::{collections::BTreeMap, fmt};

use fleet::store::settle::SettledAs;
use fleet_history::{
    bulk::{BulkCall, BulkVerb, LeftAlone, left_alone, refused},
    filter::Filter,
    instant,
};
use serde::{Serialize, Serializer, ser::SerializeStruct};
use time::OffsetDateTime;

use crate::commands::output;

/// Calls that are alike: tool, state, code, and why they are left alone or will be refused.
type Alike = (String, String, Option<String>, Option<LeftAlone>);

/// What was found.
#[derive(Debug)]
pub(super) struct Plan {
    verb: BulkVerb,
    /// The name of the retry, where it is one.
    name: Option<String>,
    span: Vec<String>,
    kinds: BTreeMap<Alike, u64>,
    /// Of those that another retry has: whose name, or of one call, and whether it may still be at work.
    holders: BTreeMap<(Option<String>, LeftAlone), u64>,
    /// Calls that fit and are newer than what the retry's name covers, and when that began.
    newer: Option<(u64, OffsetDateTime)>,
}

impl Plan {
    pub(super) fn new(verb: BulkVerb, name: Option<&str>, filter: &Filter) -> Self {
        let span = filter.since.into_iter().chain(filter.until);
        Self {
            verb,
            name: name.map(str::to_owned),
            span: span.map(instant).collect(),
            kinds: BTreeMap::new(),
            holders: BTreeMap::new(),
            newer: None,
        }
    }

    pub(super) fn count(&mut self, call: &BulkCall) {
        let refused = || refused(self.verb, self.name.as_deref(), call);
        let why = left_alone(self.verb, call).or_else(refused);
        if let Some(why) = why.filter(|why| is_of_a_retry(Some(*why))) {
            let holder = (call.reserved_by.clone(), why);
            *self.holders.entry(holder).or_default() += 1;
        }
        let kind = (
            call.tool.clone(),
            call.state.clone(),
            call.code.clone(),
            why,
        );
        *self.kinds.entry(kind).or_default() += 1;
    }

    /// Adds calls that fit and are not in the retry, for they came since it began.
    pub(super) const fn newer(&mut self, calls: u64, began: OffsetDateTime) {
        self.newer = Some((calls, began));
    }

    /// The calls that it will be done to, as far as is known.
    pub(super) fn to_do(&self) -> u64 {
        self.sum(|why| why.is_none())
    }

    /// The same, and those that the ledger is asked for although it will refuse them.
    pub(super) fn to_ask(&self) -> u64 {
        self.sum(|why| why.is_none() || is_of_a_retry(why))
    }

    /// Whether nothing at all was found.
    pub(super) fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    fn sum(&self, is_meant: impl Fn(Option<LeftAlone>) -> bool) -> u64 {
        let meant = self.kinds.iter().filter(|((.., why), _)| is_meant(*why));
        meant.map(|(_, calls)| calls).sum()
    }

    fn left_alone(&self) -> BTreeMap<&'static str, u64> {
        let mut reasons = BTreeMap::new();
        for ((.., why), calls) in &self.kinds {
            if let Some(why) = why {
                *reasons.entry(why.as_str()).or_default() += calls;
            }
        }
        reasons
    }

    const fn outcome(&self) -> Option<SettledAs> {
        match self.verb {
            BulkVerb::Settle(outcome) => Some(outcome),
            BulkVerb::Cancel | BulkVerb::Retry { .. } | BulkVerb::Discard => None,
        }
    }

    const fn verb(&self) -> &'static str {
        match self.verb {
            BulkVerb::Cancel => "cancel",
            BulkVerb::Retry { .. } => "retry",
            BulkVerb::Settle(_) => "settle",
            BulkVerb::Discard => "discard",
        }
    }

    /// What will be done to a call.
    fn then(&self) -> String {
        match self.outcome() {
            Some(outcome) => format!("settle as {}", outcome.as_str()),
            None => self.verb().to_owned(),
        }
    }

    /// What a person should know before it is done.
    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if self.outcome() == Some(SettledAs::Abandoned) && self.to_do() > 0 {
            remarks.push(
                "abandoned is for ever: whether they were carried out will never be known, their keys answer that for good, and each day \
                 of the history that has one of them is kept whole (docs/dead-letters.md)"
                    .to_owned(),
            );
        }
        for ((holder, why), calls) in &self.holders {
            let of_a_day_ago = *why == LeftAlone::Unsure;
            remarks.push(match holder {
                _any if of_a_day_ago => format!(
                    "of {calls} nobody knows whether they were made again, a day ago or earlier: look for the new calls of that time \
                     (toolfleet.retries_under_way says when), then make each one again with `calls retry ID --anyway`, or discard it"
                ),
                Some(name) => format!(
                    "{calls} are with the retry {name}, which makes them again or was killed at it: give its command again \
                     (toolfleet.retries_under_way has them)"
                ),
                None => format!(
                    "{calls} are with a `calls retry` of one call, which makes them again or was killed at it \
                     (toolfleet.retries_under_way has them)"
                ),
            });
        }
        if let (Some((calls @ 1.., began)), Some(name)) = (self.newer, &self.name) {
            let (they, are) = match calls {
                1 => ("newer call fits", "is"),
                _many => ("newer calls fit", "are"),
            };
            let began = instant(began);
            remarks.push(format!(
                "{name} began at {began}; {calls} {they} and {are} not in it: use another --name"
            ));
        }
        remarks
    }
}

/// The ledger is asked all the same, for that may be over, and its refusal is an end that a person has to look at.
fn is_of_a_retry(why: Option<LeftAlone>) -> bool {
    matches!(why, Some(LeftAlone::UnderWay | LeftAlone::Unsure))
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<Vec<String>> = self
            .kinds
            .iter()
            .map(|((tool, state, code, why), calls)| {
                vec![
                    tool.clone(),
                    state.clone(),
                    code.clone().unwrap_or_else(|| "-".to_owned()),
                    calls.to_string(),
                    why.map_or_else(|| self.then(), |why| format!("left alone: {why}")),
                ]
            })
            .collect();
        let headings = ["TOOL", "STATE", "CODE", "CALLS", "THEN"];
        f.write_str(&output::table(&headings, &rows))?;
        let left: u64 = self.left_alone().values().sum();
        writeln!(
            f,
            "accepted {}: {} to {}, {left} left alone",
            self.span.join(" to "),
            self.to_do(),
            self.then(),
        )?;
        for remark in self.remarks() {
            writeln!(f, "{remark}")?;
        }
        Ok(())
    }
}

impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct OfKind<'a> {
            tool: &'a str,
            state: &'a str,
            code: Option<&'a str>,
            calls: u64,
            left_alone: Option<&'static str>,
        }
        let kinds: Vec<OfKind<'_>> = self
            .kinds
            .iter()
            .map(|((tool, state, code, why), calls)| OfKind {
                tool,
                state,
                code: code.as_deref(),
                calls: *calls,
                left_alone: why.map(LeftAlone::as_str),
            })
            .collect();
        let mut plan = serializer.serialize_struct("Plan", 7)?;
        plan.serialize_field("verb", self.verb())?;
        plan.serialize_field("outcome", &self.outcome().map(SettledAs::as_str))?;
        plan.serialize_field("accepted", &self.span)?;
        plan.serialize_field("to_do", &self.to_do())?;
        plan.serialize_field("left_alone", &self.left_alone())?;
        plan.serialize_field("calls", &kinds)?;
        plan.serialize_field("remarks", &self.remarks())?;
        plan.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(verb: BulkVerb, name: Option<&str>, kinds: &[(Option<LeftAlone>, u64)]) -> Plan {
        let mut plan = Plan::new(verb, name, &Filter::default());
        for (why, calls) in kinds {
            let kind = ("charge".to_owned(), "failed".to_owned(), None, *why);
            plan.kinds.insert(kind, *calls);
        }
        plan
    }

    #[test]
    fn a_settlement_of_many_says_as_what_and_that_abandoned_is_for_ever() {
        let told = |outcome| plan(BulkVerb::Settle(outcome), None, &[(None, 3)]).to_string();
        let not_applied = told(SettledAs::NotApplied);
        assert!(
            not_applied.contains("3 to settle as not_applied, 0"),
            "{not_applied}"
        );
        assert!(!not_applied.contains("for ever"), "{not_applied}");
        let abandoned = told(SettledAs::Abandoned);
        assert!(
            abandoned.contains("3 to settle as abandoned, 0"),
            "{abandoned}"
        );
        assert!(abandoned.contains("abandoned is for ever"), "{abandoned}");
    }

    #[test]
    fn what_another_retry_has_and_what_came_since_is_told() {
        let retry = BulkVerb::Retry {
            business: false,
            state: None,
        };
        let kinds = [(None, 9), (Some(LeftAlone::UnderWay), 100)];
        let mut plan = plan(retry, Some("tuesday"), &kinds);
        let monday = |why| (Some("monday".to_owned()), why);
        plan.holders.insert(monday(LeftAlone::UnderWay), 100);
        plan.holders.insert(monday(LeftAlone::Unsure), 3);
        plan.newer(1, OffsetDateTime::UNIX_EPOCH);
        assert_eq!((plan.to_do(), plan.to_ask()), (9, 109));
        let text = plan.to_string();
        for told in [
            "9 to retry, 100 left alone",
            "100 are with the retry monday",
            "of 3 nobody knows whether they were made again",
            "tuesday began at 1970-01-01T00:00:00.000Z; 1 newer call fits and is not in it: use another --name",
        ] {
            assert!(text.contains(told), "{text}");
        }
    }
}
