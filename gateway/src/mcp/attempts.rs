//! Submits a call until it is known which call the request is about: one of its own, or an earlier one that must not be made again.

use std::sync::Arc;

use bytes::Bytes;
use fleet::{
    ids::IdempotencyKey,
    wire::{code::Code, message::Message},
};
use fleet_client::{Answer, Question};
use serde_json::json;
use tokio::sync::oneshot;

use super::{
    derived_key::DerivedKey,
    earlier::{EarlierCall, NUMBERS, Placed, place},
    words::{self, FoundBy},
};
use crate::{
    answer::Glimpse,
    desk::CallDesk,
    headers::IDEMPOTENCY_KEY,
    refusal::{Refused, Repeatable},
    submit::{GONE, Submitted, cancel, submit_while, undecided},
    when_left::WhenLeft,
};

/// How often the earlier calls are looked at anew, where one of them ended between the look and the submission.
const LOOKS_MAX: usize = 3;

/// By which key a call is made.
#[derive(Debug, Clone)]
pub(super) enum CallKey {
    /// None: a read, or a tool whose keys the door makes.
    None,
    /// That of its client.
    Given(IdempotencyKey),
    /// One of those that are made of the request.
    Derived(DerivedKey),
}

impl CallKey {
    /// By what an earlier call would be found.
    pub(super) const fn found_by(&self) -> FoundBy {
        match self {
            Self::Given(_) => FoundBy::ItsKey,
            Self::None | Self::Derived(_) => FoundBy::ItsArguments,
        }
    }
}

/// The answer to a call. `body`: of the request, whose room the arguments take also where they are a copy. When this future is dropped, its
/// caller is gone: as soon as the call is known it becomes what `when_left` says. It is never cancelled because the gateway itself stops.
///
/// # Errors
///
/// No dispatcher answers, or the request has no number left.
pub(super) async fn answer(
    desk: Arc<CallDesk>,
    call: Submitted,
    key: CallKey,
    body: Bytes,
    when_left: WhenLeft,
) -> Result<Answer, Refused> {
    let (told, hears) = oneshot::channel();
    let task = Arc::clone(&desk);
    desk.tasks.spawn(async move {
        submit(&task, call, key, told, &when_left).await;
        // Until here its room is taken.
        drop(body);
    });
    let answered = hears.await;
    answered.unwrap_or_else(|_ended| Err(Refused::no_answer(Repeatable::Never)))
}

/// Runs in a task of its own, which outlives the request.
async fn submit(
    desk: &CallDesk,
    mut call: Submitted,
    key: CallKey,
    mut caller: oneshot::Sender<Result<Answer, Refused>>,
    when_left: &WhenLeft,
) {
    let answered = match key {
        CallKey::None => submit_while(desk, &call, &mut caller).await,
        CallKey::Given(key) => {
            call.headers.insert(IDEMPOTENCY_KEY.as_str(), key.as_str());
            submit_while(desk, &call, &mut caller).await
        }
        CallKey::Derived(key) => numbered(desk, &mut call, key, &mut caller, when_left).await,
    };
    let open = undecided(&answered);
    let is_gone = caller.send(answered).is_err();
    if let Some(id) = open
        && when_left.unwanted(&call.tenant, id, is_gone)
    {
        let principal = call.principal.as_deref();
        cancel(desk, &call.tenant, id, GONE, principal).await;
    }
}

/// Submits a call under the number that its earlier ones leave to it.
async fn numbered<T>(
    desk: &CallDesk,
    call: &mut Submitted,
    key: DerivedKey,
    caller: &mut oneshot::Sender<T>,
    when_left: &WhenLeft,
) -> Result<Answer, Refused> {
    let mut looks = 0;
    loop {
        looks += 1;
        let looked = tokio::select! {
            looked = look(desk, call, key) => looked?,
            // Nothing was submitted.
            () = when_left.given_up(caller) => return Err(Refused::no_answer(Repeatable::Always)),
            () = desk.stopping.cancelled() => return Err(about_to_stop()),
        };
        let earlier = match looked {
            Looked::At(earlier) => earlier,
            Looked::Refused(refusal) => return Ok(refusal),
        };
        let (number, is_known) = match place(&earlier) {
            Placed::New(number) => (number, false),
            // What it came to or comes to is the answer, also where somebody takes it back meanwhile: that was about this request, too.
            Placed::Replayed(number) | Placed::Attached(number) => (number, true),
            Placed::Nowhere => {
                let what = words::used_up(NUMBERS);
                return Err(
                    Refused::new(Code::IdempotencyKeyReused, what).of_tool(call.tool.as_str())
                );
            }
        };
        let key = key.numbered(number);
        call.headers.insert(IDEMPOTENCY_KEY.as_str(), key.as_str());
        let answer = submit_while(desk, call, caller).await?;
        let is_meant = is_known || looks == LOOKS_MAX || !is_over(&answer);
        if is_meant || when_left.is_given_up(caller) || desk.stopping.is_cancelled() {
            return Ok(answer);
        }
    }
}

fn about_to_stop() -> Refused {
    let what = Message::fixed("this gateway is about to stop", "这个网关即将停止");
    Refused::later(Code::Unavailable, what)
}

/// Whether an answer is that of an earlier call that has left its number to a new one.
fn is_over(answer: &Answer) -> bool {
    Glimpse::of(answer.bytes()).replayed
        && EarlierCall::of(answer.bytes()) == Some(EarlierCall::Undone)
}

/// What a look at the earlier calls found.
enum Looked {
    /// They are these, by their numbers.
    At(Vec<EarlierCall>),
    /// A dispatcher does not say.
    Refused(Answer),
}

/// Asks for the calls under all numbers at once.
async fn look(desk: &CallDesk, call: &Submitted, key: DerivedKey) -> Result<Looked, Refused> {
    let subject = desk.dispatchers.subjects().get(&call.tenant);
    let keys: Vec<IdempotencyKey> = (0..NUMBERS).map(|number| key.numbered(number)).collect();
    let body = json!({ "tool": call.tool, "idempotency_keys": keys });
    let question = Question::new(subject, body.to_string());
    let answer = desk.dispatchers.ask(question, Repeatable::Always).await?;
    let earlier = EarlierCall::of_keys(answer.bytes(), &keys);
    Ok(earlier.map_or(Looked::Refused(answer), Looked::At))
}
