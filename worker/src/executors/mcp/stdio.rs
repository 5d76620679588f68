//! Carries requests to a program over its standard input and output: one message a line, many requests at a time.
//!
//! `serving` reads what the program writes.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fleet::{
    outcome::ToolFailure,
    said,
    taken_back::TakenBack,
    wire::{code::Code, message::Message},
};
use secrecy::SecretString;
use tokio::{io::AsyncWriteExt, sync::oneshot, time::timeout};
use tokio_util::{sync::DropGuard, task::TaskTracker};

use super::{
    answer::before_anything,
    aside,
    came::{Came, CutOff},
    cut::AttemptEnd,
    hear::Hear,
    message::Request,
    serving::{Arrived, AwaitedAnswer, Serving, SharedProcess, Waits},
};
use crate::executors::{
    process::{GuardCommand, server::ServingProgram},
    resources::lacks_resources,
};

/// How long ending one may take: what a guard may, and a little.
const END_MAX: Duration = Duration::from_millis(2_950);

/// A program that serves. Dropping it ends it.
#[derive(Debug)]
pub(super) struct ServerProcess {
    shared: Arc<SharedProcess>,
    _end: DropGuard,
}

impl ServerProcess {
    /// Starts it. Only its guard is there when this returns.
    ///
    /// # Errors
    ///
    /// Nothing was started.
    pub(super) fn start(
        guard: &GuardCommand,
        command: &[String],
        env: &BTreeMap<String, SecretString>,
        stale: &Arc<AtomicBool>,
        tasks: &TaskTracker,
    ) -> Result<Arc<Self>, ToolFailure> {
        let started = ServingProgram::start(guard, command, env);
        let (program, stdin) = started.map_err(|error| {
            let lacking = lacks_resources(&error);
            let what = said!(
                "the guard of the MCP server could not be started: {error}",
                "MCP 服务器的守护进程无法启动：{error}"
            );
            ToolFailure::new(Code::Unavailable, what).taken_back(if lacking {
                TakenBack::NoResources
            } else {
                TakenBack::GuardFailed
            })
        })?;
        let shared = Arc::new(SharedProcess::new(stdin));
        let end = shared.end.clone().drop_guard();
        let serving = Serving {
            shared: Arc::clone(&shared),
            stale: Arc::clone(stale),
            tasks: tasks.clone(),
        };
        tasks.spawn(serving.serve(program));
        Ok(Arc::new(Self { shared, _end: end }))
    }

    /// Whether it takes requests.
    pub(super) fn is_open(&self) -> bool {
        !self.shared.is_closed.load(Ordering::Acquire)
    }

    /// Whether nobody waits for an answer of it.
    pub(super) fn is_idle(&self) -> bool {
        self.shared.waiting().is_empty()
    }

    /// Sends a request once and waits for its answer, until `cut` ends that.
    pub(super) async fn exchange(
        &self,
        request: &Request,
        limit: usize,
        cut: &AttemptEnd,
        hear: &Hear,
    ) -> Came {
        let (came, answer) = oneshot::channel();
        let waiting = AwaitedAnswer {
            came,
            limit,
            hear: hear.clone(),
        };
        self.shared.waiting().insert(request.id, waiting);
        let _waits = Waits {
            shared: &self.shared,
            id: request.id,
        };
        if !self.is_open() {
            return Came::NotSent(self.ended());
        }
        let told = cut.told();
        tokio::pin!(told);
        let mut stdin = tokio::select! {
            biased;
            why = &mut told => return Came::NotSent(before_anything(why)),
            stdin = self.shared.stdin.lock() => stdin,
        };
        // While it waited for its turn.
        if !self.is_open() {
            return Came::NotSent(self.ended());
        }
        let mut line = request.body.clone();
        line.push(b'\n');
        let written = tokio::select! {
            biased;
            written = stdin.write_all(&line) => written,
            // Half a line would spoil the next one.
            why = &mut told => {
                self.close();
                return Came::CutOff(why);
            }
            () = self.shared.end.cancelled() => Err(io::ErrorKind::BrokenPipe.into()),
        };
        drop(stdin);
        let heard = self.shared.heard.load(Ordering::Relaxed);
        if written.is_err() {
            self.close();
            return Came::NoAnswer(self.ended());
        }
        let arrived = tokio::select! {
            biased;
            arrived = answer => arrived,
            why = told => {
                if why == CutOff::TimedOut && heard == self.shared.heard.load(Ordering::Relaxed) {
                    // It may answer nothing any more: whoever comes next looks first.
                    hear.stale.store(true, Ordering::Release);
                }
                return Came::CutOff(why);
            }
        };
        match arrived {
            Ok(Arrived::Answer(answer)) => Came::Answer(answer),
            Ok(Arrived::TooLarge(skimmed, beginning)) => Came::TooLarge(skimmed, beginning),
            Ok(Arrived::Long(bytes)) => aside::read_answer(bytes, request.id).await,
            Err(_ended) => self.without_answer(),
        }
    }

    /// It ended. What was never started cannot have done anything.
    fn without_answer(&self) -> Came {
        let was_started = self.why().is_none();
        if was_started {
            Came::NoAnswer(self.ended())
        } else {
            Came::NotSent(self.ended())
        }
    }

    /// Sends a message that nobody answers, if that is possible at once.
    pub(super) async fn tell(&self, mut body: Vec<u8>) {
        body.push(b'\n');
        if self.is_open()
            && let Ok(mut stdin) = self.shared.stdin.try_lock()
            && timeout(Duration::from_millis(100), stdin.write_all(&body))
                .await
                .is_err()
        {
            self.close();
        }
    }

    /// Takes nothing new from now on, and ends.
    pub(super) fn close(&self) {
        self.shared.is_closed.store(true, Ordering::Release);
        self.shared.end.cancel();
    }

    /// Ends it, and waits until all its processes are gone; false: one may be left.
    pub(super) async fn end(&self) -> bool {
        self.close();
        let mut gone = self.shared.gone.subscribe();
        let known = timeout(END_MAX, gone.wait_for(Option::is_some)).await;
        matches!(known, Ok(Ok(gone)) if *gone == Some(true))
    }

    fn why(&self) -> Option<String> {
        self.shared.why().clone()
    }

    fn ended(&self) -> ToolFailure {
        let what = match self.why() {
            Some(why) => said!(
                "the MCP server was not started: {why}",
                "MCP 服务器没有启动：{why}"
            ),
            None => Message::fixed("the MCP server has ended", "MCP 服务器已经结束"),
        };
        ToolFailure::new(Code::Unavailable, what)
    }
}
