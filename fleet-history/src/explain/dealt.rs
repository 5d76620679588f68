//! What somebody has done about a call since it ended: that is told before what could be done.

use fleet::ids::CallId;
use serde::Deserialize;
use time::OffsetDateTime;

use super::explanation::Explanation;
use crate::{instant::instant, marks::Mark};

/// Somebody makes it again and has not marked it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct UnderWay {
    /// Of the retry of many.
    pub(crate) name: Option<String>,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) at: OffsetDateTime,
    /// `unsure`: so long ago that the key of the new call may have lapsed.
    pub(crate) state: String,
}

/// The explanation of its end, with what was done since: its mark, or who makes it again.
pub(super) fn dealt(
    found: Explanation,
    call: CallId,
    mark: Option<&Mark>,
    retry: Option<&UnderWay>,
) -> Explanation {
    let done = mark.map(marked);
    match done.or_else(|| retry.map(|retry| under_way(call, retry))) {
        Some((what, next)) => told(found, &what, next),
        None => found,
    }
}

fn told(found: Explanation, what: &str, next: String) -> Explanation {
    Explanation {
        reason: found.reason,
        because: format!("{}; {what}", found.because.trim_end_matches('.')),
        next,
        commands: Vec::new(),
    }
}

fn marked(mark: &Mark) -> (String, String) {
    let by = format!("at {} by {}", instant(mark.at), mark.actor);
    let note = mark.note.as_ref();
    let note = note.map_or_else(String::new, |note| format!(": {note}"));
    let Some(new) = mark.new_call_id else {
        return (
            format!("it was given up {by}{note}"),
            format!(
                "nothing; if it is wanted after all, toolfleet calls retry {} --anyway makes a new call of it",
                mark.call_id
            ),
        );
    };
    let name = mark.bulk_name.as_ref();
    let name = name.map_or_else(String::new, |name| format!(" (retry {name})"));
    let state = match mark.new_state.as_deref() {
        None => "whose history was dropped".to_owned(),
        Some("succeeded") => "which succeeded".to_owned(),
        Some("failed") => "which failed".to_owned(),
        Some(state) => format!("which is {}", state.replace('_', " ")),
    };
    (
        format!("it was made again {by}{name} as call {new}, {state}{note}"),
        format!("nothing: toolfleet calls explain {new} says what became of that one"),
    )
}

fn under_way(call: CallId, retry: &UnderWay) -> (String, String) {
    let at = instant(retry.at);
    let who = match &retry.name {
        Some(name) => format!("the retry {name}"),
        None => "toolfleet calls retry of this one call".to_owned(),
    };
    if retry.state == "unsure" {
        return (
            format!(
                "{who} began at {at} to make it again, and nobody knows whether there is a new call"
            ),
            format!(
                "look for a new call of the same tool and arguments at that time (toolfleet calls list --tool … --arg …); if there is none, \
                 toolfleet calls retry {call} --anyway makes it again, or toolfleet calls discard {call} gives it up"
            ),
        );
    }
    let next = match &retry.name {
        Some(name) => format!(
            "wait; if that command was killed, give it again (toolfleet calls retry --name {name}, the same flags and --yes): it finds what it made"
        ),
        None => format!(
            "wait; if that command was killed, toolfleet calls retry {call} with its --key and --anyway says whether there is a new call, and \
             makes no second one"
        ),
    };
    (format!("{who} makes it again since {at}"), next)
}
