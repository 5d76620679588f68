//! `todo`: tells the model the list of what there is to do, and reads what it writes of it.

use std::{
    borrow::Cow,
    mem,
    sync::{Mutex, PoisonError},
};

use fleet::{
    call::Language,
    modes::Brake,
    todo::{TodoChanges, TodoItem},
};
use serde_json::{Map, Value, json};

use super::{
    super::dialect::Dialect,
    interceptor::{Edit, ModelInterceptor, ModelRequest},
    todo::{directives, note},
};

/// `todo`, for one call.
pub(super) struct TodoList {
    /// The list of the call's session.
    pub(super) items: Vec<TodoItem>,
    pub(super) language: Language,
    /// What the reply asks for.
    pub(super) read: Mutex<TodoChanges>,
}

impl TodoList {
    /// What the reply asked for.
    pub(super) fn take(&self) -> TodoChanges {
        mem::take(&mut *self.read.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ModelInterceptor for TodoList {
    fn brake(&self) -> Brake {
        Brake::Todo
    }

    fn before(&self, request: &mut ModelRequest<'_>) -> Option<Edit> {
        let note = note(&self.items, self.language)?;
        let dialect = request.dialect;
        dialect.note(request.members.to_mut(), &note);
        let mut done = Map::new();
        done.insert("items".to_owned(), json!(self.items.len()));
        Some(done)
    }

    fn after(
        &self,
        dialect: &dyn Dialect,
        reply: &mut Cow<'_, Map<String, Value>>,
    ) -> Option<Edit> {
        let mut edited = Map::clone(reply);
        let (mut all, mut unreadable) = (TodoChanges::default(), 0);
        for text in dialect.own_texts(&mut edited) {
            let read = directives(text);
            unreadable += read.unreadable;
            all.add.extend(read.changes.add);
            all.update.extend(read.changes.update);
            // Vendors refuse a message without a text, and the next request has this one.
            if let Cow::Owned(new) = read.text
                && !new.trim().is_empty()
            {
                *text = new;
            }
        }
        let (add, update) = (all.add.len(), all.update.len());
        if add + update + unreadable == 0 {
            return None;
        }
        if add + update > 0 {
            *reply = Cow::Owned(edited);
        }
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = all;
        let mut done = Map::new();
        let told = json!({"add": add, "update": update, "unreadable": unreadable});
        done.insert("directives".to_owned(), told);
        Some(done)
    }
}
