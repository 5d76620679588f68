//! Which outputs were handed in for the calls of a turn, as its stream remembers them for as long as it remembers the turn: so the
//! same output again is told from another one, whatever became of the call since. Pure.
//!
//! An output is claimed before a dispatcher is asked, and where the dispatcher refuses it the claim is taken back. So a claim without an
//! answer, which a gateway leaves that is killed in between, lets the same output be handed in again and no other one.

use fleet::ids::CallId;
use serde::{Deserialize, Serialize};

use super::{name::TurnName, outputs::HandedInFor};

/// The kind of a record of outputs among the events of a session.
const KIND: &str = "turn_outputs";

/// What the stream says of outputs.
#[derive(Debug, Serialize, Deserialize)]
struct OutputsRecord {
    kind: String,
    turn_id: String,
    outputs: Vec<OutputClaim>,
    /// The sequence of the record whose claims of these calls are taken back; `None`: they are claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    takes_back: Option<u64>,
}

/// One output, by the hash of what it says.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct OutputClaim {
    call_id: CallId,
    output: String,
}

/// The claims of a turn's outputs, in their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct OutputClaims(Vec<(u64, OutputClaim)>);

/// What is known of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// The last one that was handed in for its call is the same.
    Same,
    /// It is another one.
    Other,
    /// None was handed in for its call.
    Nothing,
}

impl OutputClaims {
    /// Hears a record of the stream; what is none of this turn is left out.
    pub(super) fn hear(&mut self, name: &TurnName, sequence: u64, payload: &[u8]) {
        let Ok(record) = serde_json::from_slice::<OutputsRecord>(payload) else {
            return;
        };
        if record.kind != KIND || record.turn_id != name.id() {
            return;
        }
        match record.takes_back {
            None => {
                let claims = record.outputs.into_iter();
                self.0.extend(claims.map(|claim| (sequence, claim)));
            }
            Some(of) => self.0.retain(|(sequence, claim)| {
                let is_taken_back = |back: &OutputClaim| back.call_id == claim.call_id;
                *sequence != of || !record.outputs.iter().any(is_taken_back)
            }),
        }
    }

    /// What is known of this output.
    pub(crate) fn of(&self, output: &HandedInFor) -> Claimed {
        let mut claims = self.0.iter().rev().map(|(_, claim)| claim);
        match claims.find(|claim| claim.call_id == output.call) {
            Some(claim) if claim.output == output.hash => Claimed::Same,
            Some(_) => Claimed::Other,
            None => Claimed::Nothing,
        }
    }
}

/// The record that claims these outputs, or takes back what was claimed with the record of that sequence.
pub(super) fn record<'a>(
    name: &TurnName,
    outputs: impl IntoIterator<Item = &'a HandedInFor>,
    takes_back: Option<u64>,
) -> Vec<u8> {
    let outputs = outputs.into_iter().map(|output| OutputClaim {
        call_id: output.call,
        output: output.hash.clone(),
    });
    let record = OutputsRecord {
        kind: KIND.to_owned(),
        turn_id: name.id(),
        outputs: outputs.collect(),
        takes_back,
    };
    serde_json::to_vec(&record).expect("a record has only string keys")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(call: CallId, result: u8) -> HandedInFor {
        let body = format!(r#"{{"outputs":[{{"call_id":"{call}","result":{result}}}]}}"#);
        HandedInFor::all_of(body.as_bytes()).unwrap().remove(0)
    }

    #[test]
    fn the_last_claim_counts_but_for_those_that_were_taken_back() {
        let name = TurnName::read(&format!("turn_{}", "0".repeat(32))).unwrap();
        let other = TurnName::read(&format!("turn_{}", "1".repeat(32))).unwrap();
        let call = CallId::generate();
        let (one, two) = (output(call, 1), output(call, 2));
        let mut claims = OutputClaims::default();
        assert_eq!(claims.of(&one), Claimed::Nothing);
        claims.hear(&name, 5, &record(&other, [&one], None));
        claims.hear(&name, 6, br#"{"kind":"turn"}"#);
        assert_eq!(claims.of(&one), Claimed::Nothing);
        claims.hear(&name, 7, &record(&name, [&one], None));
        assert_eq!(claims.of(&one), Claimed::Same);
        assert_eq!(claims.of(&two), Claimed::Other);
        assert_eq!(claims.of(&output(CallId::generate(), 1)), Claimed::Nothing);
        claims.hear(&name, 8, &record(&name, [&two], None));
        assert_eq!(claims.of(&two), Claimed::Same);
        claims.hear(&name, 9, &record(&name, [&two], Some(8)));
        assert_eq!(claims.of(&two), Claimed::Other);
        assert_eq!(claims.of(&one), Claimed::Same);
    }
}
