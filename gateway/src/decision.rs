//! What is decided about one call: the caller's fields, the call that the path names, and who decides. As over NATS, but that these
//! two stand in no body of HTTP.

use fleet::{ids::CallId, wire::message::Message};
use serde::Serialize;

use crate::{auth::principal::Principal, form::Fields, refusal::Refused};

/// A decision on its way to the door.
#[derive(Debug)]
pub(crate) struct Decision(Fields);

impl Decision {
    /// Of a body that says everything but the call.
    ///
    /// # Errors
    ///
    /// It is no object, or names a call itself.
    pub(crate) fn read(body: &[u8], call: CallId) -> Result<Self, Refused> {
        let mut fields = Fields::read(body)?;
        let what = Message::fixed(
            "the path names the call: leave call_id out",
            "路径已指明调用：请去掉 call_id",
        );
        fields.refuse("call_id", what)?;
        fields.push("call_id", &call);
        Ok(Self(fields))
    }

    /// Names who decides: the token, by its name. Where nobody is asked for one, whoever decides says it.
    ///
    /// # Errors
    ///
    /// The body says it, too.
    pub(crate) fn by(&mut self, principal: &Principal) -> Result<(), Refused> {
        self.0.name_actor(principal.name())
    }

    /// Whether there is such a field.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.has(name)
    }

    /// Adds a field.
    pub(crate) fn set(&mut self, name: &str, value: &impl Serialize) {
        self.0.push(name, value);
    }

    /// As the body of a question.
    pub(crate) fn to_body(&self) -> String {
        self.0.to_text()
    }
}
