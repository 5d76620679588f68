//! What a client hands in for the calls of a turn. Pure.

use fleet::{
    ids::CallId,
    said,
    wire::{code::Code, message::Message},
};
use serde_json::value::RawValue;

use crate::{form::Fields, refusal::Refused, speaker::CALLS_MAX};

/// What is handed in for one call.
#[derive(Debug)]
pub(crate) struct HandedInFor {
    pub(crate) call: CallId,
    fields: Fields,
}

impl HandedInFor {
    /// Reads `{"outputs": [{"call_id", "result"|"error"|"input"|"decision", "token"?}]}`. What is wrong with an answer is the door's to
    /// say.
    ///
    /// # Errors
    ///
    /// It is not that, or names a call twice.
    pub(crate) fn all_of(body: &[u8]) -> Result<Vec<Self>, Refused> {
        let fields = Fields::read(body)?;
        let mut values = fields.values("outputs");
        let (Some(list), None, 1) = (values.next(), values.next(), fields.names().count()) else {
            return Err(form());
        };
        let list: Vec<&RawValue> = serde_json::from_str(list.get()).map_err(|_other| form())?;
        if !(1..=CALLS_MAX).contains(&list.len()) {
            return Err(form());
        }
        let mut all: Vec<Self> = Vec::with_capacity(list.len());
        for (place, one) in list.iter().enumerate() {
            let read = Self::read(one, place)?;
            if all.iter().any(|before| before.call == read.call) {
                let what = said!(
                    "/outputs/{place} is for a call that has one already",
                    "/outputs/{place} 对应的调用已有一个输出"
                );
                return Err(Refused::new(Code::InvalidArguments, what));
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
        let fields = Fields::of(one.get());
        let call = fields.as_ref().and_then(|fields| {
            let mut ids = fields.values("call_id");
            let id = ids
                .next()
                .filter(|_| fields.values("call_id").count() == 1)?;
            serde_json::from_str::<String>(id.get()).ok()?.parse().ok()
        });
        let Some((fields, call)) = fields.zip(call) else {
            let what = said!(
                "/outputs/{place}/call_id must be the id of a call",
                "/outputs/{place}/call_id 必须是 call_id"
            );
            return Err(Refused::new(Code::InvalidArguments, what));
        };
        Ok(Self { call, fields })
    }
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

    #[test]
    fn each_answer_goes_to_the_door_as_it_came_with_its_token() {
        let id = CallId::generate();
        let body = format!(r#"{{"outputs":[{{"call_id":"{id}","result":{{"a": 1E2}}}}]}}"#);
        let all = HandedInFor::all_of(body.as_bytes()).unwrap();
        assert!(all[0].ends() && !all[0].has("token"));
        assert_eq!(
            all[0].to_body(&[("token", "t"), ("call_id", "x")]),
            format!(r#"{{"call_id":"{id}","result":{{"a": 1E2}},"token":"t"}}"#)
        );
        let twice = format!(r#"{{"outputs":[{{"call_id":"{id}"}},{{"call_id":"{id}"}}]}}"#);
        for bad in [
            "",
            "{}",
            "[]",
            r#"{"outputs":[]}"#,
            r#"{"outputs":[{}]}"#,
            r#"{"outputs":[{"call_id":"x"}]}"#,
            r#"{"outputs":[{"call_id":1}],"x":1}"#,
            &twice,
        ] {
            assert!(HandedInFor::all_of(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
