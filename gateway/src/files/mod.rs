//! Files on their way between HTTP and the dispatchers, which keep them: piece by piece, so that no file is ever here as a whole.
//!
//! `naming` is what a file is called and what kind it is, `digest` the hash that its sender announces, `range` which part of it is wanted;
//! these are pure. `door` asks the dispatchers, `upload` brings a body to them, `download` makes an answer of what they have.

pub(crate) mod digest;
pub(crate) mod naming;
pub(crate) mod range;

pub(crate) mod door;
pub(crate) mod download;
pub(crate) mod upload;

use fleet::{
    ids::Label,
    store::file_keys::KnownFileKeys,
    wire::{code::Code, message::Message},
};

use crate::{
    events::places::{NoPlace, StreamHolder, StreamPlace, StreamPlaces},
    refusal::Refused,
};

/// Files that go through this gateway at a time, in both directions, each with a piece in memory.
const AT_A_TIME: usize = 128;
/// Files of one tenant at a time: no tenant keeps the others out.
const OF_EACH: usize = 16;

/// What the endpoints for files work on.
#[derive(Debug)]
pub(crate) struct Files {
    /// The most bytes of a file.
    pub(crate) bytes_max: u64,
    /// With what the URLs of files are signed.
    pub(crate) keys: KnownFileKeys,
    places: StreamPlaces,
}

impl Files {
    /// For files of at most so many bytes.
    pub(crate) fn new(bytes_max: u64, keys: KnownFileKeys) -> Self {
        Self {
            bytes_max,
            keys,
            places: StreamPlaces::new(AT_A_TIME, OF_EACH, |_all| {}),
        }
    }

    /// A place for one file of this tenant, until it is dropped.
    ///
    /// # Errors
    ///
    /// `rate_limited`, `overloaded`.
    pub(crate) fn place(&self, tenant: &Label) -> Result<StreamPlace, Refused> {
        let holder = StreamHolder::Tenant(tenant.clone());
        self.places.take(holder).map_err(|none| match none {
            NoPlace::Each => {
                let what = Message::fixed(
                    "as many files of this tenant are on their way through this gateway as may be",
                    "这个租户正在通过此网关传输的文件已达上限",
                );
                Refused::later(Code::RateLimited, what)
            }
            NoPlace::All => {
                let what = Message::fixed(
                    "as many files are on their way through this gateway as may be",
                    "这个网关正在传输的文件已达上限",
                );
                Refused::later(Code::Overloaded, what)
            }
        })
    }
}
