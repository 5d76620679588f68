//! What a call of a model came to: its result, or what its routes had to say. Pure.

use std::time::Duration;

use fleet::{
    manifest::ChatRoute,
    outcome::{Outcome, OutcomeWord, ToolFailure},
    wire::{code::Code, message::Message},
};
use serde::Serialize;
use serde_json::{
    Map, Value, json,
    value::{RawValue, to_raw_value},
};

use super::{
    class::{ModelReply, RouteVerdict},
    cost::{self, ModelCost},
    dialect::{Dialect, Finish, StreamSoFar, TokenUsage},
    estimate,
    routes::Skipped,
};

/// The result of a call.
#[derive(Serialize)]
struct ChatResult<'a> {
    reply: &'a RawValue,
    route: &'a str,
    model: &'a str,
    finish: Finish,
    usage: TokenUsage,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<ModelCost>,
    tried: &'a [TriedRoute],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    edits: Vec<Value>,
}

/// A route that had no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct TriedRoute {
    route: String,
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u64>,
}

impl TriedRoute {
    pub(super) fn skipped(route: &ChatRoute, why: Skipped) -> Self {
        Self {
            route: route.name.clone(),
            code: why.as_str(),
            status: None,
        }
    }

    fn failed(route: &ChatRoute, failure: &ToolFailure) -> Self {
        let details = failure.details.as_ref();
        Self {
            route: route.name.clone(),
            code: failure.code.as_str(),
            status: details.and_then(|details| details.get("status")?.as_u64()),
        }
    }
}

/// The routes of an attempt that had no answer.
#[derive(Debug, Default)]
pub(super) struct TriedRoutes {
    tried: Vec<TriedRoute>,
    failures: Vec<(RouteVerdict, Outcome)>,
    /// When the first of those may be tried that were passed over because their breaker is open.
    shut: Option<Duration>,
}

impl TriedRoutes {
    /// A route whose breaker is open, for so long.
    pub(super) fn shut(&mut self, route: &ChatRoute, left: Duration) {
        self.skip(route, Skipped::BreakerOpen);
        self.shut = Some(self.shut.map_or(left, |other| other.min(left)));
    }

    pub(super) fn skip(&mut self, route: &ChatRoute, why: Skipped) {
        self.tried.push(TriedRoute::skipped(route, why));
    }

    /// A route with which the attempt was over, as its timeout is.
    pub(super) fn last(&mut self, route: &ChatRoute, outcome: &Outcome) {
        let failed = |failure| TriedRoute::failed(route, failure);
        self.tried.extend(outcome.failure().map(failed));
    }

    pub(super) fn fail(&mut self, route: &ChatRoute, verdict: RouteVerdict, outcome: Outcome) {
        self.last(route, &outcome);
        self.failures.push((verdict, outcome));
    }

    /// Whether anything was sent.
    pub(super) fn has_begun(&self) -> bool {
        let mut outcomes = self.failures.iter().map(|(_, outcome)| outcome.word());
        outcomes.any(|word| word != OutcomeWord::NotStarted)
    }

    /// The result: a reply of this route. `edits`: what interceptors did to the request and the reply.
    pub(super) fn reply(
        &self,
        dialect: &dyn Dialect,
        request: &Map<String, Value>,
        route: &ChatRoute,
        reply: ModelReply,
        edits: Vec<Value>,
    ) -> Outcome {
        let object = &reply.object;
        let usage = usage(dialect, request, object);
        let price = route.price.as_ref();
        let model = object.get("model").and_then(Value::as_str);
        let result = ChatResult {
            reply: &reply.raw,
            route: &route.name,
            model: model.unwrap_or(&route.model),
            finish: dialect.finish(object),
            usage,
            cost: price.and_then(|price| cost::of(price, &usage)),
            tried: &self.tried,
            edits,
        };
        Outcome::Applied {
            result: to_raw_value(&result).expect("it is made of JSON, and its names are texts"),
            flaw: reply.flaw,
        }
    }

    /// An outcome that is the attempt's whatever the routes before it said.
    pub(super) fn over(self, outcome: Outcome) -> Outcome {
        told(after(outcome, &self.failures), &self.tried)
    }

    /// What the attempt came to where no route had an answer: what the first said, and the shortest pause that any of them asked
    /// for. That the request was too long for a route is said only where none had another reason. `None`: no route was asked, and none
    /// may be later.
    pub(super) fn all_failed(self) -> Option<Outcome> {
        let Self {
            tried,
            mut failures,
            shut,
        } = self;
        let pauses = failures
            .iter()
            .filter_map(|(_, outcome)| outcome.failure()?.retry_after_ms);
        let pause = pauses.min();
        let first = failures
            .iter()
            .position(|(verdict, _)| *verdict != RouteVerdict::Larger)
            .unwrap_or(0);
        if failures.is_empty() {
            let failure = circuit_open().with_retry_after(Some(shut?));
            return Some(told(Outcome::NotStarted(failure), &tried));
        }
        let (_, first) = failures.remove(first);
        let first = changed(after(first, &failures), |failure| {
            failure.retry_after_ms = pause;
        });
        Some(told(first, &tried))
    }
}

fn circuit_open() -> ToolFailure {
    let what = Message::fixed(
        "every model that takes the request fails at present, so nothing was sent",
        "能接受该请求的模型目前都有故障，因此没有发送任何请求",
    );
    ToolFailure::new(Code::CircuitOpen, what)
}

/// How many tokens a reply took: as its vendor says, else a guess.
pub(super) fn usage(
    dialect: &dyn Dialect,
    request: &Map<String, Value>,
    object: &Map<String, Value>,
) -> TokenUsage {
    dialect.usage(object).unwrap_or_else(|| {
        let output = dialect.answer(object).map_or(0, estimate::tokens);
        guess(dialect, request, output)
    })
}

/// How many tokens a stream took that has come to no reply: as far as its vendor has counted, else a guess.
pub(super) fn usage_so_far(
    dialect: &dyn Dialect,
    request: &Map<String, Value>,
    so_far: &StreamSoFar,
) -> TokenUsage {
    let written = guess(dialect, request, estimate::of_bytes(so_far.bytes));
    match dialect.usage(&so_far.object) {
        Some(told) if so_far.is_counted => told,
        // The count of what was read comes first.
        Some(told) => TokenUsage {
            output: told.output.max(written.output),
            estimated: true,
            ..told
        },
        None => written,
    }
}

fn guess(dialect: &dyn Dialect, request: &Map<String, Value>, output: u64) -> TokenUsage {
    let said = dialect.said().iter().filter_map(|name| request.get(*name));
    TokenUsage {
        input: said.map(estimate::tokens).sum(),
        output,
        estimated: true,
        ..TokenUsage::default()
    }
}

/// What is still true of an outcome where other routes were asked besides: that nothing was started only where it is true of all.
fn after(outcome: Outcome, others: &[(RouteVerdict, Outcome)]) -> Outcome {
    let began = |(_, other): &(RouteVerdict, Outcome)| other.word() != OutcomeWord::NotStarted;
    match outcome {
        Outcome::NotStarted(failure) if others.iter().any(began) => {
            Outcome::DefiniteFailure(failure)
        }
        other => other,
    }
}

/// With the routes in the details of its failure, where there were others.
fn told(outcome: Outcome, tried: &[TriedRoute]) -> Outcome {
    if tried.is_empty() {
        return outcome;
    }
    changed(outcome, |failure| {
        let details = failure.details.get_or_insert_with(|| json!({}));
        if let Some(details) = details.as_object_mut() {
            details.insert("tried".to_owned(), json!(tried));
        }
    })
}

fn changed(outcome: Outcome, change: impl FnOnce(&mut ToolFailure)) -> Outcome {
    let change = |mut failure: ToolFailure| {
        change(&mut failure);
        failure
    };
    match outcome {
        Outcome::Applied { result, flaw } => Outcome::Applied {
            result,
            flaw: flaw.map(change),
        },
        Outcome::NotStarted(failure) => Outcome::NotStarted(change(failure)),
        Outcome::DefiniteFailure(failure) => Outcome::DefiniteFailure(change(failure)),
        Outcome::Unknown(failure) => Outcome::Unknown(change(failure)),
    }
}

#[cfg(test)]
mod tests;
