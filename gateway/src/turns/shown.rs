//! How calls of a tool are shown, as its manifest says it.

use std::collections::HashMap;

use fleet::{call::Language, store::PgPool, telemetry::report};
use fleet_history::tools;

use crate::speaker::{Shape, Visibility};
use crate::views::in_time;

/// How calls of a tool are shown.
#[derive(Debug, Clone)]
pub(super) struct ShownTool {
    pub(super) presents: Option<Shape>,
    pub(super) visibility: Visibility,
    pub(super) is_final: bool,
    pub(super) is_clients: bool,
    pub(super) language: Language,
    /// Whether some of what it is told, or says, is not to be seen.
    pub(super) is_sensitive: bool,
}

/// How calls of these tools are shown, of those that exist. Where the view cannot be read nothing is known: then they are shown as
/// any call.
pub(super) async fn shown(views: &PgPool, names: &[String]) -> HashMap<String, ShownTool> {
    let found = in_time(tools::presented(views, names)).await;
    let found = found.unwrap_or_else(|error| {
        tracing::warn!(error = report(&error), "how tools are shown cannot be read");
        Vec::new()
    });
    let shown = found.into_iter().map(|tool| {
        let visibility = match tool.visibility.as_deref() {
            Some("hidden") => Visibility::Hidden,
            _ => Visibility::Shown,
        };
        let presents = tool.presents.and_then(|word| {
            // A word of a later release is shown as any call.
            serde_json::from_value(word.into()).ok()
        });
        let shown = ShownTool {
            presents,
            visibility,
            is_final: tool.is_final,
            is_clients: tool.is_clients,
            language: tool
                .language
                .and_then(|word| word.parse().ok())
                .unwrap_or(Language::En),
            is_sensitive: tool.is_sensitive,
        };
        (tool.tool, shown)
    });
    shown.collect()
}
