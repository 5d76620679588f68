//! Takes a model call through its interceptors: those that operators have left it when it began.

use std::{
    borrow::Cow,
    panic::{AssertUnwindSafe, catch_unwind},
};

use fleet::{
    ids::{Label, ToolName},
    modes::{Brake, InterceptMode, Modes},
    telemetry::metrics,
};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    super::{class::ModelReply, dialect::Dialect},
    counts::{EditCounts, EditPassed, IN_ORDER},
    interceptor::{Edit, ModelInterceptor, ModelRequest},
};

/// The interceptors of one attempt. What operators change meanwhile does not reach it.
pub(in super::super) struct EditChain<'a> {
    counts: &'a EditCounts,
    tool: &'a ToolName,
    modes: [InterceptMode; IN_ORDER.len()],
    has_seen: [bool; IN_ORDER.len()],
    /// What they did, or would have done.
    edits: Vec<Value>,
}

impl<'a> EditChain<'a> {
    pub(in super::super) fn new(
        counts: &'a EditCounts,
        modes: &Modes,
        tool: &'a ToolName,
        tenant: &Label,
    ) -> Self {
        let now = Instant::now();
        Self {
            counts,
            tool,
            modes: IN_ORDER.map(|brake| modes.of_brake(brake, tool, Some(tenant), now)),
            has_seen: [false; IN_ORDER.len()],
            edits: Vec::new(),
        }
    }

    /// What an interceptor may do.
    pub(in super::super) fn mode(&self, brake: Brake) -> InterceptMode {
        let at = IN_ORDER.iter().position(|one| *one == brake);
        at.map_or(InterceptMode::Off, |at| self.modes[at])
    }

    /// Whether an interceptor has a say.
    pub(in super::super) fn is_on(&self, brake: Brake) -> bool {
        self.mode(brake) != InterceptMode::Off
    }

    /// What they did, as a result has it.
    pub(in super::super) fn into_done(self) -> Vec<Value> {
        self.edits
    }

    /// Lets an interceptor see a request. Where it panics the request leaves as it was.
    pub(in super::super) fn before(
        &mut self,
        interceptor: &dyn ModelInterceptor,
        request: &mut ModelRequest<'_>,
        route: Option<&str>,
    ) {
        let brake = interceptor.brake();
        let mode = self.mode(brake);
        if mode == InterceptMode::Off {
            return;
        }
        let began = Instant::now();
        let mut edited = ModelRequest {
            dialect: request.dialect,
            original: request.original,
            members: Cow::Borrowed(&*request.members),
        };
        let run = catch_unwind(AssertUnwindSafe(|| interceptor.before(&mut edited)));
        let (done, passed) = match run {
            Ok(done) => (done, matches!(edited.members, Cow::Owned(_))),
            Err(_panic) => return self.failed(brake, began),
        };
        let is_changed = passed && done.is_some();
        self.passed(brake, is_changed, began);
        if is_changed
            && mode == InterceptMode::Enforce
            && let Cow::Owned(members) = edited.members
        {
            request.members = Cow::Owned(members);
        }
        if let Some(done) = done {
            self.did(brake, mode, route, done);
        }
    }

    /// Lets an interceptor see a reply.
    pub(in super::super) fn after(
        &mut self,
        interceptor: &dyn ModelInterceptor,
        dialect: &dyn Dialect,
        reply: &mut ModelReply,
        route: &str,
    ) {
        let brake = interceptor.brake();
        let mode = self.mode(brake);
        if mode == InterceptMode::Off {
            return;
        }
        let began = Instant::now();
        let mut edited = Cow::Borrowed(&reply.object);
        let run = catch_unwind(AssertUnwindSafe(|| interceptor.after(dialect, &mut edited)));
        let Ok(done) = run else {
            return self.failed(brake, began);
        };
        let edited = match edited {
            Cow::Owned(edited) if done.is_some() => Some(edited),
            Cow::Owned(_) | Cow::Borrowed(_) => None,
        };
        self.passed(brake, edited.is_some(), began);
        if let Some(done) = done {
            self.did(brake, mode, Some(route), done);
        }
        if let Some(edited) = edited.filter(|_| mode == InterceptMode::Enforce) {
            reply.replace(edited);
        }
    }

    /// The request of this route was not sent.
    pub(in super::super) fn not_sent(&mut self, route: &str) {
        self.edits.retain(|edit| edit["route"] != route);
    }

    /// The tool that the model is told of.
    pub(super) fn hinted(&self) -> Option<&str> {
        let of = |edit: &&Value| {
            edit["interceptor"] == Brake::Delegation.as_str()
                && edit["mode"] == InterceptMode::Enforce.as_str()
        };
        self.edits.iter().find(of)?.get("tool")?.as_str()
    }

    /// What one was going to do last could not be done.
    pub(in super::super) fn undone(&mut self, brake: Brake) {
        let of = |edit: &Value| edit["interceptor"] == brake.as_str();
        if let Some(Value::Object(last)) = self.edits.iter_mut().rev().find(|edit| of(edit)) {
            last.insert("undone".to_owned(), json!(true));
        }
    }

    fn did(&mut self, brake: Brake, mode: InterceptMode, route: Option<&str>, done: Edit) {
        if mode == InterceptMode::Observe {
            metrics().observed(self.tool, brake);
        }
        let mut edit = Map::new();
        edit.insert("interceptor".to_owned(), json!(brake.as_str()));
        edit.insert("mode".to_owned(), json!(mode.as_str()));
        edit.extend(route.map(|route| ("route".to_owned(), json!(route))));
        edit.extend(done);
        self.edits.push(Value::Object(edit));
    }

    fn passed(&mut self, brake: Brake, is_changed: bool, began: Instant) {
        let passed = if is_changed {
            EditPassed::Changed
        } else {
            EditPassed::Unchanged
        };
        let is_new = self.is_new(brake);
        self.counts.passed(brake, passed, began.elapsed(), is_new);
    }

    fn failed(&mut self, brake: Brake, began: Instant) {
        let is_new = self.is_new(brake);
        self.counts
            .passed(brake, EditPassed::Failed, began.elapsed(), is_new);
        tracing::warn!(interceptor = brake.as_str(), tool = %self.tool, "an interceptor of a model call panicked; the request or the reply is as it was");
    }

    fn is_new(&mut self, brake: Brake) -> bool {
        let at = IN_ORDER.iter().position(|one| *one == brake);
        at.is_some_and(|at| !std::mem::replace(&mut self.has_seen[at], true))
    }
}
