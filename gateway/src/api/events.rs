//! `GET /v1/sessions/{session}/events`: what happens to the calls of a session, as server-sent events, from now on, from the start, or
//! behind the last event that somebody was told.

use std::sync::Arc;

use axum::{
    extract::{Path, State, rejection::PathRejection},
    http::HeaderMap,
    response::Response,
};
use fleet::{
    ids::Label,
    tokens::Scope,
    wire::{code::Code, message::Message},
};

use super::named;
use crate::{
    asked::Asked,
    events::{
        begin::BeginAt,
        deliver::{self, StreamGoes, Wording},
        keeper::SessionOf,
        raw,
        reading::Reading,
        told::Told,
        way::Said,
    },
    follower::{for_all_tools, no_reading, stream_for},
    headers::LAST_EVENT_ID,
    query::Query,
    refusal::Refused,
    state::Gateway,
};

/// Follows a session.
pub(super) async fn session(
    State(gateway): State<Arc<Gateway>>,
    session: Result<Path<String>, PathRejection>,
    asked: Asked,
) -> Result<Response, Refused> {
    let principal = asked.by(&[Scope::Read])?;
    let session: Label = named(session)
        .parse()
        .map_err(|bad| Refused::name(Code::InvalidId, &bad))?;
    let tenant = asked.tenant(principal)?;
    for_all_tools(principal)?;
    let query = asked.query(&["style", "from"])?;
    if query.text("style").is_some_and(|style| style != "raw") {
        let what = Message::fixed("style must be raw", "style 必须是 raw");
        return Err(Refused::new(Code::InvalidArguments, what));
    }
    let at = beginning(&asked.headers, &query)?;
    let whom = stream_for(&gateway, &asked, principal)?;
    let of = SessionOf { tenant, session };
    let reading = Reading::open(&gateway.sessions, &of, at).await;
    let reading = reading.map_err(|why| no_reading(&why))?;
    Ok(deliver::answer(gateway, whom, reading, Raw).stream())
}

/// Every event as it is.
struct Raw;

impl Wording for Raw {
    async fn say(&mut self, told: Arc<Told>, to: &mut Said) -> StreamGoes {
        raw::write(&told, to.text());
        StreamGoes::On
    }
}

/// From where: what somebody was told last goes before what the query says, for a browser comes back with both.
fn beginning(headers: &HeaderMap, query: &Query) -> Result<BeginAt, Refused> {
    let from = match query.text("from") {
        None | Some("now") => BeginAt::Now,
        Some("start") => BeginAt::Start,
        Some(_other) => {
            let what = Message::fixed("from must be start or now", "from 必须是 start 或 now");
            return Err(Refused::new(Code::InvalidArguments, what));
        }
    };
    let mut lines = headers.get_all(&LAST_EVENT_ID).iter();
    let (Some(line), further) = (lines.next(), lines.next()) else {
        return Ok(from);
    };
    let id = line.to_str().ok().and_then(|text| text.parse().ok());
    id.filter(|_| further.is_none())
        .map(BeginAt::Behind)
        .ok_or_else(|| {
            let what = Message::fixed(
                "Last-Event-ID must be the id of an event that was sent here",
                "Last-Event-ID 必须是这里发送过的事件的 id",
            );
            Refused::new(Code::HeaderInvalid, what)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::place::EventId;

    fn read(last: &[&str], from: Option<&str>) -> Result<BeginAt, Refused> {
        let mut headers = HeaderMap::new();
        for id in last {
            headers.append(LAST_EVENT_ID, id.parse().unwrap());
        }
        let query = from.map(|from| format!("from={from}"));
        beginning(&headers, &Query::read(query.as_deref(), &["from"]).unwrap())
    }

    #[test]
    fn the_last_event_goes_before_what_the_query_says() {
        let id = EventId {
            epoch: 5,
            sequence: 7,
        };
        assert_eq!(read(&[], None).unwrap(), BeginAt::Now);
        assert_eq!(read(&[], Some("start")).unwrap(), BeginAt::Start);
        assert_eq!(read(&["5-7"], Some("start")).unwrap(), BeginAt::Behind(id));
        for bad in [&["5"][..], &[""], &["5-7", "5-7"], &["5-7.1"]] {
            assert!(read(bad, None).is_err(), "{bad:?}");
        }
        assert!(read(&[], Some("")).is_err() && read(&["5-7"], Some("x")).is_err());
    }
}
