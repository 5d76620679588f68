//! The switches of the page of protection: what `POST /v1/control` takes, as forms.

use std::collections::BTreeSet;

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
    kind: SwitchInput,
    is_required: bool,
}

#[derive(Clone, Copy)]
enum SwitchInput {
    Text,
    Number,
    /// Told in minutes, meant in milliseconds.
    Minutes,
    Choice(&'static [&'static str]),
    /// Says this where it is ticked.
    Tick(&'static str),
    /// A tick that is for this page alone.
    Told,
    /// Names with spaces or commas between them.
    Names,
    /// JSON, or else a text.
    Json,
    /// One of the names of this list, or another.
    Name(&'static str),
}

const fn field(name: &'static str, word: Word, kind: SwitchInput) -> SwitchField {
    SwitchField {
        name,
        word,
        kind,
        is_required: false,
    }
}

const fn needed(name: &'static str, word: Word, kind: SwitchInput) -> SwitchField {
    SwitchField {
        name,
        word,
        kind,
        is_required: true,
    }
}

/// Ticked where every call of the tenant is meant.
const WHOLE: &str = "whole_tenant";
const LIMITS: &str = "names-of-limits";
const INTERCEPTORS: &str = "names-of-interceptors";
const REPLACE: SwitchField = field("replace", words::REPLACE, SwitchInput::Tick("true"));
const FOR: SwitchField = field("for_ms", words::FOR_MINUTES, SwitchInput::Minutes);

pub(super) const PAUSE: Switch = Switch {
    verb: "pause",
    title: words::PAUSE_CALLS,
    fields: &[
        field("tool", words::TOOL, SwitchInput::Text),
        field("queue", words::QUEUE, SwitchInput::Text),
        field("pointer", words::POINTER, SwitchInput::Text),
        field("value", words::VALUE, SwitchInput::Json),
        field(WHOLE, words::WHOLE_TENANT, SwitchInput::Told),
        FOR,
        field("setting", words::REFUSE_NEW, SwitchInput::Tick("refuse")),
        field("told", words::CALLERS_TOLD, SwitchInput::Text),
        REPLACE,
    ],
    is_of_fleet: false,
};
pub(super) const PURGE: Switch = Switch {
    verb: "purge",
    title: words::PURGE_CACHE,
    fields: &[needed("tool", words::TOOL, SwitchInput::Text)],
    is_of_fleet: false,
};
pub(super) const BREAKER: Switch = Switch {
    verb: "breaker",
    title: words::FORCE_BREAKER,
    fields: &[
        needed("tool", words::TOOL, SwitchInput::Text),
        needed(
            "position",
            words::POSITION,
            SwitchInput::Choice(&["open", "closed"]),
        ),
        FOR,
    ],
    is_of_fleet: true,
};
pub(super) const LIMIT: Switch = Switch {
    verb: "limit",
    title: words::CHANGE_LIMIT,
    fields: &[
        needed("limit", words::NAME, SwitchInput::Name(LIMITS)),
        needed("calls", words::CALLS, SwitchInput::Number),
        needed("per_ms", words::PER_MS, SwitchInput::Number),
        field("burst", words::BURST, SwitchInput::Number),
        FOR,
    ],
    is_of_fleet: true,
};
pub(super) const MODE: Switch = Switch {
    verb: "set",
    title: words::SET_MODE,
    fields: &[
        needed("interceptor", words::NAME, SwitchInput::Name(INTERCEPTORS)),
        needed(
            "mode",
            words::MODE,
            SwitchInput::Choice(&["enforce", "observe", "off"]),
        ),
        field("tool", words::TOOL, SwitchInput::Text),
        FOR,
        REPLACE,
    ],
    is_of_fleet: false,
};
pub(super) const ONLY: Switch = Switch {
    verb: "only",
    title: words::ONLY_THESE,
    fields: &[
        needed("interceptors", words::NAMES, SwitchInput::Names),
        field("tool", words::TOOL, SwitchInput::Text),
        FOR,
        REPLACE,
    ],
    is_of_fleet: false,
};
const ALL: [&Switch; 6] = [&PAUSE, &PURGE, &BREAKER, &LIMIT, &MODE, &ONLY];

/// What a page knows of names.
#[derive(Debug, Default)]
pub(super) struct KnownNames {
    pub(super) limits: BTreeSet<String>,
    pub(super) interceptors: BTreeSet<String>,
}

/// A switch that was not turned: why, and what stood in its form.
#[derive(Debug)]
pub(super) struct RefusedSwitch {
    pub(super) told: Markup,
    pub(super) form: SentForm,
}

impl RefusedSwitch {
    fn is_of(&self, switch: &Switch) -> bool {
        self.form.text("control_id").is_none() && self.form.text("do") == Some(switch.verb)
    }

    /// Whether it is told at the top of the page.
    pub(super) fn is_of_no_form(&self) -> bool {
        !ALL.iter().any(|switch| self.is_of(switch))
    }
}

/// The names to choose from.
pub(super) fn names(known: &KnownNames) -> Markup {
    let lists = [(LIMITS, &known.limits), (INTERCEPTORS, &known.interceptors)];
    html! {
        @for (id, names) in lists {
            datalist id=(id) { @for name in names { option value=(name) {} } }
        }
    }
}

/// The form, for whoever may turn it: about this tool, or with what stood in one that was refused.
pub(super) fn form(
    visitor: &Visitor,
    switch: &Switch,
    tool: Option<&str>,
    refused: Option<&RefusedSwitch>,
) -> Markup {
    let is_there = visitor.may(Scope::Admin) && !(switch.is_of_fleet && visitor.tenant().is_some());
    let refused = refused.filter(|refused| refused.is_of(switch));
    let stood = |name: &str| match refused {
        Some(refused) => refused.form.text(name).unwrap_or_default(),
        None if name == "tool" => tool.unwrap_or_default(),
        None => "",
    };
    let id = format!("switch-{}", switch.verb);
    let action = format!("{}#{id}", visitor.link("/console/protection"));
    html! {
        @if is_there {
            details.switch id=(id) open[refused.is_some()] {
                summary { (visitor.say(switch.title)) }
                @if let Some(refused) = refused { (refused.told) }
                form.filters method="post" action=(action) {
                    input type="hidden" name="do" value=(switch.verb);
                    @for field in switch.fields { (input(visitor, field, stood(field.name))) }
                    label { (visitor.say(words::REASON)) " " input name="note" required maxlength="2000" autocomplete="off" value=(stood("note")); }
                    (actor::field(visitor, switch.verb))
                    button.danger { (visitor.say(words::SET_IT)) }
                }
                @if switch.verb == MODE.verb { p.hint { (visitor.say(words::MODE_HINT)) } }
            }
        }
    }
}

fn input(visitor: &Visitor, field: &SwitchField, stood: &str) -> Markup {
    let (name, word) = (field.name, visitor.say(field.word));
    let list = match field.kind {
        SwitchInput::Name(list) => Some(list),
        _others => None,
    };
    html! {
        label {
            @match field.kind {
                SwitchInput::Tick(value) => { input type="checkbox" name=(name) value=(value) checked[stood == value]; " " (word) },
                SwitchInput::Told => { input type="checkbox" name=(name) value="yes" checked[stood == "yes"]; " " (word) },
                SwitchInput::Choice(choices) => {
                    (word) " "
                    select name=(name) { @for choice in choices { option value=(choice) selected[stood == *choice] { (choice) } } }
                },
                SwitchInput::Number | SwitchInput::Minutes => {
                    (word) " " input type="number" min="1" step="1" name=(name) required[field.is_required] autocomplete="off" value=(stood);
                },
                SwitchInput::Text | SwitchInput::Names | SwitchInput::Json | SwitchInput::Name(_) => {
                    (word) " " input name=(name) list=[list] required[field.is_required] maxlength="2000" autocomplete="off" value=(stood);
                },
            }
        }
    }
}

/// What a form asks for, as `POST /v1/control` takes it. What is no number stays the text that it is, and is refused there.
pub(super) fn wish(visitor: &Visitor, form: &SentForm) -> Value {
    let mut wish = json!({ "note": form.text("note").unwrap_or_default() });
    let is_pause = form.text("kind") == Some("pause");
    if form.text("control_id").is_some() && is_pause && !visitor.principal().has_all_tools() {
        // A token of some tools names one of them, and no control by its number alone.
        wish["do"] = json!("resume");
        for name in ["tool", "queue", "tenant", "pointer"] {
            if let Some(text) = form.text(name) {
                wish[name] = json!(text);
            }
        }
        if let Some(value) = form.text("value") {
            wish["value"] = serde_json::from_str(value).unwrap_or_default();
        }
    } else if let Some(id) = form.text("control_id") {
        wish["do"] = json!(if is_pause { "resume" } else { "unset" });
        wish["control_id"] = number(id, 1);
    } else {
        let verb = form.text("do").unwrap_or_default();
        wish["do"] = json!(verb);
        let switch = ALL.into_iter().find(|switch| switch.verb == verb);
        for field in switch.map_or(&[][..], |switch| switch.fields) {
            let text = form.text(field.name);
            if let Some(said) = text.and_then(|text| said(field.kind, text)) {
                wish[field.name] = said;
            }
        }
        // On a tenant's subject a control holds for that tenant, and says so.
        // Without anything else it is about all that the tenant does, which somebody has to say: else the pause of nothing is refused.
        let is_narrow = ["tool", "queue"]
            .iter()
            .any(|name| form.text(name).is_some());
        let is_meant = verb != PAUSE.verb || is_narrow || form.is_ticked(WHOLE);
        if let Some(tenant) = visitor.tenant()
            && switch.is_some_and(|switch| !switch.is_of_fleet)
            && is_meant
        {
            wish["tenant"] = json!(tenant);
        }
    }
    actor::name(&mut wish, visitor, form);
    wish
}

/// What a field says, as it is sent.
fn said(kind: SwitchInput, text: &str) -> Option<Value> {
    Some(match kind {
        SwitchInput::Number => number(text, 1),
        SwitchInput::Minutes => number(text, 60_000),
        SwitchInput::Names => {
            let names = text.split([',', ' ', '，', '、']);
            json!(names.filter(|name| !name.is_empty()).collect::<Vec<_>>())
        }
        SwitchInput::Tick("true") => json!(true),
        SwitchInput::Tick(value) => json!(value),
        SwitchInput::Json => serde_json::from_str(text).unwrap_or_else(|_no_json| json!(text)),
        SwitchInput::Text | SwitchInput::Choice(_) | SwitchInput::Name(_) => json!(text),
        SwitchInput::Told => return None,
    })
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
    fn a_value_is_json_where_it_is_some_and_a_pause_may_take_the_place_of_one() {
        let pause = |value: &str| {
            wished(&format!(
                "do=pause&tool=t&pointer=/a&value={value}&replace=true&note=n"
            ))
        };
        assert_eq!(pause("DE-001")["value"], json!("DE-001"));
        assert_eq!(pause("7")["value"], json!(7));
        assert_eq!(pause("%227%22")["value"], json!("7"));
        assert_eq!(pause("7")["replace"], json!(true));
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
