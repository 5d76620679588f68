//! `admin.control`: an operator changes what may run. On a tenant's subject only that tenant's controls, on the fleet's own those
//! of all. The ledger decides whether that is allowed; this file reads the request and words the answer.

use bytes::Bytes;
use fleet::{
    arguments::Limits,
    canonical,
    controls::{ControlId, PauseMode},
    ids::Label,
    modes::InterceptMode,
    store::controls::{
        self, ControlKind, ControlScope, ControlSet, NewControl, Unset, WhichControl,
    },
    wire::{code::Code, message::Message, subjects::Subjects},
};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    answer::{Answer, bytes_max},
    door::Door,
    form, news,
    refusal::Refusal,
    request::Request,
};

/// What is to be done.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verb {
    Pause,
    Resume,
    Set,
    Only,
    Unset,
    List,
}

/// Enough for a value of the largest size, a note in which every character is escaped, and the members around them.
const LIMITS: Limits = Limits {
    bytes: 64 * 1024,
    ..Limits::DEFAULT
};

const EVERY_TENANT: Message = Message::fixed(
    "this verb is for all tenants and names none",
    "这个操作面向所有租户，不指定租户",
);
static VERBS: Message = Message::fixed(
    "do must be pause, resume, set, only, unset or list",
    "do 必须是 pause、resume、set、only、unset 或 list",
);
static PAUSE: Message = Message::fixed(
    "do: pause, tool, queue, tenant, or several of them, and with a tool perhaps pointer and value; setting: wait or refuse, \
     actor, note, and perhaps told and for_ms",
    "do: pause, tool、queue、tenant 中的一个或几个，有 tool 时可以再加 pointer 和 value；setting: wait 或 refuse, actor, note，\
     可以再加 told 和 for_ms",
);
static RESUME: Message = Message::fixed(
    "do: resume, actor, note, and control_id or the scope of the pause: tool, queue, tenant, pointer, value",
    "do: resume, actor, note，以及 control_id 或这个暂停的范围：tool, queue, tenant, pointer, value",
);
static SET: Message = Message::fixed(
    "do: set, interceptor, mode: enforce, observe or off, actor, note, and perhaps tool, tenant and for_ms",
    "do: set, interceptor, mode: enforce、observe 或 off, actor, note，可以再加 tool、tenant 和 for_ms",
);
static ONLY: Message = Message::fixed(
    "do: only, interceptors, a list of names, actor, note, and perhaps tool, tenant and for_ms",
    "do: only, interceptors（名称列表）, actor, note，可以再加 tool、tenant 和 for_ms",
);
static UNSET: Message = Message::fixed(
    "do: unset, control_id, actor, note",
    "do: unset, control_id, actor, note",
);
static LIST: Message = Message::fixed("do: list, and nothing else", "do: list，没有其他字段");

/// The scope in a request; its value is taken before, so that no number in it is rewritten.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    tool: Option<String>,
    queue: Option<String>,
    tenant: Option<String>,
    pointer: Option<String>,
    setting: Option<PauseMode>,
    told: Option<String>,
    interceptor: Option<String>,
    mode: Option<InterceptMode>,
    interceptors: Option<Vec<String>>,
    for_ms: Option<i64>,
    control_id: Option<i64>,
    actor: Option<String>,
    note: Option<String>,
}

/// A request: its verb, its fields, and the value of its scope as canonical text.
struct Wish {
    verb: Verb,
    asked: Asked,
    value: Option<String>,
}

/// Changes or lists controls of this tenant.
pub(crate) async fn of_tenant(door: &Door, request: &Request<'_>) -> Result<Answer, Refusal> {
    let tenant = request.tenant()?;
    answer(door, request, Some(&tenant)).await
}

/// Changes or lists controls of every tenant.
pub(crate) async fn of_all(door: &Door, request: &Request<'_>) -> Result<Answer, Refusal> {
    if request.tenant != Subjects::EVERY_TENANT {
        // No subject of a tenant leads here.
        return Err(Refusal::new(Code::InvalidTenant, EVERY_TENANT));
    }
    answer(door, request, None).await
}

async fn answer(
    door: &Door,
    request: &Request<'_>,
    tenant: Option<&Label>,
) -> Result<Answer, Refusal> {
    let wish = read(request.body)?;
    match wish.verb {
        Verb::Pause => pause(door, request, &wish, tenant).await,
        Verb::Resume | Verb::Unset => unset(door, request, &wish, tenant).await,
        Verb::Set | Verb::Only => set_mode(door, request, &wish, tenant).await,
        Verb::List => list(door, tenant).await,
    }
}

fn read(body: &[u8]) -> Result<Wish, Refusal> {
    let mut body = form::parse(body, &LIMITS)?;
    let mut taken = |field: &str| body.as_object_mut().and_then(|fields| fields.remove(field));
    let (verb, value) = (taken("do"), taken("value"));
    let Some(verb) = verb.and_then(|verb| serde_json::from_value::<Verb>(verb).ok()) else {
        return Err(Refusal::new(Code::InvalidArguments, VERBS.clone()).at("/do"));
    };
    let form = match verb {
        Verb::Pause => &PAUSE,
        Verb::Resume => &RESUME,
        Verb::Set => &SET,
        Verb::Only => &ONLY,
        Verb::Unset => &UNSET,
        Verb::List => &LIST,
    };
    let asked: Asked = form::of_form(body, form)?;
    if is_stray(verb, &asked, value.is_some()) {
        return Err(form::mismatch(form));
    }
    Ok(Wish {
        verb,
        asked,
        value: value.as_ref().map(canonical::to_text),
    })
}

/// Whether a request has a field that its verb does not take, or lacks one that it needs.
const fn is_stray(verb: Verb, asked: &Asked, has_value: bool) -> bool {
    let is_of_pause = asked.setting.is_some() || asked.told.is_some();
    let is_of_calls = asked.queue.is_some() || asked.pointer.is_some() || has_value;
    let is_of_scope = asked.tool.is_some() || asked.tenant.is_some() || is_of_calls;
    let is_of_mode = asked.interceptor.is_some() || asked.mode.is_some();
    let is_of_only = asked.interceptors.is_some();
    let (has_id, lasts) = (asked.control_id.is_some(), asked.for_ms.is_some());
    match verb {
        Verb::Pause => is_of_mode || is_of_only || has_id,
        Verb::Resume => is_of_pause || is_of_mode || is_of_only || lasts || has_id == is_of_scope,
        Verb::Set => {
            let is_whole = asked.interceptor.is_some() && asked.mode.is_some();
            is_of_pause || is_of_calls || is_of_only || has_id || !is_whole
        }
        Verb::Only => is_of_pause || is_of_calls || is_of_mode || has_id || !is_of_only,
        Verb::Unset => is_of_pause || is_of_scope || is_of_mode || is_of_only || lasts || !has_id,
        Verb::List => {
            let says_who = asked.actor.is_some() || asked.note.is_some();
            is_of_pause || is_of_scope || is_of_mode || is_of_only || lasts || has_id || says_who
        }
    }
}

impl Wish {
    fn scope(&self) -> ControlScope<'_> {
        let Asked {
            tool,
            queue,
            tenant,
            pointer,
            interceptor,
            ..
        } = &self.asked;
        ControlScope {
            tool: tool.as_deref(),
            queue: queue.as_deref(),
            tenant: tenant.as_deref(),
            pointer: pointer.as_deref(),
            value: self.value.as_deref(),
            subject: interceptor.as_deref(),
        }
    }

    /// Who asks, as the log will say; nothing where nobody was named, which the ledger refuses.
    fn actor(&self, request: &Request<'_>) -> String {
        request.author(self.asked.actor.as_deref().unwrap_or_default())
    }

    fn note(&self) -> &str {
        self.asked.note.as_deref().unwrap_or_default()
    }
}

async fn pause(
    door: &Door,
    request: &Request<'_>,
    wish: &Wish,
    tenant: Option<&Label>,
) -> Result<Answer, Refusal> {
    let control = NewControl {
        kind: ControlKind::Pause,
        scope: wish.scope(),
        setting: match wish.asked.setting.unwrap_or(PauseMode::Wait) {
            PauseMode::Wait => "\"wait\"",
            PauseMode::Refuse => "\"refuse\"",
        },
        told: wish.asked.told.as_deref(),
        actor: &wish.actor(request),
        note: wish.note(),
        for_ms: wish.asked.for_ms,
        in_tenant: tenant,
    };
    let another = Message::fixed(
        "a pause with this scope is there, and it is another one; resume it first",
        "已有一个范围相同但内容不同的暂停；请先解除它",
    );
    set(door, &control, another).await
}

/// Says what an interceptor may do, or which ones remain.
async fn set_mode(
    door: &Door,
    request: &Request<'_>,
    wish: &Wish,
    tenant: Option<&Label>,
) -> Result<Answer, Refusal> {
    let (kind, setting) = match (&wish.asked.interceptors, wish.asked.mode) {
        (Some(names), _) => (ControlKind::Only, serde_json::json!(names)),
        (None, mode) => (ControlKind::Mode, serde_json::json!(mode)),
    };
    let control = NewControl {
        kind,
        scope: wish.scope(),
        setting: &setting.to_string(),
        told: None,
        actor: &wish.actor(request),
        note: wish.note(),
        for_ms: wish.asked.for_ms,
        in_tenant: tenant,
    };
    let another = Message::fixed(
        "a control with this scope is there, and it is another one; unset it first",
        "已有一个范围相同但内容不同的控制；请先取消它",
    );
    set(door, &control, another).await
}

async fn set(door: &Door, control: &NewControl<'_>, another: Message) -> Result<Answer, Refusal> {
    let set = controls::set(&door.pool, control).await;
    match set.map_err(Refusal::undecided)? {
        ControlSet::Set(there) => {
            ring(door).await;
            Ok(changed("set", &there))
        }
        ControlSet::Already(there) => Ok(changed("already_set", &there)),
        ControlSet::Conflict(there) => {
            let there: Value = serde_json::from_str(&there).unwrap_or_default();
            let refusal = Refusal::new(Code::Conflict, another);
            Err(refusal.with_details(|_| serde_json::json!({ "control": there })))
        }
    }
}

async fn unset(
    door: &Door,
    request: &Request<'_>,
    wish: &Wish,
    tenant: Option<&Label>,
) -> Result<Answer, Refusal> {
    let which = match wish.asked.control_id {
        Some(id) => WhichControl::Id(ControlId(id)),
        None => WhichControl::Scope(ControlKind::Pause, wish.scope()),
    };
    let unset = Unset {
        which,
        actor: &wish.actor(request),
        note: wish.note(),
        in_tenant: tenant,
    };
    let was = controls::unset(&door.pool, &unset).await;
    match was.map_err(Refusal::undecided)? {
        Some(was) => {
            ring(door).await;
            Ok(changed("unset", &was))
        }
        None => Ok(changed("not_found", "null")),
    }
}

/// The newest controls, as many as the server carries.
async fn list(door: &Door, tenant: Option<&Label>) -> Result<Answer, Refusal> {
    let rows = controls::listed(&door.pool, tenant).await;
    let rows = rows.map_err(|error| Refusal::unreadable(&error))?;
    let (mut shown, mut bytes) = (Vec::new(), 64);
    for row in &rows {
        bytes += row.len() + 1;
        if bytes > bytes_max(&door.bus) {
            break;
        }
        shown.push(row.as_str());
    }
    let left_out = rows.len() - shown.len();
    let shown = shown.join(",");
    Ok(Answer::json(format!(
        "{{\"controls\":[{shown}],\"left_out\":{left_out}}}"
    )))
}

/// The answer to a change: the result, and the control as JSON text.
fn changed(result: &str, control: &str) -> Answer {
    Answer::json(format!("{{\"result\":\"{result}\",\"control\":{control}}}"))
}

async fn ring(door: &Door) {
    let subject = door.bus.subjects.control_changed();
    news::ring(&door.bus, subject, Bytes::new()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_control_is_refused() {
        for body in [
            "[]",
            "{}",
            r#"{"do":"stop","tool":"charge","actor":"a","note":"n"}"#,
            r#"{"do":7}"#,
            r#"{"do":"pause","tool":"charge","actor":"a","note":"n","forever":true}"#,
            r#"{"do":"pause","tool":["charge"],"actor":"a","note":"n"}"#,
            r#"{"do":"pause","tool":"charge","setting":"sleep","actor":"a","note":"n"}"#,
            r#"{"do":"pause","tool":"charge","for_ms":"1h","actor":"a","note":"n"}"#,
            r#"{"do":"pause","tool":"charge","for_ms":1.5,"actor":"a","note":"n"}"#,
            r#"{"do":"pause","control_id":7,"actor":"a","note":"n"}"#,
            r#"{"do":"resume","actor":"a","note":"n"}"#,
            r#"{"do":"resume","control_id":7,"tool":"charge","actor":"a","note":"n"}"#,
            r#"{"do":"resume","control_id":7,"setting":"wait","actor":"a","note":"n"}"#,
            r#"{"do":"set","interceptor":"redact","actor":"a","note":"n"}"#,
            r#"{"do":"set","mode":"off","actor":"a","note":"n"}"#,
            r#"{"do":"set","interceptor":"redact","mode":"on","actor":"a","note":"n"}"#,
            r#"{"do":"set","interceptor":"redact","mode":"off","queue":"q","actor":"a","note":"n"}"#,
            r#"{"do":"set","interceptor":"redact","mode":"off","setting":"wait","actor":"a","note":"n"}"#,
            r#"{"do":"only","actor":"a","note":"n"}"#,
            r#"{"do":"only","interceptors":"redact","actor":"a","note":"n"}"#,
            r#"{"do":"only","interceptors":["redact"],"mode":"off","actor":"a","note":"n"}"#,
            r#"{"do":"unset","actor":"a","note":"n"}"#,
            r#"{"do":"unset","control_id":7,"tool":"charge","actor":"a","note":"n"}"#,
            r#"{"do":"pause","tool":"charge","interceptor":"redact","actor":"a","note":"n"}"#,
            r#"{"do":"resume","control_id":7,"mode":"off","actor":"a","note":"n"}"#,
            r#"{"do":"list","interceptors":[]}"#,
            r#"{"do":"list","tool":"charge"}"#,
            r#"{"do":"list","actor":"a"}"#,
        ] {
            let refused = read(body.as_bytes()).err();
            assert_eq!(
                refused.map(|refusal| refusal.code),
                Some(Code::InvalidArguments),
                "{body}"
            );
        }
    }

    #[test]
    fn a_value_keeps_every_digit_and_null_is_one() {
        let value = |text: &str| {
            let body = format!(
                r#"{{"do":"pause","tool":"charge","pointer":"/a","value":{text},"actor":"a","note":"n"}}"#
            );
            read(body.as_bytes()).unwrap().value.unwrap()
        };
        assert_eq!(value("9007199254740993"), "9007199254740993");
        assert_eq!(value(r#"{"b":1,"a":[]}"#), r#"{"a":[],"b":1}"#);
        assert_eq!(value("null"), "null");
    }
}
