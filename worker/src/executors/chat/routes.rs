//! Which routes a request passes over, and why. Pure.

use fleet::manifest::{ChatRoute, RouteLack};
use serde_json::{Map, Value};

use super::{dialect::Dialect, estimate};

/// Why a route was not asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Skipped {
    /// It calls no tools.
    LacksTools,
    /// It sees no images.
    LacksImages,
    /// It does not keep to a schema.
    LacksSchema,
    /// The request, with the answer that it asks for, has more tokens than the model takes.
    TooLong,
    /// It has no more room than a route that has refused the request as too long.
    NotLarger,
    /// It fails at present, as its breaker has counted.
    BreakerOpen,
}

impl Skipped {
    /// The word for it in results and failures.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::LacksTools => "lacks_tools",
            Self::LacksImages => "lacks_images",
            Self::LacksSchema => "lacks_schema",
            Self::TooLong => "too_long",
            Self::NotLarger => "not_larger",
            Self::BreakerOpen => "breaker_open",
        }
    }
}

/// What a request needs of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RouteNeeds {
    tools: bool,
    images: bool,
    schema: bool,
    /// How many tokens it has at least, with the answer that it asks for.
    tokens: u64,
}

impl RouteNeeds {
    pub(super) fn of(dialect: &dyn Dialect, request: &Map<String, Value>) -> Self {
        let said = || dialect.said().iter().filter_map(|name| request.get(*name));
        let answer = dialect
            .answer_limits()
            .iter()
            .find_map(|name| request.get(*name)?.as_u64())
            .unwrap_or(0);
        Self {
            tools: dialect.has_tools(request),
            images: said().any(|value| has_part(value, dialect.images())),
            schema: dialect.has_schema(request),
            tokens: said()
                .map(estimate::tokens)
                .fold(answer, u64::saturating_add),
        }
    }
}

impl RouteNeeds {
    /// Whatever its size.
    pub(super) const fn of_any_size(self) -> Self {
        Self { tokens: 0, ..self }
    }
}

/// Why a route is passed over; `None`: it may be asked.
pub(super) fn skipped(route: &ChatRoute, needs: &RouteNeeds) -> Option<Skipped> {
    let lacks = |lack| route.lacks.contains(&lack);
    if needs.tools && lacks(RouteLack::Tools) {
        Some(Skipped::LacksTools)
    } else if needs.images && lacks(RouteLack::Images) {
        Some(Skipped::LacksImages)
    } else if needs.schema && lacks(RouteLack::Schema) {
        Some(Skipped::LacksSchema)
    } else if route.context_tokens.is_some_and(|room| needs.tokens > room) {
        Some(Skipped::TooLong)
    } else {
        None
    }
}

/// Whether a route may take what was too long for another one. A route that says nothing of its size may; what was too long for
/// such a one is for none.
pub(super) fn is_larger(route: &ChatRoute, than: &ChatRoute) -> bool {
    match (route.context_tokens, than.context_tokens) {
        (Some(room), Some(less)) => room > less,
        (None, Some(_)) => true,
        (_, None) => false,
    }
}

/// Whether there is a content part of one of these types: in a message, in a list of them, in the result of a tool.
fn has_part(value: &Value, types: &[&str]) -> bool {
    match value {
        Value::Array(items) => items.iter().any(|item| has_part(item, types)),
        Value::Object(members) => {
            let kind = members.get("type").and_then(Value::as_str);
            let inside = ["content", "output"]
                .iter()
                .filter_map(|name| members.get(*name));
            kind.is_some_and(|kind| types.contains(&kind))
                || inside.into_iter().any(|value| has_part(value, types))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests;
