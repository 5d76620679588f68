//! How much the calls of a chat tool may spend: in a run of their caller, and of a tenant on a day.

use serde::{Deserialize, Serialize};

use super::{
    chat::{ChatSpec, RoutePrice},
    executor::ExecutorSpec,
    problem::Problems,
};

/// What may be spent before further calls end. Each part holds by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// How many calls of the tool a run may have of which a request has left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_per_run: Option<u64>,
    /// How many tokens they may take, read and written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_run: Option<u64>,
    /// How much they may cost, as decimal text in the currency of the routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_per_run: Option<String>,
    /// How much the calls of one tenant may cost on one day, by UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_per_tenant_day: Option<String>,
}

impl Budget {
    /// Whether runs are counted.
    pub const fn is_per_run(&self) -> bool {
        self.calls_per_run.is_some() || self.tokens_per_run.is_some() || self.cost_per_run.is_some()
    }

    /// Whether the days of tenants are counted.
    pub const fn is_per_day(&self) -> bool {
        self.cost_per_tenant_day.is_some()
    }

    /// Whether it can count what another model costs: it counts no costs, or that has prices in the currency of these routes.
    pub fn counts(&self, other: &ChatSpec, of: &ChatSpec) -> bool {
        let currency = |spec: &ChatSpec| {
            let prices = spec.routes.iter().map(|route| route.price.as_ref());
            let currencies = prices.map(|price| price.map(|price| price.currency.clone()));
            currencies.collect::<Vec<_>>()
        };
        let is_counted = self.cost_per_run.is_some() || self.cost_per_tenant_day.is_some();
        let own = currency(of).into_iter().flatten().next();
        !is_counted
            || currency(other)
                .into_iter()
                .all(|price| price.is_some() && price == own)
    }

    /// Everything that is wrong with the budget of a tool that is run so.
    pub(super) fn check_for(&self, executor: &ExecutorSpec, problems: &mut Problems) {
        let spec = match executor {
            ExecutorSpec::Chat(spec) => Some(spec),
            _other => None,
        };
        self.check(spec, problems);
    }

    /// Everything that is wrong with the budget of this tool. `None`: it is no model.
    fn check(&self, spec: Option<&ChatSpec>, problems: &mut Problems) {
        let Some(spec) = spec else {
            problems.add(
                "/budget",
                "what a call costs is known of a chat tool alone; leave budget out",
            );
            return;
        };
        for (field, amount) in [
            ("cost_per_run", &self.cost_per_run),
            ("cost_per_tenant_day", &self.cost_per_tenant_day),
        ] {
            let Some(amount) = amount else { continue };
            let place = format!("/budget/{field}");
            if RoutePrice::billionths(amount) == Some(0) {
                problems.add(
                    &*place,
                    "with nothing to spend every call would end; write more than 0, or pause the tool",
                );
            }
            currencies(&place, spec, problems);
        }
    }
}

/// A cost is counted where every route has a price, in one currency.
fn currencies(place: &str, spec: &ChatSpec, problems: &mut Problems) {
    let first = spec.routes.iter().find_map(|route| route.price.as_ref());
    for route in &spec.routes {
        let name = &route.name;
        match (&route.price, first) {
            (None, _) => problems.add(
                place,
                format!(
                    "route {name} has no price, so what it costs would not count; give it one, or leave this out"
                ),
            ),
            (Some(price), Some(first)) if price.currency != first.currency => problems.add(
                place,
                format!(
                    "route {name} costs {} and another one {}, which cannot be added up; write all prices in one currency",
                    price.currency, first.currency
                ),
            ),
            (Some(_), _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn problems(budget: &Value, prices: &[Value]) -> Vec<String> {
        let routes: Vec<Value> = prices
            .iter()
            .enumerate()
            .map(|(n, price)| {
                let mut route = json!({"name": format!("r{n}"), "url": "https://x/", "model": "m"});
                if !price.is_null() {
                    route["price"] = price.clone();
                }
                route
            })
            .collect();
        let spec = json!({"protocol": "anthropic", "routes": routes});
        let spec: ChatSpec = serde_json::from_value(spec).unwrap();
        let budget: Budget = serde_json::from_value(budget.clone()).unwrap();
        let mut found = Problems::default();
        budget.check(Some(&spec), &mut found);
        let found = found.found;
        found
            .iter()
            .map(|problem| format!("{} {}", problem.path, problem.message))
            .collect()
    }

    #[test]
    fn a_cost_needs_a_price_in_one_currency() {
        let price = |currency: &str| json!({"currency": currency, "input": "1", "output": "2"});
        let (usd, eur) = (price("USD"), price("EUR"));
        let of = |field: &str, amount: &str| json!({field: amount});
        for (budget, prices, begins) in [
            (
                of("cost_per_run", "1.5"),
                vec![usd.clone(), usd.clone()],
                None,
            ),
            (
                json!({"calls_per_run": 1, "tokens_per_run": 1}),
                vec![Value::Null],
                None,
            ),
            (
                of("cost_per_run", "1.5"),
                vec![usd.clone(), Value::Null],
                Some("/budget/cost_per_run route r1 has no price"),
            ),
            (
                of("cost_per_tenant_day", "1.5"),
                vec![usd.clone(), eur],
                Some("/budget/cost_per_tenant_day route r1 costs EUR and another one USD"),
            ),
            (
                of("cost_per_tenant_day", "0.000"),
                vec![usd],
                Some("/budget/cost_per_tenant_day with nothing to spend"),
            ),
        ] {
            let found = problems(&budget, &prices);
            match begins {
                None => assert!(found.is_empty(), "{found:?}"),
                Some(begins) => assert!(
                    found.len() == 1 && found[0].starts_with(begins),
                    "{found:?}"
                ),
            }
        }
    }
}
