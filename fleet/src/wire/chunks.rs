//! Pieces of a model's answer, told as its vendor sends them.
//!
//! They are JSON text and not values: a follower gets every digit and every field as the vendor wrote it.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The most bytes of chunks that are joined in one part.
pub const JOINED_MAX: usize = 32 * 1024;
/// The most bytes of a chunk. One of more than [`JOINED_MAX`] is a part of its own.
pub const CHUNK_MAX: usize = 512 * 1024;
/// The most bytes of all chunks of one attempt together: a vendor writes some 250 around each word.
pub const CHUNKS_MAX: usize = 16 * 1024 * 1024;

/// Chunks of one route, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelChunks {
    /// The route that sent them.
    pub route: String,
    /// Whether the route was asked because another one failed: all chunks of the attempt before these are void.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub restart: bool,
    /// None where nothing came yet since the restart.
    pub chunks: Vec<ModelChunk>,
}

/// The data of one event of a vendor's stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ModelChunk(Box<RawValue>);

impl ModelChunks {
    /// One chunk of this route.
    pub fn one(route: &str, chunk: Box<RawValue>) -> Self {
        Self {
            route: route.to_owned(),
            restart: false,
            chunks: vec![ModelChunk(chunk)],
        }
    }

    /// Says that this route begins anew.
    pub fn restart(route: &str) -> Self {
        Self {
            route: route.to_owned(),
            restart: true,
            chunks: Vec::new(),
        }
    }

    /// The bytes of all chunks.
    pub fn size(&self) -> usize {
        self.chunks.iter().map(ModelChunk::size).sum()
    }
}

impl ModelChunk {
    /// Its JSON.
    pub fn get(&self) -> &str {
        self.0.get()
    }

    fn size(&self) -> usize {
        self.get().len()
    }
}

impl PartialEq for ModelChunk {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for ModelChunk {}

impl From<Box<RawValue>> for ModelChunk {
    fn from(json: Box<RawValue>) -> Self {
        Self(json)
    }
}
