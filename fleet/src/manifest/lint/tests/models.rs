//! The arguments of models.

use serde_json::json;

use super::*;

#[test]
fn the_names_of_a_models_request_are_not_its_tools() {
    for protocol in ["openai_chat", "openai_responses", "anthropic"] {
        let routes = json!([{"name": "main", "url": "https://a.example/v1", "model": "m"}]);
        let text = json!({
            "name": "ask_model", "version": 1, "description": "Answers a conversation with a model.", "effect": "read",
            "executor": {"chat": {"protocol": protocol, "routes": routes}},
        });
        let manifest = parse(&text.to_string()).unwrap();
        let warnings = lint(&manifest);
        let wraps = |warning: &ManifestProblem| warning.message.contains("wrap all");
        assert!(!warnings.iter().any(wraps), "{protocol}: {warnings:?}");
    }
}
