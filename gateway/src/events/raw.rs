//! What followers are told, as server-sent events: every event with its own bytes. Pure.

use std::fmt::Display;

use bytes::{BufMut as _, BytesMut};
use serde_json::json;

use super::{
    begin::WhyMissing,
    told::{CallsSince, EventGap, SNAPSHOT, SessionEvent, Told},
};

/// Keeps a connection open through which nothing comes.
pub(crate) const KEEP: &[u8] = b": keep\n\n";
/// Has a reader come back in this many milliseconds, when this gateway stops.
pub(crate) const COME_BACK: &[u8] = b"retry: 250\n\n";

/// Writes it.
pub(crate) fn write(told: &Told, to: &mut BytesMut) {
    match told {
        Told::Event(event) => write_event(event, to),
        Told::Gap(gap) => write_gap(gap, to),
    }
}

fn write_event(event: &SessionEvent, to: &mut BytesMut) {
    line(to, "id", event.id.to_string().as_bytes());
    if !event.kind.is_empty() {
        line(to, "event", event.kind.as_bytes());
    }
    data(to, &event.payload);
    to.put_u8(b'\n');
}

/// The gap, what the rows say, and then alone the id from which on nothing is missing: who goes away before that comes back to the gap.
fn write_gap(gap: &EventGap, to: &mut BytesMut) {
    write_said(gap, to);
    write_snapshots(gap, to);
    write_id(&gap.up_to, to);
}

/// Alone the id behind which somebody who has had all of this comes back.
pub(crate) fn write_id(id: &impl Display, to: &mut BytesMut) {
    line(to, "id", id.to_string().as_bytes());
    to.put_u8(b'\n');
}

/// Writes a message that is no event of the fleet: JSON, for where its lines end does not matter.
pub(crate) fn write_message(message: &[u8], to: &mut BytesMut) {
    data(to, message);
    to.put_u8(b'\n');
}

/// The same with a word for what it is, of letters, points and lines.
pub(crate) fn write_named(name: &str, message: &[u8], to: &mut BytesMut) {
    line(to, "event", name.as_bytes());
    write_message(message, to);
}

/// That something is missing.
pub(crate) fn write_said(gap: &EventGap, to: &mut BytesMut) {
    let EventGap {
        behind,
        why,
        up_to,
        calls,
    } = gap;
    let why = match why {
        Some(WhyMissing::Epoch) => "epoch",
        Some(WhyMissing::Dropped) => "dropped",
        None => "older",
    };
    let (known, more) = match calls {
        Some(CallsSince { over, more }) => (Some(over.len()), *more),
        None => (None, false),
    };
    let said = json!({
        "kind": "gap",
        "why": why,
        "behind": behind.map(|id| id.to_string()),
        "up_to": up_to.to_string(),
        "snapshots": known,
        "more": more,
    });
    line(to, "event", b"gap");
    data(to, said.to_string().as_bytes());
    to.put_u8(b'\n');
}

/// What the rows say instead.
pub(crate) fn write_snapshots(EventGap { calls, .. }: &EventGap, to: &mut BytesMut) {
    for call in calls.iter().flat_map(|calls| &calls.over) {
        let said = serde_json::to_vec(call).expect("a row has only string keys");
        line(to, "event", SNAPSHOT.as_bytes());
        data(to, &said);
        to.put_u8(b'\n');
    }
}

fn line(to: &mut BytesMut, field: &str, value: &[u8]) {
    to.put_slice(field.as_bytes());
    to.put_slice(b": ");
    to.put_slice(value);
    to.put_u8(b'\n');
}

/// A line of data for each line of the bytes, for an end of line ends a field.
fn data(to: &mut BytesMut, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    for one in text.split('\n') {
        line(to, "data", one.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use time::OffsetDateTime;

    use super::*;
    use crate::events::place::EventId;

    fn written(told: &Told) -> String {
        let mut to = BytesMut::new();
        write(told, &mut to);
        String::from_utf8(to.to_vec()).unwrap()
    }

    const ID: EventId = EventId {
        epoch: 5,
        sequence: 7,
    };

    fn event(payload: &'static str) -> String {
        let payload = Bytes::from_static(payload.as_bytes());
        let at = OffsetDateTime::UNIX_EPOCH;
        written(&Told::Event(SessionEvent::new(ID, at, payload)))
    }

    #[test]
    fn an_event_has_its_id_its_kind_and_its_bytes() {
        assert_eq!(
            event(r#"{"kind":"started","attempt":1E0}"#),
            "id: 5-7\nevent: started\ndata: {\"kind\":\"started\",\"attempt\":1E0}\n\n"
        );
    }

    #[test]
    fn nothing_in_an_event_becomes_a_field_of_its_own() {
        assert_eq!(
            event("{\"a\":\r\n1}\rid: 9-9\nevent: x"),
            "id: 5-7\ndata: {\"a\":\ndata: 1}\ndata: id: 9-9\ndata: event: x\n\n"
        );
    }

    #[test]
    fn a_gap_says_what_is_known_and_its_id_comes_last() {
        let row =
            r#"{"call_id":"c","tool":"look","state":"succeeded","outcome":"success","attempts":1}"#;
        let mut gap = EventGap {
            behind: Some(ID),
            why: Some(WhyMissing::Epoch),
            up_to: EventId {
                epoch: 6,
                sequence: 0,
            },
            calls: Some(CallsSince {
                over: vec![serde_json::from_str(row).unwrap()],
                more: false,
            }),
        };
        assert_eq!(
            written(&Told::Gap(gap.clone())),
            "event: gap\ndata: {\"behind\":\"5-7\",\"kind\":\"gap\",\"more\":false,\"snapshots\":1,\"up_to\":\"6-0\",\"why\":\"epoch\"}\n\n\
             event: snapshot\ndata: {\"call_id\":\"c\",\"kind\":\"snapshot\",\"tool\":\"look\",\"state\":\"succeeded\",\"outcome\":\"success\",\"attempts\":1}\n\n\
             id: 6-0\n\n"
        );
        gap.calls = None;
        let without = written(&Told::Gap(gap));
        assert!(without.contains("\"snapshots\":null"), "{without}");
    }
}
