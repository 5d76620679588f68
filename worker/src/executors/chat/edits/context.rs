//! Keeps a conversation within a number of tokens. Pure.
//!
//! Old results of tools go first, then what the strategy leaves out, and at last the oldest groups until the rest fits. The system's
//! messages at the beginning and the notes at the end, the last message of the user and the last group always stay; where they are too
//! long by themselves it is said, and nothing of them is cut. A request that is short enough is not touched.

use std::borrow::Cow;

use fleet::{
    manifest::{ContextSpec, ContextStrategy},
    modes::Brake,
};
use serde_json::{Map, Value, json};

use super::{
    super::{
        dialect::{Dialect, Speaker},
        estimate,
    },
    clear,
    interceptor::{Edit, ModelInterceptor, ModelRequest},
    weighed::{RequestWeights, Weighed},
};

/// `context`, for one route.
pub(super) struct Context<'s> {
    pub(super) spec: &'s ContextSpec,
    /// How many tokens the route has left for a request.
    pub(super) room: Option<u64>,
    /// How many thousandths of an estimate the route counts.
    pub(super) ratio: u64,
    /// What stands for the older part, where the strategy has summaries.
    pub(super) summary: Option<Summary>,
    /// Why there is none, where there should be one.
    pub(super) no_summary: Option<&'static str>,
    /// What the request weighs.
    pub(super) weights: &'s RequestWeights,
}

/// A text that stands for the first messages of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Summary {
    /// How many messages it stands for, the system's at the beginning included, which stay.
    pub(in super::super) until: usize,
    pub(in super::super) text: String,
    /// Whether a model was asked for it now.
    pub(in super::super) is_new: bool,
}

impl Context<'_> {
    /// How many tokens a request may have.
    pub(super) fn limit(&self) -> u64 {
        self.room
            .map_or(self.spec.max_tokens, |room| room.min(self.spec.max_tokens))
    }
}

impl ModelInterceptor for Context<'_> {
    fn brake(&self) -> Brake {
        Brake::Context
    }

    fn before(&self, request: &mut ModelRequest<'_>) -> Option<Edit> {
        let (spec, limit, dialect) = (self.spec, self.limit(), request.dialect);
        let mut weighed = self.weights.came(request, self.ratio)?;
        let had = weighed.all();
        let mut done = Map::new();
        if let Some(clear) = spec.clear_tool_results.filter(|clear| had > clear.above) {
            let cleared = clear::results(dialect, &mut request.members, clear.keep);
            if cleared > 0 {
                done.insert("cleared".to_owned(), json!(cleared));
                weighed = self
                    .weights
                    .cleared(request, &request.members, self.ratio)?;
            }
        }
        let is_too_long = weighed.all() > limit;
        let cut = match &self.summary {
            Some(summary) => weighed.behind(summary, limit),
            None if is_too_long => weighed.cut(spec, limit),
            None => KeptGroups::none(&weighed),
        };
        let is_cut = cut.kept.contains(&false);
        let now = cut.tokens;
        if is_cut {
            let dropped = cut.dropped(&weighed, self.summary.as_ref());
            done.insert("dropped".to_owned(), json!(dropped));
            apply(
                dialect,
                &mut request.members,
                &weighed,
                &cut,
                self.summary.as_ref(),
            );
        }
        if let Some(summary) = &self.summary {
            let told = json!({"until": summary.until, "new": summary.is_new});
            done.insert("summary".to_owned(), told);
        }
        if let Some(why) = self.no_summary {
            done.insert("no_summary".to_owned(), json!(why));
        }
        if now > limit {
            done.insert("unmet".to_owned(), json!(true));
        }
        if done.is_empty() {
            return None;
        }
        for (name, tokens) in [("tokens", had), ("limit", limit), ("to", now)] {
            done.insert(name.to_owned(), json!(tokens));
        }
        Some(done)
    }
}

/// What stays of it.
struct KeptGroups {
    kept: Vec<bool>,
    /// What that weighs.
    tokens: u64,
}

impl Weighed {
    /// What a strategy without a summary leaves of what is too long.
    fn cut(&self, spec: &ContextSpec, limit: u64) -> KeptGroups {
        let (first, end) = (self.prefix(), self.groups.len());
        let (at_once, then): (Vec<usize>, Vec<usize>) = match spec.strategy {
            ContextStrategy::Trim | ContextStrategy::Summarize => {
                let head = self.reach(first..end, spec.keep_first);
                let tail = end - self.reach((first..end).rev(), spec.keep_last);
                let head = first + head;
                let tail = tail.max(head);
                (
                    (head..tail).collect(),
                    (tail..end).chain((first..head).rev()).collect(),
                )
            }
            ContextStrategy::SlidingWindow | ContextStrategy::Hybrid => {
                let window = self.window(spec.keep_turns);
                ((first..window).collect(), (window..end).collect())
            }
        };
        self.leave_out(&at_once, &then, 0, limit)
    }

    /// What stays behind a summary.
    fn behind(&self, summary: &Summary, limit: u64) -> KeptGroups {
        let first = self.prefix();
        let end = self
            .groups
            .partition_point(|group| group.messages.end <= summary.until);
        let stood_for: Vec<usize> = (first..end).collect();
        let then: Vec<usize> = (end.max(first)..self.groups.len()).collect();
        self.leave_out(
            &stood_for,
            &then,
            estimate::tokens(&json!(summary.text)),
            limit,
        )
    }

    /// How many groups have so many messages at least.
    fn reach(&self, groups: impl Iterator<Item = usize>, messages: u32) -> usize {
        let mut left = messages as usize;
        let needed = groups.take_while(|place| {
            let is_needed = left > 0;
            left = left.saturating_sub(self.groups[*place].messages.len());
            is_needed
        });
        needed.count()
    }

    /// Leaves out the first ones, and then one after the other until the rest and so many more tokens fit.
    fn leave_out(&self, at_once: &[usize], then: &[usize], more: u64, limit: u64) -> KeptGroups {
        let mut kept = vec![true; self.groups.len()];
        let mut tokens: u64 = self.groups.iter().map(|group| group.tokens).sum::<u64>() + more;
        let places = at_once.iter().map(|place| (place, true));
        for (place, is_out) in places.chain(then.iter().map(|place| (place, false))) {
            if !self.pinned[*place] && (is_out || self.with(tokens) > limit) {
                kept[*place] = false;
                tokens -= self.groups[*place].tokens;
            }
        }
        // What a model says follows what it was said to, or it stands for nothing.
        let (prefix, has_summary) = (self.prefix(), more > 0);
        let mut before: Option<usize> = None;
        for (place, group) in self.groups.iter().enumerate() {
            if !kept[place] {
                continue;
            }
            let is_next = before.map_or(place == 0, |before| before + 1 == place);
            let is_behind_summary =
                has_summary && place >= prefix && before.is_none_or(|before| before < prefix);
            let has_user = before.is_some_and(|before| self.groups[before].has_user);
            let follows = match group.speaker {
                Speaker::User | Speaker::System => true,
                Speaker::Model => is_next || is_behind_summary || has_user,
                Speaker::Tool => is_next,
            };
            if follows || self.pinned[place] {
                before = Some(place);
            } else {
                kept[place] = false;
                tokens -= group.tokens;
            }
        }
        KeptGroups {
            kept,
            tokens: self.with(tokens),
        }
    }
}

impl KeptGroups {
    fn none(weighed: &Weighed) -> Self {
        Self {
            kept: vec![true; weighed.groups.len()],
            tokens: weighed.all(),
        }
    }

    /// How many messages are left out that nothing stands for.
    fn dropped(&self, weighed: &Weighed, summary: Option<&Summary>) -> usize {
        let until = summary.map_or(0, |summary| summary.until);
        let groups = weighed.groups.iter().zip(&self.kept);
        let lost = groups.filter(|(group, kept)| !**kept && group.messages.start >= until);
        lost.map(|(group, _)| group.messages.len()).sum()
    }
}

fn apply(
    dialect: &dyn Dialect,
    request: &mut Cow<'_, Map<String, Value>>,
    weighed: &Weighed,
    cut: &KeptGroups,
    summary: Option<&Summary>,
) {
    // Only what stays is copied: the rest may be a mebibyte.
    let Some(old) = request.get(dialect.messages()).and_then(Value::as_array) else {
        return;
    };
    let prefix = weighed.prefix();
    let mut new = Vec::new();
    for (place, group) in weighed.groups.iter().enumerate() {
        if place == prefix {
            new.extend(summary.map(|summary| dialect.user_message(&summary.text)));
        }
        if cut.kept[place] {
            new.extend_from_slice(&old[group.messages.clone()]);
        }
    }
    let messages = Value::Array(dialect.joined(new));
    let mut members = Map::new();
    for (name, value) in request.iter() {
        let value = match name == dialect.messages() {
            true => Value::Null,
            false => value.clone(),
        };
        members.insert(name.clone(), value);
    }
    members.insert(dialect.messages().to_owned(), messages);
    *request = Cow::Owned(members);
}

#[cfg(test)]
mod tests;
