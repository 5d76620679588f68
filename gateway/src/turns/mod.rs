//! Turns: many calls that are made together, and told as one response.
//!
//! - `name` makes all names of a turn from who asks and its key, so that a repetition finds it at any gateway;
//! - `asked_for` reads what is asked for, `call_form` one of its calls, `items` what became of each call, and `refused` words why
//!   one was refused;
//! - `header` says of a turn what its speaker has to know, `shown` knows how calls of a tool are shown, `kept` puts a header into the
//!   stream of events and finds it; `make` does all of that for a turn that is asked for, and `forgotten` knows what it has told before;
//! - `telling` says what happens, through the speaker, and `tell` answers with it; `rows` asks what a call came to, and `ledger`
//!   which calls a turn has; `answered` takes back what is of no use any more, for as many turns as `waited` lets it wait for;
//! - `outputs` reads what a client hands in (`output_form` one of them), `claims` remembers that, `hand_in` gives it to the calls,
//!   and `next` says what the response behind that has to tell.

pub(crate) mod name;

pub(crate) mod asked_for;
mod call_form;
pub(crate) mod items;
mod refused;

mod shown;

mod forgotten;
mod header;
pub(crate) mod kept;
pub(crate) mod make;

pub(crate) mod answered;
pub(crate) mod ledger;
mod rows;
pub(crate) mod tell;
pub(crate) mod telling;
pub(crate) mod waited;

pub(crate) mod claims;
pub(crate) mod hand_in;
pub(crate) mod next;
pub(crate) mod output_form;
pub(crate) mod outputs;
