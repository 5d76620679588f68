//! What a tool has changed of its requests and replies, and the interceptors that do it.

use std::{
    borrow::Cow,
    collections::HashSet,
    sync::{Arc, Mutex},
};

use fleet::{
    call::Language,
    ids::Label,
    manifest::{ChatRoute, ContextSpec, Delegate, Manifest, TodoSpec, ToolSelection},
    modes::{Brake, InterceptMode},
    registry::Registry,
    store::{PgPool, todos},
    telemetry::report,
    todo::TodoItem,
};
use serde_json::{Map, Value};

use super::{
    super::{class::ModelReply, dialect::Dialect, estimate},
    ModelEdits,
    chain::EditChain,
    context::{Context, Summary},
    fleet_tools,
    hint::DelegationHint,
    interceptor::ModelRequest,
    log::Log,
    offer::{self, ToolOffer},
    rests::SummaryRests,
    summary::NeededSummary,
    todo::BEGINS,
    todo_list::TodoList,
    weighed::RequestWeights,
};
use crate::executors::AttemptContext;

/// What the manifest of a tool says.
pub(in super::super) struct EditSpecs {
    edits: Arc<ModelEdits>,
    registry: Registry,
    context: Option<ContextSpec>,
    delegates: Vec<Delegate>,
    tool_selection: Option<ToolSelection>,
    /// The tool, where the fleet adds tools to its requests.
    model: Option<Box<Manifest>>,
    todo: Option<TodoSpec>,
}

impl EditSpecs {
    pub(in super::super) fn of(
        manifest: &Manifest,
        edits: &Arc<ModelEdits>,
        registry: &Registry,
    ) -> Self {
        let selection = manifest.tool_selection.as_ref();
        let is_from_fleet = selection.is_some_and(ToolSelection::is_from_fleet);
        Self {
            model: is_from_fleet.then(|| Box::new(manifest.clone())),
            context: manifest.context.clone(),
            delegates: manifest.delegates.clone(),
            tool_selection: manifest.tool_selection.clone(),
            todo: manifest.todo,
            ..Self::none(edits, registry)
        }
    }

    /// Of requests that nothing changes.
    pub(in super::super) fn none(edits: &Arc<ModelEdits>, registry: &Registry) -> Self {
        Self {
            edits: Arc::clone(edits),
            registry: registry.clone(),
            context: None,
            delegates: Vec::new(),
            tool_selection: None,
            model: None,
            todo: None,
        }
    }

    /// Whether what is sent may be another request than the one that came.
    pub(in super::super) const fn are_any(&self) -> bool {
        self.context.is_some()
            || !self.delegates.is_empty()
            || self.tool_selection.is_some()
            || self.todo.is_some()
    }

    /// The interceptors of an attempt, with the modes that hold now.
    pub(in super::super) fn chain<'a>(&'a self, context: &'a AttemptContext) -> EditChain<'a> {
        let controls = self.registry.controls();
        EditChain::new(
            &self.edits.counts,
            controls.modes(),
            &context.tool,
            &context.tenant,
        )
    }

    /// The request as all routes get it.
    pub(in super::super) async fn of_call<'r>(
        &self,
        chain: &mut EditChain<'_>,
        dialect: &'static dyn Dialect,
        request: &'r Map<String, Value>,
        ledger: &PgPool,
        context: &AttemptContext,
    ) -> ModelRequest<'r> {
        let mut request = ModelRequest {
            dialect,
            original: request,
            members: Cow::Borrowed(request),
        };
        let language = context.language;
        let in_request = offer::in_request(dialect, request.original);
        // Vendors take tools in one of two forms, and the older one is the caller's alone.
        let of_fleet = match request.original.contains_key("functions") {
            true => Vec::new(),
            false => self.fleet_tools(&in_request, context),
        };
        if !self.delegates.is_empty() {
            let mut offered: HashSet<String> = in_request.iter().map(ToString::to_string).collect();
            if chain.mode(Brake::ToolSelection) == InterceptMode::Enforce {
                offered.extend(offer::names(dialect, &of_fleet).map(str::to_owned));
            }
            let edit = DelegationHint {
                delegates: &self.delegates,
                offered,
                language,
            };
            chain.before(&edit, &mut request, None);
        }
        if let Some(spec) = &self.tool_selection {
            let edit = ToolOffer {
                spec,
                of_fleet,
                hinted: chain.hinted().map(str::to_owned),
            };
            chain.before(&edit, &mut request, None);
        }
        if let (Some(_), Some(session), true) =
            (self.todo, &context.session, chain.is_on(Brake::Todo))
        {
            match todos::list(ledger, context.tenant.as_str(), session.as_str()).await {
                Ok(items) => chain.before(&todo_list(items, language), &mut request, None),
                Err(error) => {
                    tracing::warn!(error = report(&error), "a model was not told the todo list");
                }
            }
        }
        request
    }

    /// The definitions that the fleet adds.
    fn fleet_tools(&self, in_request: &HashSet<&str>, context: &AttemptContext) -> Vec<Value> {
        let Some(model) = &self.model else {
            return Vec::new();
        };
        let offered = self.registry.all_offered();
        let tools = offered.iter().map(|tool| &tool.manifest);
        fleet_tools::definitions(model, &context.tenant, tools, in_request)
    }

    /// Which tools write no summaries at present.
    pub(in super::super) fn rests(&self) -> &SummaryRests {
        &self.edits.rests
    }

    /// The conversation of a request on this route, if it needs a summary.
    pub(in super::super) fn needed_summary(
        &self,
        mode: InterceptMode,
        request: &ModelRequest<'_>,
        weights: &RequestWeights,
        route: &ChatRoute,
        tenant: &Label,
    ) -> Option<NeededSummary> {
        let spec = self.context.as_ref();
        let spec = spec.filter(|spec| mode != InterceptMode::Off && spec.strategy.has_summary())?;
        NeededSummary::of(
            &self.context(spec, request, weights, route, tenant),
            request,
        )
    }

    fn context<'s>(
        &self,
        spec: &'s ContextSpec,
        request: &ModelRequest<'_>,
        weights: &'s RequestWeights,
        route: &ChatRoute,
        tenant: &Label,
    ) -> Context<'s> {
        let answer = answer_tokens(request.dialect, &request.members);
        let room = route.context_tokens;
        Context {
            spec,
            room: room.map(|room| room.saturating_sub(answer)),
            ratio: self.edits.ratios.of(tenant, &route.target()),
            summary: None,
            no_summary: None,
            weights,
        }
    }

    /// The request as this route gets it.
    pub(in super::super) fn of_route<'r>(
        &self,
        chain: &mut EditChain<'_>,
        request: &'r ModelRequest<'_>,
        weights: &RequestWeights,
        route: &ChatRoute,
        summary: SummaryFound,
        context: &AttemptContext,
    ) -> ModelRequest<'r> {
        let mut request = ModelRequest {
            dialect: request.dialect,
            original: request.original,
            members: Cow::Borrowed(&*request.members),
        };
        if let Some(spec) = &self.context {
            let mut edit = self.context(spec, &request, weights, route, &context.tenant);
            match summary {
                SummaryFound::None => {}
                SummaryFound::Found(summary) => edit.summary = Some(summary),
                SummaryFound::Missing(why) => edit.no_summary = Some(why),
            }
            chain.before(&edit, &mut request, Some(&route.name));
        }
        chain.before(&log(context, route), &mut request, Some(&route.name));
        request
    }

    /// A route has replied.
    pub(in super::super) async fn replied(
        &self,
        chain: &mut EditChain<'_>,
        request: &ModelRequest<'_>,
        route: &ChatRoute,
        reply: &mut ModelReply,
        ledger: &PgPool,
        context: &AttemptContext,
    ) {
        let dialect = request.dialect;
        if self.context.is_some()
            && let Some(usage) = dialect.usage(&reply.object)
        {
            let sent = &request.members;
            let said = dialect.said().iter().filter_map(|name| sent.get(*name));
            let estimated = said.map(estimate::tokens).sum();
            self.edits
                .ratios
                .counted(&context.tenant, &route.target(), estimated, usage.input);
        }
        if let (Some(TodoSpec { directives: true }), Some(session)) = (self.todo, &context.session)
            && reply.raw.get().contains(BEGINS)
        {
            let (raw, object) = (reply.raw.clone(), reply.object.clone());
            let edit = todo_list(Vec::new(), context.language);
            chain.after(&edit, dialect, reply, &route.name);
            let changes = edit.take();
            if chain.mode(Brake::Todo) == InterceptMode::Enforce && !changes.is_empty() {
                let (tenant, session) = (context.tenant.as_str(), session.as_str());
                let writing = todos::write(ledger, tenant, session, context.call_id, &changes);
                if let Err(error) = writing.await {
                    tracing::warn!(
                        error = report(&error),
                        "a todo list was not written as its model said"
                    );
                    // What is not done stays in the text.
                    (reply.raw, reply.object) = (raw, object);
                    chain.undone(Brake::Todo);
                }
            }
        }
        chain.after(&log(context, route), dialect, reply, &route.name);
    }
}

fn todo_list(items: Vec<TodoItem>, language: Language) -> TodoList {
    TodoList {
        items,
        language,
        read: Mutex::default(),
    }
}

/// What there is of a summary.
pub(in super::super) enum SummaryFound {
    /// None is needed.
    None,
    Found(Summary),
    /// One is needed, and there is none, for this reason.
    Missing(&'static str),
}

fn log<'a>(context: &'a AttemptContext, route: &'a ChatRoute) -> Log<'a> {
    Log {
        tool: context.tool.as_str(),
        route: &route.name,
    }
}

/// How many tokens the request allows its answer.
fn answer_tokens(dialect: &dyn Dialect, request: &Map<String, Value>) -> u64 {
    let limits = dialect.answer_limits().iter();
    let mut limits = limits.filter_map(|name| request.get(*name)?.as_u64());
    limits.next().unwrap_or(0)
}
