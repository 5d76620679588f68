//! An interceptor of model calls: it sees a request before it leaves and the reply that came.

use std::borrow::Cow;

use fleet::modes::Brake;
use serde_json::{Map, Value};

use super::super::dialect::Dialect;

/// A request on its way to a model.
pub(in super::super) struct ModelRequest<'r> {
    pub(in super::super) dialect: &'static dyn Dialect,
    /// As it came: what is read of the conversation is read here, not what others have added.
    pub(in super::super) original: &'r Map<String, Value>,
    /// As it leaves.
    pub(in super::super) members: Cow<'r, Map<String, Value>>,
}

impl<'r> ModelRequest<'r> {
    /// What the user says: the texts of each message in which something is said.
    pub(super) fn said(&self) -> Vec<Vec<&'r str>> {
        let messages = match self.original.get(self.dialect.messages()) {
            Some(Value::Array(messages)) => messages.as_slice(),
            Some(Value::String(text)) => return vec![vec![text]],
            _none => &[],
        };
        let said = messages
            .iter()
            .map(|message| self.dialect.user_texts(message));
        said.filter(|texts| !texts.is_empty()).collect()
    }
}

/// What an interceptor did, as `edits` of a result have it. Never texts of a conversation.
pub(in super::super) type Edit = Map<String, Value>;

/// An interceptor of model calls. Pure: what it has to know it was given before.
pub(in super::super) trait ModelInterceptor: Send + Sync {
    /// Its name, by which operators switch it.
    fn brake(&self) -> Brake;

    /// Changes a request. `None`: it has nothing to change, and leaves it byte for byte as it is.
    fn before(&self, request: &mut ModelRequest<'_>) -> Option<Edit>;

    /// Changes a reply. `None`: it has nothing to change.
    fn after(
        &self,
        _dialect: &dyn Dialect,
        _reply: &mut Cow<'_, Map<String, Value>>,
    ) -> Option<Edit> {
        None
    }
}
