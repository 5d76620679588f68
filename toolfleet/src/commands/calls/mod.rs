//! `toolfleet calls`: the history, read from the documented views; and decisions about a call, over NATS.

mod again;
mod bulk;
mod cancel;
mod dead;
mod decide;
mod discard;
mod explain;
mod filter;
mod hand_in;
mod list;
mod preview;
mod retry;
mod settle;
mod show;
mod tail;
mod taking_back;

use std::process::ExitCode;

use clap::Subcommand;
use fleet::{explain::Servers, store::approvals::Ruling};

/// What `calls` can do.
#[derive(Debug, Subcommand)]
pub enum Calls {
    /// List calls, the newest first
    List(list::ListCalls),
    /// Show everything about one call: its row, its attempts, its moves
    Show(show::ShowCall),
    /// Say the one reason why a call is not running, or not finished, or how it ended, and what to do
    Explain(Box<explain::Explain>),
    /// Take calls back: one that waits never runs, one that runs is told to stop
    Cancel(Box<cancel::Cancel>),
    /// Show a call that waits for a yes, and with --hash let it run
    Approve(Box<decide::Decide>),
    /// Show a call that waits for a yes, and with --hash say no to it
    Deny(Box<decide::Decide>),
    /// Hand in what a call waits for: what its caller's own program did, what its tool answers later, or what its tool has asked for
    Output(hand_in::HandIn),
    /// Record what a call in doubt turned out to be, or many
    Settle(Box<settle::Settle>),
    /// Make new calls with the tools and the arguments of those that are over
    Retry(Box<retry::Retry>),
    /// Group the dead letters, what failed by the system and nobody has dealt with, by tool, code and last error
    Dead(dead::Dead),
    /// Give dead letters up
    Discard(Box<discard::Discard>),
    /// Print every move of every call as it happens, until Ctrl-C
    Tail(tail::Tail),
}

impl Calls {
    /// Tells it where the addresses come from.
    pub(super) fn lead_to(&mut self, servers: &Servers) {
        if let Self::Explain(explain) = self {
            explain.servers = Some(servers.clone());
        }
    }

    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::List(list) => list.run().await,
            Self::Show(show) => show.run().await,
            Self::Explain(explain) => explain.run().await,
            Self::Cancel(cancel) => cancel.run().await,
            Self::Approve(decide) => decide.run(Ruling::Approve).await,
            Self::Deny(decide) => decide.run(Ruling::Deny).await,
            Self::Output(output) => output.run().await,
            Self::Settle(settle) => settle.run().await,
            Self::Retry(retry) => retry.run().await,
            Self::Dead(dead) => dead.run().await,
            Self::Discard(discard) => discard.run().await,
            Self::Tail(tail) => tail.run().await,
        }
    }
}
