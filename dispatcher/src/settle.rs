//! `admin.settle`: a person says what a call in doubt turned out to be. The ledger decides whether that is allowed; this file
//! reads the request and words the answer.

use fleet::{
    arguments::Limits,
    canonical,
    store::settle::{self, SettledAs, Settlement, Verdict},
    wire::{code::Code, message::Message},
};
use serde::Deserialize;
use serde_json::{Value, json};
use time::format_description::well_known::Rfc3339;

use crate::{answer::Answer, door::Door, form, news, refusal::Refusal, replay, request::Request};

static FORM: Message = Message::fixed(
    "call_id, outcome: applied, not_applied or abandoned, actor, note, and perhaps result and by_time_only",
    "call_id, outcome: applied、not_applied 或 abandoned, actor, note，可以再加 result 和 by_time_only",
);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettleRequest {
    call_id: String,
    outcome: SettledAs,
    actor: String,
    note: String,
    #[serde(default)]
    by_time_only: bool,
}

/// Settles a call of this tenant and answers with its new state.
pub(crate) async fn settle(door: &Door, request: &Request<'_>) -> Result<Answer, Refusal> {
    let tenant = request.tenant()?;
    let (asked, result) = read(request.body)?;
    let call = form::call_id(&asked.call_id)?;
    let actor = request.author(&asked.actor);
    let settlement = Settlement {
        call,
        tenant: Some(&tenant),
        finding: asked.outcome,
        actor: &actor,
        note: &asked.note,
        result: result.as_deref(),
        by_time_only: asked.by_time_only,
    };
    let verdict = settle::settle(&door.pool, &settlement)
        .await
        .map_err(Refusal::undecided)?;
    let Verdict::Settled { tell, .. } = verdict else {
        return Err(refused(asked.outcome, &verdict));
    };
    let answer = replay::as_it_stands(door, call, &tenant, false).await?;
    if let Some(dispatcher) = tell {
        news::tell_waiters(door, dispatcher, call).await;
    }
    Ok(answer)
}

/// The request, and its result as canonical text. The text is taken first, so that no number in it is rewritten.
fn read(body: &[u8]) -> Result<(SettleRequest, Option<String>), Refusal> {
    let mut value = form::parse(body, &Limits::DEFAULT)?;
    let result = value
        .as_object_mut()
        .and_then(|fields| fields.remove("result"))
        .filter(|result| *result != Value::Null);
    let asked = form::of_form(value, &FORM)?;
    Ok((asked, result.as_ref().map(canonical::to_text)))
}

/// Why the call was not settled, for the person who asked.
fn refused(finding: SettledAs, verdict: &Verdict) -> Refusal {
    match verdict {
        Verdict::Settled { .. } | Verdict::NotFound => Refusal::not_found(),
        Verdict::WorkerNotFenced => Refusal::new(Code::WorkerNotFenced, NOT_FENCED),
        Verdict::TooEarly { until, wait } => {
            let what = too_early(finding);
            let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
            Refusal::too_early(Code::Conflict, what, wait_ms)
                .with_details(|_| json!({ "state": "in_doubt", "until": instant(*until) }))
        }
        Verdict::Conflict {
            state,
            decided_by,
            decided_at,
        } => {
            let what = if decided_at.is_some() {
                Message::fixed(
                    "the call is decided already, and not like this",
                    "这次调用已有不同的定论",
                )
            } else {
                Message::fixed("the call is not in doubt", "这次调用不处于存疑状态")
            };
            Refusal::new(Code::Conflict, what).with_details(|_| {
                json!({
                    "state": state,
                    "decided_by": decided_by,
                    "decided_at": decided_at.map(instant),
                })
            })
        }
    }
}

/// Whoever gives up before the attempt's time is over gives up an answer that may still come.
const fn too_early(finding: SettledAs) -> Message {
    match finding {
        SettledAs::Abandoned => Message::fixed(
            "it cannot be abandoned before its attempt's own time is over, for its answer may still come; details.until says when that is",
            "在它的尝试超过时限之前不能放弃，因为它的结果可能还会到达；details.until 是该时限",
        ),
        SettledAs::Applied | SettledAs::NotApplied => Message::fixed(
            "that it was not applied cannot be known before its attempt's own time is over",
            "在它的尝试超过时限之前，无法确定它没有生效",
        ),
    }
}

const NOT_FENCED: Message = Message::fixed(
    "that it was not applied cannot be known while the worker that ran it, or a process of it, may still act; prove the worker gone, or decide by_time_only",
    "只要执行它的 worker 或其进程还可能在运行，就无法确定它没有生效；请先证明该 worker 及其进程都已终止，或用 by_time_only 决定",
);

fn instant(at: time::OffsetDateTime) -> Option<String> {
    at.format(&Rfc3339).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(body: &str) -> Code {
        read(body.as_bytes()).unwrap_err().code
    }

    #[test]
    fn a_result_keeps_every_digit_and_is_never_part_of_the_form() {
        let body = r#"{"call_id":"x","outcome":"applied","actor":"a","note":"n","result":{"b":1E2,"a":9007199254740993}}"#;
        let (asked, result) = read(body.as_bytes()).unwrap();
        assert_eq!(
            (asked.outcome, asked.by_time_only),
            (SettledAs::Applied, false)
        );
        assert_eq!(result.unwrap(), r#"{"a":9007199254740993,"b":1E2}"#);
        let without =
            r#"{"call_id":"x","outcome":"not_applied","actor":"a","note":"n","result":null}"#;
        assert_eq!(read(without.as_bytes()).unwrap().1, None);
    }

    #[test]
    fn what_is_not_a_settlement_is_refused() {
        for body in [
            r#"{"call_id":"x","outcome":"applied","actor":"a"}"#,
            r#"{"call_id":"x","outcome":"maybe","actor":"a","note":"n"}"#,
            r#"{"call_id":"x","outcome":"applied","actor":"a","note":"n","force":true}"#,
            r#"{"call_id":"x","outcome":"applied","actor":"a","note":1}"#,
            "[]",
        ] {
            assert_eq!(code(body), Code::InvalidArguments, "{body}");
        }
        assert_eq!(code(r#"{"note":"\u0000"}"#), Code::NulNotAllowed);
    }
}
