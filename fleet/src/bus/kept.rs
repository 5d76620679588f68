//! What the stream of events is asked over the API of JetStream, and how its answers are read. Pure: who asks has the connection.
//!
//! A follower reads one session with a consumer of its own, which the server pushes to it in order. Its end is asked for, and where nobody
//! does that any more, the server takes it away by itself some seconds after nobody listens. What lies before that is read one by
//! one. Both name the session as their filter, so a user needs no right to anything but the events of sessions.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::json;
use time::OffsetDateTime;

use crate::{ids::Label, wire::subjects::Subjects};

/// How often the server says on an idle consumer that it still is there.
pub const HEARTBEAT: Duration = Duration::from_secs(5);
/// How long the server keeps a consumer to which nobody listens.
const UNHEARD_MAX: Duration = Duration::from_secs(5);
/// JetStream's number of "no such stream".
const NO_STREAM: u64 = 10_059;
/// JetStream's number of "no such message".
const NO_MESSAGE: u64 = 10_037;
/// JetStream's number of "another message is the last one there".
const NOT_LAST: u64 = 10_071;
/// With which a message says which one it expects to be the last on its subject: its sequence, or 0 for none.
pub const EXPECTED_LAST: &str = "Nats-Expected-Last-Subject-Sequence";

/// A question to the API of JetStream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiQuestion {
    /// Where it is asked.
    pub subject: String,
    /// Its body.
    pub body: String,
}

/// The stream as it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptEvents {
    /// When it was made, in nanoseconds since 1970. Another stream, made after it was lost, has another one.
    pub epoch: u64,
    /// The same as a time.
    pub made_at: OffsetDateTime,
    /// The sequence of the oldest event that it has; of the next one where it has none.
    pub first: u64,
    /// When the oldest was stored; `None`: it has none.
    pub first_at: Option<OffsetDateTime>,
    /// The sequence of the newest event that it has had; 0: it never had one.
    pub last: u64,
}

/// One event as the stream keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptEvent {
    /// Its sequence in the stream.
    pub sequence: u64,
    /// When it was stored.
    pub at: OffsetDateTime,
    /// Its subject.
    pub subject: String,
    /// Its bytes.
    pub payload: Vec<u8>,
}

/// Where an event stands that a consumer delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveredEvent {
    /// Its sequence in the stream.
    pub sequence: u64,
    /// Its place among what the consumer has delivered, from 1 and without gaps.
    pub place: u64,
    /// When it was stored.
    pub at: OffsetDateTime,
    /// How many more the consumer has to deliver.
    pub pending: u64,
}

/// Why the API has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiRefusal {
    /// The stream does not exist.
    #[error("there is no stream of events")]
    NoStream,
    /// Something else, in the server's words.
    #[error("JetStream refuses: {0}")]
    Other(String),
    /// It is not of the expected form.
    #[error("the answer of JetStream cannot be read")]
    Unreadable,
}

/// Asks how the stream stands; [`read_stands`] reads the answer.
pub fn ask_stands(subjects: &Subjects) -> ApiQuestion {
    ApiQuestion {
        subject: api("STREAM.INFO", &subjects.events_stream()),
        body: String::new(),
    }
}

/// Reads the answer to [`ask_stands`].
///
/// # Errors
///
/// There is no such stream, or the answer is none.
pub fn read_stands(answer: &[u8]) -> Result<KeptEvents, ApiRefusal> {
    #[derive(Deserialize)]
    struct Info {
        #[serde(with = "time::serde::rfc3339")]
        created: OffsetDateTime,
        state: Counts,
    }
    #[derive(Deserialize)]
    struct Counts {
        messages: u64,
        first_seq: u64,
        #[serde(with = "time::serde::rfc3339")]
        first_ts: OffsetDateTime,
        last_seq: u64,
    }

    let Info { created, state } = read(answer)?;
    let epoch = u64::try_from(created.unix_timestamp_nanos());
    let is_empty = state.messages == 0;
    Ok(KeptEvents {
        epoch: epoch.map_err(|_before_1970| ApiRefusal::Unreadable)?,
        made_at: created,
        first: if is_empty {
            state.last_seq + 1
        } else {
            state.first_seq
        },
        first_at: (!is_empty).then_some(state.first_ts),
        last: state.last_seq,
    })
}

/// Asks for the first event on these subjects that has this sequence or a later one; [`read_next`] reads the answer.
pub fn ask_next(subjects: &Subjects, filter: &str, from: u64) -> ApiQuestion {
    ApiQuestion {
        subject: api("STREAM.MSG.GET", &subjects.events_stream()),
        body: json!({ "seq": from.max(1), "next_by_subj": filter }).to_string(),
    }
}

/// Reads the answer to [`ask_next`]; `None`: there is no further one.
///
/// # Errors
///
/// There is no such stream, or the answer is none.
pub fn read_next(answer: &[u8]) -> Result<Option<KeptEvent>, ApiRefusal> {
    #[derive(Deserialize)]
    struct FoundEvent {
        message: StoredEvent,
    }
    #[derive(Deserialize)]
    struct StoredEvent {
        subject: String,
        seq: u64,
        #[serde(default)]
        data: String,
        #[serde(with = "time::serde::rfc3339")]
        time: OffsetDateTime,
    }

    if refused(answer)?.is_some_and(|error| error.err_code == NO_MESSAGE) {
        return Ok(None);
    }
    let FoundEvent { message } = read(answer)?;
    let payload = STANDARD.decode(&message.data);
    Ok(Some(KeptEvent {
        sequence: message.seq,
        at: message.time,
        subject: message.subject,
        payload: payload.map_err(|_other| ApiRefusal::Unreadable)?,
    }))
}

/// Asks for a consumer of this name that delivers the events of a session from this sequence on to `inbox`.
///
/// [`read_consumer`] reads the answer. Nothing is acknowledged: the server stops after what the receiver has room for until that
/// has answered.
pub fn ask_consumer(
    subjects: &Subjects,
    tenant: &Label,
    session: &Label,
    consumer: &ConsumerWanted<'_>,
) -> ApiQuestion {
    let stream = subjects.events_stream();
    let filter = subjects.events_of_session(tenant, session);
    let ConsumerWanted { name, inbox, from } = consumer;
    let config = json!({
        "name": name,
        "description": "Toolfleet: a gateway follows a session",
        "deliver_subject": inbox,
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": from.max(&1),
        "ack_policy": "none",
        "max_deliver": 1,
        "replay_policy": "instant",
        "filter_subject": filter,
        "flow_control": true,
        "idle_heartbeat": nanos(HEARTBEAT),
        "inactive_threshold": nanos(UNHEARD_MAX),
        "num_replicas": 1,
        "mem_storage": true,
    });
    ApiQuestion {
        subject: api("CONSUMER.CREATE", &format!("{stream}.{name}.{filter}")),
        body: json!({ "stream_name": stream, "config": config }).to_string(),
    }
}

/// Asks for the end of the consumer of this name. Its answer says nothing that matters: one that is gone is gone.
pub fn ask_consumer_end(subjects: &Subjects, name: &str) -> ApiQuestion {
    let stream = subjects.events_stream();
    ApiQuestion {
        subject: api("CONSUMER.DELETE", &format!("{stream}.{name}")),
        body: String::new(),
    }
}

/// A consumer that is asked for.
#[derive(Debug, Clone, Copy)]
pub struct ConsumerWanted<'a> {
    /// Its name: one token.
    pub name: &'a str,
    /// Where it delivers.
    pub inbox: &'a str,
    /// The sequence of the first event that it may deliver.
    pub from: u64,
}

/// Reads the answer to [`ask_consumer`].
///
/// # Errors
///
/// There is no such stream, or the server makes no consumer.
pub fn read_consumer(answer: &[u8]) -> Result<(), ApiRefusal> {
    #[derive(Deserialize)]
    struct Made {
        name: String,
    }

    let made: Made = read(answer)?;
    if made.name.is_empty() {
        return Err(ApiRefusal::Unreadable);
    }
    Ok(())
}

/// Reads what the stream answers to a message that was published with a reply subject: its sequence. `None`: it was not stored, for another
/// message than the one in [`EXPECTED_LAST`] is the last there.
///
/// # Errors
///
/// The stream refuses it.
pub fn read_stored(answer: &[u8]) -> Result<Option<u64>, ApiRefusal> {
    #[derive(Deserialize)]
    struct StoredAt {
        seq: u64,
    }

    if refused(answer)?.is_some_and(|error| error.err_code == NOT_LAST) {
        return Ok(None);
    }
    let StoredAt { seq } = read(answer)?;
    Ok(Some(seq))
}

/// Where an event stands, by the reply subject with which a consumer delivers it: `$JS.ACK.`, in some servers a domain and an account,
/// then stream, consumer, tries, both sequences, time and what is left.
pub fn delivered(reply: &str) -> Option<DeliveredEvent> {
    let tokens: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
    let counts = match tokens.len() {
        7 => &tokens[3..],
        9.. => &tokens[5..],
        _ => return None,
    };
    let count = |at: usize| counts.get(at)?.parse::<u64>().ok();
    Some(DeliveredEvent {
        sequence: count(0)?,
        place: count(1)?,
        at: OffsetDateTime::from_unix_timestamp_nanos(i128::from(count(2)?)).ok()?,
        pending: count(3)?,
    })
}

#[derive(Debug, Deserialize)]
struct ApiError {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

/// What the server says instead of an answer.
fn refused(answer: &[u8]) -> Result<Option<ApiError>, ApiRefusal> {
    #[derive(Deserialize)]
    struct ApiSaid {
        error: Option<ApiError>,
    }

    let said: ApiSaid = serde_json::from_slice(answer).map_err(|_other| ApiRefusal::Unreadable)?;
    Ok(said.error)
}

fn read<'a, T: Deserialize<'a>>(answer: &'a [u8]) -> Result<T, ApiRefusal> {
    match refused(answer)? {
        Some(error) if error.err_code == NO_STREAM => Err(ApiRefusal::NoStream),
        Some(error) => Err(ApiRefusal::Other(error.description)),
        None => serde_json::from_slice(answer).map_err(|_other| ApiRefusal::Unreadable),
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn api(verb: &str, of: &str) -> String {
    format!("$JS.API.{verb}.{of}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MISSING: &[u8] =
        br#"{"type":"x","error":{"code":404,"err_code":10059,"description":"stream not found"}}"#;

    #[test]
    fn an_empty_stream_begins_behind_its_last_event() {
        let info = |messages: u64, first: u64, last: u64| {
            let info = json!({
                "created": "2026-11-28T10:00:00.000000007Z",
                "state": {"messages": messages, "first_seq": first, "first_ts": "2026-11-28T10:00:01Z", "last_seq": last},
            });
            let stands = read_stands(info.to_string().as_bytes()).unwrap();
            assert_eq!(stands.epoch % 1_000_000_000, 7);
            (stands.first, stands.first_at.is_some(), stands.last)
        };
        assert_eq!(info(0, 0, 0), (1, false, 0));
        assert_eq!(info(0, 0, 9), (10, false, 9));
        assert_eq!(info(2, 3, 9), (3, true, 9));
        assert_eq!(read_stands(MISSING), Err(ApiRefusal::NoStream));
        assert_eq!(read_stands(b"[]"), Err(ApiRefusal::Unreadable));
    }

    #[test]
    fn a_kept_event_is_read_as_it_was_stored_or_there_is_none() {
        let found = json!({"message": {
            "subject": "toolfleet.v1.acme.event.s.1", "seq": 7, "data": "eyJhIjoxfQ==", "time": "2026-11-28T10:00:01Z",
        }});
        let event = read_next(found.to_string().as_bytes()).unwrap().unwrap();
        assert_eq!((event.sequence, event.payload), (7, b"{\"a\":1}".to_vec()));
        let none = br#"{"error":{"code":404,"err_code":10037,"description":"no message found"}}"#;
        assert_eq!(read_next(none), Ok(None));
        assert_eq!(read_next(MISSING), Err(ApiRefusal::NoStream));
    }

    #[test]
    fn what_is_stored_has_a_sequence_unless_another_one_was_first() {
        let stored = br#"{"stream":"TOOLFLEET_EVENTS","seq":12}"#;
        assert_eq!(read_stored(stored), Ok(Some(12)));
        let late = br#"{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 3"},"stream":"S","seq":0}"#;
        assert_eq!(read_stored(late), Ok(None));
        assert_eq!(read_stored(MISSING), Err(ApiRefusal::NoStream));
    }

    #[test]
    fn a_consumer_is_asked_for_by_its_session_and_nothing_wider() {
        let subjects = Subjects::new("toolfleet".parse().unwrap());
        let (tenant, session) = ("acme".parse().unwrap(), "s".parse().unwrap());
        let wanted = ConsumerWanted {
            name: "c",
            inbox: "_INBOX.x",
            from: 0,
        };
        let question = ask_consumer(&subjects, &tenant, &session, &wanted);
        assert_eq!(
            question.subject,
            "$JS.API.CONSUMER.CREATE.TOOLFLEET_EVENTS.c.toolfleet.v1.acme.event.s.*"
        );
        let body: serde_json::Value = serde_json::from_str(&question.body).unwrap();
        assert_eq!(
            body["config"]["filter_subject"],
            "toolfleet.v1.acme.event.s.*"
        );
        assert_eq!(body["config"]["opt_start_seq"], 1);
        assert_eq!(
            ask_consumer_end(&subjects, "c").subject,
            "$JS.API.CONSUMER.DELETE.TOOLFLEET_EVENTS.c"
        );
    }

    #[test]
    fn where_an_event_stands_is_read_from_both_forms_of_its_reply() {
        let short = "$JS.ACK.S.c.1.40.3.1700000000000000000.5";
        let long = "$JS.ACK._.hash.S.c.1.40.3.1700000000000000000.5.token";
        for reply in [short, long] {
            let delivered = delivered(reply).unwrap();
            assert_eq!(
                (delivered.sequence, delivered.place, delivered.pending),
                (40, 3, 5)
            );
        }
        for other in [
            "$JS.ACK.S.c.1.40.3.17",
            "$JS.FC.S.c.x",
            "$JS.ACK.S.c.1.x.3.17.5",
        ] {
            assert_eq!(delivered(other), None, "{other}");
        }
    }
}
