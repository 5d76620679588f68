//! What a request costs, on record: a row before it leaves, filled once it is over and before its call is. Without the row the request
//! does not leave.

use std::time::Duration;

use fleet::{
    manifest::{Budget, ChatRoute},
    outcome::{Outcome, ToolFailure},
    store::{
        PgPool, StoreError,
        model_calls::{self, EndedModelCall, ModelCallKind, NewModelCall, SpentTokens},
    },
    taken_back::TakenBack,
    telemetry::{
        metrics, report,
        spans::{self, AskedModel},
    },
    wire::{code::Code, message::Message},
};
use secrecy::SecretString;
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep, timeout_at};
use tracing::Span;
use uuid::Uuid;

use super::{
    answer,
    class::{JudgedAnswer, RouteAnswer, RouteVerdict},
    cost::{self, ModelCost},
    dialect::{Dialect, TokenUsage},
    exchange::Exchange,
};
use crate::executors::{AttemptContext, redact::redact};

/// Until when after the first another try to fill a row begins: the last is over before the attempt would be given up.
const FILL_MAX: Duration = Duration::from_millis(1500);
/// The pause between two of them.
const FILL_PAUSE: Duration = Duration::from_millis(200);

/// Where the requests of an attempt are put on record.
pub(super) struct RequestRecords {
    pub(super) ledger: PgPool,
    /// Whose protocol the tool speaks, in the words of traces.
    pub(super) provider: &'static str,
    /// What the tool may spend; `None`: nothing is counted.
    pub(super) budget: Option<Budget>,
}

/// A request that is on record, unless it will not leave.
pub(super) struct RequestRecord<'a> {
    ledger: &'a PgPool,
    route: &'a ChatRoute,
    asked: AskedModel<'a>,
    row: Option<NewModelCall<'a>>,
    /// Around the request.
    pub(super) span: Span,
    began: Instant,
}

impl RequestRecords {
    /// Puts the next request on record. `has_begun`: others of its attempt have left.
    ///
    /// # Errors
    ///
    /// What the attempt has come to: the request must not leave.
    pub(super) async fn begin<'a>(
        &'a self,
        route: &'a ChatRoute,
        has_begun: bool,
        context: &'a AttemptContext,
    ) -> Result<RequestRecord<'a>, Outcome> {
        self.begin_as(
            ModelCallKind::Answer,
            route,
            &route.name,
            has_begun,
            context,
        )
        .await
    }

    /// Puts a request for a summary on record, on the route with this name.
    ///
    /// # Errors
    ///
    /// The request must not leave.
    pub(super) async fn begin_summary<'a>(
        &'a self,
        route: &'a ChatRoute,
        name: &'a str,
        context: &'a AttemptContext,
    ) -> Result<RequestRecord<'a>, Outcome> {
        self.begin_as(ModelCallKind::Summary, route, name, true, context)
            .await
    }

    async fn begin_as<'a>(
        &'a self,
        kind: ModelCallKind,
        route: &'a ChatRoute,
        name: &'a str,
        has_begun: bool,
        context: &'a AttemptContext,
    ) -> Result<RequestRecord<'a>, Outcome> {
        let asked = AskedModel {
            tool: &context.tool,
            route: name,
            model: &route.model,
            provider: self.provider,
        };
        let record = |row, span| RequestRecord {
            ledger: &self.ledger,
            route,
            asked,
            row,
            span,
            began: Instant::now(),
        };
        if context.stop.asked().is_some() || Instant::now() >= context.until {
            // Nothing is sent any more.
            return Ok(record(None, Span::none()));
        }
        let new = NewModelCall {
            call: context.call_id,
            request: Uuid::now_v7(),
            attempt_id: context.attempt_id,
            attempt: context.attempt,
            tenant: &context.tenant,
            tool: &context.tool,
            tool_version: context.tool_version,
            session: context.session.as_ref(),
            run: context.run.as_ref(),
            route: name,
            model: &route.model,
            kind,
            budget: self.budget.as_ref(),
        };
        let beginning = Box::pin(model_calls::begin(&self.ledger, new));
        match timeout_at(context.until, beginning).await {
            Ok(Ok(())) => Ok(record(Some(new), spans::chat(context.call_id, &asked))),
            Ok(Err(error)) => {
                tracing::warn!(
                    error = report(&error),
                    "a request to a model was not put on record and does not leave"
                );
                Err(unrecorded(has_begun))
            }
            // What became of the row is not known, and the request does not leave.
            Err(_elapsed) => Err(unrecorded(has_begun)),
        }
    }
}

impl RequestRecord<'_> {
    /// Fills its row. What cannot be filled is left as it is, and the answer is the call's all the same.
    pub(super) async fn fill(
        self,
        dialect: &dyn Dialect,
        request: &Map<String, Value>,
        exchange: &Exchange,
        secrets: &[SecretString],
    ) {
        let Some(row) = self.row else { return };
        let mut ended = EndedModelCall {
            run: self.began.elapsed(),
            first_token: exchange.first_token,
            ..came(dialect, request, self.route, exchange)
        };
        // What a vendor says may be what it was sent.
        ended.model = ended
            .model
            .map(|said| redact(&said, secrets).unwrap_or(said));
        spans::chat_ended(&self.span, &ended);
        metrics().model_ended(&self.asked, &ended);
        if let Err(error) = Box::pin(fill(self.ledger, row, &ended)).await {
            tracing::warn!(
                error = report(&error),
                call_id = %row.call,
                route = row.route,
                input_tokens = ended.tokens.map(|tokens| tokens.input),
                output_tokens = ended.tokens.map(|tokens| tokens.output),
                "what a request to a model has cost was not put on record"
            );
        }
    }
}

async fn fill(
    ledger: &PgPool,
    row: NewModelCall<'_>,
    ended: &EndedModelCall,
) -> Result<(), StoreError> {
    let until = Instant::now() + FILL_MAX;
    loop {
        match model_calls::fill(ledger, row, ended).await {
            // Another try has filled it, or its day is gone.
            Ok(_filled) => return Ok(()),
            Err(error) if error.may_pass() && Instant::now() + FILL_PAUSE < until => {
                sleep(FILL_PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The attempt of a request that is not on record.
fn unrecorded(has_begun: bool) -> Outcome {
    let what = Message::fixed(
        "the ledger did not put the request to the model on record, so it was not sent",
        "账本没有记录这次模型请求，因此请求没有发出",
    );
    let failure = ToolFailure::new(Code::Unavailable, what);
    // What the platform takes back is an attempt of which nothing was sent, on any route.
    Outcome::NotStarted(if has_begun {
        failure
    } else {
        failure.taken_back(TakenBack::Unrecorded)
    })
}

/// What a request came to, but for its time. Pure.
fn came(
    dialect: &dyn Dialect,
    request: &Map<String, Value>,
    route: &ChatRoute,
    exchange: &Exchange,
) -> EndedModelCall {
    let so_far = || match &exchange.so_far {
        Some(so_far) => {
            let usage = answer::usage_so_far(dialect, request, so_far);
            spent(route, &so_far.object, Some(usage))
        }
        // Nothing is guessed of what is no reply.
        None => EndedModelCall::default(),
    };
    match &exchange.answer {
        RouteAnswer::Over(outcome) => EndedModelCall {
            code: code(outcome),
            ..so_far()
        },
        RouteAnswer::Judged(JudgedAnswer::Reply(reply)) => {
            let usage = answer::usage(dialect, request, &reply.object);
            EndedModelCall {
                finish: Some(dialect.finish(&reply.object).as_str()),
                ..spent(route, &reply.object, Some(usage))
            }
        }
        RouteAnswer::Judged(JudgedAnswer::Failed(verdict, outcome, object)) => EndedModelCall {
            code: code(outcome),
            misconfigured: match verdict {
                RouteVerdict::Misconfigured(status) => Some(*status),
                RouteVerdict::Done
                | RouteVerdict::Next
                | RouteVerdict::Larger
                | RouteVerdict::Stop => None,
            },
            ..match object {
                // Its own count is the last word.
                Some(object) if exchange.so_far.is_none() || dialect.usage(object).is_some() => {
                    spent(route, object, dialect.usage(object))
                }
                _none => so_far(),
            }
        },
    }
}

fn code(outcome: &Outcome) -> Option<Code> {
    outcome.failure().map(|failure| failure.code)
}

fn spent(
    route: &ChatRoute,
    object: &Map<String, Value>,
    usage: Option<TokenUsage>,
) -> EndedModelCall {
    let price = route.price.as_ref();
    let cost = price
        .zip(usage)
        .and_then(|(price, usage)| cost::of(price, &usage));
    EndedModelCall {
        model: object
            .get("model")
            .and_then(Value::as_str)
            .map(str::to_owned),
        tokens: usage.map(tokens),
        cost: cost.map(|ModelCost { amount, currency }| (amount, currency)),
        ..EndedModelCall::default()
    }
}

fn tokens(usage: TokenUsage) -> SpentTokens {
    let TokenUsage {
        input,
        cached_input,
        cache_write,
        output,
        reasoning,
        estimated,
    } = usage;
    SpentTokens {
        input,
        cached_input,
        cache_write,
        output,
        reasoning,
        estimated,
    }
}

#[cfg(test)]
mod tests {
    use fleet::manifest::ChatProtocol;
    use serde_json::json;

    use super::*;
    use crate::executors::chat::dialect::{self, StreamSoFar};

    fn object(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_reply_of_no_use_costs_what_it_says_itself_and_else_what_was_known_of_its_stream() {
        let route = json!({"name": "a", "url": "http://a/", "model": "m"});
        let route = serde_json::from_value(route).unwrap();
        let dialect = dialect::of(ChatProtocol::OpenaiResponses);
        let request = object(json!({"input": "abcdefgh"}));
        let output = |said: Value| {
            let useless = ToolFailure::new(Code::OutputInvalid, Message::fixed("", ""));
            let failed = JudgedAnswer::Failed(
                RouteVerdict::Next,
                Outcome::DefiniteFailure(useless),
                Some(Box::new(object(said))),
            );
            let exchange = Exchange {
                answer: RouteAnswer::Judged(failed),
                first_token: None,
                so_far: Some(StreamSoFar {
                    bytes: 400,
                    ..StreamSoFar::default()
                }),
            };
            let ended = came(dialect, &request, &route, &exchange);
            let tokens = ended.tokens.unwrap();
            (tokens.input, tokens.output, tokens.estimated)
        };
        let usage = json!({"input_tokens": 7, "output_tokens": 9});
        assert_eq!(output(json!({ "usage": usage })), (7, 9, false));
        assert_eq!(output(json!({"error": {}})), (2, 100, true));
    }
}
