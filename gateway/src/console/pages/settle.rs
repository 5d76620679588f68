//! The form with which a person says what a call in doubt was: it offers nothing that cannot be known yet.

use fleet::tokens::Scope;
use maud::{Markup, html};

use super::{
    super::{
        moment::{self, TimeForm},
        state::Console,
        visitor::Visitor,
        words,
    },
    actor,
    doubt::{self, Doubt, Doubts},
    sent::{Act, Sent},
};
use crate::refusal::Refused;

/// The form for a call in doubt, as its own page has it; empty for who may not settle.
pub(super) async fn of_call(
    console: &Console,
    visitor: &Visitor,
    call: &str,
    sent: Option<&Sent>,
) -> Result<Markup, Refused> {
    let found: Doubts = console.api.get(visitor, &doubt::asks_of(call)).await?;
    let doubt = found.doubts.iter().find(|doubt| doubt.call_id == call);
    Ok(html! {
        @if let Some(doubt) = doubt {
            section #settle.doubt {
                h2 { (visitor.say(words::IN_DOUBT)) }
                (doubt::known(visitor, doubt))
                @if visitor.may(Scope::Settle) { (form(visitor, doubt, sent)) } @else { p.hint { (visitor.say(words::MAY_NOT_SETTLE)) } }
            }
        }
    })
}

/// What may be said of a call at the moment, by the rules of `toolfleet.settle`.
#[derive(Debug, PartialEq, Eq)]
enum MaySay {
    /// Everything.
    All,
    /// Only that it happened: the attempt's own time is not over.
    OnlyApplied,
    /// That it did not happen only by time alone: something may still act.
    NotAppliedByTime,
}

fn may_say(doubt: &Doubt) -> MaySay {
    if !doubt.attempt_over {
        MaySay::OnlyApplied
    } else if doubt.worker_fenced {
        MaySay::All
    } else {
        MaySay::NotAppliedByTime
    }
}

/// The form, with what stood in one that was refused.
pub(super) fn form(visitor: &Visitor, doubt: &Doubt, sent: Option<&Sent>) -> Markup {
    let sent = Sent::of(sent, Act::Settle);
    let chosen = |outcome: &str| Sent::text(sent, "outcome") == outcome;
    let call = &doubt.call_id;
    let may_say = may_say(doubt);
    let id = |name: &str| format!("{name}-{call}");
    html! {
        form.settle method="post" action=(visitor.link(&format!("/console/calls/{call}/settle"))) {
            fieldset {
                legend { (visitor.say(words::SETTLE)) }
                label { input type="radio" name="outcome" value="applied" required checked[chosen("applied")]; " " (visitor.say(words::APPLIED)) }
                @if may_say != MaySay::OnlyApplied {
                    @if may_say == MaySay::All {
                        label { input type="radio" name="outcome" value="not_applied" checked[chosen("not_applied")]; " " (visitor.say(words::NOT_APPLIED)) }
                    }
                    label { input type="radio" name="outcome" value="abandoned" checked[chosen("abandoned")]; " " (visitor.say(words::ABANDONED)) }
                }
                @match may_say {
                    MaySay::All => {},
                    MaySay::OnlyApplied => p.hint {
                        (visitor.say(words::TOO_EARLY)) " "
                        @if let Some(until) = doubt.attempt_until { (moment::at(until, TimeForm::Date)) }
                    },
                    MaySay::NotAppliedByTime => {
                        p.hint { (visitor.say(words::NEEDS_FENCE)) }
                        @if let Some(worker) = &doubt.worker_id {
                            pre.text { "toolfleet workers fence " (worker) " --note \"${NOTE:?say how you know that it is gone}\"" }
                        }
                        details open[chosen("not_applied")] {
                            summary { (visitor.say(words::NOT_APPLIED)) }
                            label { input type="radio" name="outcome" value="not_applied" checked[chosen("not_applied")]; " " (visitor.say(words::NOT_APPLIED)) }
                            label { input type="checkbox" name="by_time_only" value="yes"; " " (visitor.say(words::BY_TIME_ONLY)) }
                        }
                    },
                }
            }
            label for=(id("result")) { (visitor.say(words::SETTLE_RESULT)) }
            textarea id=(id("result")) name="result" rows="2" spellcheck="false" { (Sent::text(sent, "result")) }
            label for=(id("note")) { (visitor.say(words::NOTE)) }
            textarea id=(id("note")) name="note" rows="2" required maxlength="2000" { (Sent::text(sent, "note")) }
            (actor::field(visitor, call))
            button { (visitor.say(words::SETTLE)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_is_offered_that_cannot_be_known_yet() {
        let doubt = |over: bool, fenced: bool| {
            let row = json!({
                "call_id": "c", "tenant": "default", "tool": "charge", "since": "2026-12-01T00:00:00Z", "why": "timeout", "worker": "w",
                "worker_id": "i", "worker_fenced": fenced, "by_client": false, "attempt_over": over,
                "attempt_until": "2026-12-01T00:01:00Z", "quarantined": false, "probe_state": null, "probes": 0,
                "next_probe_at": null, "arguments": "{}", "arguments_length": 2, "now": "2026-12-01T00:00:30Z",
            });
            serde_json::from_value::<Doubt>(row).unwrap()
        };
        let visitor = Visitor::somebody();
        let offers = |over, fenced| {
            let doubt = doubt(over, fenced);
            let form = form(&visitor, &doubt, None).into_string();
            [
                "\"applied\"",
                "\"not_applied\"",
                "\"abandoned\"",
                "by_time_only",
            ]
            .map(|word| form.contains(word))
        };
        assert_eq!(offers(false, true), [true, false, false, false]);
        assert_eq!(offers(true, true), [true, true, true, false]);
        // Behind a box of its own.
        assert_eq!(offers(true, false), [true, true, true, true]);
    }
}
