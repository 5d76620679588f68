//! The console: pages of HTML for people, over the API alone.
//!
//! Everything that a page shows or does is a request to an endpoint of the API, made in this process in the name of who has signed in
//! ([`own_api::OwnApi`]): so the console can do nothing that `curl` cannot, and rights are judged in one place. All that is stored
//! is a stranger's text: `maud` escapes it, `text` makes visible what would lead the eye astray, and the policy of `router` lets no
//! page run or load what is not the console's own.
//!
//! - `router` has the paths, and what stands around each: who has signed in (`session`, `visitor`), from which site a form comes,
//!   the policy;
//! - `state` is what they work on, `own_api` asks, and keeps answers for a second, so that many browsers cost no more than one;
//! - `frame` is around every page, `words` has both languages, `reasons` what the words of `calls explain` mean, `assets` the
//!   script and the style sheet;
//! - `pages` has a file for each page; `shown`, `text`, `json`, `blocks`, `moment`, `timeline` and `difference` are what they are
//!   made of, `form` what they send;
//! - `ticks` tells a page that what it shows has changed.

mod assets;
mod blocks;
mod difference;
mod form;
mod frame;
mod json;
mod moment;
mod own_api;
mod pages;
mod reasons;
mod router;
mod session;
mod shown;
mod state;
mod text;
mod ticks;
mod timeline;
mod visitor;
mod words;

pub(crate) use router::router;
