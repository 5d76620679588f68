//! The API as the console asks it: in this process, in the name of who has signed in, with the rights that its token has and no others.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Request,
    http::{HeaderName, HeaderValue, Method, StatusCode},
    response::Response,
};
use bytes::Bytes;
use fleet::{
    call::Language,
    wire::{code::Code, message::Message},
};
use serde::de::DeserializeOwned;
use tokio::{sync::OnceCell, time::Instant};
use tower_service::Service;

use super::visitor::Visitor;
use crate::{
    auth::principal::Principal,
    headers::{LANGUAGE, TENANT},
    refusal::Refused,
};

/// How long an answer counts: a page that is looked at by many is read once.
const KEPT: Duration = Duration::from_secs(1);
/// How long nothing is asked after the store has not answered: a page is several questions, each of which would wait in vain.
const AWAY: Duration = Duration::from_secs(3);
/// How many answers are kept at a time, of who has the same rights and of all, and how large one of them may be.
const ANSWERS_OF_EACH_MAX: usize = 32;
const ANSWERS_MAX: usize = 256;
const KEPT_BYTES_MAX: usize = 256 * 1024;
/// The largest answer that is read: that of a call with the largest arguments and the largest answer.
const ANSWER_MAX: usize = 32 * 1024 * 1024;

/// The endpoints that look at calls, of one tenant or of all.
const LOOKS_AT_CALLS: [&str; 5] = [
    "/v1/history",
    "/v1/overview",
    "/v1/usage",
    "/v1/doubts",
    "/v1/waiting",
];

/// What an endpoint has answered.
#[derive(Debug, Clone)]
pub(super) struct Answered {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

impl Answered {
    /// The body as this type.
    ///
    /// # Errors
    ///
    /// It is another one, which no endpoint of this release gives.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, Refused> {
        serde_json::from_slice(&self.body).map_err(|error| {
            tracing::warn!(%error, "an endpoint's answer does not fit the console");
            unfit()
        })
    }
}

type SharedAnswer = Arc<OnceCell<Result<Answered, Refused>>>;

/// The endpoints, without what asks for a token before them.
#[derive(Debug)]
pub(super) struct OwnApi {
    endpoints: Router,
    kept: Mutex<HashMap<String, OwnAnswer>>,
    /// To whom the store did not answer last, by their rights, when, and what was said of that.
    away: Mutex<Option<(String, Instant, Refused)>>,
}

#[derive(Debug)]
struct OwnAnswer {
    asked_at: Instant,
    answer: SharedAnswer,
}

impl OwnApi {
    pub(super) fn new(endpoints: Router) -> Self {
        Self {
            endpoints,
            kept: Mutex::default(),
            away: Mutex::default(),
        }
    }

    /// What an endpoint says, as this type: now, or to somebody with the same rights within the last second.
    ///
    /// # Errors
    ///
    /// It refuses.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        visitor: &Visitor,
        path: &str,
    ) -> Result<T, Refused> {
        self.get_bytes(visitor, path).await?.read()
    }

    /// The same as it came.
    ///
    /// # Errors
    ///
    /// As for [`Self::get`].
    pub(super) async fn get_bytes(
        &self,
        visitor: &Visitor,
        path: &str,
    ) -> Result<Answered, Refused> {
        if let Some(refused) = self.away(visitor) {
            return Err(refused);
        }
        let asking = self.asking(visitor, path);
        let ask = || self.ask(visitor, Method::GET, path, Bytes::new(), &[]);
        let answered = asking.get_or_init(ask).await.clone();
        if let Err(refused) = &answered
            && refused.code() == Code::StoreUnavailable
        {
            let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
            *away = Some((rights(visitor), Instant::now(), refused.clone()));
        }
        let too_large = |answered: &Answered| answered.body.len() > KEPT_BYTES_MAX;
        if answered.as_ref().map_or(true, too_large) {
            self.lock().remove(&key(visitor, path));
        }
        answered
    }

    /// What an endpoint says to this one alone, now.
    ///
    /// # Errors
    ///
    /// The gateway itself refuses, or cannot ask.
    pub(super) async fn get_own(&self, visitor: &Visitor, path: &str) -> Result<Answered, Refused> {
        self.ask(visitor, Method::GET, path, Bytes::new(), &[])
            .await
    }

    /// Has an endpoint do something; its answer, also where it refuses.
    ///
    /// # Errors
    ///
    /// The gateway itself refuses, or cannot ask.
    pub(super) async fn post(
        &self,
        visitor: &Visitor,
        path: &str,
        body: impl Into<Bytes>,
        headers: &[(HeaderName, HeaderValue)],
    ) -> Result<Answered, Refused> {
        let answered = self
            .ask(visitor, Method::POST, path, body.into(), headers)
            .await;
        // Whoever did something sees what came of it.
        let own = rights(visitor);
        self.lock().retain(|key, _| !key.starts_with(&own));
        answered
    }

    /// An endpoint's answer as it comes.
    ///
    /// # Errors
    ///
    /// The gateway refuses.
    pub(super) async fn stream(
        &self,
        visitor: &Visitor,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
    ) -> Result<Response, Refused> {
        self.answered(visitor, Method::GET, path, Bytes::new(), headers)
            .await
    }

    async fn ask(
        &self,
        visitor: &Visitor,
        method: Method,
        path: &str,
        body: Bytes,
        headers: &[(HeaderName, HeaderValue)],
    ) -> Result<Answered, Refused> {
        let response = self.answered(visitor, method, path, body, headers).await?;
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, ANSWER_MAX).await.map_err(|_cut| unfit())?;
        Ok(Answered {
            status: parts.status,
            body,
        })
    }

    async fn answered(
        &self,
        visitor: &Visitor,
        method: Method,
        path: &str,
        body: Bytes,
        headers: &[(HeaderName, HeaderValue)],
    ) -> Result<Response, Refused> {
        let mut request = Request::new(Body::from(body));
        let method_is_get = method == Method::GET;
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|_bad| unfit())?;
        let extensions = request.extensions_mut();
        extensions.insert(visitor.principal().clone());
        extensions.insert(visitor.peer().clone());
        let lines = request.headers_mut();
        let language = match visitor.language() {
            Language::En => "en",
            Language::Zh => "zh",
        };
        lines.insert(LANGUAGE, HeaderValue::from_static(language));
        if let Some(tenant) = visitor.tenant() {
            let tenant = HeaderValue::from_str(tenant.as_str()).map_err(|_bad| unfit())?;
            lines.insert(TENANT, tenant);
        } else if method_is_get && LOOKS_AT_CALLS.iter().any(|looks| path.starts_with(looks)) {
            // Whoever may choose a tenant and has not looks at all of them.
            lines.insert(TENANT, HeaderValue::from_static("*"));
        }
        for (name, value) in headers {
            lines.insert(name, value.clone());
        }
        let Ok(mut response) = self.endpoints.clone().call(request).await;
        match response.extensions_mut().remove::<Refused>() {
            Some(refused) => Err(refused),
            None => Ok(response),
        }
    }

    /// What was said, where the store has not answered just now. Who has other rights asks for themselves: a look that is too much for the
    /// store takes nobody else's page away.
    fn away(&self, visitor: &Visitor) -> Option<Refused> {
        let away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, since, refused) = away.as_ref()?;
        (since.elapsed() < AWAY && *of == rights(visitor)).then(|| refused.clone())
    }

    fn asking(&self, visitor: &Visitor, path: &str) -> SharedAnswer {
        let (now, key) = (Instant::now(), key(visitor, path));
        let mut kept = self.lock();
        kept.retain(|_, answer| now.duration_since(answer.asked_at) < KEPT);
        let own = rights(visitor);
        let its = kept.keys().filter(|key| key.starts_with(&own)).count();
        let is_full = kept.len() >= ANSWERS_MAX || its >= ANSWERS_OF_EACH_MAX;
        if is_full && !kept.contains_key(&key) {
            return SharedAnswer::default();
        }
        let answer = kept.entry(key).or_insert_with(|| OwnAnswer {
            asked_at: now,
            answer: SharedAnswer::default(),
        });
        Arc::clone(&answer.answer)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, OwnAnswer>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What decides what an answer is: the rights of who asks, for whom, in which language, and what. No endpoint that is asked through
/// [`OwnApi::get`] answers by the name of who asks.
fn key(visitor: &Visitor, path: &str) -> String {
    format!("{}{:?}\n{path}", rights(visitor), visitor.language())
}

/// The rights of who asks, and for whom.
fn rights(visitor: &Visitor) -> String {
    let rights = match visitor.principal() {
        Principal::Anyone | Principal::Named(_) => String::new(),
        Principal::Token(token) => {
            format!("{:?} {:?} {:?}", token.tenant, token.scopes, token.tools)
        }
    };
    let tenant = visitor.tenant().map_or("", |tenant| tenant.as_str());
    format!("{rights}\n{tenant}\n")
}

fn unfit() -> Refused {
    let what = Message::fixed(
        "the console cannot read what this gateway has answered",
        "控制台无法读取这个网关的回答",
    );
    Refused::later(Code::Unavailable, what)
}
