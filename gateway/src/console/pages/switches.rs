//! The switches of the page of protection: what `POST /v1/control` takes, as forms.

use fleet::tokens::Scope;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::{
    super::{
        form::SentForm,
        visitor::Visitor,
        words::{self, Word},
    },
    actor,
};

/// A switch: what it asks the dispatcher to do, and what it has to be told for that.
pub(super) struct Switch {
    verb: &'static str,
    title: Word,
    fields: &'static [SwitchField],
    /// Whether it is the whole fleet's, whoever turns it.
    is_of_fleet: bool,
}

struct SwitchField {
    name: &'static str,
    word: Word,
    kind: FieldKind,
    is_required: bool,
}

#[derive(Clone, Copy)]
enum FieldKind {
    Text,
    Number,
    /// Told in minutes, meant in milliseconds.
    Minutes,
    Choice(&'static [&'static str]),
    /// Says this where it is ticked.
    Tick(&'static str),
    /// Names with spaces or commas between them.
    Names,
}

const fn field(name: &'static str, word: Word, kind: FieldKind) -> SwitchField {
    SwitchField {
        name,
        word,
        kind,
        is_required: false,
    }
}

const fn needed(name: &'static str, word: Word, kind: FieldKind) -> SwitchField {
    SwitchField {
        name,
        word,
        kind,
        is_required: true,
    }
}

const FOR: SwitchField = field("for_ms", words::FOR_MINUTES, FieldKind::Minutes);

pub(super) const PAUSE: Switch = Switch {
    verb: "pause",
    title: words::PAUSE_CALLS,
    fields: &[
        field("tool", words::TOOL, FieldKind::Text),
        field("queue", words::QUEUE, FieldKind::Text),
        FOR,
        field("setting", words::REFUSE_NEW, FieldKind::Tick("refuse")),
        field("told", words::CALLERS_TOLD, FieldKind::Text),
    ],
    is_of_fleet: false,
};
pub(super) const PURGE: Switch = Switch {
    verb: "purge",
    title: words::PURGE_CACHE,
    fields: &[needed("tool", words::TOOL, FieldKind::Text)],
    is_of_fleet: false,
};
pub(super) const BREAKER: Switch = Switch {
    verb: "breaker",
    title: words::FORCE_BREAKER,
    fields: &[
        needed("tool", words::TOOL, FieldKind::Text),
        needed(
            "position",
            words::POSITION,
            FieldKind::Choice(&["open", "closed"]),
        ),
        FOR,
    ],
    is_of_fleet: true,
};
pub(super) const LIMIT: Switch = Switch {
    verb: "limit",
    title: words::CHANGE_LIMIT,
    fields: &[
        needed("limit", words::NAME, FieldKind::Text),
        needed("calls", words::CALLS, FieldKind::Number),
        needed("per_ms", words::PER_MS, FieldKind::Number),
        field("burst", words::BURST, FieldKind::Number),
        FOR,
    ],
    is_of_fleet: true,
};
pub(super) const MODE: Switch = Switch {
    verb: "set",
    title: words::SET_MODE,
    fields: &[
        needed("interceptor", words::NAME, FieldKind::Text),
        needed(
            "mode",
            words::MODE,
            FieldKind::Choice(&["enforce", "observe", "off"]),
        ),
        field("tool", words::TOOL, FieldKind::Text),
        FOR,
    ],
    is_of_fleet: false,
};
pub(super) const ONLY: Switch = Switch {
    verb: "only",
    title: words::ONLY_THESE,
    fields: &[
        needed("interceptors", words::NAMES, FieldKind::Names),
        field("tool", words::TOOL, FieldKind::Text),
        FOR,
    ],
    is_of_fleet: false,
};
const ALL: [&Switch; 6] = [&PAUSE, &PURGE, &BREAKER, &LIMIT, &MODE, &ONLY];

/// The form, for whoever may turn it.
pub(super) fn form(visitor: &Visitor, switch: &Switch) -> Markup {
    let is_there = visitor.may(Scope::Admin) && !(switch.is_of_fleet && visitor.tenant().is_some());
    html! {
        @if is_there {
            details.switch {
                summary { (visitor.say(switch.title)) }
                form.filters id={ "switch-" (switch.verb) } method="post" action=(visitor.link("/console/protection")) {
                    input type="hidden" name="do" value=(switch.verb);
                    @for field in switch.fields { (input(visitor, field)) }
                    label { (visitor.say(words::REASON)) " " input name="note" required maxlength="2000" autocomplete="off"; }
                    (actor::field(visitor, switch.verb))
                    button.danger { (visitor.say(words::SET_IT)) }
                }
            }
        }
    }
}

fn input(visitor: &Visitor, field: &SwitchField) -> Markup {
    let (name, word) = (field.name, visitor.say(field.word));
    html! {
        label {
            @match field.kind {
                FieldKind::Tick(value) => { input type="checkbox" name=(name) value=(value); " " (word) },
                FieldKind::Choice(choices) => {
                    (word) " "
                    select name=(name) { @for choice in choices { option value=(choice) { (choice) } } }
                },
                FieldKind::Number | FieldKind::Minutes => { (word) " " input name=(name) inputmode="numeric" required[field.is_required] autocomplete="off"; },
                FieldKind::Text | FieldKind::Names => { (word) " " input name=(name) required[field.is_required] maxlength="2000" autocomplete="off"; },
            }
        }
    }
}

/// What a form asks for, as `POST /v1/control` takes it. What is no number stays the text that it is, and is refused there.
pub(super) fn wish(visitor: &Visitor, form: &SentForm) -> Value {
    let mut wish = json!({ "note": form.text("note").unwrap_or_default() });
    if let Some(id) = form.text("control_id") {
        let is_pause = form.text("kind") == Some("pause");
        wish["do"] = json!(if is_pause { "resume" } else { "unset" });
        wish["control_id"] = number(id, 1);
    } else {
        let verb = form.text("do").unwrap_or_default();
        wish["do"] = json!(verb);
        let switch = ALL.into_iter().find(|switch| switch.verb == verb);
        for field in switch.map_or(&[][..], |switch| switch.fields) {
            if let Some(text) = form.text(field.name) {
                wish[field.name] = said(field.kind, text);
            }
        }
        // On a tenant's subject a control holds for that tenant, and says so.
        if let Some(tenant) = visitor.tenant()
            && switch.is_some_and(|switch| !switch.is_of_fleet)
        {
            wish["tenant"] = json!(tenant);
        }
    }
    actor::name(&mut wish, visitor, form);
    wish
}

fn said(kind: FieldKind, text: &str) -> Value {
    match kind {
        FieldKind::Number => number(text, 1),
        FieldKind::Minutes => number(text, 60_000),
        FieldKind::Names => {
            let names = text.split([',', ' ', '，', '、']);
            json!(names.filter(|name| !name.is_empty()).collect::<Vec<_>>())
        }
        FieldKind::Tick(value) => json!(value),
        FieldKind::Text | FieldKind::Choice(_) => json!(text),
    }
}

fn number(text: &str, times: i64) -> Value {
    let number = text.parse::<i64>().ok();
    let number = number.and_then(|number| number.checked_mul(times));
    number.map_or_else(|| json!(text), Value::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wished(form: &str) -> Value {
        wish(
            &Visitor::somebody(),
            &SentForm::of(form.as_bytes()).unwrap(),
        )
    }

    #[test]
    fn a_form_is_what_the_dispatcher_is_asked() {
        assert_eq!(
            wished(
                "do=pause&tool=charge&queue=&for_ms=90&setting=refuse&told=later&note=n&actor=ann"
            ),
            json!({"do": "pause", "tool": "charge", "for_ms": 5_400_000, "setting": "refuse", "told": "later", "note": "n", "actor": "ann"})
        );
        assert_eq!(
            wished("do=limit&limit=bank&calls=10&per_ms=1000&burst=x&note=n"),
            json!({"do": "limit", "limit": "bank", "calls": 10, "per_ms": 1_000, "burst": "x", "note": "n"})
        );
        assert_eq!(
            wished("do=only&interceptors=audit,+ceiling&note=n"),
            json!({"do": "only", "interceptors": ["audit", "ceiling"], "note": "n"})
        );
        assert_eq!(
            wished("do=breaker&tool=quote&position=open&for_ms=9223372036854775807&note=n")["for_ms"],
            json!("9223372036854775807")
        );
    }

    #[test]
    fn a_control_is_lifted_by_what_it_is() {
        let lift = |kind: &str| wished(&format!("control_id=17&kind={kind}&note=n"));
        assert_eq!(
            lift("pause"),
            json!({"do": "resume", "control_id": 17, "note": "n"})
        );
        assert_eq!(
            lift("mode"),
            json!({"do": "unset", "control_id": 17, "note": "n"})
        );
        // What another page asks for is not a field of this one.
        assert_eq!(
            wished("do=fence&worker=w&note=n"),
            json!({"do": "fence", "note": "n"})
        );
    }
}
