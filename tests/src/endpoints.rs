//! The endpoints of a fleet's dispatchers, as NATS describes the service.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::Value;
use tokio::time::timeout;

use crate::fleet::Fleet;

/// How long a dispatcher may need to answer a question about itself.
const SILENCE: Duration = Duration::from_millis(200);

impl Fleet {
    /// How many dispatchers hear callers now: they answer the ping of NATS services.
    ///
    /// # Panics
    ///
    /// NATS is down.
    pub async fn dispatchers_heard(&self) -> usize {
        self.ask_dispatchers("$SRV.PING.toolfleet").await.len()
    }

    /// How many calls each dispatcher was asked for so far, as the statistics of NATS services say.
    ///
    /// # Panics
    ///
    /// NATS is down.
    pub async fn calls_heard(&self) -> Vec<u64> {
        let answers = self.ask_dispatchers("$SRV.STATS.toolfleet").await;
        let calls = answers.iter().map(|answer| {
            let endpoints = answer["endpoints"].as_array().into_iter().flatten();
            let call = endpoints.filter(|endpoint| endpoint["name"] == "call");
            call.filter_map(|endpoint| endpoint["num_requests"].as_u64())
                .sum()
        });
        calls.collect()
    }

    /// What each dispatcher answers as a NATS service, to `$SRV.STATS.toolfleet` for instance.
    ///
    /// # Panics
    ///
    /// NATS is down.
    pub async fn ask_dispatchers(&self, subject: &'static str) -> Vec<Value> {
        let inbox = self.client.new_inbox();
        let answers = self.client.subscribe(inbox.clone()).await;
        let mut answers = answers.expect("subscribe");
        let asking = self
            .client
            .publish_with_reply(subject, inbox, bytes::Bytes::new());
        asking.await.expect("ask");
        let mut heard = Vec::new();
        // The number of answers is unknown, so silence ends the wait.
        while let Ok(Some(answer)) = timeout(SILENCE, answers.next()).await {
            // The server itself answers when nothing is subscribed, with a status.
            if answer.status.is_none() {
                heard.push(serde_json::from_slice(&answer.payload).expect("an answer is JSON"));
            }
        }
        heard
    }
}
