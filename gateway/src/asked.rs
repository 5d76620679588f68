//! What is known of a request before its body is read: who asks, for whom, and how it wants to be answered.

use std::convert::Infallible;

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, request::Parts},
};
use fleet::{
    ids::{CallId, Label},
    tokens::Scope,
    wire::{code::Code, headers::RequestHeaders},
};
use fleet_client::Question;

use crate::{
    answer::Glimpse,
    ask::Dispatchers,
    auth::{no_token, principal::Principal},
    edge::peers::Peer,
    forward::Preference,
    headers::{LANGUAGE, TENANT},
    query::Query,
    refusal::{Refused, Repeatable},
};

/// A request without its body.
#[derive(Debug)]
pub(crate) struct Asked {
    principal: Option<Principal>,
    peer: Option<Peer>,
    pub(crate) headers: HeaderMap,
    query: Option<String>,
}

impl<S: Sync> FromRequestParts<S> for Asked {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        Ok(Self {
            principal: parts.extensions.get().cloned(),
            peer: parts.extensions.get().cloned(),
            headers: parts.headers.clone(),
            query: parts.uri.query().map(ToOwned::to_owned),
        })
    }
}

impl Asked {
    /// Who asks, who may do one of these.
    ///
    /// # Errors
    ///
    /// `unauthenticated`, `forbidden`.
    pub(crate) fn by(&self, one_of: &[Scope]) -> Result<&Principal, Refused> {
        let principal = self.principal.as_ref().ok_or_else(no_token)?;
        principal.may(one_of)?;
        Ok(principal)
    }

    /// Who asks; `None`: it does not say.
    pub(crate) const fn who(&self) -> Option<&Principal> {
        self.principal.as_ref()
    }

    /// On which connection it asks.
    pub(crate) fn peer(&self) -> Peer {
        let peer = self.peer.clone();
        peer.expect("the listener says of every request where it comes from")
    }

    /// For which tenant it asks.
    ///
    /// # Errors
    ///
    /// `invalid_tenant`, `forbidden`.
    pub(crate) fn tenant(&self, principal: &Principal) -> Result<Label, Refused> {
        principal.tenant(self.named_tenant()?)
    }

    /// How far it reaches: to a tenant, or (`None`) to all of them.
    ///
    /// # Errors
    ///
    /// `invalid_tenant`, `forbidden`.
    pub(crate) fn reach(&self, principal: &Principal) -> Result<Option<Label>, Refused> {
        principal.reach(self.named_tenant()?)
    }

    /// Whose calls it looks at: those of its tenant, or (`None`) of all, for who names `*` and may.
    ///
    /// # Errors
    ///
    /// `invalid_tenant`, `forbidden`.
    pub(crate) fn looks_at(&self, principal: &Principal) -> Result<Option<Label>, Refused> {
        let mut lines = self.headers.get_all(&TENANT).iter();
        let names_all = lines.next().is_some_and(|line| line == "*") && lines.next().is_none();
        if names_all && principal.is_of_all_tenants() {
            return Ok(None);
        }
        self.tenant(principal).map(Some)
    }

    fn named_tenant(&self) -> Result<Option<Label>, Refused> {
        let mut lines = self.headers.get_all(&TENANT).iter();
        match (lines.next(), lines.next()) {
            (None, _) => Ok(None),
            (Some(line), None) => {
                let text = line.to_str().unwrap_or_default();
                let read = text.parse();
                read.map(Some)
                    .map_err(|bad| Refused::name(Code::InvalidTenant, &bad))
            }
            (Some(_), Some(_)) => {
                let bad = "".parse::<Label>().expect_err("a tenant has a name");
                Err(Refused::name(Code::InvalidTenant, &bad))
            }
        }
    }

    /// Its query, which may have these parameters. Its language is looked at, too: nobody else does that here.
    ///
    /// # Errors
    ///
    /// It has others; `header_invalid`.
    pub(crate) fn query(&self, known: &[&str]) -> Result<Query, Refused> {
        let name = LANGUAGE;
        let lines: Vec<(&str, &str)> = self
            .headers
            .get_all(&name)
            .iter()
            .map(|line| (name.as_str(), line.to_str().unwrap_or_default()))
            .collect();
        if let Err(bad) = RequestHeaders::read(&lines) {
            return Err(Refused::new(bad.code, bad.message()));
        }
        self.query_of_call(known)
    }

    /// The query of a request whose headers all go to the door, which judges them.
    ///
    /// # Errors
    ///
    /// It has other parameters than these.
    pub(crate) fn query_of_call(&self, known: &[&str]) -> Result<Query, Refused> {
        Query::read(self.query.as_deref(), known)
    }

    /// How it wants to be answered.
    ///
    /// # Errors
    ///
    /// `header_invalid`.
    pub(crate) fn preference(&self) -> Result<Preference, Refused> {
        Preference::read(&self.headers)
    }
}

/// The call that a path names.
///
/// # Errors
///
/// `invalid_id`.
pub(crate) fn call_id(text: &str) -> Result<CallId, Refused> {
    text.parse()
        .map_err(|bad| Refused::name(Code::InvalidId, &bad))
}

/// The call to ask about, where a principal asks about this one: itself, or where its token is not for the tool of that call, one that
/// does not exist. So both are answered alike.
///
/// # Errors
///
/// No dispatcher answers.
pub(crate) async fn meant(
    dispatchers: &Dispatchers,
    principal: &Principal,
    tenant: &Label,
    call: CallId,
) -> Result<CallId, Refused> {
    if principal.has_all_tools() {
        return Ok(call);
    }
    let body = format!("{{\"call_id\":\"{call}\"}}");
    let question = Question::new(dispatchers.subjects().get(tenant), body);
    let answer = dispatchers.ask(question, Repeatable::Always).await?;
    let glimpse = Glimpse::of(answer.bytes());
    let is_its = !glimpse.is_refused() && principal.may_use(&glimpse.tool);
    Ok(if is_its { call } else { CallId::generate() })
}
