//! Who may follow, and why somebody cannot.

use fleet::{
    telemetry::report,
    wire::{code::Code, message::Message},
};

use crate::{
    asked::Asked,
    auth::principal::Principal,
    edge::peers::Peer,
    events::{
        pipe::StreamFor,
        places::{NoPlace, StreamHolder},
        reading::NoReading,
        unheard::Unheard,
    },
    refusal::Refused,
    state::Gateway,
};

/// Whether somebody may follow whole sessions, whose calls are of any tool.
///
/// # Errors
///
/// `forbidden`.
pub(crate) fn for_all_tools(principal: &Principal) -> Result<(), Refused> {
    if principal.has_all_tools() {
        return Ok(());
    }
    let what = Message::fixed(
        "the token is for some tools only, and a session has calls of any",
        "这个 token 只能用于部分工具，而会话中的调用可以是任何工具的",
    );
    Err(Refused::new(Code::Forbidden, what))
}

/// Whom a stream is for, where there is a place for it.
///
/// # Errors
///
/// `rate_limited`, `overloaded`.
pub(crate) fn stream_for(
    gateway: &Gateway,
    asked: &Asked,
    principal: &Principal,
) -> Result<StreamFor, Refused> {
    stream_from(gateway, asked.peer(), principal)
}

/// The same for who asks on this connection.
///
/// # Errors
///
/// `rate_limited`, `overloaded`.
pub(crate) fn stream_from(
    gateway: &Gateway,
    peer: Peer,
    principal: &Principal,
) -> Result<StreamFor, Refused> {
    let holder = match principal {
        Principal::Anyone | Principal::Named(_) => StreamHolder::Address(peer.address()),
        Principal::Token(token) => StreamHolder::Token(token.token_id.clone()),
    };
    let place = gateway.streams.take(holder).map_err(|none| match none {
        NoPlace::Each => {
            let what = Message::fixed(
                "as many streams of this caller are open as may be (GATEWAY_STREAMS_EACH_MAX)",
                "这个调用方打开的流已达上限（GATEWAY_STREAMS_EACH_MAX）",
            );
            Refused::later(Code::RateLimited, what)
        }
        NoPlace::All => {
            let what = Message::fixed(
                "as many streams of this gateway are open as may be (GATEWAY_STREAMS_MAX)",
                "这个网关打开的流已达上限（GATEWAY_STREAMS_MAX）",
            );
            Refused::later(Code::Overloaded, what)
        }
    })?;
    Ok(StreamFor {
        principal: principal.clone(),
        peer,
        _place: place,
    })
}

/// What somebody is told who cannot follow.
pub(crate) fn no_reading(why: &NoReading) -> Refused {
    match why {
        NoReading::NotYet => {
            let what = Message::fixed(
                "Last-Event-ID is behind every event that there has been",
                "Last-Event-ID 在所有已有事件之后",
            );
            Refused::new(Code::HeaderInvalid, what)
        }
        NoReading::Unheard(why) => unheard(why),
    }
}

/// What somebody is told where nothing is heard of the stream of events.
pub(crate) fn unheard(why: &Unheard) -> Refused {
    tracing::debug!(error = report(why), "the stream of events is not heard of");
    let what = Message::fixed(
        "the stream of events cannot be read at the moment",
        "目前无法读取事件流",
    );
    Refused::later(Code::Unavailable, what)
}
