//! The headers of a turn in the stream of events: puts them there and finds them.

use fleet::{bus::kept::KeptEvents, ids::Label};

use super::{header::to_event, name::TurnName};
use crate::{
    events::{
        keeper::{Keeper, SessionOf},
        unheard::Unheard,
    },
    speaker::TurnHeader,
};

/// The most headers of a turn that are looked at: one for each response.
const HEADERS_MAX: usize = 64;

/// A header that the stream has.
#[derive(Debug, Clone)]
pub(crate) struct KeptHeader {
    /// Its sequence.
    pub(crate) sequence: u64,
    pub(crate) header: TurnHeader,
}

/// The session of a turn.
pub(crate) fn session_of(tenant: &Label, name: &TurnName) -> SessionOf {
    SessionOf {
        tenant: tenant.clone(),
        session: name.session(),
    }
}

/// The headers of a turn, one for each of its responses, the first one first; none where the stream has none, or not any more. What is no
/// header of this turn is left out, and of a response the first one counts.
///
/// # Errors
///
/// Nothing is heard of the stream.
pub(crate) async fn headers(
    keeper: &Keeper,
    tenant: &Label,
    name: &TurnName,
) -> Result<Vec<KeptHeader>, Unheard> {
    let of = session_of(tenant, name);
    let mut found: Vec<KeptHeader> = Vec::new();
    let mut from = 1;
    for _ in 0..HEADERS_MAX {
        let Some(kept) = keeper.next_header(&of, from).await? else {
            break;
        };
        from = kept.sequence + 1;
        let Ok(header) = TurnHeader::read(&kept.payload) else {
            continue;
        };
        let is_known = |known: &KeptHeader| known.header.response_id == header.response_id;
        if header.turn_id == name.id() && !found.iter().any(is_known) {
            found.push(KeptHeader {
                sequence: kept.sequence,
                header,
            });
        }
    }
    Ok(found)
}

/// Puts a header into the stream, where the last one there is this one, or none. Whether it stands there now; where it does not, another
/// gateway was first, or the same one before.
///
/// # Errors
///
/// Nothing is heard of the stream: it may stand there.
pub(crate) async fn keep(
    keeper: &Keeper,
    tenant: &Label,
    name: &TurnName,
    header: &TurnHeader,
    last: Option<u64>,
) -> Result<bool, Unheard> {
    let of = session_of(tenant, name);
    let stored = keeper.store_header(&of, to_event(header), last.unwrap_or(0));
    Ok(stored.await?.is_some())
}

/// How the stream stands.
///
/// # Errors
///
/// Nothing is heard of it.
pub(crate) async fn stands(keeper: &Keeper) -> Result<KeptEvents, Unheard> {
    keeper.stands().await
}
