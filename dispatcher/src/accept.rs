//! Accept → validate → commit → publish, and what a caller is told.
//!
//! The order of the door: names, headers, the body itself, then the key, then tool and arguments. A known key is answered
//! with its call whatever has become of its tool since. The common case needs no look-up: a call that passes everything is
//! committed at once, and only when its key turns out to be taken is the key read, in a new statement, for the one that
//! waited for a rival's commit sees neither place.

use async_nats::HeaderMap;
use fleet::{
    bus::{connect::Bus, events::Events, publish::Publisher},
    call::Language,
    ids::DispatcherId,
    registry::Registry,
    store::{PgPool, ledger::Accepting},
    telemetry::{
        metrics,
        spans::{self, Step},
        trace,
    },
    wire::{code::Code, headers::RequestHeaders, message::Message, subjects::Subjects},
};
use tracing::Instrument;

use crate::{
    answer::{Answer, Refusal},
    check::{Submission, TurnedAway},
    expiry::Expiry,
    meter::Meter,
    quota::Quota,
    service::tool_of,
    waiters::Waiters,
};

/// What every request needs.
#[derive(Debug, Clone)]
pub(crate) struct Door {
    pub(crate) bus: Bus,
    pub(crate) pool: PgPool,
    pub(crate) registry: Registry,
    pub(crate) accepting: Accepting,
    pub(crate) quota: Quota,
    pub(crate) publisher: Publisher,
    pub(crate) events: Events,
    pub(crate) waiters: Waiters,
    pub(crate) meter: Meter,
    pub(crate) expiry: Expiry,
    pub(crate) dispatcher: DispatcherId,
}

impl Door {
    /// Answers one submission.
    pub(crate) async fn submit(
        &self,
        subject: &str,
        headers: Option<&HeaderMap>,
        body: &[u8],
    ) -> Answer {
        let span = spans::step(Step::Accept);
        let named = tool_of(subject);
        let answered = async {
            let submission = self.read(subject, headers, body)?;
            trace::set_parent(&tracing::Span::current(), &submission.headers.trace);
            self.answer(submission).await
        };
        match answered.instrument(span.clone()).await {
            Ok(answer) => {
                if let Some(call) = answer.call {
                    spans::identify(&span, call);
                }
                answer
            }
            Err(refusal) => {
                spans::failed(&span, refusal.code);
                self.count_refusal(refusal.code, named);
                let asked = RequestHeaders::language_of(&lines(headers));
                Answer::refusal(named, &refusal, self.language_of(asked, named))
            }
        }
    }

    /// Counts a refusal, under the tool's name if there is such a tool.
    pub(crate) fn count_refusal(&self, code: Code, named: &str) {
        let tool = named.parse().ok().filter(|tool| self.registry.knows(tool));
        metrics().rejected(code, tool.as_ref());
    }

    /// In which language a caller is refused: the one it asks for, else the one of the tool that it names.
    pub(crate) fn language_of(&self, asked: Option<Language>, tool: &str) -> Language {
        let of_tool = || {
            let tool = self.registry.current(&tool.parse().ok()?)?;
            Some(tool.manifest.language)
        };
        asked.or_else(of_tool).unwrap_or(Language::En)
    }

    fn read(
        &self,
        subject: &str,
        headers: Option<&HeaderMap>,
        body: &[u8],
    ) -> Result<Submission, Refusal> {
        let tenant = self.bus.subjects.tenant_of(subject);
        let (tenant, rest) = tenant.map_err(|code| Refusal::new(code, BAD_TENANT))?;
        let tool = Subjects::tool_of(rest).map_err(|code| Refusal::new(code, BAD_TOOL_NAME))?;
        let headers = read_headers(headers)?;
        Submission::read(tenant, tool, headers, body)
    }

    async fn answer(&self, mut submission: Submission) -> Result<Answer, Refusal> {
        // Before anything that costs the ledger something, a look for the key included.
        self.keeps_up(submission.sent.len())?;
        let checking = self.check(&mut submission);
        let checked = checking.instrument(spans::step(Step::Validate)).await;
        match checked {
            Ok(checked) => self.commit(submission, &checked).await,
            Err(TurnedAway { refusal, key }) => {
                Box::pin(self.known_or(&submission, key, refusal)).await
            }
        }
    }

    /// The key comes first: what it names is answered even where a new call is refused.
    pub(crate) async fn known_or(
        &self,
        submission: &Submission,
        key: Option<[u8; 32]>,
        refusal: Refusal,
    ) -> Result<Answer, Refusal> {
        let Some(key) = key else {
            return Err(refusal);
        };
        match self.find_key(&submission.tenant, &key).await? {
            Some(found) if !found.lapsed => self.replay(submission, &found).await,
            Some(_) | None => Err(refusal),
        }
    }
}

impl Door {
    /// Refuses new work of about so many bytes while commits are far behind: it would only wait with the others.
    pub(crate) fn keeps_up(&self, bytes: usize) -> Result<(), Refusal> {
        if self.accepting.is_behind(bytes) {
            return Err(Refusal::new(Code::Overloaded, BEHIND));
        }
        Ok(())
    }
}

const BEHIND: Message = Message::fixed(
    "the ledger is too far behind to take more calls",
    "账本积压太多，暂时不能接受更多调用",
);
pub(crate) const BAD_TENANT: Message = Message::fixed(
    "a tenant has 1 to 64 characters of A-Z, a-z, 0-9, _ and -",
    "租户名必须是 1 到 64 个字符，只能用 A-Z、a-z、0-9、_ 和 -",
);
pub(crate) const BAD_TOOL_NAME: Message = Message::fixed(
    "a tool name has 1 to 64 characters of a-z, 0-9 and _",
    "工具名必须是 1 到 64 个字符，只能用 a-z、0-9 和 _",
);

fn read_headers(headers: Option<&HeaderMap>) -> Result<RequestHeaders, Refusal> {
    let lines = lines(headers);
    RequestHeaders::read(&lines).map_err(|bad| Refusal::new(bad.code, bad.message()))
}

/// The header lines of a request.
pub(crate) fn lines(headers: Option<&HeaderMap>) -> Vec<(&str, &str)> {
    headers
        .into_iter()
        .flat_map(HeaderMap::iter)
        .flat_map(|(name, values)| {
            values
                .iter()
                .map(move |value| (name.as_ref(), value.as_str().trim()))
        })
        .collect()
}
