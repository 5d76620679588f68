//! How an answer becomes a NATS message: its body, its error headers, and the statistics of the service.

use std::time::Duration;

use async_nats::{
    HeaderMap, PublishError,
    service::{Request as Message, error::Error as ServiceError},
};
use bytes::Bytes;
use fleet::bus::connect::Bus;
use tokio::time::timeout;

use crate::answer::Answer;

/// How long sending may take. While its connection is down, the client queues a bounded number of messages and then blocks for
/// ever.
const SEND_MAX: Duration = Duration::from_secs(5);

/// Sends an answer to its caller. Gives up after five seconds: a caller without an answer asks again.
pub(crate) async fn respond(bus: &Bus, request: &mut Message, answer: Answer) {
    // Most answers have none; empty headers are not sent.
    let mut headers = HeaderMap::new();
    for (name, value) in answer.headers {
        headers.insert(name, value.as_str());
    }
    let mut counted = None;
    if let Some((code, message)) = &answer.refused {
        let message: String = message
            .chars()
            .map(|c| match c {
                _ if c.is_control() => ' ',
                _ if c.is_ascii() => c,
                _ => '?',
            })
            .take(200)
            .collect();
        headers.insert("Nats-Service-Error", message.as_str());
        let number = code.status();
        headers.insert("Nats-Service-Error-Code", number.to_string().as_str());
        // Every client may read the statistics, so they contain the code and none of the caller's words.
        counted = Some(ServiceError {
            status: code.to_string(),
            code: usize::from(number),
        });
    }
    let responding = async {
        send(bus, request, answer.body, headers, counted).await?;
        if answer.held.is_some() {
            // The client takes thousands of messages before it waits for its connection: too many of this size.
            bus.client.flush().await?;
        }
        Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    };
    if !matches!(timeout(SEND_MAX, responding).await, Ok(Ok(()))) {
        tracing::debug!("an answer was not sent; the caller can ask again");
    }
}

/// Sends an answer, counted in the statistics of the service (`$SRV.STATS`): as an error where it is a refusal.
///
/// The library counts an error only with an answer that it sends itself, and that answer has no body. So the answer goes to the
/// caller from here, and the counted one to a subject without listeners.
async fn send(
    bus: &Bus,
    request: &mut Message,
    body: Bytes,
    headers: HeaderMap,
    refusal: Option<ServiceError>,
) -> Result<(), PublishError> {
    let Some(refusal) = refusal else {
        return request.respond_with_headers(Ok(body), headers).await;
    };
    let counted = bus.subjects.counted();
    let Some(reply) = request.message.reply.replace(counted.into()) else {
        return Ok(());
    };
    let client = &bus.client;
    client.publish_with_headers(reply, headers, body).await?;
    request.respond(Err(refusal)).await
}
