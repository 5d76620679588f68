//! A tool's knowledge of its call.

use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;

use super::Mode;

/// What a tool is told about its call.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) tool: String,
    pub(super) call: String,
    pub(super) attempt: u32,
    pub(super) key: String,
    pub(super) n: u64,
    pub(super) mode: Mode,
    /// How long its attempt has left.
    pub(super) remaining: Duration,
}

/// The arguments that every tool has.
#[derive(Deserialize)]
struct Common {
    n: u64,
    mode: Mode,
}

/// What is told beside the arguments, whatever carries it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fact {
    Call,
    Attempt,
    Key,
    RemainingMs,
}

impl Fact {
    /// Its header, for HTTP and NATS tools.
    pub(super) const fn header(self) -> &'static str {
        match self {
            Self::Call => "Toolfleet-Call-Id",
            Self::Attempt => "Toolfleet-Attempt",
            Self::Key => "Idempotency-Key",
            Self::RemainingMs => "Toolfleet-Remaining-Ms",
        }
    }

    /// Its variable, for process tools.
    pub(super) const fn variable(self) -> &'static str {
        match self {
            Self::Call => "TOOLFLEET_CALL_ID",
            Self::Attempt => "TOOLFLEET_ATTEMPT",
            Self::Key => "TOOLFLEET_IDEMPOTENCY_KEY",
            Self::RemainingMs => "TOOLFLEET_REMAINING_MS",
        }
    }
}

impl Told {
    /// What the program of a caller knows of a call that it was handed.
    pub(super) fn handed(tool: &str, call: &str, n: u64, mode: Mode) -> Self {
        Self {
            tool: tool.to_owned(),
            call: call.to_owned(),
            attempt: 1,
            key: String::new(),
            n,
            mode,
            remaining: Duration::ZERO,
        }
    }

    /// Reads the arguments and the facts beside them. All but the key must be there: a tool is told which call it is for.
    pub(super) fn read(
        tool: &str,
        arguments: &[u8],
        fact: impl Fn(Fact) -> Option<String>,
    ) -> anyhow::Result<Self> {
        let Common { n, mode } = serde_json::from_slice(arguments).context("read the arguments")?;
        let needed = |which| fact(which).with_context(|| format!("it was not told {which:?}"));
        let remaining = needed(Fact::RemainingMs)?.parse();
        Ok(Self {
            tool: tool.to_owned(),
            call: needed(Fact::Call)?,
            attempt: needed(Fact::Attempt)?.parse().context("read the attempt")?,
            key: fact(Fact::Key).unwrap_or_default(),
            n,
            mode,
            remaining: Duration::from_millis(remaining.context("read the time that is left")?),
        })
    }
}
