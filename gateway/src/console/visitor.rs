//! Who looks at a page, and how: the rights, the tenant, the language.

use axum::http::{HeaderMap, Uri, header::ACCEPT_LANGUAGE};
use fleet::{call::Language, ids::Label, tokens::Scope, wire::code::Code};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::{
    session::cookie,
    words::{self, Word},
};
use crate::{auth::principal::Principal, edge::peers::Peer, query::Query, refusal::Refused};

/// The cookie with the language that somebody has chosen.
pub(super) const LANGUAGE_COOKIE: &str = "toolfleet_language";
/// The parameter with the tenant.
const TENANT: &str = "tenant";
/// What stays as it is in a path or a query.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Who looks at a page.
#[derive(Debug, Clone)]
pub(super) struct Visitor {
    principal: Principal,
    peer: Peer,
    tenant: Option<Label>,
    language: Language,
    /// The page: its path and query.
    here: String,
    /// The query alone.
    query: Option<String>,
}

impl Visitor {
    /// Of a request, for the tenant that [`named_tenant`] found in it.
    pub(super) fn new(
        principal: Principal,
        peer: Peer,
        uri: &Uri,
        headers: &HeaderMap,
        tenant: Option<Label>,
    ) -> Self {
        Self {
            tenant,
            principal,
            peer,
            language: language(headers),
            here: page_of(uri),
            query: uri.query().map(ToOwned::to_owned),
        }
    }

    /// Anybody, for tests of what pages are made of.
    #[cfg(test)]
    pub(super) fn somebody() -> Self {
        use crate::edge::peers::{Peers, PeersMax};
        let peers = Peers::new(PeersMax {
            strangers: 1,
            each: 1,
        });
        let peer = peers
            .enter([127, 0, 0, 1].into())
            .expect("there is a place");
        let uri = Uri::from_static("/console");
        Self::new(Principal::Anyone, peer, &uri, &HeaderMap::new(), None)
    }

    pub(super) const fn principal(&self) -> &Principal {
        &self.principal
    }

    pub(super) const fn peer(&self) -> &Peer {
        &self.peer
    }

    /// For which tenant; `None`: that of requests that name none.
    pub(super) const fn tenant(&self) -> Option<&Label> {
        self.tenant.as_ref()
    }

    /// Whether several tenants may be looked at.
    pub(super) fn may_choose_tenant(&self) -> bool {
        self.principal.is_of_all_tenants()
    }

    pub(super) const fn language(&self) -> Language {
        self.language
    }

    /// This word in its language.
    pub(super) const fn say(&self, word: Word) -> &'static str {
        word.told(self.language)
    }

    /// Under which name it acts; `None` where nobody is asked for a token.
    pub(super) fn name(&self) -> Option<&str> {
        self.principal.name()
    }

    /// What it is called on a page.
    pub(super) fn shown_name(&self) -> &str {
        self.name().unwrap_or(self.say(words::EVERYBODY))
    }

    /// Whether it may do this.
    pub(super) fn may(&self, scope: Scope) -> bool {
        self.principal.may(&[scope]).is_ok()
    }

    /// The page that it looks at.
    pub(super) fn here(&self) -> &str {
        &self.here
    }

    /// The query of the page, which may have these parameters beside the tenant.
    ///
    /// # Errors
    ///
    /// It has others.
    pub(super) fn query(&self, known: &[&str]) -> Result<Query, Refused> {
        let known: Vec<&str> = known.iter().copied().chain([TENANT]).collect();
        Query::of_form(self.query.as_deref(), &known)
    }

    /// The same where it looks at something of this tenant, which a request about it has to name: whoever looks at all of them has
    /// named none.
    pub(super) fn of_tenant(&self, tenant: &str) -> Self {
        let named = tenant.parse().ok().filter(|_| tenant != "default");
        Self {
            tenant: self.tenant.clone().or(named),
            ..self.clone()
        }
    }

    /// A link to this page, for the same tenant.
    pub(super) fn link(&self, path: &str) -> String {
        match &self.tenant {
            Some(tenant) if self.may_choose_tenant() => {
                let joint = if path.contains('?') { '&' } else { '?' };
                let (path, fragment) = path.split_once('#').unwrap_or((path, ""));
                let fragment = if fragment.is_empty() {
                    String::new()
                } else {
                    format!("#{fragment}")
                };
                format!("{path}{joint}tenant={tenant}{fragment}")
            }
            Some(_) | None => path.to_owned(),
        }
    }
}

/// The tenant of a request of this principal: its own, or the one in the query. Judged as the API judges `Toolfleet-Tenant`, so
/// that what cannot be read is not taken for every tenant.
///
/// # Errors
///
/// `invalid_tenant`, `forbidden`; it stands there twice.
pub(super) fn named_tenant(principal: &Principal, uri: &Uri) -> Result<Option<Label>, Refused> {
    let pairs = uri.query().unwrap_or_default().split('&');
    let is_tenant = |pair: &&str| {
        let name = pair.split('=').next().unwrap_or_default();
        percent_decode_str(name).decode_utf8_lossy() == TENANT
    };
    let named: Vec<&str> = pairs.filter(is_tenant).collect();
    let query = Query::of_form(Some(&named.join("&")), &[TENANT])?;
    let named = query.text(TENANT).map(str::parse::<Label>).transpose();
    let named = named.map_err(|bad| Refused::name(Code::InvalidTenant, &bad))?;
    principal.reach(named)
}

/// The page that a request is about: where a form is sent to that is about a call, that of the call.
fn page_of(uri: &Uri) -> String {
    const CALLS: &str = "/console/calls/";
    let here = uri
        .path_and_query()
        .map_or("/console", |here| here.as_str());
    let call = uri.path().strip_prefix(CALLS);
    match call.and_then(|call| call.split_once('/')) {
        Some((call, _verb)) => format!("{CALLS}{call}"),
        None => here.to_owned(),
    }
}

/// A text as a part of a path or a query.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

/// What somebody has chosen, or what the browser prefers: Chinese where that comes first.
pub(super) fn language(headers: &HeaderMap) -> Language {
    if let Some(chosen) = cookie(headers, LANGUAGE_COOKIE).and_then(|word| word.parse().ok()) {
        return chosen;
    }
    let wished = headers
        .get(ACCEPT_LANGUAGE)
        .and_then(|line| line.to_str().ok());
    let first = wished
        .unwrap_or_default()
        .split(',')
        .next()
        .unwrap_or_default();
    match first.trim().to_ascii_lowercase().starts_with("zh") {
        true => Language::Zh,
        false => Language::En,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(uri: &'static str) -> Visitor {
        let somebody = Visitor::somebody();
        let uri = Uri::from_static(uri);
        let tenant = named_tenant(&Principal::Anyone, &uri).unwrap();
        Visitor::new(
            Principal::Anyone,
            somebody.peer,
            &uri,
            &HeaderMap::new(),
            tenant,
        )
    }

    #[test]
    fn a_tenant_that_cannot_be_read_is_not_every_tenant() {
        let named = |uri: &'static str| named_tenant(&Principal::Anyone, &Uri::from_static(uri));
        assert_eq!(
            named("/console?tenant=acm%65").unwrap().unwrap().as_str(),
            "acme"
        );
        assert_eq!(
            named("/console?%74enant=acme").unwrap().unwrap().as_str(),
            "acme"
        );
        for none in ["/console", "/console?tenant=", "/console?a=tenant"] {
            assert_eq!(named(none).unwrap(), None, "{none}");
        }
        for bad in [
            "tenant=+acme",
            "tenant=%22%3E",
            "tenant=a&tenant=b",
            "tenant=%ff",
        ] {
            let uri: Uri = format!("/console?{bad}").parse().unwrap();
            assert!(named_tenant(&Principal::Anyone, &uri).is_err(), "{bad}");
        }
    }

    #[test]
    fn links_keep_the_tenant_that_was_chosen() {
        assert_eq!(at("/console").link("/console/doubts"), "/console/doubts");
        let acme = at("/console?state=failed&tenant=acme");
        assert_eq!(acme.link("/console/doubts"), "/console/doubts?tenant=acme");
        assert_eq!(
            acme.link("/console?run=r#x"),
            "/console?run=r&tenant=acme#x"
        );
        assert_eq!(
            acme.query(&["state"]).unwrap().text("state"),
            Some("failed")
        );
        assert!(acme.query(&[]).is_err(), "a misspelt filter means nothing");
    }

    #[test]
    fn a_form_about_a_call_leads_back_to_the_call() {
        assert_eq!(
            at("/console/calls/x/settle?tenant=a").here(),
            "/console/calls/x"
        );
        assert_eq!(
            at("/console/calls/x?tenant=a").here(),
            "/console/calls/x?tenant=a"
        );
        assert_eq!(at("/console/protection").here(), "/console/protection");
    }

    #[test]
    fn the_language_is_what_was_chosen_or_else_preferred() {
        let of = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            language(&headers)
        };
        assert_eq!(of("accept-language", "zh-CN,en;q=0.5"), Language::Zh);
        assert_eq!(of("accept-language", "de,zh;q=0.9"), Language::En);
        assert_eq!(of("cookie", "a=b; toolfleet_language=zh"), Language::Zh);
        assert_eq!(of("cookie", "toolfleet_language=x"), Language::En);
    }
}
