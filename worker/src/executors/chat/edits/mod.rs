//! What stands between a conversation and its model: interceptors of requests and replies.
//!
//! `interceptor` is what each of them is, `chain` takes a request and its reply through them, and `counts` what they did. `specs` says
//! which of them a tool has. `groups` says what of a conversation stays together and `weighed` what that weighs; `context` keeps it
//! within a number of tokens, of which `clear` leaves out old results and `ratios` says how a route counts. `summary` says what a
//! summary has to stand for, and `rests` what is not asked for again at present. `offer` adds the `fleet_tools` and has
//! `tool_selection` choose, `hint` tells of a tool that `delegation` has found, and `todo_list` tells and reads a `todo`. `log`
//! logs.

mod chain;
mod clear;
mod context;
mod counts;
mod delegation;
mod fleet_tools;
mod groups;
mod hint;
mod interceptor;
mod log;
mod offer;
mod ratios;
mod rests;
mod specs;
mod summary;
mod todo;
mod todo_list;
mod tool_selection;
mod weighed;

use fleet::store::interceptors::InterceptorCounts;

pub(super) use self::{
    chain::EditChain,
    context::Summary,
    interceptor::ModelRequest,
    rests::FailedSummary,
    specs::{EditSpecs, SummaryFound},
    summary::{ASKED, EXPECTED, NewSummary, words},
    weighed::RequestWeights,
};
use self::{counts::EditCounts, ratios::TokenRatios, rests::SummaryRests};

/// What a worker knows of them, over all calls.
#[derive(Debug, Default)]
pub(crate) struct ModelEdits {
    counts: EditCounts,
    ratios: TokenRatios,
    pub(super) rests: SummaryRests,
}

impl ModelEdits {
    /// What they did since the worker started.
    pub(crate) fn counts(&self) -> impl Iterator<Item = InterceptorCounts> {
        self.counts.counts()
    }
}
