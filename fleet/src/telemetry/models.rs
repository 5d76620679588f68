//! What is measured of requests to models. No label has a word of a vendor's or a caller's: they are of manifests, and bounded.

use opentelemetry::{
    KeyValue,
    metrics::{Counter, Histogram, Meter},
};

use super::{
    definitions as define, fields,
    instruments::{counter, long_seconds, money, tokens},
    labels::{ModelLabels, word},
    spans::AskedModel,
};
use crate::store::model_calls::{EndedModelCall, SpentTokens};

/// Their instruments.
#[derive(Debug)]
pub(super) struct ModelMetrics {
    models: ModelLabels,
    tokens: Counter<u64>,
    cost: Counter<f64>,
    usage: Histogram<u64>,
    duration: Histogram<f64>,
}

impl ModelMetrics {
    pub(super) fn new(meter: &Meter) -> Self {
        Self {
            models: ModelLabels::default(),
            tokens: counter(meter, define::MODEL_TOKENS),
            cost: money(meter, define::MODEL_COST),
            usage: tokens(meter, define::GEN_AI_TOKEN_USAGE),
            duration: long_seconds(meter, define::GEN_AI_OPERATION_DURATION),
        }
    }

    /// A request is over; `route`: the labels of its tool and its route.
    pub(super) fn ended(
        &self,
        route: [KeyValue; 2],
        asked: &AskedModel<'_>,
        ended: &EndedModelCall,
    ) {
        let [operation, provider, model] = self.asked(asked);
        let took = ended.run.as_secs_f64();
        let code = ended
            .code
            .map(|code| word(fields::ERROR_TYPE, code.as_str()));
        match code {
            Some(code) => self
                .duration
                .record(took, &[operation, provider, model, code]),
            None => self.duration.record(took, &[operation, provider, model]),
        }
        if let Some(tokens) = &ended.tokens {
            self.spent(&route, asked, tokens);
        }
        if let Some((amount, currency)) = &ended.cost {
            let [tool, route] = route;
            let currency = KeyValue::new(fields::CURRENCY, currency.clone());
            // As well as a float can show it.
            let amount = amount.parse().unwrap_or(0.0);
            self.cost.add(amount, &[tool, route, currency]);
        }
    }

    fn spent(&self, route: &[KeyValue; 2], asked: &AskedModel<'_>, tokens: &SpentTokens) {
        let [tool, route] = route;
        for (kind, count) in [
            ("input", tokens.input),
            ("cached_input", tokens.cached_input),
            ("cache_write", tokens.cache_write),
            ("output", tokens.output),
            ("reasoning", tokens.reasoning),
        ] {
            let labels = [tool.clone(), route.clone(), word(fields::KIND, kind)];
            self.tokens.add(count, &labels);
        }
        for (kind, count) in [("input", tokens.input), ("output", tokens.output)] {
            let [operation, provider, model] = self.asked(asked);
            let kind = word(fields::GEN_AI_TOKEN_TYPE, kind);
            self.usage
                .record(count, &[operation, provider, model, kind]);
        }
    }

    fn asked(&self, asked: &AskedModel<'_>) -> [KeyValue; 3] {
        [
            word(fields::GEN_AI_OPERATION_NAME, fields::CHAT),
            word(fields::GEN_AI_PROVIDER_NAME, asked.provider),
            self.models.label(asked.model),
        ]
    }
}
