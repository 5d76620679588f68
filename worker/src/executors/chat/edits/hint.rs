//! `delegation`: tells the model of a tool that can do better what the user asks.

use std::collections::HashSet;

use fleet::{call::Language, manifest::Delegate, modes::Brake};
use serde_json::{Map, Value, json};

use super::{
    delegation::{best, hint},
    interceptor::{Edit, ModelInterceptor, ModelRequest},
};

/// `delegation`, for one call.
pub(super) struct DelegationHint<'s> {
    pub(super) delegates: &'s [Delegate],
    /// The tools that the model may call: of no other one it is told.
    pub(super) offered: HashSet<String>,
    pub(super) language: Language,
}

impl ModelInterceptor for DelegationHint<'_> {
    fn brake(&self) -> Brake {
        Brake::Delegation
    }

    fn before(&self, request: &mut ModelRequest<'_>) -> Option<Edit> {
        let said = request.said();
        let delegates = self.delegates.iter();
        let callable: Vec<Delegate> = delegates
            .filter(|delegate| self.offered.contains(delegate.tool.as_str()))
            .cloned()
            .collect();
        let found = best(&callable, &said.last()?.join("\n"))?;
        // It has heard of it, and has an answer.
        if is_called(request, found.tool.as_str()) {
            return None;
        }
        let note = hint(&found).told(self.language).to_string();
        let dialect = request.dialect;
        dialect.note(request.members.to_mut(), &note);
        let mut done = Map::new();
        done.insert("tool".to_owned(), json!(found.tool.as_str()));
        done.insert("score".to_owned(), json!(found.score));
        Some(done)
    }
}

/// Whether the model has called a tool since the user spoke last.
fn is_called(request: &ModelRequest<'_>, tool: &str) -> bool {
    let dialect = request.dialect;
    let messages = request.original.get(dialect.messages());
    let messages = messages.and_then(Value::as_array).into_iter().flatten();
    let since = messages
        .rev()
        .take_while(|message| dialect.user_texts(message).is_empty());
    let mut calls = since.flat_map(|message| dialect.calls(message));
    calls.any(|call| call.name == tool)
}
