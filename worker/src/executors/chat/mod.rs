//! Models: one request, one reply, on the first route that has one.
//!
//! `request` is what is asked, `routes` which routes are passed over, `class` what an answer means and what follows, `answer` what
//! the call came to, with its `cost`; `dialect` knows the protocols and `estimate` how long a text is. All of these are pure. This
//! file asks one route after the other, over the transport of HTTP tools, and stops in time.

mod answer;
mod class;
mod cost;
mod dialect;
mod estimate;
mod request;
mod routes;

use fleet::{
    egress::Egress,
    manifest::{ChatRoute, ExecutorSpec, Manifest},
    outcome::{Outcome, ToolFailure},
    said,
    secrets::Secrets,
    taken_back::TakenBack,
    telemetry::metrics,
    wire::{code::Code, message::Message},
};
use futures_util::{FutureExt, future::BoxFuture};
use reqwest::{
    Client, Method, Url,
    header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use secrecy::SecretString;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use self::{
    answer::{TriedRoute, TriedRoutes},
    class::{JudgedAnswer, RouteVerdict},
    dialect::Dialect,
    routes::{RouteNeeds, Skipped},
};
use super::{
    AttemptContext, Executor, Prepared, Returned,
    executor::has_secrets,
    headers,
    http::{
        HttpExecutorError, cut_off,
        part::{Part, defect, header_name, header_text},
        read,
        response::BodyEnd,
        transport, unanswered,
    },
    redact::{hidden, veil},
};

/// What a vendor is told of us beside the key.
const ATTEMPT_ID: HeaderName = HeaderName::from_static("toolfleet-attempt-id");
const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Runs chat tools.
#[derive(Debug, Clone)]
pub struct ChatExecutor {
    client: Client,
    egress: Egress,
}

impl ChatExecutor {
    /// Builds the client, whose requests go where `egress` allows it.
    ///
    /// # Errors
    ///
    /// No TLS provider is installed in this process, or there are no CA certificates.
    pub fn new(egress: Egress) -> Result<Self, HttpExecutorError> {
        Ok(Self {
            // That of writes: each request has a connection of its own, so the library never sends one twice, which would be paid twice.
            client: transport::writing(&egress)?,
            egress,
        })
    }
}

impl Executor for ChatExecutor {
    fn check(&self, manifest: &Manifest, secrets: &Secrets) -> Result<(), ToolFailure> {
        if let ExecutorSpec::Chat(spec) = &manifest.executor {
            for route in &spec.routes {
                metrics().has_route(&manifest.name, &route.name);
            }
        }
        has_secrets(manifest, secrets)
    }

    fn prepare(
        &self,
        manifest: &Manifest,
        arguments: &Value,
        secrets: &Secrets,
    ) -> Result<Box<dyn Prepared>, ToolFailure> {
        let ExecutorSpec::Chat(spec) = &manifest.executor else {
            let kind = manifest.executor.kind();
            return Err(defect(said!(
                "a {kind} tool was given to the chat executor",
                "一个 {kind} 工具被交给了 chat 执行器"
            )));
        };
        let dialect = dialect::of(spec.protocol);
        let none = Map::new();
        let request = request::request(spec, dialect, arguments.as_object().unwrap_or(&none))?;
        let needs = RouteNeeds::of(dialect, &request);
        let mut told = Vec::new();
        let mut routes = Vec::with_capacity(spec.routes.len());
        for route in &spec.routes {
            routes.push(ReadyRoute {
                url: url(&route.url)?,
                headers: route_headers(dialect, route, secrets, &mut told)?,
                skipped: routes::skipped(route, &needs),
                route: route.clone(),
            });
        }
        if routes.iter().all(|route| route.skipped.is_some()) {
            return Err(no_route(&routes));
        }
        Ok(Box::new(ChatAttempt {
            client: self.client.clone(),
            egress: self.egress.clone(),
            dialect,
            request,
            routes,
            output_limit: manifest.output_limit,
            hidden: hidden(told.clone(), manifest.redact_results),
            secrets: told,
        }))
    }
}

fn url(text: &str) -> Result<Url, ToolFailure> {
    Url::parse(text).map_err(|_unfit| {
        defect(Message::fixed(
            "the URL of a route in the manifest cannot be read",
            "无法读取清单中某个路由的 URL",
        ))
    })
}

/// The headers of a route; the secrets among them are added to `told`.
fn route_headers(
    dialect: &dyn Dialect,
    route: &ChatRoute,
    secrets: &Secrets,
    told: &mut Vec<SecretString>,
) -> Result<HeaderMap, ToolFailure> {
    let mut headers = HeaderMap::new();
    let json = HeaderValue::from_static("application/json");
    headers.insert(ACCEPT, json.clone());
    headers.insert(CONTENT_TYPE, json);
    for (name, value) in dialect.headers() {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
    for (name, text) in &route.headers {
        let name = header_name(name)?;
        let part = Part::read(text, secrets)?;
        if let Some(value) = part.header_value(&name, &Map::new())? {
            headers.insert(name, value);
        }
        if let Part::Secret(secret) = part {
            told.push(secret);
        }
    }
    Ok(headers)
}

/// The failure of a request that passes every route over.
fn no_route(routes: &[ReadyRoute]) -> ToolFailure {
    let why = |route: &ReadyRoute| {
        let why = route.skipped.map(Skipped::as_str).unwrap_or_default();
        format!("{} ({why})", route.route.name)
    };
    let all = routes.iter().map(why).collect::<Vec<_>>().join(", ");
    let tried = routes
        .iter()
        .filter_map(|route| Some(TriedRoute::skipped(&route.route, route.skipped?)));
    let tried: Vec<TriedRoute> = tried.collect();
    let what = said!(
        "no model of this tool takes the request: {all}; send a shorter one, or one that needs less",
        "这个工具的模型都无法接受该请求：{all}；请发送更短或要求更少的请求"
    );
    ToolFailure::new(Code::InvalidArguments, what).with_details(json!({ "tried": tried }))
}

/// A route with its secrets resolved.
struct ReadyRoute {
    route: ChatRoute,
    url: Url,
    headers: HeaderMap,
    skipped: Option<Skipped>,
}

struct ChatAttempt {
    client: Client,
    egress: Egress,
    dialect: &'static dyn Dialect,
    request: Map<String, Value>,
    routes: Vec<ReadyRoute>,
    output_limit: usize,
    /// Masked in every message.
    secrets: Vec<SecretString>,
    /// Masked in the answer.
    hidden: Vec<SecretString>,
}

impl Prepared for ChatAttempt {
    fn run(mut self: Box<Self>, context: AttemptContext) -> BoxFuture<'static, Returned> {
        let hidden = std::mem::take(&mut self.hidden);
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

/// What came of a request on a route.
enum RouteAnswer {
    Judged(JudgedAnswer),
    /// The attempt is over.
    Over(Outcome),
}

impl ChatAttempt {
    async fn attempt(&self, context: &AttemptContext) -> Outcome {
        let mut tried = TriedRoutes::default();
        let mut too_small: Option<&ChatRoute> = None;
        for (place, ready) in self.routes.iter().enumerate() {
            let route = &ready.route;
            if let Some(why) = ready.skipped {
                tried.skip(route, why);
                continue;
            }
            if too_small.is_some_and(|than| !routes::is_larger(route, than)) {
                tried.skip(route, Skipped::NotLarger);
                continue;
            }
            match self.ask(place, ready, tried.has_begun(), context).await {
                RouteAnswer::Over(outcome) => return tried.over(outcome),
                RouteAnswer::Judged(JudgedAnswer::Reply(reply)) => {
                    return tried.reply(self.dialect, &self.request, route, *reply);
                }
                RouteAnswer::Judged(JudgedAnswer::Failed(verdict, outcome)) => match verdict {
                    RouteVerdict::Done | RouteVerdict::Stop => return tried.over(outcome),
                    RouteVerdict::Larger => {
                        too_small = Some(route);
                        tried.fail(route, verdict, outcome);
                    }
                    RouteVerdict::Misconfigured => {
                        metrics().route_misconfigured(&context.tool, &route.name);
                        tried.fail(route, verdict, outcome);
                    }
                    RouteVerdict::Next => tried.fail(route, verdict, outcome),
                },
            }
        }
        tried.all_failed().unwrap_or_else(|| {
            // Refused before the claim.
            Outcome::NotStarted(no_route(&self.routes))
        })
    }

    /// Sends the request on one route, once, and reads the answer. Dropping it closes the connection.
    async fn ask(
        &self,
        place: usize,
        ready: &ReadyRoute,
        has_begun: bool,
        context: &AttemptContext,
    ) -> RouteAnswer {
        let origin = ready.url.origin().ascii_serialization();
        if let Some(end) = ended(context) {
            // What the platform takes back is an attempt of which nothing was sent, on any route.
            return RouteAnswer::Over(match end {
                BodyEnd::Stopped(reason) if !has_begun => {
                    Outcome::NotStarted(reason.before_anything_was_sent())
                }
                _over if !has_begun => Outcome::NotStarted(too_late()),
                over => unanswered(over, &origin),
            });
        }
        let next = |outcome| RouteAnswer::Judged(JudgedAnswer::Failed(RouteVerdict::Next, outcome));
        // Of names the resolver asks the same.
        if let Some(address) = self.egress.forbidden_literal(ready.url.as_str()) {
            return next(Outcome::NotStarted(transport::denied(&ready.url, address)));
        }
        let message = match self.message(place, ready, context) {
            Ok(message) => message,
            Err(failure) => return RouteAnswer::Over(Outcome::NotStarted(failure)),
        };
        let mut cut = Box::pin(cut_off(context));
        let sent = tokio::select! {
            biased;
            sent = self.client.execute(message) => sent,
            end = &mut cut => return RouteAnswer::Over(unanswered(end, &origin)),
        };
        let response = match sent {
            Ok(response) => response,
            Err(error) => return next(transport::failed(error, &origin)),
        };
        let answer = read(response, self.output_limit, cut).await;
        match answer.end {
            BodyEnd::TimedOut | BodyEnd::Stopped(_) => {
                RouteAnswer::Over(unanswered(answer.end, &origin))
            }
            BodyEnd::Whole | BodyEnd::TooLarge | BodyEnd::Broken | BodyEnd::NoResult => {
                RouteAnswer::Judged(class::judge(
                    self.dialect,
                    &answer,
                    self.output_limit,
                    &self.secrets,
                ))
            }
        }
    }

    /// The request on a route. Of the call a vendor is told the key and the attempt, and nothing of who made it.
    fn message(
        &self,
        place: usize,
        ready: &ReadyRoute,
        context: &AttemptContext,
    ) -> Result<reqwest::Request, ToolFailure> {
        let key = headers::key(context)?;
        // A key is one request's, and another route gets another one.
        let key = match place {
            0 => key.to_owned(),
            _ => format!("{key}/{}", ready.route.name),
        };
        let mut message = reqwest::Request::new(Method::POST, ready.url.clone());
        let mut all = ready.headers.clone();
        for (name, text) in [(KEY, key), (ATTEMPT_ID, context.attempt_id.to_string())] {
            let value = header_text(&text).expect("it is one line of ASCII");
            all.insert(name, value);
        }
        *message.headers_mut() = all;
        *message.body_mut() = Some(request::on_route(&self.request, &ready.route.model).into());
        Ok(message)
    }
}
