//! What there is of a call on its way through the interceptors.

use std::sync::Arc;

use fleet::{
    ids::{CallId, Label},
    registry::Tool,
};

use super::chain::Link;
use crate::interceptor::{CallView, Carried, EndedView};

/// What interceptors are told of a call.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) call: CallId,
    pub(crate) tool: Arc<Tool>,
    pub(crate) tenant: Label,
    /// As the tool gets them.
    pub(crate) arguments: String,
    /// Hash of the arguments as the ledger has them.
    pub(crate) args_hash: [u8; 32],
    pub(crate) attempt: u32,
    pub(crate) is_probe: bool,
}

/// A call, the interceptors that it began with, and what these know of it.
#[derive(Debug)]
pub(super) struct Passage {
    pub(super) chain: Arc<[Link]>,
    /// How many of them were called: the first ones of the chain.
    pub(super) called: usize,
    pub(super) subject: Subject,
    pub(super) carried: Carried,
    pub(super) ended: EndedView,
}

impl Subject {
    pub(super) fn view(&self) -> CallView<'_> {
        let manifest = &self.tool.manifest;
        CallView {
            call_id: self.call,
            tool: &manifest.name,
            tool_version: manifest.version,
            effect: manifest.effect,
            queue: &manifest.queue,
            tenant: &self.tenant,
            arguments: &self.arguments,
            attempt: self.attempt,
            is_probe: self.is_probe,
        }
    }
}
