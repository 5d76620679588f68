//! The tokens with which programs and people come over HTTP: what they look like, what they allow, and which of them hold now.
//!
//! They are rows of the ledger (`store::tokens`), without their secrets. None of the other files here asks a server or a clock but `keep`;
//! who checks a token gives the moment.
//!
//! ```text
//! text      what a token looks like; a new one, and the hash of its secret
//! row       what a token allows: tenant, scopes, tools
//! cache     the tokens that hold, as they were last read: what is said of one, while Postgres is away too
//! attempts  wrong tokens of an address, and from when on further ones are told to come later
//! keep      reads the tokens each second, and at the bell
//! ```

mod text;

mod row;

mod cache;

mod attempts;

mod keep;

pub use self::{
    attempts::{WrongTokens, sender},
    cache::{TokenCache, TokenLookup},
    keep::KnownTokens,
    row::{LiveTokens, Scope, TokenRow, is_pattern},
    text::{NewSecret, id_in, parse},
};
