//! What a request weighs: its messages in groups, with an estimate of the tokens of each. Pure.

use std::sync::OnceLock;

use serde_json::{Map, Value};

use super::{
    super::{
        dialect::{Dialect, Speaker},
        estimate,
    },
    groups::{self, Group},
    interceptor::ModelRequest,
    ratios::corrected,
};

/// A request with its weight.
#[derive(Debug, Clone)]
pub(super) struct Weighed {
    pub(super) groups: Vec<Group>,
    /// Which of them always stay.
    pub(super) pinned: Vec<bool>,
    /// What it has beside its messages.
    fixed: u64,
    /// How many thousandths of an estimate the route counts.
    ratio: u64,
}

/// The weights of one request, which are found once for all who ask and all of its routes: it may be a mebibyte.
#[derive(Debug, Default)]
pub(in super::super) struct RequestWeights {
    came: OnceLock<Option<Weighed>>,
    cleared: OnceLock<Option<Weighed>>,
}

impl RequestWeights {
    /// What it weighs as its routes get it, on one that counts so many thousandths of an estimate; `None`: its messages are no list.
    pub(super) fn came(&self, request: &ModelRequest<'_>, ratio: u64) -> Option<Weighed> {
        let weigh = || Weighed::of(request.dialect, &request.members, request.original, ratio);
        Weighed::at(self.came.get_or_init(weigh), ratio)
    }

    /// The same without its old results, which `members` has no longer.
    pub(super) fn cleared(
        &self,
        request: &ModelRequest<'_>,
        members: &Map<String, Value>,
        ratio: u64,
    ) -> Option<Weighed> {
        let weigh = || Weighed::of(request.dialect, members, request.original, ratio);
        Weighed::at(self.cleared.get_or_init(weigh), ratio)
    }
}

impl Weighed {
    /// `None`: its messages are no list.
    pub(super) fn of(
        dialect: &dyn Dialect,
        request: &Map<String, Value>,
        original: &Map<String, Value>,
        ratio: u64,
    ) -> Option<Self> {
        let messages = request.get(dialect.messages())?.as_array()?;
        let said = original.get(dialect.messages());
        let said = said
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        let groups = groups::of(dialect, messages, said);
        let beside = dialect
            .said()
            .iter()
            .filter(|name| **name != dialect.messages());
        let fixed = beside
            .filter_map(|name| request.get(*name))
            .map(estimate::tokens);
        Some(Self {
            pinned: pinned(&groups),
            fixed: fixed.sum(),
            groups,
            ratio,
        })
    }

    fn at(weighed: &Option<Self>, ratio: u64) -> Option<Self> {
        weighed.clone().map(|weighed| Self { ratio, ..weighed })
    }

    /// How many groups of the system stand at the beginning.
    pub(super) fn prefix(&self) -> usize {
        let system = |group: &&Group| group.speaker == Speaker::System;
        self.groups.iter().take_while(system).count()
    }

    /// The tokens of so much beside its messages.
    pub(super) fn with(&self, tokens: u64) -> u64 {
        corrected(self.fixed.saturating_add(tokens), self.ratio)
    }

    pub(super) fn all(&self) -> u64 {
        self.with(self.groups.iter().map(|group| group.tokens).sum())
    }

    /// Where the last turns of the user begin.
    pub(super) fn window(&self, turns: u32) -> usize {
        let users = self
            .groups
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, group)| group.has_user);
        let begins = users
            .map(|(place, _)| place)
            .take(turns.max(1) as usize)
            .last();
        begins.unwrap_or(0).max(self.prefix())
    }
}

/// Which groups always stay: the system's at the beginning, the notes at the end, the last message of the user, and the last one.
fn pinned(groups: &[Group]) -> Vec<bool> {
    let is_system = |group: &Group| group.speaker == Speaker::System;
    let mut pinned = vec![false; groups.len()];
    for (place, _) in groups
        .iter()
        .enumerate()
        .take_while(|(_, group)| is_system(group))
    {
        pinned[place] = true;
    }
    for (place, group) in groups.iter().enumerate().rev() {
        pinned[place] = true;
        if !is_system(group) {
            break;
        }
    }
    if let Some(last) = groups.iter().rposition(|group| group.has_user) {
        pinned[last] = true;
        // Where the user speaks behind results, what the model was asked before: a conversation does not begin with what it says.
        let asks = |group: &Group| group.speaker == Speaker::User;
        if !asks(&groups[last])
            && let Some(asked) = groups[..last].iter().rposition(asks)
        {
            pinned[asked] = true;
        }
    }
    pinned
}
