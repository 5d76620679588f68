//! What the tool of a preview says, for who is about to decide about a call. Whatever goes wrong is shown in its place: it keeps
//! nobody from deciding.

use fleet::{config::BusArgs, ids::CallId};
use fleet_history::{instant, waiting::Undecided};
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use time::OffsetDateTime;

use crate::commands::{
    ask::unanswered,
    connect, json,
    plain::{exact, plain},
};

/// What was asked, and what came of it.
#[derive(Debug)]
pub(super) struct Previewed {
    /// As the dispatcher said it, or as it would have, JSON.
    json: String,
    said: Said,
}

#[derive(Debug, Deserialize)]
struct Said {
    tool: String,
    call_id: Option<CallId>,
    #[serde(with = "time::serde::rfc3339::option", default)]
    asked_at: Option<OffsetDateTime>,
    result: Option<Box<RawValue>>,
    start: Option<String>,
    why: Option<String>,
}

#[derive(Deserialize)]
struct Answered {
    preview: Option<Box<RawValue>>,
}

/// Has the tool asked that the manifest of the call's tool names; `None`: it names none.
pub(super) async fn asked(bus: &BusArgs, waiting: &Undecided) -> Option<Previewed> {
    let tool = waiting.preview_tool.as_ref()?;
    Some(match ask(bus, waiting).await {
        Ok(previewed) => previewed?,
        Err(problem) => Previewed::not_asked(tool, &format!("{problem:#}")),
    })
}

async fn ask(bus: &BusArgs, waiting: &Undecided) -> anyhow::Result<Option<Previewed>> {
    let client = connect::client(bus).await?;
    let tenant = waiting.tenant.parse()?;
    let answer = client.preview(&tenant, waiting.call_id).await;
    let answer = answer.map_err(|problem| unanswered(problem, "look again"))?;
    let head = answer.head()?;
    anyhow::ensure!(!head.is_refused(), "{}", head.message());
    let Some(preview) = answer.read::<Answered>()?.preview else {
        return Ok(None);
    };
    Ok(Some(Previewed {
        said: serde_json::from_str(preview.get())?,
        json: preview.get().to_owned(),
    }))
}

/// The row of the call, with what was said as its last member.
pub(super) fn beside(row: &str, previewed: Option<&Previewed>) -> String {
    let said = previewed.map_or("null", |previewed| &previewed.json);
    match row.strip_suffix('}') {
        Some(members) => format!("{members},\"preview\":{}}}", json::compact(said)),
        None => row.to_owned(),
    }
}

impl Previewed {
    fn not_asked(tool: &str, why: &str) -> Self {
        Self {
            json: json!({"tool": tool, "call_id": null, "asked_at": null, "why": why}).to_string(),
            said: Said {
                tool: tool.to_owned(),
                call_id: None,
                asked_at: None,
                result: None,
                start: None,
                why: Some(why.to_owned()),
            },
        }
    }

    /// For a person, beside the arguments.
    pub(super) fn line(&self) -> String {
        let Said {
            tool,
            call_id,
            asked_at,
            result,
            start,
            why,
        } = &self.said;
        let tool = plain(tool);
        let why = plain(why.as_deref().unwrap_or("it said nothing"));
        let (Some(call), Some(at)) = (call_id, asked_at) else {
            return format!("preview       {tool} could not be asked: {why}");
        };
        let at = instant(*at);
        let asked = format!("preview       {tool}, asked at {at} by call {call}");
        match (result, start) {
            (Some(result), _) => {
                format!(
                    "{asked}\n{:14}{}",
                    "",
                    json::exact_indented(result.get(), 14)
                )
            }
            (None, Some(start)) => {
                format!(
                    "{asked}\n{:14}{} ... (toolfleet calls show {call})",
                    "",
                    exact(start)
                )
            }
            (None, None) => format!("{asked}, gave no answer: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str = "01a22098-043d-7082-a05f-e020ab8629c6";

    fn previewed(more: &str) -> Previewed {
        let json = format!(
            r#"{{"tool":"balance","call_id":"{CALL}","asked_at":"2026-11-28T05:19:23.5Z",{more}}}"#
        );
        Previewed {
            said: serde_json::from_str(&json).unwrap(),
            json,
        }
    }

    #[test]
    fn who_decides_sees_when_it_was_asked_and_what_it_said() {
        let asked =
            format!("preview       balance, asked at 2026-11-28T05:19:23.500Z by call {CALL}");
        let answered = previewed(r#""result":{"left":1.50,"memo":"a"}"#);
        let indented = "\n              {\n                \"left\": 1.50,\n                \"memo\": \"a\"\n              }";
        assert_eq!(answered.line(), format!("{asked}{indented}"));
        let hidden = previewed("\"result\":\"a\u{202e}b\"");
        assert_eq!(hidden.line(), format!("{asked}\n{:14}\"a\\u202eb\"", ""));
        let long = previewed(r#""start":"[1,2""#);
        assert_eq!(
            long.line(),
            format!("{asked}\n{:14}[1,2 ... (toolfleet calls show {CALL})", "")
        );
        let silent = previewed(r#""why":"it has not answered within 10 seconds""#);
        assert_eq!(
            silent.line(),
            format!("{asked}, gave no answer: it has not answered within 10 seconds")
        );
        let unasked = Previewed::not_asked("balance", "no dispatcher\nanswers");
        assert_eq!(
            unasked.line(),
            "preview       balance could not be asked: no dispatcher\\nanswers"
        );
    }

    #[test]
    fn a_program_finds_it_as_the_last_member_of_the_row() {
        let row = r#"{"call_id":"x","approved_by":[]}"#;
        assert_eq!(
            beside(row, None),
            r#"{"call_id":"x","approved_by":[],"preview":null}"#
        );
        let whole = beside(row, Some(&previewed(r#""result":{"left":1.50}"#)));
        assert!(whole.ends_with(r#""result":{"left":1.50}}}"#), "{whole}");
    }
}
