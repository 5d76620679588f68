//! What of a conversation stays or goes together: the calls of tools with their results. Pure.

use std::{collections::HashMap, ops::Range};

use serde_json::Value;

use super::super::{
    dialect::{Dialect, Speaker},
    estimate,
};

/// Messages that stay or go together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    /// Their places among the messages.
    pub(super) messages: Range<usize>,
    /// Who speaks first.
    pub(super) speaker: Speaker,
    /// Whether the user says something in it.
    pub(super) has_user: bool,
    /// The estimate of their texts.
    pub(super) tokens: u64,
}

/// The groups of a conversation, in their order. A message of a model and the results of all that it calls are one, with whatever
/// stands between; results that nobody has called for are groups of their own.
///
/// Whether the user says something is read in `said`, the messages as their caller sent them: a note is no text of the user.
pub(super) fn of(dialect: &dyn Dialect, messages: &[Value], said: &[Value]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    // Where a call stands that has no result yet.
    let mut open: HashMap<&str, usize> = HashMap::new();
    let mut has_results = false;
    for (place, message) in messages.iter().enumerate() {
        let speaker = dialect.speaker(message);
        let answered = dialect.answered(message);
        let asked_at = answered.iter().filter_map(|id| open.get(id).copied()).min();
        let of_calls = asked_at.map(|at| groups.partition_point(|group| group.messages.end <= at));
        let goes_on = speaker == Speaker::Model
            && !has_results
            && groups
                .last()
                .is_some_and(|last| last.speaker == Speaker::Model);
        let one = Group {
            messages: place..place + 1,
            speaker,
            has_user: speaker == Speaker::User
                || !dialect
                    .user_texts(said.get(place).unwrap_or(message))
                    .is_empty(),
            tokens: estimate::tokens(message),
        };
        match of_calls {
            Some(first) => {
                for group in groups.split_off(first + 1) {
                    join(&mut groups[first], &group);
                }
                join(&mut groups[first], &one);
                has_results = true;
            }
            None if goes_on => {
                if let Some(last) = groups.last_mut() {
                    join(last, &one);
                }
            }
            None => {
                has_results = false;
                groups.push(one);
            }
        }
        for id in answered {
            open.remove(id);
        }
        for call in dialect.calls(message) {
            open.insert(call.id, place);
        }
    }
    groups
}

fn join(group: &mut Group, next: &Group) {
    group.messages.end = next.messages.end;
    group.has_user |= next.has_user;
    group.tokens += next.tokens;
}
