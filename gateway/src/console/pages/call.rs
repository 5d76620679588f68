//! A call: what it came to and what is known of its effect, its timeline, and everything that is kept of it.

use axum::{
    Extension,
    extract::{Path, State},
    response::Response,
};
use fleet::{ids::Label, tokens::Scope, wire::code::Code};
use maud::{Markup, html};
use time::{Duration, OffsetDateTime};

use super::{
    super::{
        frame::{Page, Place, Shown, framed},
        moment, shown,
        state::{Console, Looking, Pages, see},
        text, timeline,
        visitor::{Visitor, encoded},
        words,
    },
    again, details,
    overview::Overview,
    sent::{Act, Sent},
    settle,
    story::{CallWhy, Story, StoryCall, StoryMove},
    waiting,
};
use crate::refusal::Refused;

/// The page.
pub(in super::super) async fn page(
    State(console): Pages,
    Path(call): Path<String>,
    Extension(visitor): Looking,
) -> Response {
    let shown = shown(&console, &visitor, &call, None).await;
    framed(&console, &visitor, shown).await
}

/// The address of a form that somebody has opened: the page that has the form.
pub(in super::super) async fn of_form(
    Path(call): Path<String>,
    Extension(visitor): Looking,
) -> Response {
    see(&visitor.link(&format!("/console/calls/{}", encoded(&call))))
}

/// The page of a call, with what was refused of something that was to be done about it.
pub(super) async fn shown(
    console: &Console,
    visitor: &Visitor,
    call: &str,
    refused: Option<Sent>,
) -> Shown {
    let query = visitor.query(&["did"])?;
    let sent = refused.as_ref();
    let story = Story::get(console, visitor, call).await?;
    let visitor = &visitor.of_tenant(&story.call.tenant);
    let why = CallWhy::get(console, visitor, call).await;
    let now = Overview::get(console, visitor)
        .await
        .map(|overview| overview.now);
    let now = now.unwrap_or(story.call.accepted_at);
    let decisions = match (story.call.state.as_str(), story.call.awaiting.as_deref()) {
        ("in_doubt", _) => settle::of_call(console, visitor, &story.call.call_id, sent).await?,
        ("awaiting_client", Some("approval")) => {
            waiting::of_call(
                console,
                visitor,
                &story.call.call_id,
                story.call.args.as_deref(),
                sent,
            )
            .await?
        }
        (_, _) => Markup::default(),
    };
    let subject = subject(console, &story.call)?;
    // What was sent is not sent again each time something changes.
    let is_live = sent.is_none() && story.call.finished_at.is_none();
    let main = html! {
        @if let Some(sent) = sent.filter(|sent| sent.act != Act::Retry || story.call.finished_at.is_none()) { (sent.told) }
        @if let Some(did) = query.text("did") { (done(visitor, &story, did)) }
        (head(visitor, &story, why.as_ref(), now))
        div #decisions data-live { (decisions) }
        h2 #timeline-title { (visitor.say(words::TIMELINE)) }
        (timeline(visitor, &story, now))
        nav.tabs aria-label=(visitor.say(words::FACTS)) {
            @for (place, word) in [("arguments", words::ARGUMENTS), ("result", words::RESULT), ("error", words::ERROR),
                ("moves", words::MOVES), ("attempts", words::ATTEMPTS), ("facts", words::FACTS), ("again", words::AGAIN)] {
                a href={ "#" (place) } { (visitor.say(word)) } " "
            }
        }
        (details::arguments(visitor, &story.call))
        (details::bodies(visitor, &story.call))
        (details::moves(visitor, &story))
        (details::attempts(visitor, &story))
        (details::facts(visitor, &story, now, console.gateway.trace_url.as_deref()))
        (again::again(visitor, &story.call, &subject, sent))
    };
    Ok(Page {
        place: Place::Call,
        title: format!("{} {}", story.call.tool, &story.call.call_id),
        is_live,
        main,
    })
}

/// What was decided, as the record has it.
fn done(visitor: &Visitor, story: &Story, did: &str) -> Markup {
    let title = match did {
        "settled" => words::SETTLED,
        "decided" => words::DECIDED,
        _other => return Markup::default(),
    };
    let is_it = |moved: &&StoryMove| match did {
        "settled" => moved.reason.starts_with("settled_"),
        _decided => ["approved", "denied"].contains(&moved.reason.as_str()),
    };
    html! {
        @if let Some(last) = story.events.iter().rfind(is_it) {
            div.done role="status" {
                h2 { (visitor.say(title)) }
                p { (visitor.say(words::RECORDED)) " " (details::decision(last)) }
            }
        }
    }
}

/// On which subject of NATS the same call is made.
fn subject(console: &Console, call: &StoryCall) -> Result<String, Refused> {
    let tenant: Label = call
        .tenant
        .parse()
        .map_err(|bad| Refused::name(Code::InvalidTenant, &bad))?;
    let subjects = console.gateway.dispatchers.subjects();
    Ok(subjects.call(&tenant, &call.tool))
}

fn head(visitor: &Visitor, story: &Story, why: Option<&CallWhy>, now: OffsetDateTime) -> Markup {
    let call = &story.call;
    let state = if call.held { "held" } else { &call.state };
    let effect = match call.effect_known.as_deref() {
        Some("none") => Some(words::EFFECT_NONE),
        Some("applied") => Some(words::EFFECT_APPLIED),
        Some("not_applied") => Some(words::EFFECT_NOT_APPLIED),
        Some("unknown") => Some(words::EFFECT_UNKNOWN),
        _ if call.state == "in_doubt" => Some(words::EFFECT_UNKNOWN),
        _ => None,
    };
    html! {
        div #head data-live {
            p.sentence {
                (shown::state(visitor, state))
                @if let Some(outcome) = call.outcome.as_deref().filter(|outcome| *outcome != "success") { " " (shown::state(visitor, outcome)) }
                " " (moment::span(call.finished_at.unwrap_or(now) - call.accepted_at))
                @if let Some(effect) = effect { " · " b { (visitor.say(effect)) } }
            }
            @if let Some(why) = why {
                @if let Some(meaning) = shown::meaning(visitor, &why.reason, call.finished_at.is_some()) { p.why { code { (why.reason) } ": " (meaning) } }
                p.why lang="en" { code { (why.reason) } ": " (text::stranger(&why.because)) }
                @if !why.next.is_empty() { p.hint lang="en" { (text::stranger(&why.next)) } }
                @for (place, command) in why.commands.iter().enumerate() {
                    div.block {
                        button.copy type="button" data-copy={ "command-" (place) } { (visitor.say(words::COPY)) }
                        pre.text id={ "command-" (place) } { (text::stranger(command)) }
                    }
                }
            }
        }
        div #cancel data-live { @if call.finished_at.is_none() && call.state != "in_doubt" && visitor.may(Scope::Call) {
            form.actions method="post" action=(visitor.link(&format!("/console/calls/{}/cancel", call.call_id))) {
                label for="cancel-reason" { (visitor.say(words::REASON)) }
                input #cancel-reason name="reason" maxlength="500" autocomplete="off";
                button.danger { (visitor.say(words::CANCEL)) }
                @if call.effect != "read" && call.state == "running" { p.hint { (visitor.say(words::CANCEL_WRITES)) } }
            }
        } }
    }
}

fn timeline(visitor: &Visitor, story: &Story, now: OffsetDateTime) -> Markup {
    let moves: Vec<timeline::Moved<'_>> = story
        .events
        .iter()
        .map(|moved| timeline::Moved {
            at: moved.at,
            from: moved.from_state.as_deref(),
            to: &moved.to_state,
            reason: &moved.reason,
        })
        .collect();
    let in_time = story.attempts.iter().filter(|attempt| !attempt.late);
    let timeouts: Vec<(usize, Duration)> = in_time
        .filter_map(|attempt| {
            let timeout = Duration::milliseconds(attempt.timeout_ms?);
            Some((usize::try_from(attempt.number).ok()?, timeout))
        })
        .collect();
    let clocks = timeline::Clocks {
        now,
        is_held: story.call.held,
        not_before: story.call.not_before,
        deadline: story.call.deadline_at,
        timeouts: &timeouts,
        gap: story.gap(),
    };
    timeline::drawn(visitor, &timeline::bars(&moves, &clocks), now)
}
