//! What a call of a turn came to, as its row says it: asked of the dispatchers, as any caller does.

use std::time::Duration;

use fleet::{
    delay::Reconnect,
    ids::{CallId, Label},
    wire::envelope::Envelope,
};
use fleet_client::Question;

use crate::{answer::Glimpse, ask::Dispatchers, refusal::Repeatable, speaker::FinalRow};

/// The longest pause before it is asked again.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How often it is asked.
const TRIES: u32 = 60;

/// What is known of a row at the moment.
enum LookedAt {
    Over(FinalRow),
    /// There is no such call.
    Nothing,
    /// It goes on, as far as is known, or nobody answers.
    NotYet,
}

/// The row of a call that is over; `None`: there is no such call, or nobody has answered for minutes. Asks until then, for what is told
/// should not depend on when it is told. Safe to drop.
pub(super) async fn row(
    dispatchers: &Dispatchers,
    tenant: &Label,
    call: CallId,
) -> Option<FinalRow> {
    let mut pauses = Reconnect::up_to(PAUSE_MAX);
    for _ in 0..TRIES {
        match look(dispatchers, tenant, call).await {
            LookedAt::Over(row) => return Some(row),
            LookedAt::Nothing => return None,
            LookedAt::NotYet => pauses.pause().await,
        }
    }
    None
}

/// The row of a call, if it is over now. Asks once.
pub(super) async fn row_if_over(
    dispatchers: &Dispatchers,
    tenant: &Label,
    call: CallId,
) -> Option<FinalRow> {
    match look(dispatchers, tenant, call).await {
        LookedAt::Over(row) => Some(row).filter(|row| row.state.is_terminal()),
        LookedAt::Nothing | LookedAt::NotYet => None,
    }
}

async fn look(dispatchers: &Dispatchers, tenant: &Label, call: CallId) -> LookedAt {
    let body = format!("{{\"call_id\":\"{call}\"}}");
    let question = Question::new(dispatchers.subjects().get(tenant), body);
    let Ok(answer) = dispatchers.ask(question, Repeatable::Always).await else {
        return LookedAt::NotYet;
    };
    let glimpse = Glimpse::of(answer.bytes());
    if glimpse.is_refused() && !glimpse.may_pass() {
        return LookedAt::Nothing;
    }
    let envelope = answer.read::<Envelope>().ok();
    match envelope.as_ref().and_then(FinalRow::of) {
        Some(row) => LookedAt::Over(row),
        None => LookedAt::NotYet,
    }
}
