//! A tool that is a model: its protocol, and the routes on which a request is tried.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{duration, origin::origin};
use crate::call::words;

words! {
    /// Whose requests and answers a chat tool speaks. Nothing is translated between them.
    ChatProtocol {
        /// OpenAI's Chat Completions, which many other servers speak too.
        OpenaiChat = "openai_chat",
        /// OpenAI's Responses.
        OpenaiResponses = "openai_responses",
        /// Anthropic's Messages.
        Anthropic = "anthropic",
    }
}

words! {
    /// What the model of a route cannot do.
    RouteLack {
        /// It calls no tools.
        Tools = "tools",
        /// It sees no images.
        Images = "images",
        /// It does not keep to a JSON Schema for its answer.
        Schema = "schema",
    }
}

/// A request to a model, tried on one route after the other within one attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatSpec {
    /// Whose requests and answers it speaks, on all routes.
    pub protocol: ChatProtocol,
    /// Where requests go, in the order in which that is tried.
    pub routes: Vec<ChatRoute>,
    /// Members of the request that hold where the caller's body has none of their name.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub defaults: Map<String, Value>,
    /// Members of the request that hold whatever the caller's body says.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub fixed: Map<String, Value>,
    /// Tools that the vendor may run by itself; any other of them refuses the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosted_tools: Vec<String>,
    /// How long the first chunk of a stream may take, from 100 ms to an hour.
    #[serde(with = "duration", default = "ChatSpec::default_first_token")]
    pub first_token: Duration,
    /// How long a stream may be silent between two chunks, from 100 ms to an hour.
    #[serde(with = "duration", default = "ChatSpec::default_idle")]
    pub idle: Duration,
}

impl ChatSpec {
    const fn default_first_token() -> Duration {
        Duration::from_secs(60)
    }

    const fn default_idle() -> Duration {
        Duration::from_secs(30)
    }
}

impl ChatSpec {
    /// What its routes depend on, each once.
    pub fn targets(&self) -> Vec<String> {
        let mut targets: Vec<String> = Vec::new();
        for target in self.routes.iter().map(ChatRoute::target) {
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
        targets
    }
}

/// One way to a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatRoute {
    /// What results and failures call it.
    pub name: String,
    /// Where its requests are posted; literal.
    pub url: String,
    /// The model that is asked for, whatever the caller's body says.
    pub model: String,
    /// Header values: text or `secret://NAME`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// How many tokens the model takes, its answer included. `None`: any request may be tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// What the model cannot do: requests that need it pass the route over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<RouteLack>,
    /// What its tokens cost. `None`: results say nothing of costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<RoutePrice>,
}

impl ChatRoute {
    /// What it depends on: a model at an origin. Failures are counted by it.
    pub fn target(&self) -> String {
        format!("{} {}", origin(&self.url), self.model)
    }
}

/// What a million tokens of each kind cost, as decimal text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutePrice {
    /// In which currency, such as `USD`.
    pub currency: String,
    /// Tokens that the model has read.
    pub input: String,
    /// Those of them that its vendor had kept. `None`: as the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input: Option<String>,
    /// Those of them that its vendor has kept for later. `None`: as the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<String>,
    /// Tokens that the model has written, its reasoning included.
    pub output: String,
}

impl RoutePrice {
    /// A price in billionths of its currency; `None` for what is no price: decimal text of at most nine digits before the point and
    /// nine behind it.
    pub fn billionths(text: &str) -> Option<u64> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |digits: &str| {
            (1..=9).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !is_number(whole) || !is_number(part) {
            return None;
        }
        format!("{whole}{part:0<9}").parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_read_to_the_last_digit() {
        for (text, billionths) in [
            ("0", Some(0)),
            ("2.50", Some(2_500_000_000)),
            ("0.075", Some(75_000_000)),
            ("0.000000001", Some(1)),
            ("999999999.999999999", Some(999_999_999_999_999_999)),
            ("15", Some(15_000_000_000)),
            ("", None),
            (".5", None),
            ("1.", None),
            ("1,5", None),
            ("-1", None),
            ("1e3", None),
            ("1.0000000001", None),
            ("1000000000", None),
            ("1.2.3", None),
            (" 1", None),
        ] {
            assert_eq!(RoutePrice::billionths(text), billionths, "{text}");
        }
    }
}
