//! What happens to a call while it is under way, for followers of its session.
//!
//! Events are news, not the record: nothing depends on them, some may be missing, and the row is right. They contain no
//! arguments and no error message; of the result what its tool tells before it is complete (`output`).

use serde::{Deserialize, Serialize, Serializer, de::Error};
use time::OffsetDateTime;

use crate::{
    call::{Awaiting, CallOutcome, State},
    ids::{CallId, Label},
    wire::{
        chunks::{ModelChunk, ModelChunks},
        code::Code,
        part::Part,
    },
};

/// The call that an event is about, as far as it says who hears of it.
#[derive(Debug, Clone, Copy)]
pub struct SessionCall<'a> {
    /// Who has made it.
    pub tenant: &'a Label,
    /// Whose followers hear of it; `None`: nobody's.
    pub session: Option<&'a Label>,
    /// Its tool.
    pub tool: &'a str,
    /// The version it was accepted with.
    pub tool_version: i32,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// The call.
    pub call_id: CallId,
    /// Its place among the events of the call, see [`Event::sequence`].
    pub sequence: u64,
    /// When it happened, on Postgres's clock.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// What happened.
    #[serde(flatten)]
    pub what: Happening,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Happening {
    /// The call was committed.
    Accepted {
        /// Its tool.
        tool: String,
        /// The version of the tool.
        tool_version: i32,
    },
    /// The call waits for somebody.
    Awaiting {
        /// For whom.
        #[serde(rename = "for")]
        whom: Awaiting,
        /// Until when.
        #[serde(with = "time::serde::rfc3339")]
        until: OffsetDateTime,
        /// What proves that the call was handed to whoever answers. Absent where nobody answers with one.
        #[serde(skip_serializing_if = "Option::is_none")]
        token: Option<String>,
    },
    /// An attempt began.
    Started {
        /// Its number, from 1.
        attempt: u32,
    },
    /// A tool reports its progress.
    Progress {
        /// The number of the attempt.
        attempt: u32,
        /// How much is done, from 0 to 1.
        #[serde(skip_serializing_if = "Option::is_none")]
        fraction: Option<f64>,
        /// The tool's own words.
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// A part of the answer.
    Output {
        /// The number of the attempt.
        attempt: u32,
        /// Its place among the parts of the attempt, from 0, without gaps.
        part: u32,
        /// What it is: the member `output`, or `route` and `chunks` of a model's stream.
        #[serde(flatten, serialize_with = "as_members")]
        output: Part,
    },
    /// An attempt is still at work. Told now and then, so that whoever follows sees time pass.
    Running {
        /// The number of the attempt.
        attempt: u32,
    },
    /// An attempt is over, and another may follow.
    Retrying {
        /// The number of the attempt that is over.
        attempt: u32,
        /// Why, where that is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<Code>,
    },
    /// The call is decided, or in doubt.
    Finished {
        /// Its state.
        state: State,
        /// What it came to.
        outcome: CallOutcome,
        /// How many attempts were made.
        attempts: i32,
        /// The error code, where it did not succeed.
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<Code>,
    },
}

/// Chunks stand in the event itself, as the vendor's words; every other part in a member of its own.
fn as_members<S: Serializer>(part: &Part, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct PartMember<'a> {
        output: &'a Part,
    }
    match part {
        Part::Chunks(chunks) => chunks.serialize(to),
        output @ (Part::Text(_) | Part::Step(_) | Part::Image(_) | Part::Value(_)) => {
            PartMember { output }.serialize(to)
        }
    }
}

impl Event {
    /// How many events one revision of a call can have.
    const PER_REVISION: u64 = 1_000_000;

    /// The place of the `n`th event after a call's revision.
    ///
    /// Several processes publish events of one call without knowing of each other; all of them know how often the ledger has
    /// moved the call. So the numbers of one call only rise, with gaps. An event of an attempt that was taken away has a
    /// number below that of an earlier event.
    pub fn sequence(revision: i32, n: u32) -> u64 {
        let revision = u64::try_from(revision).unwrap_or(0);
        revision * Self::PER_REVISION + u64::from(n).min(Self::PER_REVISION - 1)
    }

    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("an event has only string keys")
    }

    /// Reads an event.
    ///
    /// # Errors
    ///
    /// It is not an event, or of a kind that this release does not know.
    pub fn read(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        let fields: Fields = serde_json::from_slice(bytes)?;
        let lacks = serde_json::Error::missing_field;
        let attempt = fields.attempt.ok_or_else(|| lacks("attempt"));
        let what = match fields.kind.as_str() {
            "accepted" => Happening::Accepted {
                tool: fields.tool.ok_or_else(|| lacks("tool"))?,
                tool_version: fields.tool_version.ok_or_else(|| lacks("tool_version"))?,
            },
            "awaiting" => Happening::Awaiting {
                whom: fields.whom.ok_or_else(|| lacks("for"))?,
                until: fields.until.ok_or_else(|| lacks("until"))?,
                token: fields.token,
            },
            "started" => Happening::Started { attempt: attempt? },
            "progress" => Happening::Progress {
                attempt: attempt?,
                fraction: fields.fraction,
                message: fields.message,
            },
            "output" => Happening::Output {
                attempt: attempt?,
                part: fields.part.ok_or_else(|| lacks("part"))?,
                output: match (fields.output, fields.route, fields.chunks) {
                    (None, Some(route), Some(chunks)) => Part::Chunks(ModelChunks {
                        route,
                        restart: fields.restart.unwrap_or(false),
                        chunks,
                    }),
                    (output, _, _) => output.ok_or_else(|| lacks("output"))?,
                },
            },
            "running" => Happening::Running { attempt: attempt? },
            "retrying" => Happening::Retrying {
                attempt: attempt?,
                code: fields.code,
            },
            "finished" => Happening::Finished {
                state: fields.state.ok_or_else(|| lacks("state"))?,
                outcome: fields.outcome.ok_or_else(|| lacks("outcome"))?,
                attempts: fields.attempts.ok_or_else(|| lacks("attempts"))?,
                code: fields.code,
            },
            kind => {
                let known = &[
                    "accepted", "awaiting", "started", "progress", "output", "running", "retrying",
                    "finished",
                ];
                return Err(serde_json::Error::unknown_variant(kind, known));
            }
        };
        Ok(Self {
            call_id: fields.call_id,
            sequence: fields.sequence,
            at: fields.at,
            what,
        })
    }
}

/// The fields of every kind. Flattened and tagged, a fraction with arbitrary precision could not be read.
#[derive(Deserialize)]
struct Fields {
    call_id: CallId,
    sequence: u64,
    #[serde(with = "time::serde::rfc3339")]
    at: OffsetDateTime,
    kind: String,
    tool: Option<String>,
    tool_version: Option<i32>,
    attempt: Option<u32>,
    fraction: Option<f64>,
    message: Option<String>,
    part: Option<u32>,
    output: Option<Part>,
    route: Option<String>,
    restart: Option<bool>,
    chunks: Option<Vec<ModelChunk>>,
    state: Option<State>,
    outcome: Option<CallOutcome>,
    attempts: Option<i32>,
    code: Option<Code>,
    #[serde(rename = "for")]
    whom: Option<Awaiting>,
    #[serde(default, with = "time::serde::rfc3339::option")]
    until: Option<OffsetDateTime>,
    token: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::{json, value::RawValue};

    use super::*;

    fn chunk() -> Box<RawValue> {
        let json = r#"{"n": 9007199254740993, "half":1.50,"t":"\u00fc"}"#;
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn a_chunk_stands_in_its_event_to_the_byte() {
        let told = |output: ModelChunks| {
            let what = Happening::Output {
                attempt: 1,
                part: 3,
                output: output.into(),
            };
            let event = Event {
                call_id: CallId::generate(),
                sequence: 7,
                at: OffsetDateTime::UNIX_EPOCH,
                what,
            };
            String::from_utf8(event.to_bytes()).unwrap()
        };
        let one = told(ModelChunks::one("main", chunk()));
        let members = r#""kind":"output","attempt":1,"part":3,"route":"main","chunks":[{"n": 9007199254740993, "half":1.50,"t":"\u00fc"}]}"#;
        assert!(one.ends_with(members), "{one}");
        let restart = told(ModelChunks::restart("spare"));
        let members = r#""part":3,"route":"spare","restart":true,"chunks":[]}"#;
        assert!(restart.ends_with(members), "{restart}");
    }

    #[test]
    fn a_later_revision_is_behind_everything_before_it() {
        assert!(Event::sequence(0, 0) < Event::sequence(1, 0));
        assert!(Event::sequence(1, u32::MAX) < Event::sequence(2, 0));
        assert!(Event::sequence(1, 1) < Event::sequence(1, 2));
    }

    #[test]
    fn an_event_is_read_as_it_was_sent_and_an_unknown_kind_is_none() {
        let happenings = [
            Happening::Accepted {
                tool: "look".to_owned(),
                tool_version: 2,
            },
            Happening::Awaiting {
                whom: Awaiting::Client,
                until: OffsetDateTime::UNIX_EPOCH,
                token: Some("t".to_owned()),
            },
            Happening::Started { attempt: 1 },
            Happening::Progress {
                attempt: 1,
                fraction: Some(0.25),
                message: Some("a quarter".to_owned()),
            },
            Happening::Output {
                attempt: 1,
                part: 0,
                output: Part::Text("once upon".to_owned()),
            },
            Happening::Output {
                attempt: 1,
                part: 1,
                output: Part::Chunks(ModelChunks::one("main", chunk())),
            },
            Happening::Output {
                attempt: 1,
                part: 2,
                output: Part::Chunks(ModelChunks::restart("spare")),
            },
            Happening::Running { attempt: 1 },
            Happening::Retrying {
                attempt: 1,
                code: Some(Code::Timeout),
            },
            Happening::Finished {
                state: State::Failed,
                outcome: CallOutcome::SystemError,
                attempts: 2,
                code: Some(Code::Timeout),
            },
        ];
        for what in happenings {
            let event = Event {
                call_id: CallId::generate(),
                sequence: 7,
                at: OffsetDateTime::UNIX_EPOCH,
                what,
            };
            assert_eq!(Event::read(&event.to_bytes()).unwrap(), event);
            let text = String::from_utf8(event.to_bytes()).unwrap();
            let later = text.replace("\"kind\":\"", "\"kind\":\"later_");
            assert!(Event::read(later.as_bytes()).is_err(), "{later}");
        }
    }

    #[test]
    fn an_event_is_one_flat_object() {
        let call_id = CallId::generate();
        let event = Event {
            call_id,
            sequence: Event::sequence(1, 2),
            at: OffsetDateTime::UNIX_EPOCH,
            what: Happening::Progress {
                attempt: 1,
                fraction: Some(0.5),
                message: None,
            },
        };
        assert_eq!(
            serde_json::to_value(&event).unwrap(),
            json!({
                "call_id": call_id, "sequence": 1_000_002, "at": "1970-01-01T00:00:00Z", "kind": "progress",
                "attempt": 1, "fraction": 0.5,
            })
        );
    }
}
