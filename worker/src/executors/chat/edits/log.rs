//! Logs what is sent to a model, and what came, without its content.

use std::borrow::Cow;

use fleet::modes::Brake;
use serde_json::{Map, Value};

use super::{
    super::{dialect::Dialect, estimate},
    interceptor::{Edit, ModelInterceptor, ModelRequest},
};

/// `log`, for one route.
pub(super) struct Log<'r> {
    pub(super) tool: &'r str,
    pub(super) route: &'r str,
}

impl ModelInterceptor for Log<'_> {
    fn brake(&self) -> Brake {
        Brake::Log
    }

    fn before(&self, request: &mut ModelRequest<'_>) -> Option<Edit> {
        if tracing::enabled!(tracing::Level::DEBUG) {
            let (dialect, members) = (request.dialect, &request.members);
            let count = |name: &str| {
                members
                    .get(name)
                    .and_then(Value::as_array)
                    .map_or(0, Vec::len)
            };
            let said = dialect.said().iter().filter_map(|name| members.get(*name));
            tracing::debug!(
                tool = self.tool,
                route = self.route,
                messages = count(dialect.messages()),
                tools = count("tools"),
                tokens = said.map(estimate::tokens).sum::<u64>(),
                "a request to a model"
            );
        }
        None
    }

    fn after(
        &self,
        dialect: &dyn Dialect,
        reply: &mut Cow<'_, Map<String, Value>>,
    ) -> Option<Edit> {
        tracing::debug!(
            tool = self.tool,
            route = self.route,
            finish = dialect.finish(reply).as_str(),
            "a reply of a model"
        );
        None
    }
}
