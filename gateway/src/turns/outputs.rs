//! What a client hands in for the calls of a turn: its form is checked for all of them before any is handed in. Pure.

use std::fmt::Write as _;

use fleet::{
    canonical,
    ids::CallId,
    said,
    wire::{code::Code, message::Message},
};
use serde_json::{json, value::RawValue};

use super::output_form::{NAMES, checked, wrong};
use crate::{
    form::{Fields, Listed},
    refusal::Refused,
    speaker::CALLS_MAX,
    value,
};

/// How many bytes of a hash say which output it is.
const HASH_BYTES: usize = 16;

/// What is handed in for one call.
#[derive(Debug)]
pub(crate) struct HandedInFor {
    pub(crate) call: CallId,
    /// Which output it is: the same again has the same.
    pub(crate) hash: String,
    fields: Fields,
}

impl HandedInFor {
    /// Reads `{"outputs": [{"call_id"|"approval_request_id", "result"|"error"|"input"|"decision", …}]}`. Whether an answer fits its tool
    /// is the door's to say.
    ///
    /// # Errors
    ///
    /// It is not that, or names a call twice; which output is wrong is said.
    pub(crate) fn all_of(body: &[u8]) -> Result<Vec<Self>, Refused> {
        let fields = Fields::read(body)?;
        let mut values = fields.values("outputs");
        let (Some(list), None, 1) = (values.next(), values.next(), fields.names().count()) else {
            return Err(form());
        };
        let list = Listed::of(list.get(), CALLS_MAX).and_then(Listed::all);
        let list = list.ok_or_else(form)?;
        let mut all: Vec<Self> = Vec::with_capacity(list.len());
        for (place, one) in list.iter().enumerate() {
            let read = Self::read(one, place)?;
            if all.iter().any(|before| before.call == read.call) {
                let what = Message::fixed(
                    "this call has an output already in this request",
                    "这个调用在本次请求中已有一个输出",
                );
                return Err(wrong(place, "", what));
            }
            all.push(read);
        }
        Ok(all)
    }

    /// Whether its call has nothing more to tell then: the client knows what it has done itself.
    pub(crate) fn ends(&self) -> bool {
        !self.fields.has("input") && !self.is_decision()
    }

    /// Whether it says yes or no to a call that waits for that.
    pub(crate) fn is_decision(&self) -> bool {
        self.fields.has("decision")
    }

    /// Whether it has such a field.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.has(name)
    }

    /// The token that it names, if it names one.
    pub(crate) fn token(&self) -> Option<String> {
        let token = self.fields.values("token").next()?;
        serde_json::from_str(token.get()).ok()
    }

    /// As the body of a question, with these fields where it has none of their names.
    pub(crate) fn to_body(&self, further: &[(&str, &str)]) -> String {
        let mut fields = self.fields.clone();
        for (name, value) in further {
            if !self.has(name) {
                fields.push(name, value);
            }
        }
        fields.to_text()
    }

    fn read(one: &RawValue, place: usize) -> Result<Self, Refused> {
        let (mut fields, call) = checked(one, place)?;
        let hash = hash_of(&fields);
        fields.remove("approval_request_id");
        if !fields.has("call_id") {
            fields.push("call_id", &call);
        }
        Ok(Self { call, hash, fields })
    }
}

/// Which output it is, whatever names its call and in whichever order its fields stand.
fn hash_of(fields: &Fields) -> String {
    let mut said: Vec<(&str, String)> = fields
        .names()
        .filter(|name| !NAMES.contains(name))
        .filter_map(|name| {
            let text = fields.values(name).next()?.get();
            let value = value::read(text.as_bytes());
            let text = value.map_or_else(|| text.to_owned(), |value| canonical::to_text(&value));
            Some((name, text))
        })
        .collect();
    said.sort_unstable();
    let hash = canonical::hash_text(&json!(said).to_string());
    let mut digits = String::with_capacity(2 * HASH_BYTES);
    for byte in &hash[..HASH_BYTES] {
        write!(digits, "{byte:02x}").expect("a text can be written to");
    }
    digits
}

fn form() -> Refused {
    let most = CALLS_MAX;
    let what: Message = said!(
        "the body is an object with outputs, a list of 1 to {most}, and nothing else",
        "请求体是一个只有 outputs 的对象，outputs 是 1 到 {most} 项的列表"
    );
    Refused::new(Code::InvalidArguments, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &str) -> Result<HandedInFor, Refused> {
        let body = format!(r#"{{"outputs":[{{{fields}}}]}}"#);
        HandedInFor::all_of(body.as_bytes()).map(|mut all| all.remove(0))
    }

    #[test]
    fn each_answer_goes_to_the_door_as_it_came_with_its_token() {
        let id = CallId::generate();
        let output = of(&format!(r#""call_id":"{id}","result":{{"a": 1E2}}"#)).unwrap();
        assert!(output.ends() && !output.has("token"));
        assert_eq!(
            output.to_body(&[("token", "t"), ("call_id", "x")]),
            format!(r#"{{"call_id":"{id}","result":{{"a": 1E2}},"token":"t"}}"#)
        );
    }

    #[test]
    fn a_request_for_a_yes_names_its_call() {
        let id = CallId::generate();
        let digits = id.0.simple();
        let decision = r#""decision":"deny","args_hash":"h""#;
        let output = of(&format!(
            r#""approval_request_id":"mcpr_{digits}_0",{decision}"#
        ))
        .unwrap();
        assert_eq!(output.call, id);
        assert_eq!(
            output.to_body(&[]),
            format!(r#"{{{decision},"call_id":"{id}"}}"#)
        );
        let by_id = of(&format!(r#"{decision},"call_id":"{id}""#)).unwrap();
        assert_eq!(by_id.hash, output.hash);
        for bad in [
            format!(r#""approval_request_id":"mcpr_{digits}",{decision}"#),
            format!(r#""approval_request_id":"mcp_{digits}_0",{decision}"#),
            format!(r#""approval_request_id":"mcpr_{digits}_0","result":1"#),
            format!(
                r#""approval_request_id":"mcpr_{digits}_0","call_id":"{}",{decision}"#,
                CallId::generate()
            ),
        ] {
            assert!(of(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_same_output_is_known_whatever_its_order_and_its_blanks() {
        let id = CallId::generate();
        let hash = |fields: &str| of(&format!(r#""call_id":"{id}",{fields}"#)).unwrap().hash;
        let first = hash(r#""result":{"a":1,"b":[]}"#);
        assert_eq!(first, hash(r#""token":"t","result":{"b": [], "a": 1}"#));
        assert_ne!(first, hash(r#""result":{"a":1,"b":[1]}"#));
        assert_ne!(hash(r#""input":{}"#), hash(r#""result":{}"#));
    }

    #[test]
    fn what_is_no_list_of_outputs_is_refused() {
        let id = CallId::generate();
        let twice = format!(
            r#"{{"outputs":[{{"call_id":"{id}","result":1}},{{"call_id":"{id}","result":1}}]}}"#
        );
        for bad in [
            "",
            "{}",
            "[]",
            r#"{"outputs":[]}"#,
            r#"{"outputs":[1],"x":1}"#,
            &twice,
        ] {
            assert!(HandedInFor::all_of(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
