//! What `tools/call` answers: one table from what became of a call to what a model reads and a program gets.
//!
//! | the call | `isError` | text | `structuredContent` |
//! |---|---|---|---|
//! | succeeded | no | the result as JSON; blocks as they are | the result; of blocks their `structured` |
//! | another answer stands in | no | that it does, and then that answer | that answer |
//! | failed, was cancelled, expired, or was refused | yes | what happened and what to do now | – |
//! | was settled as done, without an answer | no | that it was carried out, and that its answer is not known | – |
//! | in doubt | yes | that it may have happened and is not to be repeated | – |
//! | goes on, or waits for somebody | yes | that it does, and how to ask for it | – |
//!
//! `isError` of a call that goes on keeps a client from holding the text against the tool's `outputSchema`.

use fleet::{call::Language, ids::CallId, wire::message::Message};
use serde::Serialize;
use serde_json::{Value, value::RawValue};

use super::{
    envelope::{Became, McpEnvelope, blocks},
    revision::Revision,
    rpc::{result_type, server_info},
    words::{self, FoundBy},
};

/// How an answer is told.
#[derive(Debug, Clone, Copy)]
pub(super) struct Telling {
    pub(super) revision: Revision,
    pub(super) language: Language,
    /// Whether the tool's results are made of blocks.
    pub(super) is_content: bool,
    /// Whether a probe looks into a doubt about its calls.
    pub(super) has_probe: bool,
    /// By what an earlier call is found; `None`: a request that is none is said nothing of.
    pub(super) found_by: Option<FoundBy>,
    /// Whether the call is known to be an earlier one: an envelope says so only to who submits it.
    pub(super) is_earlier: bool,
}

/// The result of `tools/call`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CallToolResult<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    result_type: Option<&'static str>,
    content: Vec<Block<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    structured_content: Option<&'a RawValue>,
    is_error: bool,
    #[serde(rename = "_meta")]
    meta: ResultMeta<'a>,
}

/// A block of content.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Block<'a> {
    /// The tool's own.
    Own(&'a RawValue),
    /// Words of ours, or the result.
    Text {
        #[serde(rename = "type")]
        kind: &'static str,
        text: String,
    },
}

/// What a result says beside itself.
#[derive(Debug, Serialize)]
pub(super) struct ResultMeta<'a> {
    #[serde(
        rename = "io.modelcontextprotocol/serverInfo",
        skip_serializing_if = "Option::is_none"
    )]
    server: Option<Value>,
    #[serde(rename = "io.toolfleet/call")]
    call: CallSaid<'a>,
}

/// The call, for programs.
#[derive(Debug, Serialize)]
struct CallSaid<'a> {
    id: Option<CallId>,
    tool: &'a str,
    state: &'a str,
    outcome: Option<&'a str>,
    effect: Option<&'a str>,
    replayed: bool,
    coercions: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    degraded: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a RawValue>,
}

impl Telling {
    /// The result of an envelope.
    pub(super) fn result<'a>(&self, envelope: &'a McpEnvelope<'a>) -> CallToolResult<'a> {
        let became = envelope.became();
        let mut content = Vec::new();
        let mut structured = None;
        match became {
            Became::Result if envelope.is_settled_without_answer() => {
                content.push(self.text(&words::settled(envelope.call_id)));
            }
            Became::Result => structured = self.answer(envelope.result, &mut content),
            Became::StandIn => {
                content.push(self.text(&words::stood_in(&envelope.stood_in())));
                structured = self.answer(envelope.result, &mut content);
            }
            Became::InDoubt => {
                let failure = envelope.failure();
                content.push(self.text(&words::in_doubt(
                    envelope.call_id,
                    &failure,
                    self.has_probe,
                )));
            }
            Became::Awaiting => {
                let (whom, by) = envelope.awaited();
                content.push(self.text(&words::awaited(envelope.call_id, whom, by)));
            }
            Became::Open => content.push(self.text(&words::at_work(envelope.call_id))),
            Became::Error => content.push(self.text(&words::failed(&envelope.failure()))),
        }
        // How to do it again is not for what must not be repeated, and what goes on has said what to do.
        let says_how = matches!(became, Became::Result | Became::StandIn | Became::Error)
            && !envelope.may_have_happened();
        if let Some(by) = self
            .found_by
            .filter(|_| self.is_of_earlier(envelope) && says_how)
        {
            content.push(self.text(&words::replayed(envelope.call_id, by)));
        }
        CallToolResult {
            result_type: result_type(self.revision),
            content,
            structured_content: structured,
            is_error: became.is_error(),
            meta: self.meta(envelope),
        }
    }

    /// Puts the result among the blocks, and returns it for programs.
    fn answer<'a>(
        &self,
        result: Option<&'a RawValue>,
        content: &mut Vec<Block<'a>>,
    ) -> Option<&'a RawValue> {
        let result = result.unwrap_or(RawValue::NULL);
        let own = self.is_content.then(|| blocks(result)).flatten();
        let structured = match own {
            Some((blocks, structured)) => {
                content.extend(blocks.into_iter().map(Block::Own));
                structured
            }
            None => {
                content.push(text(result.get().to_owned()));
                Some(result)
            }
        };
        // The older revision has objects there and nothing else.
        structured.filter(|value| self.revision == Revision::Modern || value.get().starts_with('{'))
    }

    fn text<'a>(&self, message: &Message) -> Block<'a> {
        text(message.told(self.language).to_owned())
    }

    /// Whether an envelope is about a call that an earlier request made.
    fn is_of_earlier(&self, envelope: &McpEnvelope<'_>) -> bool {
        envelope.replayed || (self.is_earlier && envelope.call_id.is_some())
    }

    /// What is said beside a result of an envelope.
    pub(super) fn meta<'a>(&self, envelope: &'a McpEnvelope<'a>) -> ResultMeta<'a> {
        ResultMeta {
            server: (self.revision == Revision::Modern).then(server_info),
            call: CallSaid {
                id: envelope.call_id,
                tool: &envelope.tool,
                state: &envelope.state,
                outcome: envelope.outcome.as_deref(),
                effect: envelope.effect.as_deref(),
                replayed: self.is_of_earlier(envelope),
                coercions: envelope.coercions,
                degraded: envelope.degraded,
                error: envelope.error(),
            },
        }
    }
}

impl CallToolResult<'_> {
    /// Says something more to who reads it.
    pub(super) fn say(&mut self, message: &Message, language: Language) {
        self.content.push(text(message.told(language).to_owned()));
    }
}

fn text<'a>(text: String) -> Block<'a> {
    Block::Text { kind: "text", text }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(envelope: &Value, is_content: bool, revision: Revision) -> Value {
        let telling = Telling {
            revision,
            language: Language::En,
            is_content,
            has_probe: false,
            found_by: Some(FoundBy::ItsArguments),
            is_earlier: false,
        };
        let bytes = envelope.to_string();
        let envelope = McpEnvelope::of(bytes.as_bytes());
        serde_json::to_value(telling.result(&envelope)).unwrap()
    }

    fn envelope(state: &str, outcome: &str, more: &Value) -> Value {
        let mut envelope = json!({
            "call_id": "01980000-0000-7000-8000-000000000000", "tool": "t", "state": state, "outcome": outcome,
            "is_error": outcome != "success" && outcome != "fallback", "effect": "none", "result": null,
            "error": null, "degraded": null, "coercions": [], "replayed": false,
        });
        for (name, value) in more.as_object().unwrap() {
            envelope[name] = value.clone();
        }
        envelope
    }

    fn texts(result: &Value) -> Vec<&str> {
        let blocks = result["content"].as_array().unwrap().iter();
        blocks
            .map(|block| block["text"].as_str().unwrap_or_default())
            .collect()
    }

    #[test]
    fn a_result_is_a_text_for_models_and_a_value_for_programs() {
        for (result, is_object) in [
            (json!({"n": 9_007_199_254_740_993_u64}), true),
            (json!([1]), false),
            (json!("x"), false),
            (json!(null), false),
        ] {
            let succeeded = envelope("succeeded", "success", &json!({ "result": result }));
            let new = told(&succeeded, false, Revision::Modern);
            assert_eq!(texts(&new), [result.to_string()]);
            assert_eq!(new["structuredContent"], result);
            assert_eq!(
                (&new["isError"], &new["resultType"]),
                (&json!(false), &json!("complete"))
            );
            let old = told(&succeeded, false, Revision::Legacy);
            assert_eq!(
                old.get("structuredContent").is_some(),
                is_object,
                "{result}"
            );
            assert!(old.get("resultType").is_none());
        }
    }

    #[test]
    fn blocks_stay_as_they_are() {
        let result = json!({"content": [{"type": "image", "data": "aa==", "mimeType": "image/png"}], "structured": {"a": 1}});
        let succeeded = envelope("succeeded", "success", &json!({ "result": result }));
        let shown = told(&succeeded, true, Revision::Modern);
        assert_eq!(shown["content"], result["content"]);
        assert_eq!(shown["structuredContent"], json!({"a": 1}));
        // Of a tool that promises none it is a result like any other.
        let shown = told(&succeeded, false, Revision::Modern);
        assert_eq!(shown["structuredContent"], result);
    }

    #[test]
    fn what_stands_in_says_so_first() {
        for (degraded, word) in [
            (
                json!({"kind": "stale", "age_ms": 61_000, "reason": "timeout"}),
                "of 61 s ago",
            ),
            (
                json!({"kind": "stub", "age_ms": null, "reason": "timeout"}),
                "stub",
            ),
            (
                json!({"kind": "other", "age_ms": null, "reason": "timeout", "tool": "look"}),
                "look",
            ),
        ] {
            let more = json!({"result": 1, "degraded": degraded, "error": {"code": "timeout", "message": "m"}});
            let shown = told(
                &envelope("failed", "fallback", &more),
                false,
                Revision::Modern,
            );
            assert_eq!(shown["isError"], false);
            assert!(texts(&shown)[0].contains(word), "{shown}");
            assert_eq!(texts(&shown)[1], "1");
            assert_eq!(shown["_meta"]["io.toolfleet/call"]["degraded"], degraded);
        }
    }

    #[test]
    fn whatever_is_no_result_is_an_error_for_the_model() {
        let error = json!({"code": "tool_error", "message": "It said no.", "suggestion": "ask_user", "retry_after_ms": 5});
        for (state, outcome) in [
            ("failed", "business_error"),
            ("failed", "system_error"),
            ("cancelled", "system_error"),
            ("expired", "system_error"),
            ("refused", "system_error"),
            ("succeeded", "success"),
        ] {
            let more = json!({"error": error, "result": {"a": 1}});
            let shown = told(&envelope(state, outcome, &more), false, Revision::Modern);
            assert_eq!(shown["isError"], true, "{state} {outcome}");
            assert!(shown.get("structuredContent").is_none());
            let text = texts(&shown)[0];
            assert!(
                text.contains("It said no.")
                    && text.contains("ask_user")
                    && text.contains("tool_error"),
                "{text}"
            );
            assert_eq!(shown["_meta"]["io.toolfleet/call"]["error"], error);
        }
    }

    #[test]
    fn a_doubt_says_not_to_repeat_it_and_never_how() {
        let more = json!({"error": {"code": "in_doubt", "message": "The connection broke."}, "effect": "unknown", "replayed": true});
        let shown = told(
            &envelope("in_doubt", "unknown", &more),
            false,
            Revision::Modern,
        );
        assert_eq!(shown["isError"], true);
        assert_eq!(texts(&shown).len(), 1, "{shown}");
        assert!(
            texts(&shown)[0].contains("It may have happened, do not repeat it"),
            "{shown}"
        );
    }

    #[test]
    fn a_call_that_goes_on_says_how_to_ask_for_it() {
        let open = json!({"call_id": "01980000-0000-7000-8000-000000000000", "tool": "t", "state": "running", "replayed": true});
        let shown = told(&open, false, Revision::Legacy);
        assert_eq!(shown["isError"], true);
        let text = texts(&shown)[0];
        assert!(
            text.contains("Still at work")
                && text.contains("toolfleet_get")
                && text.contains("01980000-0000-7000-8000-000000000000"),
            "{text}"
        );
        let mut waits = open;
        waits["state"] = json!("awaiting_client");
        waits["awaiting"] = json!({"for": "approval", "by": "operator", "token": "secret"});
        let shown = told(&waits, false, Revision::Legacy);
        assert!(texts(&shown)[0].contains("calls approve"), "{shown}");
        assert!(!shown.to_string().contains("secret"));
    }

    #[test]
    fn a_replay_says_so_and_how_to_do_it_again() {
        let more = json!({"result": 1, "replayed": true});
        let shown = told(
            &envelope("succeeded", "success", &more),
            false,
            Revision::Modern,
        );
        assert_eq!(texts(&shown)[0], "1");
        assert!(
            texts(&shown)[1].contains("nothing was run again")
                && texts(&shown)[1].contains("new value"),
            "{shown}"
        );
        assert_eq!(shown["_meta"]["io.toolfleet/call"]["replayed"], true);
    }

    #[test]
    fn a_call_that_is_known_to_be_an_earlier_one_stays_one_and_a_refusal_is_none() {
        let telling = Telling {
            revision: Revision::Modern,
            language: Language::En,
            is_content: false,
            has_probe: false,
            found_by: Some(FoundBy::ItsKey),
            is_earlier: true,
        };
        let told = |envelope: &Value| {
            let bytes = envelope.to_string();
            let envelope = McpEnvelope::of(bytes.as_bytes());
            serde_json::to_value(telling.result(&envelope)).unwrap()
        };
        let shown = told(&envelope("succeeded", "success", &json!({"result": 1})));
        assert_eq!(shown["_meta"]["io.toolfleet/call"]["replayed"], true);
        assert!(texts(&shown)[1].contains("same idempotency key"), "{shown}");
        let error = json!({"code": "overloaded", "message": "Later."});
        let more = json!({"call_id": null, "error": error});
        let shown = told(&envelope("refused", "system_error", &more));
        assert_eq!(shown["_meta"]["io.toolfleet/call"]["replayed"], false);
        assert_eq!(texts(&shown).len(), 1, "{shown}");
    }

    #[test]
    fn what_may_have_happened_is_never_told_how_to_do_it_again() {
        let error =
            json!({"code": "in_doubt", "message": "Do not repeat the call.", "suggestion": "x"});
        for (state, more) in [
            (
                "failed",
                json!({"effect": "unknown", "error": error, "replayed": true}),
            ),
            ("failed", json!({"error": error, "replayed": true})),
        ] {
            let shown = told(
                &envelope(state, "system_error", &more),
                false,
                Revision::Modern,
            );
            assert_eq!(texts(&shown).len(), 1, "{shown}");
            assert!(!shown.to_string().contains("new value"), "{shown}");
        }
    }

    #[test]
    fn a_call_that_was_settled_without_an_answer_says_so() {
        let more = json!({"source": "settled", "effect": "applied"});
        let shown = told(
            &envelope("succeeded", "success", &more),
            false,
            Revision::Modern,
        );
        assert_eq!(shown["isError"], false);
        assert!(texts(&shown)[0].contains("its answer is not known"));
        assert!(shown.get("structuredContent").is_none(), "{shown}");
    }

    #[test]
    fn a_doubt_is_being_checked_only_where_a_probe_does_that() {
        let failure = McpEnvelope::default().failure();
        let says = |has_probe| words::in_doubt(None, &failure, has_probe);
        let probed = says(true).told(Language::En).to_owned();
        let other = says(false).told(Language::En).to_owned();
        assert!(probed.contains("being checked") && !other.contains("being checked"));
        assert!(other.contains("calls settle"), "{other}");
    }
}
