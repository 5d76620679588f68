//! Turns: many calls that are made together, and told as one response.
//!
//! - `name` makes all names of a turn from who asks and its key, so that a repetition finds it at any gateway;
//! - `asked_for` reads what is asked for, `items` what became of each call;
//! - `header` says of a turn what its speaker has to know, `shown` knows how calls of a tool are shown, `kept` puts a header into the
//!   stream of events and finds it; `make` does all of that for a turn that is asked for;
//! - `telling` says what happens, through the speaker; `rows` asks what a call came to; `answered` takes back what is of no use any more, for as many turns as
//!   `waited` lets it wait for;
//! - `outputs` reads what a client hands in, and `next` says what the response behind that has to tell.

pub(crate) mod name;

pub(crate) mod asked_for;
pub(crate) mod items;

mod shown;

mod header;
pub(crate) mod kept;
pub(crate) mod make;

pub(crate) mod answered;
mod rows;
pub(crate) mod telling;
pub(crate) mod waited;

pub(crate) mod next;
pub(crate) mod outputs;
