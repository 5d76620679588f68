//! Chunks of a model's stream among the parts: the first of a route leaves at once, those behind it are joined.

use fleet::wire::{
    chunks::{CHUNK_MAX, CHUNKS_MAX, JOINED_MAX, ModelChunk, ModelChunks},
    part::Part,
};
use tokio::time::Instant;

use super::{Parts, WaitingPart};
use crate::executors::output::{DEPTH_MAX, unreadable};

/// What a chunk takes beside its bytes.
const CHUNK_OVERHEAD: usize = 32;

impl Parts {
    /// Adds chunks; `false`: one too many, or one that cannot be told, behind which a follower would miss it.
    pub(super) fn put_chunks(&mut self, told: ModelChunks, now: Instant) -> bool {
        let ModelChunks {
            route,
            restart,
            chunks,
        } = told;
        if restart || self.route.as_ref().is_some_and(|before| *before != route) {
            self.put_held_chunks(now);
        }
        if restart {
            self.route = None;
            if !self.push(Part::Chunks(ModelChunks::restart(&route)), now) {
                return false;
            }
            self.hurry();
        }
        for chunk in chunks {
            let size = chunk.get().len();
            let is_fit = size <= CHUNK_MAX && unreadable(chunk.get(), DEPTH_MAX).is_none();
            if !is_fit || !self.spend(size + CHUNK_OVERHEAD, CHUNKS_MAX) {
                self.put_held_chunks(now);
                return false;
            }
            let is_first = self.route.as_ref() != Some(&route);
            if is_first {
                self.route = Some(route.clone());
            }
            for chunk in self.veil.put(chunk, &self.hidden) {
                if !self.join(&route, chunk, now) {
                    return false;
                }
            }
            if is_first {
                self.hurry();
            }
        }
        true
    }

    /// Adds the chunks that waited because they may have the beginning of a secret: what follows them is another text.
    pub(super) fn put_held_chunks(&mut self, now: Instant) {
        let Some(route) = self.route.clone() else {
            return;
        };
        for chunk in self.veil.rest() {
            if !self.join(&route, chunk, now) {
                self.is_over = true;
            }
        }
    }

    /// Adds a chunk to those of its route that wait, or as a part of its own.
    fn join(&mut self, route: &str, chunk: ModelChunk, now: Instant) -> bool {
        if let Some(WaitingPart {
            part: Part::Chunks(last),
            is_urgent,
            ..
        }) = self.waiting.back_mut()
        {
            // What leaves at once is alone, also where the next one came in the same read.
            let is_closed = *is_urgent && !last.chunks.is_empty();
            let size = |chunks: &ModelChunks| chunks.size() + chunks.chunks.len() * CHUNK_OVERHEAD;
            let room = JOINED_MAX.saturating_sub(size(last));
            let fits = last.chunks.is_empty() || chunk.get().len() + CHUNK_OVERHEAD <= room;
            if last.route == route && fits && !is_closed {
                last.chunks.push(chunk);
                return true;
            }
        }
        let part = ModelChunks {
            route: route.to_owned(),
            restart: false,
            chunks: vec![chunk],
        };
        self.push(Part::Chunks(part), now)
    }

    /// Lets the last part leave without waiting for more.
    fn hurry(&mut self) {
        if let Some(last) = self.waiting.back_mut() {
            last.is_urgent = true;
        }
    }
}
