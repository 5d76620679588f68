//! A form that was refused: why, and what stood in it, so that nobody writes it again.

use maud::Markup;

use super::super::form::SentForm;

/// What a form about a call was to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Cancel,
    Retry,
    Settle,
    Decide,
}

/// A form that was refused.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) act: Act,
    pub(super) form: SentForm,
    /// Why.
    pub(super) told: Markup,
}

impl Sent {
    /// The form that this one was sent from.
    pub(super) fn of(sent: Option<&Self>, act: Act) -> Option<&Self> {
        sent.filter(|sent| sent.act == act)
    }

    /// What stood in this field of it.
    pub(super) fn text<'a>(sent: Option<&'a Self>, name: &str) -> &'a str {
        let form = sent.map(|sent| &sent.form);
        form.and_then(|form| form.text(name)).unwrap_or_default()
    }
}
