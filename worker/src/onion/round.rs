//! One call on its way through the interceptors of its worker, from the gate to its end.

use std::{sync::Arc, time::Duration};

use fleet::outcome::ToolFailure;
use tokio::time::Instant;

use super::{
    chain::Link,
    hearing::Hearing,
    hook::Hook,
    passage::{Passage, Subject},
};
use crate::interceptor::{Answer, Carried, EndedView, Fails, Verdict};

/// How long all hooks of one kind may take together: while they run, a call holds a slot, and after it has run its lease.
const TOGETHER_MAX: Duration = Duration::from_secs(10);
/// The bounds of what an interceptor may let a call wait.
const WAIT: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(3_600);

/// A call and the interceptors that it began with. Where it is dropped, those whose `before` was called hear its end.
#[derive(Debug)]
pub(crate) struct Round {
    /// Taken out where this is dropped.
    passage: Option<Passage>,
    hearing: Hearing,
}

/// Why a call does not go on.
#[derive(Debug)]
pub(crate) enum Stopped {
    Refused(ToolFailure),
    /// This interceptor lets it wait so long.
    Waits {
        interceptor: String,
        pause: Duration,
    },
    /// This interceptor has failed, and fails closed.
    Failed {
        interceptor: String,
    },
}

impl Round {
    pub(crate) fn new(chain: Arc<[Link]>, subject: Subject, hearing: Hearing) -> Self {
        Self {
            passage: Some(Passage {
                chain,
                called: 0,
                subject,
                carried: Carried::default(),
                ended: EndedView::NotStarted,
            }),
            hearing,
        }
    }

    fn passage(&mut self) -> &mut Passage {
        let passage = self.passage.as_mut();
        passage.expect("it is taken out where the round is dropped")
    }

    pub(crate) fn subject(&self) -> &Subject {
        let passage = self.passage.as_ref();
        let passage = passage.expect("it is taken out where the round is dropped");
        &passage.subject
    }

    /// Asks one after the other whether the call may go on, until one says that it may not.
    pub(crate) async fn before(&mut self) -> Result<(), Stopped> {
        let until = Instant::now() + TOGETHER_MAX;
        let passage = self.passage();
        while let Some(Link {
            active,
            is_observed,
        }) = passage.chain.get(passage.called)
        {
            passage.called += 1;
            let call = passage.subject.view();
            let hook = active.hooks.before(&call, &mut passage.carried);
            let verdict = active.timed(Hook::Before, until, hook).await;
            if let Ok(verdict) = &verdict {
                active.tally.said(&active.about.name, verdict);
            }
            if *is_observed {
                continue;
            }
            let interceptor = || active.about.name.clone();
            return Err(match (verdict, active.about.fails) {
                (Ok(Verdict::Continue), _) | (Err(_), Fails::Open) => continue,
                (Ok(Verdict::Refuse(failure)), _) => Stopped::Refused(failure),
                (Ok(Verdict::Wait(pause)), _) => Stopped::Waits {
                    interceptor: interceptor(),
                    pause: pause.clamp(*WAIT.start(), *WAIT.end()),
                },
                (Err(_), Fails::Closed) => Stopped::Failed {
                    interceptor: interceptor(),
                },
            });
        }
        Ok(())
    }

    /// The call is claimed: from now on it is over only when its attempt is recorded.
    pub(crate) fn began(&mut self, attempt: u32) {
        let passage = self.passage();
        passage.subject.attempt = attempt;
        passage.ended = EndedView::NotRecorded;
    }

    /// Lets each see what the tool answered, and change its words. Whether one has changed something.
    pub(crate) async fn after(&mut self, answer: &mut Answer) -> bool {
        let until = Instant::now() + TOGETHER_MAX;
        let passage = self.passage();
        let mut is_changed = false;
        for link in passage.chain[..passage.called].iter().rev() {
            let (active, call) = (&link.active, passage.subject.view());
            let hook = active.hooks.after(&call, &mut passage.carried, answer);
            let returned = active.timed(Hook::After, until, hook).await;
            let counts = returned.is_ok();
            if counts && answer.is_changed() {
                active.tally.changed(&active.about.name);
            }
            is_changed |= answer.returned(counts && !link.is_observed);
        }
        is_changed
    }

    /// What they hear when it is dropped.
    pub(crate) fn ended(&mut self, ended: EndedView) {
        self.passage().ended = ended;
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        let passage = self.passage.take();
        if let Some(passage) = passage.filter(|passage| passage.called > 0) {
            self.hearing.tell(passage);
        }
    }
}
