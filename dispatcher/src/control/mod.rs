//! `admin.control`: an operator changes what may run. On a tenant's subject only that tenant's controls, on the fleet's own those
//! of all. The ledger decides whether that is allowed; this file words the answer, and `wish` reads the request.

mod wish;

use bytes::Bytes;
use fleet::{
    controls::PauseMode,
    ids::Label,
    store::{
        DecisionError, StoreError,
        answers::{self, Purge, Purged},
        controls::{self, ControlKind, ControlSet, NewControl, Unset, WhichControl},
    },
    wire::{code::Code, message::Message, subjects::Subjects},
};
use serde_json::{Value, json};

use self::wish::{Verb, Wish};
use crate::{
    answer::{Answer, bytes_max},
    door::Door,
    news,
    refusal::Refusal,
    request::Request,
};

const EVERY_TENANT: Message = Message::fixed(
    "this verb is for all tenants and names none",
    "这个操作面向所有租户，不指定租户",
);
const OF_FLEET: Message = Message::fixed(
    "breakers and limits hold for all tenants: they are set on the fleet's own subject",
    "熔断器和速率限制对所有租户生效：请在集群自己的主题上设置",
);
const ANOTHER: Message = Message::fixed(
    "a control with this scope is there, and it is another one; say replace: true to change it, or take it away first",
    "已有一个范围相同但内容不同的控制；要修改它请加上 replace: true，或者先取消它",
);

const THE_FLEETS: Message = Message::fixed(
    "a control with this scope is there that the operators of the fleet have set or changed: only they change it or take it away",
    "已有一个范围相同的控制，由集群的操作员设置或修改：只有他们可以修改或取消它",
);

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
    let wish = Wish::read(request.body)?;
    match wish.verb {
        Verb::Breaker | Verb::Limit if tenant.is_some() => {
            Err(Refusal::new(Code::InvalidArguments, OF_FLEET).at("/do"))
        }
        Verb::Pause | Verb::Set | Verb::Only | Verb::Breaker | Verb::Limit => {
            set(door, request, &wish, tenant).await
        }
        Verb::Resume | Verb::Unset => unset(door, request, &wish, tenant).await,
        Verb::Purge => purge(door, request, &wish, tenant).await,
        Verb::List => list(door, tenant).await,
    }
}

async fn set(
    door: &Door,
    request: &Request<'_>,
    wish: &Wish,
    tenant: Option<&Label>,
) -> Result<Answer, Refusal> {
    let asked = &wish.asked;
    let (kind, setting) = match wish.verb {
        Verb::Only => (ControlKind::Only, json!(asked.interceptors)),
        Verb::Set => (ControlKind::Mode, json!(asked.mode)),
        Verb::Breaker => (ControlKind::Breaker, json!(asked.position)),
        Verb::Limit => {
            let mut numbers = json!({"calls": asked.calls, "per_ms": asked.per_ms});
            if let Some(burst) = asked.burst {
                numbers["burst"] = json!(burst);
            }
            (ControlKind::Limit, numbers)
        }
        Verb::Pause | Verb::Resume | Verb::Unset | Verb::Purge | Verb::List => {
            let mode = asked.setting.unwrap_or(PauseMode::Wait);
            (ControlKind::Pause, json!(mode))
        }
    };
    let control = NewControl {
        kind,
        scope: wish.scope(),
        setting: &setting.to_string(),
        told: asked.told.as_deref(),
        actor: &actor(request, wish),
        note: wish.note(),
        for_ms: asked.for_ms,
        in_tenant: tenant,
    };
    // As at the command line: a breaker's position and the numbers of a limit take the place of those before.
    let always = matches!(kind, ControlKind::Breaker | ControlKind::Limit);
    let set = if always || asked.replace == Some(true) {
        controls::replace(&door.pool, &control).await
    } else {
        controls::set(&door.pool, &control).await
    };
    match set.map_err(Refusal::undecided)? {
        ControlSet::Set(there) => {
            ring(door).await;
            Ok(changed("set", &there))
        }
        ControlSet::Changed(there) => {
            ring(door).await;
            Ok(changed("changed", &there))
        }
        ControlSet::Already(there) => Ok(changed("already_set", &there)),
        ControlSet::Conflict(there) => {
            let there: Value = serde_json::from_str(&there).unwrap_or_default();
            // One of their own is changed where they say so.
            let is_the_fleets = tenant.is_some() && asked.replace == Some(true);
            let why = if is_the_fleets { THE_FLEETS } else { ANOTHER };
            let refusal = Refusal::new(Code::Conflict, why);
            Err(refusal.with_details(|_| json!({ "control": there })))
        }
    }
}

/// Who asks, as the log will say; nothing where nobody was named, which the ledger refuses.
fn actor(request: &Request<'_>, wish: &Wish) -> String {
    request.author(wish.asked.actor.as_deref().unwrap_or_default())
}

async fn unset(
    door: &Door,
    request: &Request<'_>,
    wish: &Wish,
    tenant: Option<&Label>,
) -> Result<Answer, Refusal> {
    let which = match wish.control_id() {
        Some(id) if wish.verb == Verb::Resume => WhichControl::IdOf(ControlKind::Pause, id),
        Some(id) => WhichControl::Id(id),
        None => WhichControl::Scope(ControlKind::Pause, wish.scope()),
    };
    let unset = Unset {
        which,
        actor: &actor(request, wish),
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

/// Takes kept answers away. No process has to hear of it: each asks the ledger, call by call.
async fn purge(
    door: &Door,
    request: &Request<'_>,
    wish: &Wish,
    tenant: Option<&Label>,
) -> Result<Answer, Refusal> {
    let scope = wish.scope();
    let purge = Purge {
        tool: scope.tool.unwrap_or_default(),
        tenant: scope.tenant,
        actor: &actor(request, wish),
        note: wish.note(),
        in_tenant: tenant,
    };
    let acquired = door.pool.acquire().await;
    let silent = |error| DecisionError::from(StoreError::from_sqlx("purge answers", error));
    let mut connection = acquired.map_err(silent).map_err(Refusal::undecided)?;
    let purged = answers::purge(&mut connection, &purge).await;
    let purged = purged.map_err(Refusal::undecided)?;
    let Purged {
        answers,
        fetching,
        old,
    } = purged;
    Ok(Answer::json(format!(
        "{{\"result\":\"purged\",\"answers\":{answers},\"fetching\":{fetching},\"old\":{old}}}"
    )))
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
