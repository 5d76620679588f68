//! Requests and answers in the Model Context Protocol, revision 2026-07-28: one message for each call.

use async_nats::HeaderMap;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Where a gateway takes messages.
pub(crate) const PATH: &str = "/mcp";

const VERSION: &str = "2026-07-28";
const METHOD: &str = "tools/call";
const KEY: &str = "Idempotency-Key";

#[derive(Serialize)]
struct CallMessage<'a> {
    jsonrpc: &'static str,
    id: u64,
    method: &'static str,
    params: CallParams<'a>,
}

#[derive(Serialize)]
struct CallParams<'a> {
    name: &'a str,
    arguments: &'a RawValue,
    #[serde(rename = "_meta")]
    meta: CallMeta<'a>,
}

#[derive(Serialize)]
struct CallMeta<'a> {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    version: &'static str,
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: NoCapabilities,
    #[serde(
        rename = "io.toolfleet/idempotency-key",
        skip_serializing_if = "Option::is_none"
    )]
    key: Option<&'a str>,
}

#[derive(Serialize)]
struct NoCapabilities {}

/// Makes a call a message: its key moves from the headers into the body, or is left out.
pub(crate) fn ask(number: u64, tool: &str, keys: bool, headers: &mut HeaderMap, body: &mut Bytes) {
    let mut kept = HeaderMap::new();
    let mut key = None;
    for (name, values) in headers.iter() {
        for value in values {
            match AsRef::<str>::as_ref(name) {
                KEY => key = Some(value.as_str()),
                "Prefer" => {}
                _other => kept.append(name.clone(), value.clone()),
            }
        }
    }
    let arguments = serde_json::from_slice(body).expect("arguments of a workload are JSON");
    let message = CallMessage {
        jsonrpc: "2.0",
        id: number,
        method: METHOD,
        params: CallParams {
            name: tool,
            arguments,
            meta: CallMeta {
                version: VERSION,
                capabilities: NoCapabilities {},
                key: key.filter(|_key| keys),
            },
        },
    };
    let message = serde_json::to_vec(&message).expect("a message has only string keys");
    kept.insert("Content-Type", "application/json");
    kept.insert("Accept", "application/json, text/event-stream");
    kept.insert("MCP-Protocol-Version", VERSION);
    kept.insert("Mcp-Method", METHOD);
    kept.insert("Mcp-Name", tool);
    *body = message.into();
    *headers = kept;
}

/// What an answer says of its call, as an envelope would; nothing where it is no result of a call.
pub(crate) fn answer(body: &[u8]) -> Bytes {
    #[derive(Deserialize)]
    struct Answered<'a> {
        #[serde(borrow)]
        result: CallResult<'a>,
    }
    #[derive(Deserialize)]
    struct CallResult<'a> {
        #[serde(rename = "_meta", borrow)]
        meta: Meta<'a>,
    }
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(rename = "io.toolfleet/call", borrow)]
        call: &'a RawValue,
    }

    let told: Option<Answered<'_>> = serde_json::from_slice(body).ok();
    let call = told.map(|told| told.result.meta.call.get().to_owned());
    Bytes::from(call.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_call_is_a_message_and_its_answer_says_what_it_came_to() {
        for keys in [true, false] {
            let mut headers = HeaderMap::new();
            headers.insert(KEY, "k1");
            headers.insert("Toolfleet-Priority", "high");
            let mut body = Bytes::from_static(b"{\"n\": 1.10}");
            ask(7, "bench_once", keys, &mut headers, &mut body);
            assert!(headers.get(KEY).is_none() && headers.get("Toolfleet-Priority").is_some());
            assert!(String::from_utf8_lossy(&body).contains("{\"n\": 1.10}"));
            let message: Value = serde_json::from_slice(&body).unwrap();
            let meta = &message["params"]["_meta"];
            assert_eq!(meta["io.toolfleet/idempotency-key"].is_null(), !keys);
            assert_eq!(message["id"], 7);
        }
        let body =
            json!({"result": {"_meta": {"io.toolfleet/call": {"id": "x", "state": "succeeded"}}}});
        assert_eq!(
            answer(body.to_string().as_bytes()),
            r#"{"id":"x","state":"succeeded"}"#
        );
        assert!(answer(br#"{"error": {"code": -32602}}"#).is_empty());
    }
}
