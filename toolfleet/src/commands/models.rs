//! `toolfleet models`.

use std::process::ExitCode;

use clap::ValueEnum;
use fleet::config::StoreArgs;
use fleet_history::{
    calls,
    models::{self, ModelSums, ModelsBy},
};

use super::{connect, moment::Moment, output};

/// What `models` is told.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "CALLS counts calls, and the other columns requests: a call has one for each route and attempt. FAILED does not count \
                  those of unknown end, which are under way or whose worker is gone. Times are milliseconds, of answered requests"
)]
pub struct Models {
    /// By what requests are added up
    #[arg(long, value_enum, default_value_t = By::Tool)]
    by: By,
    /// Requests since then: how long ago, such as 90s, 15m or 2h, or a moment such as 2026-11-23T08:00:00Z
    #[arg(long, value_name = "WHEN", default_value = "24h")]
    since: Moment,
    #[command(flatten)]
    store: StoreArgs,
    /// Print JSON: an array of `{"by", "calls", "requests", "failed", "unknown", "first_token_p50_ms", ..., "cost", "breakers"}`
    #[arg(long)]
    json: bool,
}

/// By what requests to models are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// The tool
    Tool,
    /// The route of a tool, with its model
    Route,
    /// The tenant
    Tenant,
    /// The run of a tenant
    Run,
    /// The day, by UTC
    Day,
}

impl By {
    const fn sums(self) -> ModelsBy {
        match self {
            Self::Tool => ModelsBy::Tool,
            Self::Route => ModelsBy::Route,
            Self::Tenant => ModelsBy::Tenant,
            Self::Run => ModelsBy::Run,
            Self::Day => ModelsBy::Day,
        }
    }

    /// The headings of what is added up by, with the names of its parts.
    const fn headings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Tool => &[("TOOL", "tool")],
            Self::Route => &[("TOOL", "tool"), ("ROUTE", "route"), ("MODEL", "model")],
            Self::Tenant => &[("TENANT", "tenant")],
            Self::Run => &[("TENANT", "tenant"), ("RUN", "run")],
            Self::Day => &[("DAY", "day")],
        }
    }

    const fn has_breakers(self) -> bool {
        matches!(self, Self::Tool | Self::Route)
    }
}

impl Models {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let pool = connect::reader(&self.store).await?;
        let since = self.since.at(calls::now(&pool).await?);
        let rows = models::sums(&pool, self.by.sums(), since).await?;
        let mut headings: Vec<&str> = self.by.headings().iter().map(|(name, _)| *name).collect();
        headings.extend([
            "CALLS",
            "REQUESTS",
            "FAILED",
            "UNKNOWN",
            "FIRST P50",
            "FIRST P95",
            "ALL P50",
            "ALL P95",
            "TOKENS IN",
            "TOKENS OUT",
            "COST",
        ]);
        if self.by.has_breakers() {
            headings.push("BREAKERS");
        }
        output::print_rows(&rows, self.json, &headings, |sums| cells(self.by, sums))
    }
}

fn cells(by: By, mut sums: ModelSums) -> Vec<String> {
    let none = || "-".to_owned();
    let millis = |time: Option<i64>| time.map_or_else(none, |time| time.to_string());
    let mut cells: Vec<String> = by
        .headings()
        .iter()
        .map(|(_, part)| sums.by.remove(*part).flatten().unwrap_or_else(none))
        .collect();
    // A guess among them makes the sum one.
    let about = if sums.estimated > 0 { "~" } else { "" };
    let costs = sums.cost.iter();
    let costs: Vec<String> = costs
        .map(|(currency, amount)| format!("{about}{amount} {currency}"))
        .collect();
    cells.extend([
        sums.calls.to_string(),
        sums.requests.to_string(),
        sums.failed.to_string(),
        sums.unknown.to_string(),
        millis(sums.first_token_p50_ms),
        millis(sums.first_token_p95_ms),
        millis(sums.run_p50_ms),
        millis(sums.run_p95_ms),
        format!("{about}{}", sums.input_tokens),
        format!("{about}{}", sums.output_tokens),
        if costs.is_empty() {
            none()
        } else {
            costs.join(", ")
        },
    ]);
    if by.has_breakers() {
        cells.push(match sums.breakers {
            None => none(),
            Some(closed) if closed.is_empty() => "closed".to_owned(),
            Some(others) => others.join(", "),
        });
    }
    cells
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_sum_reads_from_what_it_is_of_to_what_it_cost() {
        let sums = |more: Value| -> ModelSums {
            let mut sums = json!({
                "by": {"tool": "ask", "route": "main", "model": "large"}, "calls": 3, "requests": 5, "failed": 1, "unknown": 1,
                "first_token_p50_ms": null, "first_token_p95_ms": null, "run_p50_ms": 20, "run_p95_ms": 400,
                "input_tokens": 1000, "output_tokens": 50, "estimated": 0, "cost": {"EUR": "0.25", "USD": "1"}, "breakers": [],
            });
            for (name, value) in more.as_object().unwrap() {
                sums[name] = value.clone();
            }
            serde_json::from_value(sums).unwrap()
        };
        let guessed = json!({"estimated": 1, "cost": {"USD": "1"}, "breakers": ["http://a: open"]});
        let nothing = json!({"by": {"tenant": "acme", "run": null}, "cost": {}, "breakers": null});
        for (by, sums, line) in [
            (
                By::Route,
                sums(json!({})),
                "ask main large 3 5 1 1 - - 20 400 1000 50 0.25 EUR, 1 USD closed",
            ),
            (
                By::Tool,
                sums(guessed),
                "ask 3 5 1 1 - - 20 400 ~1000 ~50 ~1 USD http://a: open",
            ),
            (
                By::Tool,
                sums(json!({"breakers": null})),
                "ask 3 5 1 1 - - 20 400 1000 50 0.25 EUR, 1 USD -",
            ),
            (
                By::Run,
                sums(nothing),
                "acme - 3 5 1 1 - - 20 400 1000 50 -",
            ),
        ] {
            assert_eq!(cells(by, sums).join(" "), line);
        }
    }
}
