//! One attempt of a call: asks one route after the other, and stops in time.

use std::{future, time::Duration};

use fleet::{
    egress::Egress,
    ids::{Label, ToolName},
    manifest::{ChatRoute, ChatSpec},
    outcome::{Outcome, ToolFailure},
    said,
    taken_back::TakenBack,
    telemetry::metrics,
    wire::{code::Code, message::Message},
};
use futures_util::{FutureExt, future::BoxFuture};
use reqwest::{
    Method, Url,
    header::{HeaderMap, HeaderName},
};
use secrecy::SecretString;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::{
    answer::{TriedRoute, TriedRoutes},
    class::{JudgedAnswer, RouteAnswer, RouteVerdict},
    dialect::Dialect,
    edits::{EditSpecs, RequestWeights},
    exchange::{Exchange, RequestSender},
    record::RequestRecords,
    request,
    routes::{self, RouteNeeds, Skipped},
};
use crate::{
    breaker::{
        desk::{BreakerDesk, RoutePassage},
        permit::{BreakerPermit, CutShort},
    },
    executors::{
        AttemptContext, Prepared, Returned, headers,
        http::{part::header_text, response::BodyEnd, transport, unanswered},
        redact::veil,
    },
};

/// What a vendor is told of us beside the key.
const ATTEMPT_ID: HeaderName = HeaderName::from_static("toolfleet-attempt-id");
const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The failure of a request that passes every route over.
pub(super) fn no_route(passed_over: &[(&ChatRoute, Skipped)]) -> ToolFailure {
    let why = |(route, why): &(&ChatRoute, Skipped)| format!("{} ({})", route.name, why.as_str());
    let all = passed_over.iter().map(why).collect::<Vec<_>>().join(", ");
    let tried = passed_over.iter();
    let tried: Vec<TriedRoute> = tried
        .map(|(route, why)| TriedRoute::skipped(route, *why))
        .collect();
    let what = said!(
        "no model of this tool takes the request: {all}; send a shorter one, or one that needs less",
        "这个工具的模型都无法接受该请求：{all}；请发送更短或要求更少的请求"
    );
    ToolFailure::new(Code::InvalidArguments, what).with_details(json!({ "tried": tried }))
}

/// A route with its secrets resolved.
pub(super) struct ReadyRoute {
    pub(super) route: ChatRoute,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    /// Why the request as it came passes it over.
    pub(super) skipped: Option<Skipped>,
}

/// What writes summaries of conversations.
pub(super) struct Summarizer {
    /// The tool on whose routes it asks.
    pub(super) tool: ToolName,
    pub(super) spec: ChatSpec,
    /// Without a request.
    pub(super) attempt: ChatAttempt,
}

/// A request that is ready to be asked on its routes.
pub(super) struct ChatAttempt {
    pub(super) egress: Egress,
    pub(super) breakers: Option<BreakerDesk>,
    /// How long an attempt may take that is not cut short.
    pub(super) timeout: Duration,
    pub(super) records: RequestRecords,
    pub(super) dialect: &'static dyn Dialect,
    pub(super) request: Map<String, Value>,
    /// What may change it.
    pub(super) edits: EditSpecs,
    /// What writes summaries, where it may need some; `Err`: why it cannot.
    pub(super) summarizer: Option<Result<Box<Summarizer>, &'static str>>,
    pub(super) routes: Vec<ReadyRoute>,
    /// Masked in the answer.
    pub(super) hidden: Vec<SecretString>,
    pub(super) sender: RequestSender,
}

impl Prepared for ChatAttempt {
    fn unfollowed(&self) -> Option<ToolFailure> {
        self.sender.times.map(|_stream| request::unheard())
    }

    fn run(mut self: Box<Self>, context: AttemptContext) -> BoxFuture<'static, Returned> {
        // A tool that stands in for another is not heard, either.
        if let Some(failure) = self.unfollowed().filter(|_| !context.progress.is_heard()) {
            return future::ready(Outcome::NotStarted(failure).into()).boxed();
        }
        let hidden = std::mem::take(&mut self.hidden);
        context.progress.hide(&hidden);
        let veiled = move |outcome| Returned::from(veil(outcome, &hidden));
        async move { self.attempt(&context).await }
            .map(veiled)
            .boxed()
    }
}

/// Why nothing more may be sent, if it may not.
fn ended(context: &AttemptContext) -> Option<BodyEnd> {
    match context.stop.asked() {
        Some(reason) => Some(BodyEnd::Stopped(reason)),
        None => (Instant::now() >= context.until).then_some(BodyEnd::TimedOut),
    }
}

fn too_late() -> ToolFailure {
    let message = Message::fixed(
        "the attempt's time was over before anything was sent",
        "这次尝试还没有发出任何内容，时间就到了",
    );
    ToolFailure::new(Code::Timeout, message).taken_back(TakenBack::StartedTooLate)
}

impl ChatAttempt {
    async fn attempt(&self, context: &AttemptContext) -> Outcome {
        let mut chain = self.edits.chain(context);
        let ledger = &self.records.ledger;
        let editing = self
            .edits
            .of_call(&mut chain, self.dialect, &self.request, ledger, context);
        let request = Box::pin(editing).await;
        let weights = RequestWeights::default();
        let mut tried = TriedRoutes::default();
        let mut passed_over = Vec::new();
        let mut too_small: Option<&ChatRoute> = None;
        // What is sent may be shorter, or longer.
        let needs = self.edits.are_any().then(|| {
            let needs = RouteNeeds::of(self.dialect, &request.members);
            needs.of_any_size()
        });
        for (place, ready) in self.routes.iter().enumerate() {
            let route = &ready.route;
            let why = match &needs {
                Some(needs) => routes::skipped(route, needs),
                None => ready.skipped,
            };
            if let Some(why) = why {
                tried.skip(route, why);
                passed_over.push((route, why));
                continue;
            }
            if too_small.is_some_and(|than| !routes::is_larger(route, than)) {
                tried.skip(route, Skipped::NotLarger);
                continue;
            }
            let passage = self.pass(&context.tool, route, &context.tenant);
            let permit = match Box::pin(passage).await {
                RoutePassage::May(permit) => permit,
                RoutePassage::Shut(left) => {
                    tried.shut(route, left);
                    continue;
                }
            };
            let summary = Box::pin(self.summary(&chain, &request, &weights, route, context)).await;
            let sent = self
                .edits
                .of_route(&mut chain, &request, &weights, route, summary, context);
            let (edited, sent) = (&sent, &*sent.members);
            let is_edited = needs.is_some();
            if is_edited
                && let Some(why) = routes::skipped(route, &RouteNeeds::of(self.dialect, sent))
            {
                chain.not_sent(&route.name);
                tried.skip(route, why);
                passed_over.push((route, why));
                continue;
            }
            let record = match self.records.begin(route, tried.has_begun(), context).await {
                Ok(record) => record,
                Err(outcome) => return tried.over(outcome),
            };
            let began = Instant::now();
            // A key is one request's, and another route gets another one.
            let key = (place > 0).then_some(route.name.as_str());
            let asking = self.ask(key, ready, sent, tried.has_begun(), context);
            let exchange = asking.instrument(record.span.clone()).await;
            if let Some(permit) = permit {
                // A route whose time the routes before it had used up is not slow by that.
                let had = context.until.saturating_duration_since(began);
                let is_short = had < self.timeout / 2;
                tell(permit, &exchange.answer, began, is_short, context);
            }
            record
                .fill(self.dialect, sent, &exchange, &self.sender.secrets)
                .await;
            match exchange.answer {
                RouteAnswer::Over(outcome) => {
                    tried.last(route, &outcome);
                    return tried.over(outcome);
                }
                RouteAnswer::Judged(JudgedAnswer::Reply(mut reply)) => {
                    let telling = self
                        .edits
                        .replied(&mut chain, edited, route, &mut reply, ledger, context);
                    Box::pin(telling).await;
                    return tried.reply(self.dialect, sent, route, *reply, chain.into_done());
                }
                RouteAnswer::Judged(JudgedAnswer::Failed(verdict, outcome, _)) => match verdict {
                    RouteVerdict::Done | RouteVerdict::Stop => return tried.over(outcome),
                    RouteVerdict::Larger => {
                        too_small = Some(route);
                        tried.fail(route, verdict, outcome);
                    }
                    RouteVerdict::Misconfigured(_) => {
                        metrics().route_misconfigured(&context.tool, &route.name);
                        tried.fail(route, verdict, outcome);
                    }
                    RouteVerdict::Next => tried.fail(route, verdict, outcome),
                },
            }
        }
        tried
            .all_failed()
            .unwrap_or_else(|| Outcome::NotStarted(no_route(&passed_over)))
    }

    /// Whether a route of this tool may be tried.
    pub(super) async fn pass(
        &self,
        tool: &ToolName,
        route: &ChatRoute,
        tenant: &Label,
    ) -> RoutePassage {
        match &self.breakers {
            Some(desk) => desk.pass_route(tool, tenant, route.target()).await,
            None => RoutePassage::May(None),
        }
    }

    /// Sends a request on one route, once, and reads the answer. `key`: what stands behind the call's key, for which this is another
    /// request. Dropping it closes the connection.
    pub(super) async fn ask(
        &self,
        key: Option<&str>,
        ready: &ReadyRoute,
        request: &Map<String, Value>,
        has_begun: bool,
        context: &AttemptContext,
    ) -> Exchange {
        let origin = ready.url.origin().ascii_serialization();
        if let Some(end) = ended(context) {
            // What the platform takes back is an attempt of which nothing was sent, on any route.
            let over = match end {
                BodyEnd::Stopped(reason) if !has_begun => {
                    Outcome::NotStarted(reason.before_anything_was_sent())
                }
                _over if !has_begun => Outcome::NotStarted(too_late()),
                over => unanswered(over, &origin),
            };
            return RouteAnswer::Over(over).into();
        }
        let next =
            |outcome| RouteAnswer::Judged(JudgedAnswer::Failed(RouteVerdict::Next, outcome, None));
        // Of names the resolver asks the same.
        if let Some(address) = self.egress.forbidden_literal(ready.url.as_str()) {
            return next(Outcome::NotStarted(transport::denied(&ready.url, address))).into();
        }
        let message = match self.message(key, ready, request, context) {
            Ok(message) => message,
            Err(failure) => return RouteAnswer::Over(Outcome::NotStarted(failure)).into(),
        };
        let sending = self.sender.exchange(&ready.route.name, message, context);
        Box::pin(sending).await
    }

    /// The request on a route. Of the call a vendor is told the key and the attempt, and nothing of who made it.
    fn message(
        &self,
        behind_key: Option<&str>,
        ready: &ReadyRoute,
        request: &Map<String, Value>,
        context: &AttemptContext,
    ) -> Result<reqwest::Request, ToolFailure> {
        let key = headers::key(context)?;
        let key = match behind_key {
            None => key.to_owned(),
            Some(behind) => format!("{key}/{behind}"),
        };
        let mut message = reqwest::Request::new(Method::POST, ready.url.clone());
        let mut all = ready.headers.clone();
        for (name, text) in [(KEY, key), (ATTEMPT_ID, context.attempt_id.to_string())] {
            let value = header_text(&text).expect("it is one line of ASCII");
            all.insert(name, value);
        }
        *message.headers_mut() = all;
        *message.body_mut() = Some(request::on_route(request, &ready.route.model).into());
        Ok(message)
    }
}

/// Counts for the route's breaker what came of its request. `is_short`: it had less time than it needs.
pub(super) fn tell(
    permit: BreakerPermit,
    answer: &RouteAnswer,
    began: Instant,
    is_short: bool,
    context: &AttemptContext,
) {
    let cut = if context.stop.asked().is_some() {
        CutShort::Stopped
    } else if is_short {
        CutShort::ByDeadline
    } else {
        CutShort::No
    };
    match answer {
        RouteAnswer::Judged(JudgedAnswer::Reply(_)) => permit.replied(began.elapsed()),
        RouteAnswer::Judged(JudgedAnswer::Failed(_, outcome, _)) | RouteAnswer::Over(outcome) => {
            permit.answered(outcome, began.elapsed(), cut);
        }
    }
}
