//! The program that the calls of a worker share: which one serves now, with which secrets, and when it may be started again.

use std::{sync::Arc, time::Duration};

use fleet::{
    outcome::ToolFailure,
    said,
    taken_back::TakenBack,
    wire::{code::Code, message::Message},
};
use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;

use super::{
    serving::SharedProcess,
    stdio::ServerProcess,
    way::{ProgramEnv, ProgramWay},
};
use crate::programs::Programs;

/// The pause before a program is started again: it doubles with every end, up to the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// A program that lived for so long has not failed at its start.
const LIVED: Duration = Duration::from_secs(60);
/// How many programs of a server may live on for the calls that they have, beside the one that takes new ones.
const RETIRED_MAX: usize = 3;

/// The program of a server.
#[derive(Debug, Default)]
pub(super) struct SharedProgram {
    current: Option<CurrentProgram>,
    /// Programs that end with their last call: with other variables, or with a write that was taken back and may be done yet.
    retired: Vec<Retired>,
    rest: Rest,
}

#[derive(Debug)]
struct CurrentProgram {
    process: Arc<ServerProcess>,
    env: ProgramEnv,
    /// When the newest of the secrets were resolved that are the same as these.
    resolved_at: Instant,
    masked: Vec<SecretString>,
}

#[derive(Debug)]
struct Retired {
    process: Arc<SharedProcess>,
    masked: Vec<SecretString>,
}

/// What is to be done for a call.
pub(super) enum Serves {
    /// This one serves.
    Current(Arc<ServerProcess>),
    /// It is to be started.
    Start,
}

impl SharedProgram {
    /// Which program serves a call that is reached in this way. One with older secrets takes no new calls: it ends with its last one.
    ///
    /// # Errors
    ///
    /// It has ended too often, and rests; or too many go on for the calls that they have.
    pub(super) fn serves(
        &mut self,
        way: &ProgramWay,
        programs: Option<&Programs>,
    ) -> Result<Serves, ToolFailure> {
        self.retired.retain(|retired| !retired.process.is_gone());
        let Some(mut current) = self.current.take() else {
            return self.may_start(programs);
        };
        if !current.process.takes_calls() {
            // What the worker ended is no reason to rest.
            if current.process.has_failed() {
                self.rest.ended(current.process.ended());
            }
            self.retire(current);
            return self.may_start(programs);
        }
        if current.env == way.env {
            current.resolved_at = current.resolved_at.max(way.resolved_at);
        } else if way.resolved_at > current.resolved_at {
            self.retire(current);
            return self.may_start(programs);
        }
        let process = Arc::clone(&current.process);
        self.current = Some(current);
        Ok(Serves::Current(process))
    }

    /// It was started in this way; what `masked` has must not be told.
    pub(super) fn started(
        &mut self,
        process: Arc<ServerProcess>,
        way: &ProgramWay,
        masked: &[SecretString],
    ) {
        self.rest.started_at = Some(Instant::now());
        self.current = Some(CurrentProgram {
            process,
            env: way.env.clone(),
            resolved_at: way.resolved_at,
            masked: masked.to_vec(),
        });
    }

    /// What is known of the one that serves.
    pub(super) fn story(&self) -> Option<&SharedProcess> {
        let current = self.current.as_ref()?;
        Some(current.process.shared())
    }

    /// The secrets that an answer may have: those that its own attempt knows, and those of every program that still lives.
    pub(super) fn masks(&self, own: &[SecretString]) -> Vec<SecretString> {
        let mut all = own.to_vec();
        let retired = self.retired.iter().map(|retired| &retired.masked);
        for secret in self
            .current
            .iter()
            .map(|current| &current.masked)
            .chain(retired)
            .flatten()
        {
            let is_new = all
                .iter()
                .all(|known| known.expose_secret() != secret.expose_secret());
            if is_new {
                all.push(secret.clone());
            }
        }
        all
    }

    /// This one takes no new calls: it ends with its last one.
    pub(super) fn retires(&mut self, process: &Arc<ServerProcess>) {
        let is_current = |current: &mut CurrentProgram| Arc::ptr_eq(&current.process, process);
        if let Some(current) = self.current.take_if(is_current) {
            if current.process.has_failed() {
                self.rest.ended(current.process.ended());
            }
            self.retire(current);
        }
    }

    fn retire(&mut self, current: CurrentProgram) {
        self.retired.push(Retired {
            process: Arc::clone(current.process.shared()),
            masked: current.masked,
        });
    }

    /// Whether another one may be started now. Those that live on after a write that was taken back take slots for programs.
    fn may_start(&self, programs: Option<&Programs>) -> Result<Serves, ToolFailure> {
        self.rest.is_over()?;
        let has_slot = |retired: &Retired| {
            programs.is_none_or(|programs| retired.process.has_slot_of(programs))
        };
        if self.retired.len() <= RETIRED_MAX && self.retired.iter().all(has_slot) {
            return Ok(Serves::Start);
        }
        let what = Message::fixed(
            "the MCP server is started again when processes of it have ended that other calls still have",
            "MCP 服务器要等其他调用占用的旧进程结束后才会重新启动",
        );
        // Calls of others are the reason, so it costs a call no attempt: it waits.
        Err(ToolFailure::new(Code::Unavailable, what).taken_back(TakenBack::NoResources))
    }
}

/// How a program rests after its ends.
#[derive(Debug, Default)]
struct Rest {
    started_at: Option<Instant>,
    /// How often in a row it has ended soon.
    ends: u32,
    not_before: Option<Instant>,
    /// The last end.
    why: Option<ToolFailure>,
}

impl Rest {
    fn ended(&mut self, why: ToolFailure) {
        self.why = Some(why);
        let Some(started) = self.started_at.take() else {
            return;
        };
        self.ends = if started.elapsed() > LIVED {
            1
        } else {
            self.ends + 1
        };
        let pause = PAUSE_FIRST * 2_u32.saturating_pow((self.ends - 1).min(16));
        self.not_before = Some(Instant::now() + pause.min(PAUSE_MAX));
    }

    /// Whether the program may be started now: after an end it rests, and longer after each.
    fn is_over(&self) -> Result<(), ToolFailure> {
        let now = Instant::now();
        let left = self.not_before.map(|at| at.saturating_duration_since(now));
        match left.filter(|left| !left.is_zero()) {
            None => Ok(()),
            Some(left) => {
                let mut failure = self.why.clone().unwrap_or_else(|| {
                    let what = Message::fixed("the MCP server has ended", "MCP 服务器已经结束");
                    ToolFailure::new(Code::Unavailable, what)
                });
                let why = failure.message;
                failure.message = said!(
                    "{why}; it is started again after a pause",
                    "{why}；稍后会重新启动",
                    why
                );
                Err(failure.with_retry_after(Some(left)))
            }
        }
    }
}
