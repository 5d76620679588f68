//! What speaks against making a call again that is over: that somebody has dealt with it, or that it has, or may have, happened.
//! A person who knows better says so.

use fleet::call::State;
use fleet_history::{bulk::LeftAlone, instant, marks::Mark, original::Original};

/// The flag of a person who knows better.
const ANYWAY: &str = "--anyway makes a new call all the same";

/// Why this call is not made again, by the same words as of many; `None`: nothing speaks against it. Of its marks the newest one
/// that is its own says what was done.
pub(super) fn against(asked: &Original, marks: &[Mark]) -> Option<String> {
    let is_own = |mark: &&Mark| mark.call_id.0 == asked.call_id && mark.what != "abandoned";
    let dealt = marks.iter().rfind(is_own);
    let writes = asked.effect != "read";
    let twice = match writes {
        true => format!("{ANYWAY}, and its tool {} may do it twice", asked.tool),
        false => ANYWAY.to_owned(),
    };
    let (why, what) = if let Some(mark) = dealt {
        marked(mark)
    } else if asked.state == State::Succeeded.as_str() {
        (LeftAlone::Succeeded, "the call has succeeded".to_owned())
    } else {
        match asked.effect_known.as_deref() {
            Some("unknown") => (
                LeftAlone::EffectUnknown,
                "whether the call was carried out will never be known".to_owned(),
            ),
            Some("applied") if writes => (
                LeftAlone::EffectHappened,
                "the call failed and was carried out all the same".to_owned(),
            ),
            _nothing => return None,
        }
    };
    Some(format!("{why}: {what}; {twice}"))
}

/// What was done about it.
fn marked(mark: &Mark) -> (LeftAlone, String) {
    let by = format!("at {} by {}", instant(mark.at), mark.actor);
    let Some(new) = mark.new_call_id else {
        let note = mark.note.as_deref().unwrap_or_default();
        let what = format!("it was given up {by}: {note}");
        return (LeftAlone::DiscardedBefore, what);
    };
    let state = mark.new_state.as_deref().unwrap_or("dropped");
    let what = format!("it was made again {by} as call {new}, which is {state} now");
    (LeftAlone::RetriedBefore, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(state: &str, effect: &str, known: &str) -> Original {
        Original {
            call_id: uuid::Uuid::nil(),
            state: state.to_owned(),
            effect_known: Some(known.to_owned()),
            effect: effect.to_owned(),
            tenant: "acme".to_owned(),
            tool: "charge".to_owned(),
            args: "{}".to_owned(),
            session: None,
            run: None,
            priority: "low".to_owned(),
            language: "en".to_owned(),
            meta: None,
            files: None,
            sensitive: false,
            happened_late: false,
        }
    }

    fn mark(call: u128, what: &str, new: Option<&str>) -> Mark {
        serde_json::from_value(serde_json::json!({
            "call_id": uuid::Uuid::from_u128(call), "what": what, "at": "2026-11-20T12:00:00Z", "actor": "ann", "note": "why",
            "bulk_name": null, "new_call_id": new, "new_state": new.map(|_| "succeeded"),
        }))
        .unwrap()
    }

    #[test]
    fn what_was_dealt_with_or_may_have_happened_is_not_made_again_without_a_word() {
        let new = Some("01936c2e-0000-7000-8000-000000000002");
        let failed = call("failed", "once", "none");
        let told = |call: &Original, marks: &[Mark]| {
            let why = against(call, marks);
            why.map(|why| why.split(':').next().unwrap().to_owned())
        };
        let is = |word: &str| Some(word.to_owned());
        assert_eq!(told(&failed, &[]), None);
        assert_eq!(told(&call("cancelled", "once", "none"), &[]), None);
        assert_eq!(told(&call("failed", "once", "not_applied"), &[]), None);
        assert_eq!(
            told(&call("succeeded", "once", "applied"), &[]),
            is("succeeded")
        );
        assert_eq!(
            told(&call("failed", "once", "applied"), &[]),
            is("effect_happened")
        );
        assert_eq!(
            told(
                &call("failed", "once", "unknown"),
                &[mark(0, "abandoned", None)]
            ),
            is("effect_unknown")
        );
        assert_eq!(
            told(&failed, &[mark(0, "retried", new)]),
            is("retried_before")
        );
        assert_eq!(
            told(&failed, &[mark(0, "discarded", None)]),
            is("discarded_before")
        );
        // The mark of another call, for which this one was made.
        assert_eq!(told(&failed, &[mark(1, "retried", new)]), None);
        let why = against(&failed, &[mark(0, "retried", new)]).unwrap();
        assert!(
            why.contains(
                "by ann as call 01936c2e-0000-7000-8000-000000000002, which is succeeded now"
            ),
            "{why}"
        );
    }
}
