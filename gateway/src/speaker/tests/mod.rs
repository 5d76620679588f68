//! The speaker as its followers see it: transcripts of turns, laws that hold for any order of events, and how long it takes.

mod bounds;
mod laws;
mod scene;
mod speed;
mod story;
mod transcripts;
mod waits;
