//! The settings that decide how durable a message is.

use std::collections::BTreeMap;

use async_nats::jetstream::{self, stream::StorageType};
use fleet::bus::connect::Bus;
use serde_json::{Value, json};

/// The server's version, and how it stores the stream of pointers; unknown settings are left out.
pub(crate) async fn settings(bus: &Bus, is_its_own: bool) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    let mut note = |name: &str, value: Value| {
        found.insert(name.to_owned(), value);
    };
    note("version", json!(bus.client.server_info().version));
    let stream = bus.subjects.jobs_stream();
    if let Ok(stream) = jetstream::new(bus.client.clone()).get_stream(stream).await {
        let config = &stream.cached_info().config;
        let storage = match config.storage {
            StorageType::File => "file",
            StorageType::Memory => "memory",
        };
        note("storage", json!(storage));
        note("replicas", json!(config.num_replicas));
    }
    if is_its_own {
        // The bench's own configuration leaves this at its default; of another server only its operator knows.
        note("sync_interval", json!("2m"));
    }
    found
}
