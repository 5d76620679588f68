//! Interceptors of a program's own: they may refuse a call or let it wait before anything runs, and change what is answered.
//!
//! Give one to [`Builder::interceptor`](crate::Builder::interceptor). It stands in front of every tool that the worker runs, in
//! the order that [`About`] says, and has three hooks:
//!
//! | hook | when | may |
//! |---|---|---|
//! | [`before`](Interceptor::before) | before the claim, ascending | let the call go on, refuse it, let it wait |
//! | [`after`](Interceptor::after) | when the tool has answered, descending | change the text of a result, or the message of a failure |
//! | [`ended`](Interceptor::ended) | when it is over and the worker's slot is free, descending | nothing: it hears what was recorded |
//!
//! The first that does not let a call go on stops it: the others never hear of it. What is known of a call's effect is not in
//! the hands of an interceptor: an attempt that may have had its effect stays one, whatever `after` does.
//!
//! A hook that panics or takes longer than its budget has failed. [`Fails`] says what becomes of the call then.

mod about;
mod answer;
mod carried;
mod view;

use std::time::Duration;

pub use fleet::{
    call::{Effect, State},
    ids::{CallId, Label, QueueName, ToolName},
    outcome::{Outcome, OutcomeWord, ToolFailure},
    wire::{code::Code, message::Message},
};

pub use self::{
    about::{About, Fails},
    answer::{Answer, Unchanged},
    carried::Carried,
    view::{CallView, EndedView},
};

/// A part of a program that stands in front of the tools of its worker. One value serves all calls, many of them at a time.
///
/// ```
/// use worker::interceptor::{About, CallView, Carried, Interceptor, Verdict};
///
/// /// Refuses transfers of more than a sum.
/// struct Ceiling {
///     cents: u64,
/// }
///
/// #[derive(serde::Deserialize)]
/// struct Transfer {
///     cents: u64,
/// }
///
/// impl Interceptor for Ceiling {
///     fn about(&self) -> About {
///         About::new("ceiling").order(200).mandatory()
///     }
///
///     async fn before(&self, call: &CallView<'_>, _carried: &mut Carried) -> Verdict {
///         if call.tool.as_str() != "transfer" {
///             return Verdict::Continue;
///         }
///         match call.arguments_as::<Transfer>() {
///             Ok(transfer) if transfer.cents <= self.cents => Verdict::Continue,
///             Ok(_) | Err(_) => Verdict::refuse("transfers of this size need an approval"),
///         }
///     }
/// }
/// ```
pub trait Interceptor: Send + Sync + 'static {
    /// Its name, its place and what becomes of calls when it fails. Asked once, when it is added.
    fn about(&self) -> About;

    /// Called for each message of a call that this worker could run, before the call is claimed: nothing has run, and whatever
    /// it says costs no attempt. A call that another worker claims first, or that waits, may be asked about more often than it
    /// is attempted.
    ///
    /// It must not block its thread: a budget can end what waits, and not what computes.
    fn before(
        &self,
        _call: &CallView<'_>,
        _carried: &mut Carried,
    ) -> impl Future<Output = Verdict> + Send {
        async { Verdict::Continue }
    }

    /// Called when the tool has answered, if [`Self::before`] was called. Not called where it did not answer: where it panicked,
    /// did not end in its time, or was never started.
    ///
    /// It holds the worker's slot. Where it fails, the answer stays as it was, whatever [`Fails`] says.
    fn after(
        &self,
        _call: &CallView<'_>,
        _carried: &mut Carried,
        _answer: &mut Answer,
    ) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Called when the call, or this attempt of it, is over, if [`Self::before`] was called; whatever it came to. The worker's
    /// slot is free by then. A few hundred of these run at a time; what comes beyond that is not told, and counted as an error.
    fn ended(
        &self,
        _call: &CallView<'_>,
        _carried: &mut Carried,
        _ended: &EndedView,
    ) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// What an interceptor says of a call before it runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It may go on.
    Continue,
    /// It ends as `forbidden`, whatever the code of the failure; its message is what the caller reads. Where an earlier attempt
    /// may have had its effect, the call is in doubt instead.
    Refuse(ToolFailure),
    /// It waits in the ledger, 100 ms to an hour, and is asked about again; its deadline goes on.
    Wait(Duration),
}

impl Verdict {
    /// Refuses the call with this sentence for its caller, in whatever language it is. It must not hold arguments or secrets.
    pub fn refuse(why: impl Into<String>) -> Self {
        let mut failure = ToolFailure::new(Code::Forbidden, Message::verbatim(""));
        // Cut when sensitive values are masked.
        failure.message = Message::verbatim(why.into());
        Self::Refuse(failure)
    }
}
