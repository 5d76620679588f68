//! What becomes of a call whose caller goes away before it is answered: it is cancelled, or it goes on until its caller says that it should
//! not.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fleet::ids::{CallId, Label};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// What becomes of a call whose caller goes away.
#[derive(Debug, Clone)]
pub(crate) enum WhenLeft {
    /// It is cancelled.
    Cancelled,
    /// It goes on. By the switch its caller cancels it, where it can say so.
    GoesOn(Option<Arc<CancelSwitch>>),
}

/// By what a caller that may be gone cancels its call.
#[derive(Debug, Default)]
pub(crate) struct CancelSwitch {
    pulled: CancellationToken,
    call: Mutex<SwitchedCall>,
}

#[derive(Debug, Default)]
struct SwitchedCall {
    is_pulled: bool,
    known: Option<OpenCall>,
}

/// A call that was open when it was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenCall {
    pub(crate) tenant: Label,
    pub(crate) call: CallId,
}

impl WhenLeft {
    /// Whether this open call is to be cancelled, now that it is known. `is_gone`: its caller is. Else who pulls the switch later
    /// cancels it.
    pub(crate) fn unwanted(&self, tenant: &Label, call: CallId, is_gone: bool) -> bool {
        match self {
            Self::Cancelled => is_gone,
            Self::GoesOn(switch) => {
                let call = || OpenCall {
                    tenant: tenant.clone(),
                    call,
                };
                switch.as_ref().is_some_and(|switch| switch.knows(call()))
            }
        }
    }

    /// The same of a call whose caller is gone.
    pub(crate) fn cancels(&self, tenant: &Label, call: CallId) -> bool {
        self.unwanted(tenant, call, true)
    }

    /// Waits until nobody wants a call any more that is not made yet.
    pub(crate) async fn given_up<T>(&self, caller: &mut oneshot::Sender<T>) {
        match self {
            Self::Cancelled => caller.closed().await,
            Self::GoesOn(None) => std::future::pending().await,
            Self::GoesOn(Some(switch)) => switch.pulled().await,
        }
    }

    /// Whether nobody wants it any more.
    pub(crate) fn is_given_up<T>(&self, caller: &oneshot::Sender<T>) -> bool {
        match self {
            Self::Cancelled => caller.is_closed(),
            Self::GoesOn(switch) => switch
                .as_ref()
                .is_some_and(|switch| switch.pulled.is_cancelled()),
        }
    }
}

impl CancelSwitch {
    /// Waits until the caller has cancelled its call.
    pub(crate) async fn pulled(&self) {
        self.pulled.cancelled().await;
    }

    /// Cancels. The call, where it is known: it is to be cancelled by who pulls; else by who gets to know it.
    pub(crate) fn pull(&self) -> Option<OpenCall> {
        let known = {
            let mut call = self.call();
            call.is_pulled = true;
            call.known.clone()
        };
        self.pulled.cancel();
        known
    }

    /// Notes the call; whether it was cancelled before.
    fn knows(&self, known: OpenCall) -> bool {
        let mut call = self.call();
        call.known = Some(known);
        call.is_pulled
    }

    fn call(&self) -> MutexGuard<'_, SwitchedCall> {
        self.call.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_cancelled_by_whoever_comes_second_the_switch_or_the_call() {
        let tenant: Label = "acme".parse().unwrap();
        let call = CallId::generate();
        let of = |switch: &Arc<CancelSwitch>| WhenLeft::GoesOn(Some(Arc::clone(switch)));
        let known_first = Arc::new(CancelSwitch::default());
        assert!(!of(&known_first).unwanted(&tenant, call, true));
        let open = OpenCall {
            tenant: tenant.clone(),
            call,
        };
        assert_eq!(known_first.pull(), Some(open));
        let pulled_first = Arc::new(CancelSwitch::default());
        assert_eq!(pulled_first.pull(), None);
        assert!(of(&pulled_first).unwanted(&tenant, call, false));
        // Without a switch nobody cancels it, and where hanging up does only who is gone.
        assert!(!WhenLeft::GoesOn(None).unwanted(&tenant, call, true));
        assert!(!WhenLeft::Cancelled.unwanted(&tenant, call, false));
        assert!(WhenLeft::Cancelled.cancels(&tenant, call));
    }

    #[tokio::test]
    async fn a_call_that_is_not_made_yet_is_given_up_as_one_that_is() {
        let (mut caller, hears) = oneshot::channel::<()>();
        drop(hears);
        let switch = Arc::new(CancelSwitch::default());
        let goes_on = WhenLeft::GoesOn(Some(Arc::clone(&switch)));
        assert!(WhenLeft::Cancelled.is_given_up(&caller));
        assert!(!goes_on.is_given_up(&caller));
        assert!(!WhenLeft::GoesOn(None).is_given_up(&caller));
        switch.pull();
        assert!(goes_on.is_given_up(&caller));
        goes_on.given_up(&mut caller).await;
        WhenLeft::Cancelled.given_up(&mut caller).await;
    }
}
