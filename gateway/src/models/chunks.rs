//! **What of a call's events goes to its client?** The vendor's chunks as they came, as long as nothing is missing and nothing is
//! taken back: a vendor's client cannot be told to forget what it has. Pure.

use std::collections::BTreeSet;

use bytes::BytesMut;
use fleet::{ids::CallId, manifest::ChatProtocol};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    seen::{SeenChunk, WholeSaid},
    sse,
};

/// The chunks of one call on their way to its client.
#[derive(Debug)]
pub(super) struct ChunkFold {
    protocol: ChatProtocol,
    /// Whether the caller of a chat completion wants the chunk with its tokens.
    wants_usage: bool,
    attempt: u32,
    /// The part that comes next.
    next: u32,
    /// Whether something of this attempt is missing, so that nothing of it is sent until it begins anew.
    is_lost: bool,
    /// Whether the client has had a chunk.
    has_sent: bool,
    /// The choices of a chat completion that were begun, and those that have stopped.
    begun: BTreeSet<u64>,
    stopped: BTreeSet<u64>,
    /// How many bytes of text its choices have said.
    said: usize,
    /// Whether the vendor's stream has come to its end.
    has_ended: bool,
    /// The number behind that of the last event that has one.
    number: u64,
    route: Option<String>,
}

/// Why the client can be told nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CutOff {
    /// What it has had is void: the answer begins anew.
    Restarted,
    /// Something was lost on its way.
    Gap,
}

/// An event that may be one of chunks.
#[derive(Debug, Deserialize)]
pub(super) struct CallEvent<'a> {
    pub(super) call_id: CallId,
    kind: String,
    #[serde(default)]
    attempt: u32,
    #[serde(default)]
    part: u32,
    #[serde(default)]
    route: Option<String>,
    #[serde(default)]
    restart: bool,
    #[serde(borrow, default)]
    chunks: Option<Vec<&'a RawValue>>,
}

impl<'a> CallEvent<'a> {
    /// Of the bytes of an event; `None`: it is none of a call.
    pub(super) fn read(payload: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(payload).ok()
    }

    /// Whether the call is over.
    pub(super) fn is_end(&self) -> bool {
        self.kind == "finished"
    }
}

impl ChunkFold {
    pub(super) const fn new(protocol: ChatProtocol, wants_usage: bool) -> Self {
        Self {
            protocol,
            wants_usage,
            attempt: 0,
            next: 0,
            is_lost: false,
            has_sent: false,
            begun: BTreeSet::new(),
            stopped: BTreeSet::new(),
            said: 0,
            has_ended: false,
            number: 0,
            route: None,
        }
    }

    /// Writes what of an event is for the client.
    ///
    /// # Errors
    ///
    /// It cannot be told the rest.
    pub(super) fn hear(&mut self, event: &CallEvent<'_>, to: &mut BytesMut) -> Result<(), CutOff> {
        let tells = event.kind == "output";
        if (!tells && event.kind != "started") || event.attempt < self.attempt {
            return Ok(());
        }
        if event.attempt > self.attempt {
            self.begin(event.attempt, 0)?;
        }
        let Some(chunks) = event.chunks.as_ref().filter(|_| tells) else {
            return Ok(());
        };
        if event.part < self.next {
            return Ok(());
        }
        if event.restart {
            self.begin(event.attempt, event.part)?;
        }
        if event.part > self.next {
            self.lose()?;
        }
        self.next = event.part.saturating_add(1);
        for chunk in chunks {
            if self.is_lost {
                break;
            }
            self.tell(chunk, event.route.as_ref(), to);
        }
        Ok(())
    }

    /// Something is missing before what comes next.
    ///
    /// # Errors
    ///
    /// The client has had what came before.
    pub(super) fn lose(&mut self) -> Result<(), CutOff> {
        if self.has_sent && !self.has_ended {
            return Err(CutOff::Gap);
        }
        self.is_lost = true;
        Ok(())
    }

    /// Whether the client has had a chunk.
    pub(super) const fn has_sent(&self) -> bool {
        self.has_sent
    }

    /// Whether the client has had all of the vendor's stream.
    pub(super) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether the client has had all of this reply, though its stream did not say that it ends: some servers leave out why a
    /// choice stopped.
    pub(super) fn has_told(&self, whole: &WholeSaid) -> bool {
        // That no number is missing is not enough: a worker may stop telling, and the rest has no number.
        self.protocol == ChatProtocol::OpenaiChat
            && !self.is_lost
            && (self.said, &self.stopped) == (whole.said, &whole.stopped)
    }

    /// The number of an event of ours.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// The route whose chunks are told.
    pub(super) fn route(&self) -> Option<&str> {
        self.route.as_deref()
    }

    fn begin(&mut self, attempt: u32, part: u32) -> Result<(), CutOff> {
        if self.has_sent {
            return Err(CutOff::Restarted);
        }
        *self = Self {
            attempt,
            next: part,
            ..Self::new(self.protocol, self.wants_usage)
        };
        Ok(())
    }

    fn tell(&mut self, chunk: &RawValue, route: Option<&String>, to: &mut BytesMut) {
        let seen = SeenChunk::read(chunk.get());
        let kind = seen.kind.as_deref().unwrap_or_default();
        // The fleet asks another route then, or fails the call: what that comes to is told, and not this.
        let has_failed = match self.protocol {
            ChatProtocol::OpenaiChat => seen.has_error,
            ChatProtocol::OpenaiResponses => matches!(kind, "error" | "response.failed"),
            ChatProtocol::Anthropic => kind == "error",
        };
        if has_failed {
            self.is_lost = true;
            return;
        }
        let choices = seen.choices.as_deref().unwrap_or_default();
        for choice in choices {
            self.begun.insert(choice.index);
            self.said = self.said.saturating_add(choice.said);
            if choice.has_stopped {
                self.stopped.insert(choice.index);
            }
        }
        self.has_ended = match self.protocol {
            ChatProtocol::OpenaiChat => !self.begun.is_empty() && self.begun == self.stopped,
            ChatProtocol::OpenaiResponses => {
                matches!(kind, "response.completed" | "response.incomplete")
            }
            ChatProtocol::Anthropic => kind == "message_stop",
        };
        let is_usage_alone = choices.is_empty() && seen.choices.is_some() && seen.has_usage;
        if self.protocol == ChatProtocol::OpenaiChat && is_usage_alone && !self.wants_usage {
            return;
        }
        if let Some(number) = seen.sequence_number {
            self.number = number.saturating_add(1);
        }
        if self.route.is_none() {
            self.route = route.cloned();
        }
        self.has_sent = true;
        sse::write(self.protocol, kind, chunk.get(), to);
    }
}

#[cfg(test)]
mod tests;
