//! Budgets at the gate: a call of a model ends before its claim where nothing is left of what its tool may spend. What is spent the
//! ledger says, of all workers; what is under way meanwhile is not counted yet.

use fleet::{
    ids::{CallId, ToolName},
    manifest::{Budget, ExecutorSpec, Manifest},
    outcome::ToolFailure,
    said,
    store::model_spend::{self, BudgetPart, ReachedBudget},
    telemetry::{metrics, report},
    wire::code::Code,
};
use serde_json::json;

use crate::{dispose::Skip, worker::WorkerProcess};

/// The budget that holds for calls of a tool: that of its newest version.
pub(crate) fn of<'a>(manifest: &'a Manifest, newest: Option<&'a Manifest>) -> Option<&'a Budget> {
    newest.unwrap_or(manifest).budget.as_ref()
}

/// In which currency it is; `None`: its routes have no prices.
fn currency(manifest: &Manifest) -> Option<&str> {
    let ExecutorSpec::Chat(spec) = &manifest.executor else {
        return None;
    };
    let price = spec.routes.iter().find_map(|route| route.price.as_ref())?;
    Some(&price.currency)
}

/// Why this call must not run; `None`: there is something left.
pub(crate) async fn refusal(
    worker: &WorkerProcess,
    call: CallId,
    manifest: &Manifest,
    newest: Option<&Manifest>,
) -> Result<Option<ToolFailure>, Skip> {
    let Some(budget) = of(manifest, newest) else {
        return Ok(None);
    };
    let currency = currency(newest.unwrap_or(manifest));
    match model_spend::reached(&worker.pool, call, budget, currency).await {
        Ok(Some(reached)) => {
            metrics().intercepted("budget", "refuse");
            Ok(Some(told(&reached, &manifest.name, currency)))
        }
        Ok(None) => Ok(None),
        Err(error) => {
            tracing::debug!(error = report(&error), "the budget was not asked");
            Err(Skip::StoreSilent)
        }
    }
}

/// As the caller and the history are told.
fn told(reached: &ReachedBudget, tool: &ToolName, currency: Option<&str>) -> ToolFailure {
    let ReachedBudget { part, spent, limit } = reached;
    let currency = currency.unwrap_or_default();
    let what = match part {
        BudgetPart::CallsPerRun => said!(
            "this run has made {spent} calls of {tool}, and may make {limit}",
            "这个 run 已经调用工具 {tool} {spent} 次，最多可以调用 {limit} 次"
        ),
        BudgetPart::TokensPerRun => said!(
            "calls of {tool} in this run have taken {spent} tokens, and may take {limit}",
            "这个 run 中工具 {tool} 的调用已经使用 {spent} 个 token，最多可以使用 {limit} 个"
        ),
        BudgetPart::CostPerRun => said!(
            "calls of {tool} in this run have cost {spent} {currency}, and may cost {limit}",
            "这个 run 中工具 {tool} 的调用已经花费 {spent} {currency}，最多可以花费 {limit}"
        ),
        BudgetPart::CostPerTenantDay => said!(
            "calls of {tool} have cost {spent} {currency} today, and may cost {limit} a day",
            "今天工具 {tool} 的调用已经花费 {spent} {currency}，每天最多可以花费 {limit}"
        ),
    };
    let mut details = json!({"budget": part, "spent": spent, "limit": limit});
    match part {
        BudgetPart::CallsPerRun | BudgetPart::TokensPerRun => {}
        BudgetPart::CostPerRun | BudgetPart::CostPerTenantDay => {
            details["currency"] = json!(currency);
        }
    }
    ToolFailure::new(Code::BudgetExceeded, what).with_details(details)
}

#[cfg(test)]
mod tests {
    use fleet::call::Language;

    use super::*;

    #[test]
    fn a_refusal_says_what_is_spent_in_both_languages() {
        let tool = "ask".parse().unwrap();
        for (part, english, chinese, details) in [
            (
                BudgetPart::CallsPerRun,
                "this run has made 7 calls of ask, and may make 5",
                "这个 run 已经调用工具 ask 7 次，最多可以调用 5 次",
                json!({"budget": "calls_per_run", "spent": "7", "limit": "5"}),
            ),
            (
                BudgetPart::TokensPerRun,
                "calls of ask in this run have taken 7 tokens, and may take 5",
                "这个 run 中工具 ask 的调用已经使用 7 个 token，最多可以使用 5 个",
                json!({"budget": "tokens_per_run", "spent": "7", "limit": "5"}),
            ),
            (
                BudgetPart::CostPerRun,
                "calls of ask in this run have cost 7 USD, and may cost 5",
                "这个 run 中工具 ask 的调用已经花费 7 USD，最多可以花费 5",
                json!({"budget": "cost_per_run", "spent": "7", "limit": "5", "currency": "USD"}),
            ),
            (
                BudgetPart::CostPerTenantDay,
                "calls of ask have cost 7 USD today, and may cost 5 a day",
                "今天工具 ask 的调用已经花费 7 USD，每天最多可以花费 5",
                json!({"budget": "cost_per_tenant_day", "spent": "7", "limit": "5", "currency": "USD"}),
            ),
        ] {
            let reached = ReachedBudget {
                part,
                spent: "7".to_owned(),
                limit: "5".to_owned(),
            };
            let failure = told(&reached, &tool, Some("USD"));
            assert_eq!(failure.code, Code::BudgetExceeded);
            assert_eq!(failure.message.english(), english);
            assert_eq!(failure.message.told(Language::Zh), chinese);
            assert_eq!(failure.details, Some(details));
        }
    }
}
