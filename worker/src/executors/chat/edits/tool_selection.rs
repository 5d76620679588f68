//! Which tools of a request its model is told of.

use std::collections::HashSet;

use fleet::{
    arguments::{Limits, parse},
    ids::ToolName,
    manifest::{FIND_TOOLS, ToolSelection},
};

use serde_json::Value;

use super::super::dialect::OfferedTool;
use crate::{
    find_tools::FOUND_MAX,
    relevance::{RankedTools, SaidWords, ToolWords},
};

/// Which tools stay.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::executors::chat) enum Selected {
    /// All: there are no more than may be chosen.
    All,
    /// Nothing is known of what is needed.
    Unknown,
    /// Those at these places, in the order of the request.
    Kept(Vec<usize>),
}

/// Chooses the tools that stay.
///
/// Beside those that stay in any case at most `max` names are chosen: those that fit best what the user has said in all messages, of
/// equals those with the rarer words, and then the first. Where none fits, or one word alone speaks for those that do, nothing is known.
///
/// In any case stay what is in `bound` (what `tool_choice` names, what the conversation has called, what `find_tools` has named), what
/// the manifest says, `find_tools` itself where the fleet's tools are added, and what has no name. A name that stands twice is one.
pub(in crate::executors::chat) fn select(
    selection: &ToolSelection,
    said: &[&str],
    offered: &[OfferedTool<'_>],
    bound: &HashSet<&str>,
) -> Selected {
    let always: HashSet<&str> = selection.always.iter().map(String::as_str).collect();
    let stays = |name: &str| {
        bound.contains(name)
            || always.contains(name)
            || (selection.is_from_fleet() && name == FIND_TOOLS)
    };
    let named = offered.iter().filter_map(|tool| Some((tool.name?, tool)));
    let free: Vec<_> = named.filter(|(name, _)| !stays(name)).collect();
    let max = selection.max as usize;
    if free
        .iter()
        .map(|(name, _)| name)
        .collect::<HashSet<_>>()
        .len()
        <= max
    {
        return Selected::All;
    }
    let words = free
        .iter()
        .map(|(name, tool)| ToolWords::of(name, tool.description));
    let words: Vec<_> = words.collect();
    let ranked = RankedTools::of(&SaidWords::of(said), &words);
    if !ranked.is_sure {
        return Selected::Unknown;
    }
    let mut chosen = HashSet::new();
    for place in ranked.places {
        if chosen.len() < max {
            chosen.insert(free[place].0);
        }
    }
    if chosen.is_empty() {
        return Selected::Unknown;
    }
    let is_kept = |tool: &OfferedTool<'_>| {
        let name = tool.name;
        name.is_none_or(|name| stays(name) || chosen.contains(name))
    };
    let kept = offered.iter().enumerate();
    let kept = kept.filter(|(_, tool)| is_kept(tool)).map(|(n, _)| n);
    Selected::Kept(kept.collect())
}

/// The tools that an answer of `find_tools` names, at most as many as it has; the answer by itself, or as the result of its call. Any
/// other text names none.
pub(in crate::executors::chat) fn found(answer: &str) -> Vec<ToolName> {
    let Ok(answer) = parse(answer.as_bytes(), &Limits::DEFAULT) else {
        return Vec::new();
    };
    let tools = answer
        .pointer("/tools")
        .or_else(|| answer.pointer("/result/tools"));
    let tools = tools.and_then(Value::as_array);
    let names = tools.into_iter().flatten().filter_map(|tool| {
        let name = tool.get("name")?.as_str()?;
        name.parse().ok()
    });
    names.take(FOUND_MAX).collect()
}

#[cfg(test)]
mod tests;
