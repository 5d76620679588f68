//! The headers of a turn in the stream of events, and what was handed in for it: puts them there and finds them.

use fleet::{bus::kept::KeptEvents, ids::Label};

use super::{
    claims::{OutputClaims, record},
    header::to_event,
    name::TurnName,
    outputs::HandedInFor,
};
use crate::{
    events::{
        keeper::{Keeper, SessionOf},
        unheard::Unheard,
    },
    speaker::TurnHeader,
};

/// The most records of a turn that are looked at: a header for each response, and what was handed in.
const RECORDS_MAX: usize = 256;

/// What the stream has of a turn beside what its calls tell.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeptTurn {
    /// One for each of its responses, the first one first. What is no header of this turn is left out, and of a response the first one
    /// counts.
    pub(crate) headers: Vec<TurnHeader>,
    /// What was handed in.
    pub(crate) claims: OutputClaims,
    /// The sequence of the last record; 0: there is none.
    pub(crate) last: u64,
    /// Whether there may be more records than are looked at.
    pub(crate) is_full: bool,
}

impl KeptTurn {
    /// The header with which the turn was made, which has all of its calls.
    pub(crate) fn first(&self, name: &TurnName) -> Option<&TurnHeader> {
        let response = name.response();
        let mut headers = self.headers.iter();
        headers.find(|header| header.response_id == response)
    }
}

/// The session of a turn.
pub(crate) fn session_of(tenant: &Label, name: &TurnName) -> SessionOf {
    SessionOf {
        tenant: tenant.clone(),
        session: name.session(),
    }
}

/// What the stream has of a turn; nothing where it has nothing, or not any more.
///
/// # Errors
///
/// Nothing is heard of the stream.
pub(crate) async fn turn(
    keeper: &Keeper,
    tenant: &Label,
    name: &TurnName,
) -> Result<KeptTurn, Unheard> {
    let of = session_of(tenant, name);
    let mut found = KeptTurn::default();
    for _ in 0..RECORDS_MAX {
        let Some(kept) = keeper.next_header(&of, found.last + 1).await? else {
            return Ok(found);
        };
        found.last = kept.sequence;
        let Ok(header) = TurnHeader::read(&kept.payload) else {
            found.claims.hear(name, kept.sequence, &kept.payload);
            continue;
        };
        let is_known = |known: &TurnHeader| known.response_id == header.response_id;
        if header.turn_id == name.id() && !found.headers.iter().any(is_known) {
            found.headers.push(header);
        }
    }
    found.is_full = true;
    Ok(found)
}

/// Puts a header into the stream, where the last record of its turn is this one, or there is none. Whether it stands there now;
/// where it does not, another gateway was first, or the same one before.
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

/// Claims outputs, or takes back what was claimed with the record of that sequence; the sequence of this record.
///
/// # Errors
///
/// Nothing is heard of the stream: it may stand there.
pub(crate) async fn claim<'a>(
    keeper: &Keeper,
    tenant: &Label,
    name: &TurnName,
    outputs: impl IntoIterator<Item = &'a HandedInFor>,
    takes_back: Option<u64>,
) -> Result<u64, Unheard> {
    let of = session_of(tenant, name);
    let record = record(name, outputs, takes_back);
    keeper.store_record(&of, record).await
}

/// How the stream stands.
///
/// # Errors
///
/// Nothing is heard of it.
pub(crate) async fn stands(keeper: &Keeper) -> Result<KeptEvents, Unheard> {
    keeper.stands().await
}
