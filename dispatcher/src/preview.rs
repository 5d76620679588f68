//! `admin.preview`: asks the tool that a manifest names under `approval.preview`, for who is about to decide about a call.
//!
//! It is asked when somebody looks, so a call about which nobody looks costs nothing, and an answer is as old as the look. What is
//! asked is an ordinary call of the waiting call's tenant that comes through the door like a caller's: the ledger has it, and pauses,
//! limits, quotas and interceptors hold for it. Its key is made of the waiting call, of what is asked and of the minute, so all who look
//! within that minute share one. The waiting call itself is only read: whatever becomes of the question, nobody is kept from deciding,
//! and nothing is decided by it.

use fleet::{
    call::{CallOutcome, Language, State},
    controls::{LazyArguments, PausedBy},
    ids::{CallId, Label, ToolName},
    manifest::PreviewSpec,
    registry::Tool,
    said,
    store::{
        approvals::{self, WaitingForYes},
        read::CallRow,
    },
    telemetry::report,
    wire::{code::Code, error::ErrorBody, message::Message},
};
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use tokio::time::Instant;

use crate::{
    accept,
    answer::Answer,
    door::Door,
    form,
    question::{self, About},
    refusal::Refusal,
    replay,
    request::Request,
};

/// How long its answer is waited for, in seconds. Later looks find it.
const WAIT_S: u32 = 10;
/// How long it may take.
const DEADLINE_MS: u128 = 60_000;
/// The most bytes of an answer that is shown whole, and the most characters of the beginning of another one.
const SHOWN_MAX: usize = 16 * 1024;
const START_MAX: usize = 8_000;

static FORM: Message = Message::fixed("call_id", "call_id");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PreviewRequest {
    call_id: String,
}

#[derive(Debug, Serialize)]
struct PreviewAnswer {
    call_id: CallId,
    /// `None`: the tool of the call has no preview.
    preview: Option<Preview>,
}

/// What came of asking.
#[derive(Debug, Serialize)]
struct Preview {
    tool: ToolName,
    /// The call that asks. `None`: it could not be asked.
    call_id: Option<CallId>,
    #[serde(with = "time::serde::rfc3339::option")]
    asked_at: Option<OffsetDateTime>,
    state: Option<State>,
    /// The answer, with its sensitive values masked; `None` where there is none, or where it is long.
    result: Option<Box<RawValue>>,
    /// The beginning of a long answer.
    start: Option<String>,
    error: Option<ErrorBody>,
    /// Why there is no answer.
    why: Option<String>,
}

/// Asks, and answers with what was said.
pub(crate) async fn preview(door: &Door, request: &Request<'_>) -> Result<Answer, Refusal> {
    let tenant = request.tenant()?;
    let asked: PreviewRequest = form::short(request.body, &FORM)?;
    let call = form::call_id(&asked.call_id)?;
    let waiting = approvals::waiting_for_yes(&door.pool, &tenant, call)
        .await
        .map_err(|error| Refusal::unreadable(&error))?;
    let Some(waiting) = waiting else {
        return Err(waits_no_more(&replay::find(door, call, &tenant).await?));
    };
    let newest = door.registry.current(&waiting.tool);
    let preview = match newest.as_ref().and_then(|tool| tool.manifest.preview()) {
        None => None,
        Some(spec) => Some(asked_for(door, &tenant, call, &waiting, spec).await),
    };
    let answer = PreviewAnswer {
        call_id: call,
        preview,
    };
    let text = serde_json::to_string(&answer).expect("an answer has only string keys");
    Ok(Answer::json(text))
}

fn waits_no_more(row: &CallRow) -> Refusal {
    let state = row.state();
    let what = said!(
        "the call does not wait for a decision any more: it is {state}",
        "这次调用已不再等待决定：状态是 {state}"
    );
    Refusal::new(Code::Conflict, what).with_details(|_| json!({ "state": state }))
}

/// Nothing that goes wrong is an error of the request: it is what is shown instead of the answer.
async fn asked_for(
    door: &Door,
    tenant: &Label,
    call: CallId,
    waiting: &WaitingForYes,
    spec: &PreviewSpec,
) -> Preview {
    let mut preview = Preview {
        tool: spec.tool.clone(),
        call_id: None,
        asked_at: None,
        state: None,
        result: None,
        start: None,
        error: None,
        why: None,
    };
    let asked = match ask(door, tenant, call, waiting, spec).await {
        Ok(asked) => asked,
        Err(why) => {
            preview.why = Some(why);
            return preview;
        }
    };
    preview.call_id = Some(asked);
    match replay::find(door, asked, tenant).await {
        Ok(row) => preview.says(door, &row),
        Err(refusal) => preview.why = Some(refusal.error(Language::En).message),
    }
    preview
}

/// Makes the call that asks, or finds the one that was made within this minute.
async fn ask(
    door: &Door,
    tenant: &Label,
    call: CallId,
    waiting: &WaitingForYes,
    spec: &PreviewSpec,
) -> Result<CallId, String> {
    let name = &spec.tool;
    let tool = door.registry.current(name);
    let tool = tool.ok_or_else(|| format!("its tool {name} is not there"))?;
    if !tool.manifest.may_probe() {
        return Err(format!(
            "its tool {name} is no read that workers run unasked any more"
        ));
    }
    let about = About {
        call_id: call,
        tool: &waiting.tool,
        tool_version: waiting.tool_version,
        tenant,
        args: &waiting.args,
    };
    let subject = question::subject(&door.pool, &about).await;
    let (subject, turn) = subject.map_err(|error| report(&error))??;
    let (made, _) = question::arguments("its", &spec.args, subject, turn).await?;
    // It would only wait, and with it whoever looks.
    if is_paused(door, tenant, &tool, &made) {
        return Err(format!("its tool {name} is paused"));
    }
    submit(door, tenant, call, waiting, &tool, &made).await
}

fn is_paused(door: &Door, tenant: &Label, tool: &Tool, made: &str) -> bool {
    let asked = PausedBy {
        tool: &tool.manifest.name,
        queue: &tool.manifest.queue,
        tenant,
        arguments: &LazyArguments::new(made),
    };
    let controls = door.registry.controls();
    controls.pause_of_accepted(&asked, Instant::now()).is_some()
}

/// As a caller of the tenant would, who wants a live answer.
async fn submit(
    door: &Door,
    tenant: &Label,
    call: CallId,
    waiting: &WaitingForYes,
    tool: &Tool,
    made: &str,
) -> Result<CallId, String> {
    let asked = Sha256::new()
        .chain_update(tool.manifest.name.as_str())
        .chain_update([0])
        .chain_update(waiting.minutes_left.to_be_bytes())
        .chain_update(made);
    let key = door
        .tokens
        .callers
        .preview_key(call, &asked.finalize().into());
    let prefer = format!("wait={WAIT_S}");
    let deadline = tool.manifest.deadline.as_millis().min(DEADLINE_MS);
    let deadline = deadline.to_string();
    let meta = json!({ "preview_of": call }).to_string();
    let request = Request {
        tenant: tenant.as_str(),
        name: tool.manifest.name.as_str(),
        headers: vec![
            ("Idempotency-Key", &key),
            ("Prefer", &prefer),
            ("Toolfleet-Deadline-Ms", &deadline),
            ("Toolfleet-Priority", "high"),
            ("Toolfleet-Meta", &meta),
            ("Cache-Control", "no-store"),
        ],
        body: made.as_bytes(),
        inbox: None,
    };
    let answer = accept::accept(door, &request).await;
    let answer = answer.map_err(|refusal| refusal.error(Language::En).message)?;
    answer
        .call
        .ok_or_else(|| "the door did not say which call asks".to_owned())
}

impl Preview {
    /// Takes over what the call that asks has come to.
    fn says(&mut self, door: &Door, row: &CallRow) {
        self.asked_at = Some(row.accepted_at);
        self.state = Some(row.state());
        let envelope = match row.envelope(false) {
            Ok(envelope) => envelope,
            Err(error) => {
                self.why = Some(report(&error));
                return;
            }
        };
        let Some(envelope) = envelope else {
            self.why = Some(format!("it has not answered within {WAIT_S} seconds"));
            return;
        };
        // An answer that stands in for that of the tool shows nothing of now.
        if envelope.outcome != CallOutcome::Success {
            self.why = Some(match &envelope.error {
                Some(error) => error.message.clone(),
                None => "the tool could not answer".to_owned(),
            });
            self.error = envelope.error;
            return;
        }
        let sensitive = door
            .registry
            .version(&self.tool, row.tool_version)
            .map(|tool| tool.manifest.sensitive.clone());
        let text = envelope.result.as_ref().map_or("null", |text| text.get());
        let shown = match sensitive {
            Some(None) => text.to_owned(),
            Some(Some(sensitive)) => sensitive.masked(text),
            None => {
                self.why =
                    Some("which of its values are sensitive is not known here yet".to_owned());
                return;
            }
        };
        if shown.len() <= SHOWN_MAX {
            self.result = RawValue::from_string(shown).ok();
        } else {
            self.start = Some(shown.chars().take(START_MAX).collect());
        }
    }
}
