//! The output for a line that has no answer of a dispatcher.

use fleet::{
    call::{EffectKnown, Language},
    wire::{code::Code, envelope::Envelope, error::ErrorBody, message::Message},
};

/// The refusal of a line that was not sent.
pub(super) fn unfit(code: Code, what: &str) -> String {
    let what = Message::verbatim(what.to_owned());
    let error = ErrorBody::refused(code, &what, Language::En);
    text(&Envelope::refused("", error))
}

/// The output for a line without a key whose batch was not answered.
pub(super) fn unanswered() -> String {
    text(&Envelope {
        effect: EffectKnown::Unknown,
        ..Envelope::refused("", ErrorBody::unconfirmed(false, Language::En))
    })
}

fn text(envelope: &Envelope) -> String {
    String::from_utf8(envelope.to_bytes()).expect("JSON is UTF-8")
}
