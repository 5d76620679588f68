//! The turn that is asked for: its calls, who speaks first, and what becomes of the others when the final one has its answer. Pure.

use fleet::{
    said,
    wire::{code::Code, message::Message},
};
use serde_json::value::RawValue;

use super::{
    call_form::{check, pointer},
    name::TurnName,
};
use crate::{
    form::{Fields, Listed},
    refusal::Refused,
    speaker::{CALLS_MAX, OnFinal, SpeakingOrder},
};

/// What a turn may say.
const FIELDS: [&str; 3] = ["calls", "order", "on_final"];

/// A turn that is asked for.
#[derive(Debug)]
pub(crate) struct TurnAsked {
    pub(crate) calls: Vec<CallAsked>,
    pub(crate) order: SpeakingOrder,
    pub(crate) on_final: OnFinal,
}

/// One of its calls.
#[derive(Debug)]
pub(crate) struct CallAsked {
    /// Its tool.
    pub(crate) tool: String,
    /// Its arguments, as they came.
    pub(crate) arguments: String,
    fields: Fields,
}

impl TurnAsked {
    /// Reads it. What is wrong with the arguments of a call is the door's to say.
    ///
    /// # Errors
    ///
    /// It is no turn, has no calls or too many, or a call is none.
    pub(crate) fn read(body: &[u8]) -> Result<Self, Refused> {
        let fields = Fields::read(body)?;
        for name in fields.names() {
            if !FIELDS.contains(&name) {
                return Err(invalid(Message::fixed(
                    "a turn has calls, order and on_final, and nothing else",
                    "一个 turn 只有 calls、order 和 on_final",
                )));
            }
            if fields.values(name).count() > 1 {
                let name: String = name.to_owned();
                let what = said!("{name} stands there twice", "{name} 出现了两次");
                return Err(Refused::new(Code::DuplicateKey, what));
            }
        }
        let order = word(
            &fields,
            "order",
            "call_index or first_ready",
            "是 call_index 或 first_ready",
        )?;
        let on_final = word(&fields, "on_final", "cancel or await", "是 cancel 或 await")?;
        let calls = fields.values("calls").next();
        let calls = calls.and_then(|calls| Listed::of(calls.get(), CALLS_MAX));
        let calls = calls.and_then(Listed::all);
        let Some(calls) = calls else {
            let most = CALLS_MAX;
            return Err(invalid(said!(
                "calls must be a list of 1 to {most} calls",
                "calls 必须是 1 到 {most} 个调用的列表"
            )));
        };
        let calls = calls.iter().enumerate();
        let calls: Result<Vec<CallAsked>, Refused> = calls
            .map(|(place, call)| CallAsked::read(call, place))
            .collect();
        Ok(Self {
            calls: calls?,
            order: order.unwrap_or(SpeakingOrder::CallIndex),
            on_final: on_final.unwrap_or(OnFinal::Await),
        })
    }

    /// The body of a batch of its calls at these places, each with its key.
    pub(crate) fn batch(&self, name: &TurnName, places: &[usize]) -> String {
        let calls: Vec<String> = places
            .iter()
            .map(|place| self.calls[*place].of_batch(&name.key(*place)))
            .collect();
        format!("{{\"calls\":[{}]}}", calls.join(","))
    }
}

impl CallAsked {
    fn read(call: &RawValue, place: usize) -> Result<Self, Refused> {
        let Ok(fields) = Fields::of(call.get()) else {
            let what = Message::fixed(
                "a call of a turn is an object with tool and args",
                "turn 中的每个调用都是含有 tool 和 args 的对象",
            );
            return Err(invalid(what).at(pointer(place, "")));
        };
        let tool = check(&fields, place)?;
        let arguments = fields.values("args").next().map(RawValue::get);
        Ok(Self {
            tool,
            arguments: arguments.unwrap_or("{}").to_owned(),
            fields,
        })
    }

    fn of_batch(&self, key: &str) -> String {
        let mut fields = self.fields.clone();
        fields.push("idempotency_key", &key);
        fields.to_text()
    }
}

fn word<T: serde::de::DeserializeOwned>(
    fields: &Fields,
    name: &str,
    english: &'static str,
    chinese: &'static str,
) -> Result<Option<T>, Refused> {
    let Some(value) = fields.values(name).next() else {
        return Ok(None);
    };
    let read = serde_json::from_str(value.get());
    read.map(Some).map_err(|_other| {
        let rule = Message::fixed(english, chinese);
        let name = name.to_owned();
        invalid(said!("{name} must be {rule}", "{name} 必须{rule}", rule))
    })
}

fn invalid(what: Message) -> Refused {
    Refused::new(Code::InvalidArguments, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<TurnAsked, Refused> {
        TurnAsked::read(body.as_bytes())
    }

    #[test]
    fn calls_go_to_the_door_as_they_came_with_the_keys_of_the_turn() {
        let body = r#"{"calls":[{"tool":"look","args":{"a": 1E2}},{"tool":"x","args":[1],"deadline_ms":5}],"order":"first_ready"}"#;
        let asked = read(body).unwrap();
        assert_eq!(asked.order, SpeakingOrder::FirstReady);
        assert_eq!(asked.on_final, OnFinal::Await);
        assert_eq!(
            (asked.calls[0].tool.as_str(), asked.calls[1].tool.as_str()),
            ("look", "x")
        );
        assert_eq!(asked.calls[0].arguments, r#"{"a": 1E2}"#);
        let name = TurnName::read(&format!("turn_{}", "0".repeat(32))).unwrap();
        let zeros = "0".repeat(32);
        assert_eq!(
            asked.batch(&name, &[0, 1]),
            format!(
                r#"{{"calls":[{{"tool":"look","args":{{"a": 1E2}},"idempotency_key":"turn_{zeros}-0"}},{{"tool":"x","args":[1],"deadline_ms":5,"idempotency_key":"turn_{zeros}-1"}}]}}"#
            )
        );
        assert!(asked.batch(&name, &[1]).contains("-1\""));
    }

    #[test]
    fn what_is_no_turn_is_refused() {
        let call = r#"{"tool":"x","args":{}}"#;
        let of = |count: usize| format!("{{\"calls\":[{}]}}", vec![call; count].join(","));
        assert!(read(&of(1)).is_ok() && read(&of(64)).is_ok());
        for bad in [
            of(0).as_str(),
            &of(65),
            "",
            "{}",
            "[]",
            "{",
            r#"{"calls":{}}"#,
            r#"{"calls":[1]}"#,
            r#"{"calls":[{}]}"#,
            r#"{"calls":[{"tool":"x","args":{}}],"calls":[{"tool":"x","args":{}}]}"#,
            r#"{"calls":[{"tool":"x","args":{}}],"order":"random"}"#,
            r#"{"calls":[{"tool":"x","args":{}}],"order":null}"#,
            r#"{"calls":[{"tool":"x","args":{}}],"on_final":"kill"}"#,
            r#"{"calls":[{"tool":"x","args":{}}],"session":"s"}"#,
            r#"{"calls":[{"tool":"x","args":{},"session":"s"}]}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
