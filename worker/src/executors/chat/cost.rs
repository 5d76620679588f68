//! What a reply has cost. Pure, and exact: whole numbers of the smallest part, no floats.

use fleet::manifest::RoutePrice;
use serde::Serialize;

use super::dialect::TokenUsage;

/// An amount of money as decimal text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ModelCost {
    pub(super) amount: String,
    pub(super) currency: String,
}

/// The cost of these tokens. `None`: a price cannot be read, which a manifest that was applied does not have.
pub(super) fn of(price: &RoutePrice, usage: &TokenUsage) -> Option<ModelCost> {
    let input = RoutePrice::billionths(&price.input)?;
    let of_part = |text: &Option<String>| match text {
        Some(text) => RoutePrice::billionths(text),
        None => Some(input),
    };
    let (cached, written) = (of_part(&price.cached_input)?, of_part(&price.cache_write)?);
    let output = RoutePrice::billionths(&price.output)?;
    let plain = usage
        .input
        .saturating_sub(usage.cached_input)
        .saturating_sub(usage.cache_write);
    // Billionths of a currency for a million tokens: less than 10^18, for counts of at most 3 × 10^12.
    let sum: u128 = [
        (plain, input),
        (usage.cached_input, cached),
        (usage.cache_write, written),
        (usage.output, output),
    ]
    .into_iter()
    .map(|(tokens, price)| u128::from(tokens) * u128::from(price))
    .sum();
    Some(ModelCost {
        amount: decimal(sum),
        currency: price.currency.clone(),
    })
}

/// A number of 10^-15 as decimal text, without zeros at its end.
fn decimal(parts: u128) -> String {
    const ONE: u128 = 1_000_000_000_000_000;
    let (whole, part) = (parts / ONE, parts % ONE);
    if part == 0 {
        return whole.to_string();
    }
    let part = format!("{part:015}");
    format!("{whole}.{}", part.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(cached_input: Option<&str>, cache_write: Option<&str>) -> RoutePrice {
        RoutePrice {
            currency: "USD".to_owned(),
            input: "2.50".to_owned(),
            cached_input: cached_input.map(str::to_owned),
            cache_write: cache_write.map(str::to_owned),
            output: "10".to_owned(),
        }
    }

    #[test]
    fn a_cost_is_exact() {
        let usage = |input, cached_input, cache_write, output| TokenUsage {
            input,
            cached_input,
            cache_write,
            output,
            reasoning: output / 2,
            estimated: false,
        };
        for (price, usage, amount) in [
            (price(None, None), usage(0, 0, 0, 0), "0"),
            (price(None, None), usage(1, 0, 0, 0), "0.0000025"),
            (price(None, None), usage(1000, 0, 0, 100), "0.0035"),
            (price(None, None), usage(1000, 900, 50, 0), "0.0025"),
            (
                price(Some("0.25"), Some("3.125")),
                usage(1000, 900, 50, 3),
                "0.00053625",
            ),
            (price(None, None), usage(400_000, 0, 0, 0), "1"),
            (
                price(Some("0.000000001"), None),
                usage(1, 1, 0, 0),
                "0.000000000000001",
            ),
            // A vendor that counts more in a part than in the whole does not make it negative.
            (price(None, None), usage(1, 2, 0, 0), "0.000005"),
            (
                RoutePrice {
                    input: "999999999.999999999".to_owned(),
                    ..price(None, None)
                },
                usage(3_000_000_000_000, 0, 0, 0),
                "2999999999999999.997",
            ),
        ] {
            let cost = of(&price, &usage).unwrap();
            assert_eq!(
                (cost.amount.as_str(), cost.currency.as_str()),
                (amount, "USD")
            );
        }
    }
}
