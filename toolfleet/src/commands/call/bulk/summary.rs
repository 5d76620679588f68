//! The results of a file of calls, in numbers.

use std::{collections::BTreeMap, fmt};

use fleet_client::Head;
use serde::Serialize;

/// The numbers.
#[derive(Debug, Default, Serialize)]
pub(super) struct BulkSummary {
    pub(super) lines: u64,
    accepted: u64,
    already_there: u64,
    refused: u64,
    refused_by_code: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    ended: BTreeMap<String, u64>,
}

/// For a call that is not over when the wait is.
const NOT_OVER: &str = "not_over";

impl BulkSummary {
    pub(super) fn count(&mut self, head: &Head) {
        self.lines += 1;
        if head.is_refused() {
            self.refused += 1;
            *self
                .refused_by_code
                .entry(head.code().to_owned())
                .or_default() += 1;
        } else if head.replayed {
            self.already_there += 1;
        } else {
            self.accepted += 1;
        }
    }

    pub(super) fn ended(&mut self, state: Option<String>) {
        let state = state.unwrap_or_else(|| NOT_OVER.to_owned());
        *self.ended.entry(state).or_default() += 1;
    }

    pub(super) fn over(&self) -> u64 {
        self.ended.values().sum()
    }

    /// Nothing was refused, and every call that was waited for succeeded.
    pub(super) fn is_good(&self) -> bool {
        self.refused == 0 && self.ended.keys().all(|state| state == "succeeded")
    }
}

impl fmt::Display for BulkSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = |counts: &BTreeMap<String, u64>| {
            let counts: Vec<String> = counts
                .iter()
                .map(|(what, times)| format!("{times} {what}"))
                .collect();
            counts.join(", ")
        };
        write!(
            f,
            "{} lines: {} accepted, {} there already, {} refused",
            self.lines, self.accepted, self.already_there, self.refused
        )?;
        if self.refused > 0 {
            write!(f, " ({})", counts(&self.refused_by_code))?;
        }
        if !self.ended.is_empty() {
            write!(f, "; {}", counts(&self.ended))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use fleet::wire::code::Code;

    use super::*;
    use crate::commands::call::bulk::outcome::unfit;

    #[test]
    fn the_summary_counts_and_says_whether_all_is_well() {
        let mut summary = BulkSummary::default();
        for envelope in [
            r#"{"call_id":"01980000-0000-7000-8000-000000000000","state":"queued","replayed":false}"#,
            r#"{"call_id":"01980000-0000-7000-8000-000000000000","state":"failed","replayed":true}"#,
        ] {
            summary.count(&Head::of(envelope.as_bytes()).unwrap());
        }
        assert!(summary.is_good());
        summary.count(&Head::of(unfit(Code::MalformedJson, "no").as_bytes()).unwrap());
        assert!(!summary.is_good());
        summary.ended(Some("succeeded".to_owned()));
        summary.ended(None);
        assert_eq!(
            summary.to_string(),
            "3 lines: 1 accepted, 1 there already, 1 refused (1 malformed_json); 1 not_over, 1 succeeded"
        );
    }
}
