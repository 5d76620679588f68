//! The tools that can be called.

use axum::{Extension, extract::State, response::Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::super::{
    frame::{Page, Place, Shown, framed},
    shown,
    state::{Console, Looking, Pages},
    text,
    visitor::Visitor,
    words,
};

/// A tool, as `GET /v1/tools` has it.
#[derive(Debug, Deserialize)]
struct ListedTool {
    name: String,
    version: i64,
    #[serde(default)]
    description: String,
    effect: String,
    queue: String,
    #[serde(default)]
    timeout_ms: Option<i64>,
    #[serde(default)]
    concurrency: Option<u32>,
    #[serde(default)]
    rate_limit: Option<ListedRate>,
}

/// How many attempts of a tool may start in a time, or with which others it shares that.
#[derive(Debug, Deserialize)]
struct ListedRate {
    calls: Option<u32>,
    per: Option<String>,
    burst: Option<u32>,
    by: Option<String>,
    share: Option<String>,
}

/// How a tool was used, as `GET /v1/usage` has it.
#[derive(Debug, Deserialize)]
struct Used {
    tool: String,
    calls: i64,
    succeeded: i64,
    p50_ms: Option<i64>,
    p95_ms: Option<i64>,
    changed: i64,
}

/// An MCP server with the tools that are its, as `GET /v1/servers` has it.
#[derive(Debug, Deserialize)]
struct Server {
    server: String,
    tools: Vec<ServedTool>,
}

#[derive(Debug, Deserialize)]
struct ServedTool {
    tool: String,
    pin: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Servers {
    servers: Vec<Server>,
}

#[derive(Debug, Deserialize)]
struct Usage {
    tools: Vec<Used>,
}

/// What holds calls of tools up at the moment.
#[derive(Debug, Default, Deserialize)]
struct HeldUp {
    #[serde(default)]
    controls: Vec<ToolControl>,
    #[serde(default)]
    breakers: Vec<ToolBreaker>,
}

#[derive(Debug, Deserialize)]
struct ToolControl {
    kind: String,
    tool: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ToolBreaker {
    tool: String,
    state: String,
}

impl HeldUp {
    /// As far as whoever looks may see it.
    async fn get(console: &Console, visitor: &Visitor) -> Self {
        let controls: Option<Self> = console.api.get(visitor, "/v1/control").await.ok();
        let breakers: Option<Self> = console.api.get(visitor, "/v1/breakers").await.ok();
        Self {
            controls: controls.unwrap_or_default().controls,
            breakers: breakers.unwrap_or_default().breakers,
        }
    }

    fn is_paused(&self, tool: &str) -> bool {
        let is_of = |control: &ToolControl| {
            control.kind == "pause" && control.tool.as_deref() == Some(tool)
        };
        self.controls.iter().any(is_of)
    }

    /// The state of its breaker that is not closed.
    fn breaker(&self, tool: &str) -> Option<&str> {
        let is_of = |breaker: &&ToolBreaker| breaker.tool == tool && breaker.state != "closed";
        self.breakers
            .iter()
            .find(is_of)
            .map(|breaker| breaker.state.as_str())
    }
}

#[derive(Debug, Deserialize)]
struct Tools {
    tools: Vec<ListedTool>,
}

/// The page.
pub(in super::super) async fn page(State(console): Pages, Extension(visitor): Looking) -> Response {
    let shown = shown(&console, &visitor).await;
    framed(&console, &visitor, shown).await
}

async fn shown(console: &Console, visitor: &Visitor) -> Shown {
    visitor.query(&[])?;
    let found: Tools = console.api.get(visitor, "/v1/tools").await?;
    // Who may not look at calls sees no numbers of them.
    let usage: Option<Usage> = console.api.get(visitor, "/v1/usage").await.ok();
    let used = usage.map(|usage| usage.tools).unwrap_or_default();
    let of = |tool: &ListedTool| used.iter().find(|used| used.tool == tool.name);
    // Callers do not see how a tool is run.
    let servers: Option<Servers> = match visitor.principal().is_of_all_tenants() {
        true => console.api.get(visitor, "/v1/servers").await.ok(),
        false => None,
    };
    let servers = servers.map(|servers| servers.servers).unwrap_or_default();
    let held_up = HeldUp::get(console, visitor).await;
    let heads = [
        words::TOOL,
        words::EFFECT,
        words::VERSION,
        words::QUEUE,
        words::CALLS,
        words::SUCCESS_RATE,
        words::LATENCY,
        words::LIMITS_WRITTEN,
        words::DESCRIPTION,
    ];
    let table = html! {
        table {
            thead { tr { @for head in heads { th scope="col" { (visitor.say(head)) } } } }
            tbody { @for tool in &found.tools { (row(visitor, tool, of(tool), &servers, &held_up)) } }
        }
    };
    let main = html! {
        p.hint { (visitor.say(words::USAGE_HINT)) }
        @if found.tools.is_empty() { p { (visitor.say(words::NO_TOOLS)) } }
        @else { (shown::wide(visitor.say(words::TOOLS), &table)) }
    };
    Ok(Page {
        place: Place::Tools,
        title: visitor.say(words::TOOLS).to_owned(),
        is_live: false,
        main,
    })
}

fn row(
    visitor: &Visitor,
    tool: &ListedTool,
    used: Option<&Used>,
    servers: &[Server],
    held_up: &HeldUp,
) -> Markup {
    let failed = used.map_or(0, |used| used.calls - used.succeeded);
    let served = servers.iter().find_map(|server| {
        let its = server.tools.iter().find(|its| its.tool == tool.name)?;
        Some((server, its))
    });
    let changed = used.map_or(0, |used| used.changed);
    html! {
        tr data-key=(tool.name) {
            td {
                a href=(visitor.link(&format!("/console/tools/{}", tool.name))) { (tool.name) }
                @if held_up.is_paused(&tool.name) { " " (shown::dotted("held", visitor.say(words::PAUSED))) }
                @if let Some(state) = held_up.breaker(&tool.name) { " " (shown::breaker(visitor, state)) }
                @if let Some((server, its)) = served {
                    div.why {
                        "MCP: " code { (text::stranger(&server.server)) }
                        @if changed > 0 { " " (visitor.say(words::NOT_AS_PINNED)) " " (changed) }
                        @else if its.pin.is_some() { " (" (visitor.say(words::PINNED)) ")" }
                    }
                }
            }
            td { span class={ "badge effect-" (tool.effect) } { (tool.effect) } }
            td.number { (tool.version) }
            td { code { (tool.queue) } }
            td.number { @if let Some(used) = used { (used.calls) } }
            td.number {
                @if let Some(used) = used { (used.succeeded * 100 / used.calls.max(1)) " %" }
                @if failed > 0 {
                    div { a href=(visitor.link(&format!("/console?state=failed&tool={}", tool.name))) { (shown::dotted("failed", visitor.say(words::FAILED))) } }
                }
            }
            td.number { @if let Some(Used { p50_ms: Some(half), p95_ms: Some(most), .. }) = used { (half) " / " (most) " ms" } }
            td.number {
                @if let Some(timeout) = tool.timeout_ms { (timeout) " ms" }
                @if let Some(most) = tool.concurrency { div { (most) " " (visitor.say(words::AT_A_TIME)) } }
                @if let Some(rate) = &tool.rate_limit {
                    @if let (Some(calls), Some(per)) = (rate.calls, &rate.per) { div { (calls) " / " (per) } }
                    @if let Some(burst) = rate.burst { div { code { "burst" } " " (burst) } }
                    @if let Some(by) = &rate.by { div { code { "by" } " " code { (text::stranger(by)) } } }
                    @if let Some(share) = &rate.share { div { code { (text::stranger(share)) } } }
                }
            }
            td { (text::beginning(&tool.description, 200)) }
        }
    }
}
