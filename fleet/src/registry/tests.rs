use serde_json::json;

use super::*;

#[test]
fn only_calls_of_the_newest_version_meet_a_breaker() {
    let registry = Registry(Arc::new(RwLock::new(Tools::default())));
    let look: ToolName = "look".parse().unwrap();
    let meets = |host: &str| registry.meets_breaker(&look, &format!("http://{host}"));
    let add = |version: i32, host: &str, has_breaker: bool| {
        let mut manifest = json!({
            "name": "look", "version": version, "description": "d", "effect": "read", "input_schema": {"type": "object"},
            "executor": {"http": {"method": "GET", "url": format!("http://{host}/")}},
        });
        if has_breaker {
            manifest["breaker"] = json!({});
        }
        registry.add(i64::from(version), &manifest.to_string());
    };
    assert!(!meets("a"), "there is no such tool");
    assert!(!registry.has_breakers());
    add(1, "a", true);
    assert_eq!((meets("a"), meets("b")), (true, false));
    assert!(registry.has_breakers());
    add(2, "b", true);
    assert_eq!((meets("a"), meets("b")), (false, true));
    registry.retire(3, "look", 2);
    assert!(!meets("b"), "it takes no calls");
    add(4, "b", false);
    assert!(!meets("b"), "it has no breaker");
    assert!(!registry.has_breakers());
}
