//! The single speaker: many calls run at the same time, and their followers get one stream in order.
//!
//! It is a pure fold. Its input is the session's stream: the header of a turn, the events of its calls, and the rows of those that
//! are over; its output are events as OpenAI's Responses API has them. It reads no clock (time is that of the stream), asks nobody
//! and draws no lots, so a replay is the same computation again: any gateway, from any place, says the same bytes.
//!
//! The modules stand in the order in which an input meets them:
//!
//! - `input` is one message of the stream, `header` the turn with its calls;
//! - `heard` is what one call has told and nobody has said yet, `buckets` those of all calls, with the bound that they share;
//! - `ending` is what a call has come to, `choose` who speaks next;
//! - `shape` says as what kind of item a call is shown, `item` how that item looks, `arguments` and `result` what there is to be shown,
//!   `showing` what is shown of it;
//! - `events` are the events, `voice` numbers them, `open` tells one item from its beginning to its end, `whole` those that are
//!   told at once;
//! - `turn` gives the word and takes it, `fold` puts all of it together; `ids` are the names of what was said, `replay` goes on
//!   behind one of them.

mod ids;

mod header;
mod input;

mod buckets;
mod choose;
mod ending;
mod heard;

mod arguments;
mod item;
mod result;
mod shape;
mod showing;

mod done_item;
mod events;
mod open;
mod voice;
mod whole;

mod turn;

mod fold;
mod replay;

#[cfg(test)]
mod tests;

pub use done_item::DoneItem;
pub use fold::{Speech, Spoken};
pub use header::{
    CALLS_MAX, OnFinal, RefusalMore, Shape, SpeakingOrder, TurnCall, TurnHeader, TurnSlot,
    UnfitHeader, Visibility,
};
pub use ids::{BadSpokenId, SpokenId, SpokenPlace, StreamEpoch};
pub use input::{FinalError, FinalRow, News, SpeakerInput};
pub use replay::Resume;
pub use voice::SpokenEvent;
