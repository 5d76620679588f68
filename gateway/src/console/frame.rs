//! What is around every page: where one is, who looks, what waits, and what is away.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::Response,
};
use fleet::wire::code::Code;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{
    assets,
    pages::overview::Overview,
    shown,
    state::Console,
    visitor::{Visitor, encoded},
    words::{self, Word},
};
use crate::refusal::Refused;

/// A page of the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Live,
    Call,
    Doubts,
    Waiting,
    Tools,
    Tool,
    Workers,
    Protection,
    Streams,
    Problem,
}

/// The pages in the order of the frame: place, path, key, word.
const NAVIGATION: [(Place, &str, &str, Word); 7] = [
    (Place::Live, "/console", "l", words::LIVE),
    (Place::Doubts, "/console/doubts", "d", words::DOUBTS),
    (Place::Waiting, "/console/waiting", "w", words::WAITING),
    (Place::Tools, "/console/tools", "t", words::TOOLS),
    (Place::Workers, "/console/workers", "o", words::WORKERS),
    (
        Place::Protection,
        "/console/protection",
        "p",
        words::PROTECTION,
    ),
    (Place::Streams, "/console/streams", "s", words::STREAMS),
];

const KEYS: [(&str, Word); 6] = [
    ("/", words::KEY_SEARCH),
    ("j k", words::KEY_ROWS),
    ("f", words::KEY_FAILED),
    ("p", words::KEY_PAUSE),
    ("g", words::KEY_GO),
    ("?", words::KEY_HELP),
];

impl Place {
    const fn word(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Call => "call",
            Self::Doubts => "doubts",
            Self::Waiting => "waiting",
            Self::Tools => "tools",
            Self::Tool => "tool",
            Self::Workers => "workers",
            Self::Protection => "protection",
            Self::Streams => "streams",
            Self::Problem => "problem",
        }
    }

    /// Under which point of the navigation it stands.
    const fn point(self) -> Self {
        match self {
            Self::Call => Self::Live,
            Self::Tool => Self::Tools,
            other => other,
        }
    }
}

/// A page without its frame.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) place: Place,
    pub(super) title: String,
    /// Whether it changes while it is looked at.
    pub(super) is_live: bool,
    pub(super) main: Markup,
}

impl Page {
    /// In its frame, as this visitor sees it.
    pub(super) async fn told(self, console: &Console, visitor: &Visitor) -> Response {
        let overview = Overview::get(console, visitor).await;
        let away = away(console, &overview);
        let ticks = self
            .is_live
            .then(|| format!("/console/ticks?page={}", encoded(visitor.here())));
        let body = html! {
            a.skip href="#main" { (visitor.say(words::SKIP)) }
            (header(visitor))
            (navigation(visitor, self.place, overview.as_ref().ok()))
            div #away data-live {
                @if let Some(away) = away { p.away role="alert" { (visitor.say(away)) } }
            }
            main #main tabindex="-1" data-ticks=[ticks] {
                h1 { (self.title) }
                (self.main)
            }
            (keys(visitor))
            div #told.told role="status" aria-live="polite" data-lost=(visitor.say(words::LOST))
                data-new=(visitor.say(words::NEW)) data-copied=(visitor.say(words::COPIED)) {}
        };
        document(visitor, self.place.word(), &self.title, &body)
    }
}

/// A page, or why there is none.
pub(super) type Shown = Result<Page, Refused>;

/// Puts a page into its frame.
pub(super) async fn framed(console: &Console, visitor: &Visitor, shown: Shown) -> Response {
    match shown {
        Ok(page) => page.told(console, visitor).await,
        Err(refused) => problem(console, visitor, &refused).await,
    }
}

/// What a visitor is shown where a page cannot be.
pub(super) async fn problem(console: &Console, visitor: &Visitor, refused: &Refused) -> Response {
    let page = Page {
        place: Place::Problem,
        title: visitor.say(words::PROBLEM).to_owned(),
        is_live: false,
        main: html! {
            (shown::refused(visitor, words::NOT_DONE, refused))
            p { a href=(visitor.link("/console")) { (visitor.say(words::LIVE)) } }
        },
    };
    let mut response = page.told(console, visitor).await;
    *response.status_mut() = refused.http_status();
    response
}

/// What is away, and what goes on all the same.
fn away(console: &Console, overview: &Result<Overview, Refused>) -> Option<Word> {
    let is_postgres_away = overview
        .as_ref()
        .is_err_and(|refused| refused.code() == Code::StoreUnavailable);
    if is_postgres_away {
        Some(words::POSTGRES_AWAY)
    } else if !console.gateway.dispatchers.are_reachable() {
        Some(words::NATS_AWAY)
    } else {
        None
    }
}

fn header(visitor: &Visitor) -> Markup {
    let tenant = visitor.tenant().map_or("", |tenant| tenant.as_str());
    html! {
        header {
            a.brand href=(visitor.link("/console")) { "Toolfleet" }
            form role="search" action="/console/find" {
                input #search name="q" type="search" required aria-label=(visitor.say(words::SEARCH)) placeholder=(visitor.say(words::SEARCH));
                @if visitor.may_choose_tenant() && !tenant.is_empty() { input type="hidden" name="tenant" value=(tenant); }
                button { (visitor.say(words::FIND)) }
            }
            @if visitor.may_choose_tenant() {
                form.tenant action="/console" {
                    label for="tenant" { (visitor.say(words::TENANT)) }
                    input #tenant name="tenant" value=(tenant) placeholder="default" autocomplete="off";
                    button { (visitor.say(words::SHOW)) }
                }
            } @else {
                span.tenant { (visitor.say(words::TENANT)) " " b { (tenant) } }
            }
            span.who { (visitor.shown_name()) }
            form method="post" action="/console/language" {
                input type="hidden" name="back" value=(visitor.here());
                button.link name="language" value=(other_language(visitor)) { (visitor.say(words::OTHER_LANGUAGE)) }
            }
            @if visitor.name().is_some() {
                form method="post" action="/console/logout" { button.link { (visitor.say(words::SIGN_OUT)) } }
            }
        }
    }
}

pub(super) fn other_language(visitor: &Visitor) -> &'static str {
    match visitor.language() {
        fleet::call::Language::En => "zh",
        fleet::call::Language::Zh => "en",
    }
}

fn navigation(visitor: &Visitor, here: Place, overview: Option<&Overview>) -> Markup {
    let count = |place| match (place, overview) {
        (Place::Doubts, Some(overview)) => Some(("count-doubts", overview.open("in_doubt"))),
        (Place::Waiting, Some(overview)) => {
            Some(("count-waiting", overview.open("awaiting_client")))
        }
        (_, _) => None,
    };
    html! {
        nav aria-label=(visitor.say(words::PAGES)) {
            // Workers are of all tenants, and shown to who may see all of them.
            @for (place, path, key, word) in NAVIGATION.into_iter().filter(|(place, ..)| *place != Place::Workers || visitor.may_choose_tenant()) {
                a href=(visitor.link(path)) data-go=(key) aria-current=[(here.point() == place).then_some("page")] {
                    (visitor.say(word))
                    @if let Some((id, count)) = count(place) {
                        " " span id=(id) data-live class={ "count" @if count > 0 { " some" } } { (count) }
                    }
                }
            }
        }
    }
}

fn keys(visitor: &Visitor) -> Markup {
    html! {
        dialog #help aria-labelledby="help-title" {
            h2 #help-title { (visitor.say(words::KEYS)) }
            dl {
                @for (key, word) in KEYS { dt { kbd { (key) } } dd { (visitor.say(word)) } }
            }
            form method="dialog" { button { (visitor.say(words::CLOSE)) } }
        }
    }
}

/// A whole document.
pub(super) fn document(visitor: &Visitor, place: &str, title: &str, body: &Markup) -> Response {
    let text = html! {
        (DOCTYPE)
        html lang=(shown::language_tag(visitor.language())) {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Toolfleet" }
                link rel="stylesheet" href=(assets::style());
                link rel="icon" href="data:,";
                script src=(assets::script()) defer {}
            }
            body data-page=(place) { (PreEscaped(body.0.as_str())) }
        }
    };
    let mut response = Response::new(Body::from(text.into_string()));
    *response.status_mut() = StatusCode::OK;
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
