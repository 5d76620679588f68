//! Has a summary of a conversation's beginning: the one that is kept, or one that a model writes now, within the attempt.
//!
//! It is asked for on the routes of the tool that writes summaries, one after the other, for at most half of the time that the attempt
//! has left and 30 s, and each request is on record like any other. Where there is none the call goes on without, and says why; then
//! that tool is not asked for half a minute.

use std::time::Duration;

use fleet::{
    manifest::ChatRoute,
    modes::{Brake, InterceptMode},
    store::summaries,
    telemetry::{metrics, report},
};
use serde_json::{Map, Value};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::{
    attempt::{ChatAttempt, Summarizer, tell},
    class::{JudgedAnswer, RouteAnswer, RouteVerdict},
    dialect::Finish,
    edits::{
        ASKED, EXPECTED, EditChain, FailedSummary, ModelRequest, NewSummary, RequestWeights,
        Summary, SummaryFound, words,
    },
    request,
    routes::{self, RouteNeeds},
};
use crate::{
    breaker::desk::RoutePassage,
    executors::{AttemptContext, redact::redact},
};

/// Members that a tool has for its own requests: nobody hears a summary, and it is a text.
const LEFT_OUT: [&str; 14] = [
    "stream",
    "stream_options",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "functions",
    "function_call",
    "response_format",
    "text",
    "system",
    "instructions",
    "web_search_options",
    "mcp_servers",
    "prompt",
];
/// How long one may take.
const TIME_MAX: Duration = Duration::from_secs(30);
/// An attempt that has less time left writes none.
const TIME_MIN: Duration = Duration::from_millis(200);

impl ChatAttempt {
    /// The summary with which a request goes on this route, where it needs one.
    pub(super) async fn summary(
        &self,
        chain: &EditChain<'_>,
        request: &ModelRequest<'_>,
        weights: &RequestWeights,
        route: &ChatRoute,
        context: &AttemptContext,
    ) -> SummaryFound {
        let mode = chain.mode(Brake::Context);
        let needed = self
            .edits
            .needed_summary(mode, request, weights, route, &context.tenant);
        let (Some(needed), Some(summarizer)) = (needed, &self.summarizer) else {
            return SummaryFound::None;
        };
        let (ledger, tenant, tool) = (&self.records.ledger, &context.tenant, &context.tool);
        let known = match summaries::longest(ledger, tenant, tool, &needed.hashes()).await {
            Ok(known) => known,
            Err(error) => {
                tracing::warn!(error = report(&error), "a summary was not looked for");
                return SummaryFound::Missing("no_ledger");
            }
        };
        if let Some(enough) = known.as_ref().and_then(|known| needed.enough(known)) {
            return SummaryFound::Found(enough);
        }
        let Some(new) = needed.next(known.as_ref(), request) else {
            return SummaryFound::Missing("too_short");
        };
        if mode != InterceptMode::Enforce {
            // Nothing is paid to observe: it is taken for as long as one may be, and is not sent.
            let bytes = usize::try_from(4 * EXPECTED).unwrap_or_default();
            return SummaryFound::Found(Summary {
                until: new.until,
                text: " ".repeat(bytes),
                is_new: true,
            });
        }
        let rests = self.edits.rests();
        let summarizer = match summarizer {
            Ok(summarizer) => summarizer,
            Err(why) => {
                let without = FailedSummary::Without(tenant.clone(), tool.clone());
                if rests.of(&without).is_none() {
                    tracing::warn!(%tool, why, "no tool can write the summaries of a tool's conversations, which go on without");
                    rests.begin(without, why);
                }
                return SummaryFound::Missing(why);
            }
        };
        let (by, of) = (
            FailedSummary::By(tenant.clone(), summarizer.tool.clone()),
            FailedSummary::Of(tenant.clone(), summarizer.tool.clone(), new.hash),
        );
        if let Some(why) = rests.of(&of).or_else(|| rests.of(&by)) {
            return SummaryFound::Missing(why);
        }
        let text = match Box::pin(summarizer.write(&new, context)).await {
            Ok(text) => text,
            Err(NoSummary::Unfit(why)) => {
                tracing::warn!(%tool, summary_tool = %summarizer.tool, why, "an answer was no summary; its conversation goes on without for ten minutes");
                rests.begin(of, why);
                return SummaryFound::Missing(why);
            }
            Err(NoSummary::Unanswered(why)) => {
                tracing::warn!(tool = %context.tool, summary_tool = %summarizer.tool, why, "a summary was not written; conversations go on without for half a minute");
                rests.begin(by, why);
                return SummaryFound::Missing(why);
            }
        };
        let kept = summaries::keep(ledger, tenant, tool, &new.hash, &text).await;
        let text = kept.unwrap_or_else(|error| {
            tracing::warn!(
                error = report(&error),
                "a summary was not kept, and is written again"
            );
            text
        });
        SummaryFound::Found(Summary {
            until: new.until,
            text: words(&text),
            is_new: true,
        })
    }
}

/// Why a summary was not written.
enum NoSummary {
    /// The tool could not.
    Unanswered(&'static str),
    /// What it has answered is none.
    Unfit(&'static str),
}

impl Summarizer {
    /// Has a model write one.
    async fn write(&self, new: &NewSummary, context: &AttemptContext) -> Result<String, NoSummary> {
        let left = context.until.saturating_duration_since(Instant::now()) / 2;
        let left = left.min(TIME_MAX);
        if left < TIME_MIN {
            return Err(NoSummary::Unanswered("no_time"));
        }
        let mut context = context.clone();
        context.until = Instant::now() + left;
        let question = self.attempt.dialect.question(ASKED, &new.transcript);
        let mut asked = request::request(&self.spec, self.attempt.dialect, &question)
            .map_err(|_refused| NoSummary::Unanswered("no_tool"))?;
        for member in LEFT_OUT {
            asked.remove(member);
        }
        // What the tool says to its own callers is none of a summary's.
        for member in self.attempt.dialect.said() {
            if let Some(own) = question.get(*member) {
                asked.insert((*member).to_owned(), own.clone());
            }
        }
        let needs = RouteNeeds::of(self.attempt.dialect, &asked);
        let mut why = "no_route";
        for ready in &self.attempt.routes {
            let route = &ready.route;
            if routes::skipped(route, &needs).is_some() {
                continue;
            }
            let passage = self.attempt.pass(&self.tool, route, &context.tenant);
            let RoutePassage::May(permit) = Box::pin(passage).await else {
                why = "breaker_open";
                continue;
            };
            // The row is the conversation's, and the route another tool's.
            let name = format!("{}/{}", self.tool, route.name);
            let beginning = self.attempt.records.begin_summary(route, &name, &context);
            let record = beginning
                .await
                .map_err(|_outcome| NoSummary::Unanswered("unrecorded"))?;
            let began = Instant::now();
            let hash = u32::from_be_bytes([new.hash[0], new.hash[1], new.hash[2], new.hash[3]]);
            let key = format!("summary/{hash:08x}/{}", route.name);
            let asking = self.attempt.ask(Some(&key), ready, &asked, true, &context);
            let exchange = asking.instrument(record.span.clone()).await;
            if let Some(permit) = permit {
                // A call that had little time left says nothing of the tool.
                let is_short = left < self.attempt.timeout.min(TIME_MAX) / 4;
                tell(permit, &exchange.answer, began, is_short, &context);
            }
            let (dialect, secrets) = (self.attempt.dialect, &self.attempt.sender.secrets);
            record.fill(dialect, &asked, &exchange, secrets).await;
            match exchange.answer {
                RouteAnswer::Over(_) => return Err(NoSummary::Unanswered("no_time")),
                RouteAnswer::Judged(JudgedAnswer::Failed(verdict, ..)) => {
                    if matches!(verdict, RouteVerdict::Misconfigured(_)) {
                        metrics().route_misconfigured(&self.tool, &route.name);
                    }
                    why = "no_answer";
                }
                RouteAnswer::Judged(JudgedAnswer::Reply(reply)) => {
                    return self.said(reply.object, new).map_err(NoSummary::Unfit);
                }
            }
        }
        Err(NoSummary::Unanswered(why))
    }

    /// What a reply says, if it is a summary.
    fn said(
        &self,
        mut reply: Map<String, Value>,
        new: &NewSummary,
    ) -> Result<String, &'static str> {
        match self.attempt.dialect.finish(&reply) {
            Finish::Stop => {}
            Finish::Refusal => return Err("refused"),
            Finish::Length => return Err("cut"),
            Finish::ToolCalls | Finish::Other => return Err("no_answer"),
        }
        let texts = self.attempt.dialect.own_texts(&mut reply);
        let texts: Vec<&str> = texts.iter().map(|text| text.as_str()).collect();
        let mut text = texts.join("\n");
        text = redact(&text, &self.attempt.sender.secrets).unwrap_or(text);
        new.written(&text)?;
        Ok(text)
    }
}
