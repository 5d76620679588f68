//! What the gateway itself refuses, in the same envelope as a refusal at the door.
//!
//! It is made where something is wrong, and worded at the edge (`edge/guard.rs`), where the language of the request is known.

use axum::{
    body::Body,
    http::{
        HeaderName, HeaderValue, StatusCode,
        header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
    },
    response::{IntoResponse, Response},
};
use fleet::{
    call::{EffectKnown, Language},
    ids::InvalidName,
    wire::{code::Code, envelope::Envelope, error::ErrorBody, message::Message},
};

use serde_json::Value;

use crate::{
    headers::{ANSWER, Speaker},
    status,
};

/// Why a request is not answered by the fleet.
#[derive(Debug, Clone)]
pub(crate) struct Refused {
    code: Code,
    why: Because,
    status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The tool that the request names.
    tool: String,
    more: Option<Box<More>>,
}

/// What is seldom said of it.
#[derive(Debug, Clone, Default)]
struct More {
    /// Where in the body it is wrong, as a JSON pointer.
    path: Option<String>,
    /// For programs.
    details: Option<Value>,
}

#[derive(Debug, Clone)]
enum Because {
    /// Nothing was sent to the fleet, or it was not heard.
    Refused(Message),
    /// The same, of a request about a file.
    OfFile(Message),
    /// It is for no endpoint.
    Misdirected(Message),
    /// It was sent, and nobody has answered.
    NoAnswer(Repeatable),
}

/// Whether a request that nobody has answered may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeatable {
    /// It asks, or decides what can be decided once.
    Always,
    /// It makes a call, whose key keeps it from being made twice.
    ByKey,
    /// It makes a call without a key.
    Never,
}

impl Refused {
    /// Nothing was done.
    pub(crate) fn new(code: Code, what: Message) -> Self {
        Self {
            code,
            why: Because::Refused(what),
            status: status::of_code(code),
            headers: Vec::new(),
            tool: String::new(),
            more: None,
        }
    }

    /// Nothing was done with a file. What to do is in `what`.
    pub(crate) fn of_file(code: Code, what: Message) -> Self {
        Self {
            why: Because::OfFile(what.clone()),
            ..Self::new(code, what)
        }
    }

    /// No endpoint takes it.
    pub(crate) fn misdirected(status: StatusCode, what: Message) -> Self {
        Self {
            status,
            why: Because::Misdirected(what.clone()),
            ..Self::new(Code::NotFound, what)
        }
    }

    /// Nobody has answered in time.
    pub(crate) fn no_answer(repeatable: Repeatable) -> Self {
        Self {
            why: Because::NoAnswer(repeatable),
            ..Self::new(Code::NoAnswer, Message::fixed("", ""))
        }
    }

    /// Not done now, and perhaps in a second.
    pub(crate) fn later(code: Code, what: Message) -> Self {
        Self::new(code, what).with(RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// It has to say who asks.
    pub(crate) fn unauthenticated(what: Message) -> Self {
        let how = HeaderValue::from_static("Bearer realm=\"toolfleet\"");
        Self::new(Code::Unauthenticated, what).with(WWW_AUTHENTICATE, how)
    }

    /// A name that breaks its rule.
    pub(crate) fn name(code: Code, bad: &InvalidName) -> Self {
        let (what, rule) = (bad.what, &bad.rule);
        let english = format!("a {what} must be {}", rule.told(Language::En));
        let chinese = format!("{what} 必须{}", rule.told(Language::Zh));
        Self::new(code, Message::new(english, chinese))
    }

    /// Whether the same may be answered a little later.
    pub(crate) const fn may_pass(&self) -> bool {
        matches!(
            self.code,
            Code::NoAnswer | Code::Unavailable | Code::Overloaded
        )
    }

    /// Its code.
    pub(crate) const fn code(&self) -> Code {
        self.code
    }

    /// Its status.
    pub(crate) const fn http_status(&self) -> StatusCode {
        self.status
    }

    /// With another status than that of its code.
    pub(crate) fn status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// With a header more.
    pub(crate) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// About this tool.
    pub(crate) fn of_tool(self, tool: &str) -> Self {
        Self {
            tool: tool.to_owned(),
            ..self
        }
    }

    /// Names what is wrong in the body, by its JSON pointer.
    pub(crate) fn at(mut self, path: impl Into<String>) -> Self {
        self.more.get_or_insert_default().path = Some(path.into());
        self
    }

    /// With more for programs.
    pub(crate) fn with_details(mut self, details: Value) -> Self {
        self.more.get_or_insert_default().details = Some(details);
        self
    }

    /// The same as an envelope, in this language.
    pub(crate) fn envelope(&self, language: Language) -> Envelope {
        let (error, effect) = match &self.why {
            Because::Refused(what) => (
                ErrorBody::refused(self.code, what, language),
                EffectKnown::None,
            ),
            Because::OfFile(what) => (
                ErrorBody::of_file(self.code, what, language),
                EffectKnown::None,
            ),
            Because::Misdirected(what) => {
                (ErrorBody::misdirected(what, language), EffectKnown::None)
            }
            Because::NoAnswer(Repeatable::Always) => {
                (ErrorBody::no_answer_yet(language), EffectKnown::Unknown)
            }
            Because::NoAnswer(Repeatable::ByKey) => {
                (ErrorBody::no_answer(true, language), EffectKnown::Unknown)
            }
            Because::NoAnswer(Repeatable::Never) => {
                (ErrorBody::no_answer(false, language), EffectKnown::Unknown)
            }
        };
        let More { path, details } = self.more.as_deref().cloned().unwrap_or_default();
        let error = ErrorBody {
            path,
            details,
            ..error
        };
        Envelope {
            effect,
            ..Envelope::refused(&self.tool, error)
        }
    }

    /// The answer, in this language.
    pub(crate) fn told(&self, language: Language) -> Response {
        self.carrying(self.envelope(language).to_bytes())
    }

    /// The answer with this body of JSON in the place of its envelope.
    pub(crate) fn carrying(&self, body: impl Into<Body>) -> Response {
        let mut response = Response::new(body.into());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ANSWER, Speaker::Gateway.value());
        for (name, value) in &self.headers {
            headers.insert(name, value.clone());
        }
        response
    }

    /// Whether another request of its sender would not be refused, as far as the status says.
    pub(crate) fn is_senders(&self) -> bool {
        self.status.as_u16() < 429
    }
}

impl IntoResponse for Refused {
    /// Without words, which the edge gives it.
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        response.extensions_mut().insert(self);
        response
    }
}
