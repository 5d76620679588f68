//! The parts of a call's page behind its timeline: arguments, result, error, moves, attempts, and what else is known.

use maud::{Markup, html};
use serde_json::value::RawValue;
use time::OffsetDateTime;

use super::{
    super::{
        blocks,
        moment::{self, TimeForm},
        shown, text,
        visitor::{Visitor, encoded},
        words::{self, Word},
    },
    story::{Story, StoryCall, StoryMove},
};

/// Moves that somebody who reads them in haste may pass over.
const SMALL: [&str; 4] = ["cannot_run", "postponed", "released", "renewed"];

/// What it was asked with, as sent and as run.
pub(super) fn arguments(visitor: &Visitor, call: &StoryCall) -> Markup {
    let corrected = call.coercions.as_deref().unwrap_or_default();
    html! {
        section #arguments {
            h2 { (visitor.say(words::ARGUMENTS)) }
            @if !corrected.is_empty() {
                p { (visitor.say(words::CORRECTED)) ": "
                    @for one in corrected { span.coerced { code { (text::stranger(&one.path)) } " " (text::stranger(&one.rule)) } " " }
                }
                @if let Some(sent) = &call.original_args {
                    h3 { (visitor.say(words::AS_SENT)) }
                    (json_part(visitor, call, "arguments-sent", sent))
                }
                h3 { (visitor.say(words::AS_RUN)) }
            }
            @match &call.args {
                Some(args) => (json_part(visitor, call, "arguments-run", args)),
                None => p { (visitor.say(words::NONE)) },
            }
        }
    }
}

/// What came of it.
pub(super) fn bodies(visitor: &Visitor, call: &StoryCall) -> Markup {
    let parts = [
        ("result", words::RESULT, &call.result),
        ("error", words::ERROR, &call.error),
    ];
    html! {
        @for (place, word, body) in parts {
            section id=(place) data-live {
                h2 { (visitor.say(word)) }
                @if let (true, Some(body)) = (place == "result", body) { (blocks::shown(visitor, body)) }
                @match body {
                    Some(body) => (json_part(visitor, call, &format!("{place}-json"), body)),
                    None => p { (visitor.say(words::NONE)) },
                }
            }
        }
    }
}

/// A part of a call as JSON, its beginning where it is long.
fn json_part(visitor: &Visitor, call: &StoryCall, id: &str, raw: &RawValue) -> Markup {
    let whole = visitor.link(&format!("/console/calls/{}/whole/{id}", call.call_id));
    shown::json_block(visitor, id, raw.get(), Some(&whole))
}

/// Its moves, the smaller ones folded.
pub(super) fn moves(visitor: &Visitor, story: &Story) -> Markup {
    let moves = &story.events;
    let row = |moved: &StoryMove| {
        html! {
            tr {
                td.number { (moved.revision) }
                td { (moment::at(moved.at, TimeForm::Time)) }
                td { @if let Some(from) = &moved.from_state { (shown::state(visitor, from)) } }
                td { (shown::state(visitor, &moved.to_state)) }
                td title=(text::visible(&moved.actor)) { (text::beginning(story.author(moved), 80)) }
                td { code { (text::stranger(&moved.reason)) } }
                td { @if let Some(details) = &moved.details { code { (text::beginning(details.get(), 300)) } } }
            }
        }
    };
    let is_small = |moved: &&StoryMove| SMALL.contains(&moved.reason.as_str());
    let small = moves.iter().filter(is_small).count();
    let table = |rows: &Markup| {
        let heads = [
            "#",
            visitor.say(words::WHEN),
            visitor.say(words::FROM),
            visitor.say(words::TO),
            visitor.say(words::BY),
            visitor.say(words::REASON),
            visitor.say(words::DETAILS),
        ];
        let table = html! {
            table {
                thead { tr { @for head in heads { th scope="col" { (head) } } } }
                tbody { (rows) }
            }
        };
        shown::wide(visitor.say(words::MOVES), &table)
    };
    html! {
        section #moves data-live {
            h2 { (visitor.say(words::MOVES)) }
            (left_out(visitor, moves.len(), story.events_in_all))
            (table(&html! { @for moved in moves.iter().filter(|moved| !is_small(moved)) { (row(moved)) } }))
            @if small > 0 {
                details.low #moves-small {
                    summary { (visitor.say(words::FOLDED)) " (" (small) ")" }
                    (table(&html! { @for moved in moves.iter().filter(is_small) { (row(moved)) } }))
                }
            }
        }
    }
}

/// That rows between the first and the last ones are not shown.
fn left_out(visitor: &Visitor, shown: usize, in_all: usize) -> Markup {
    html! {
        @if in_all > shown {
            p.hint { (visitor.say(words::LEFT_OUT)) " " (in_all - shown) " / " (in_all) }
        }
    }
}

/// Who has decided, when, how, and with which words.
pub(super) fn decision(moved: &StoryMove) -> Markup {
    html! {
        strong { (text::beginning(&moved.actor, 80)) } ", " (moment::at(moved.at, TimeForm::Date)) ": " code { (text::stranger(&moved.reason)) }
        @if let Some(details) = &moved.details { " " code { (text::beginning(details.get(), 300)) } }
    }
}

/// Its attempts.
pub(super) fn attempts(visitor: &Visitor, story: &Story) -> Markup {
    let (attempts, most) = (&story.attempts, story.attempts_max);
    let table = html! {
        table {
            thead { tr { @for word in [words::ATTEMPT, words::WORKER, words::WHEN, words::TOOK, words::RESULT, words::EFFECT, words::ERROR] {
                th scope="col" { (visitor.say(word)) } } } }
            tbody {
                @for attempt in attempts {
                    tr {
                        td.number { (shown::attempts(visitor, attempt.number, most)) @if attempt.late { " +" } }
                        td { @if let Some(worker) = &attempt.worker { (text::beginning(worker, 60)) } }
                        td { @if let Some(started) = attempt.started_at { (moment::at(started, TimeForm::Time)) } }
                        td.number { @if let (Some(from), Some(until)) = (attempt.started_at, attempt.finished_at) { (moment::span(until - from)) } }
                        td { @if let Some(outcome) = &attempt.outcome { code { (text::stranger(outcome)) } } }
                        td { @if let Some(effect) = &attempt.effect { code { (text::stranger(effect)) } } }
                        td {
                            @if let Some(error) = &attempt.error {
                                @if let Some(code) = &error.code { code { (text::stranger(code)) } " " }
                                @if let Some(message) = &error.message { (text::beginning(message, 300)) }
                            }
                        }
                    }
                }
            }
        }
    };
    html! {
        section #attempts data-live {
            h2 { (visitor.say(words::ATTEMPTS)) }
            (left_out(visitor, attempts.len(), story.attempts_in_all))
            @if attempts.is_empty() { p { (visitor.say(words::NONE)) } }
            @else { (shown::wide(visitor.say(words::ATTEMPTS), &table)) }
        }
    }
}

/// What else is known of it.
pub(super) fn facts(
    visitor: &Visitor,
    story: &Story,
    now: OffsetDateTime,
    trace_url: Option<&str>,
) -> Markup {
    let call = &story.call;
    let row = |word: Word, value: Option<&str>| {
        html! {
            @if let Some(value) = value { dt { (visitor.say(word)) } dd { (text::beginning(value, 300)) } }
        }
    };
    html! {
        section #facts data-live {
            h2 { (visitor.say(words::FACTS)) }
            dl.facts {
                dt { (visitor.say(words::WHEN)) } dd { (moment::at(call.accepted_at, TimeForm::Date)) " (" (moment::span(now - call.accepted_at)) ")" }
                @if let Some(deadline) = call.deadline_at { dt { (visitor.say(words::UNTIL)) } dd { (moment::at(deadline, TimeForm::Date)) } }
                dt { (visitor.say(words::ATTEMPTS)) } dd { (shown::attempts(visitor, call.attempts, story.attempts_max)) }
                dt { (visitor.say(words::TOOL)) }
                dd {
                    a href=(visitor.link(&format!("/console/tools/{}", encoded(&call.tool)))) { (text::stranger(&call.tool)) } " "
                    (visitor.say(words::VERSION)) " " (call.tool_version) " · "
                    a href=(visitor.link(&format!("/console?tool={}", encoded(&call.tool)))) { (visitor.say(words::CALLS)) } " · "
                    a href=(visitor.link(&format!("/console?state=failed&tool={}", encoded(&call.tool)))) { (visitor.say(words::FAILED_ONLY)) }
                }
                (row(words::ASKED_BY, call.asked_by().as_deref()))
                (row(words::EFFECT, Some(&call.effect)))
                (row(words::QUEUE, Some(&call.queue)))
                (row(words::TENANT, Some(&call.tenant)))
                @if let Some(session) = &call.session {
                    dt { (visitor.say(words::SESSION)) }
                    dd { a href=(visitor.link(&format!("/console?session={}", encoded(session)))) { (text::stranger(session)) } " "
                        a href=(visitor.link(&format!("/console/streams?session={}", encoded(session)))) { (visitor.say(words::EVENTS)) } }
                }
                @if let Some(run) = &call.run {
                    dt { (visitor.say(words::RUN)) }
                    dd { a href=(visitor.link(&format!("/console?run={}", encoded(run)))) { (text::stranger(run)) } }
                }
                (row(words::WORKER, call.worker.as_deref()))
                (row(words::PRIORITY, Some(&call.priority)))
                (row(words::SOURCE, call.source.as_deref()))
                (row(words::SETTLED, call.settled_by.as_deref()))
                (row(words::CHANGED, call.marked.as_deref()))
                dt { (visitor.say(words::TRACE)) }
                dd {
                    @match (&call.trace_id, trace_url) {
                        (Some(id), Some(url)) => a href=(url.replace("{trace_id}", &encoded(id))) rel="noreferrer" { code { (text::stranger(id)) } },
                        (Some(id), None) => code { (text::stranger(id)) },
                        (None, _) => (visitor.say(words::NO_TRACE)),
                    }
                }
            }
        }
    }
}
