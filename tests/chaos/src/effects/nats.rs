//! NATS tools: a service in a queue group, as `docs/executors/nats.md` describes one.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context;
use async_nats::{Client, HeaderMap, Message};
use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::json;
use tokio_util::task::TaskTracker;

use super::{
    HUGE, SLOW,
    script::Says,
    service::{World, complain},
    told::Told,
};
use crate::login::Login;

/// Instances share the requests.
const GROUP: &str = "effects";
/// How long connecting may take, each time.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// The subjects that are listened to. Nothing listens to `tools.nats_nobody`.
const SUBJECTS: [&str; 3] = ["tools.nats_charge", "tools.nats_put", "tools.nats_look"];

/// Listens, and returns when requests arrive; what it returns serves them. It outlives every server: the client connects
/// again and again.
pub(super) async fn listen(
    world: Arc<World>,
    login: &Login,
) -> anyhow::Result<impl Future<Output = ()>> {
    let options = login
        .options()
        .name("chaos effects")
        .connection_timeout(CONNECT_MAX)
        .max_reconnects(None);
    let client = options
        .connect(&login.url)
        .await
        .context("connect to NATS")?;
    let mut requests = Vec::new();
    for subject in SUBJECTS {
        requests.push(client.queue_subscribe(subject, GROUP.to_owned()).await?);
    }
    client.flush().await?;
    Ok(async move {
        let mut requests = futures_util::stream::select_all(requests);
        let serving = TaskTracker::new();
        while let Some(request) = requests.next().await {
            let (world, client) = (Arc::clone(&world), client.clone());
            serving.spawn(async move {
                if let Err(problem) = serve(&world, &client, &request).await {
                    complain(&problem.context(format!("a request to {}", request.subject)));
                }
            });
        }
    })
}

async fn serve(world: &Arc<World>, client: &Client, request: &Message) -> anyhow::Result<()> {
    let name = request.subject.trim_start_matches("tools.");
    let told_headers = request.headers.as_ref();
    let header = |name: &str| {
        let value = told_headers?.get(name)?;
        Some(value.as_str().to_owned())
    };
    let mut told = Told::read(name, &request.payload, |fact| header(fact.header()))?;
    let inbox = request
        .reply
        .clone()
        .context("nobody waits for an answer")?;
    let deadline = header("Toolfleet-Deadline-Ms").context("it was not told its deadline")?;
    let deadline = Duration::from_millis(deadline.parse().context("read the deadline")?);
    // It may have been held in a wire for a while, and no worker waits for it any more.
    told.remaining = deadline.saturating_sub(since_1970());
    if told.remaining.is_zero() {
        return refuse(client, inbox, 503, "too late: nothing was done").await;
    }
    let says = world.act(&told)?.says;
    match says {
        Says::NotNow => return refuse(client, inbox, 503, "not now: nothing was done").await,
        Says::Nothing => return Ok(()),
        Says::DoneSlowly => tokio::time::sleep(SLOW).await,
        Says::Done | Says::No | Says::Broken | Says::End | Says::Garbage | Says::Huge => {}
    }
    world.replied(&told)?;
    let body = match says {
        Says::No => {
            return refuse(client, inbox, 422, "not on a Saturday; choose another day").await;
        }
        Says::Broken => return refuse(client, inbox, 500, "something broke").await,
        Says::Garbage => Bytes::from_static(b"{\"n\": "),
        Says::Huge => format!("\"{}\"", "x".repeat(HUGE)).into(),
        // A service has no connection that could end instead.
        Says::Done | Says::DoneSlowly | Says::NotNow | Says::Nothing | Says::End => {
            json!({ "n": told.n }).to_string().into()
        }
    };
    Ok(client.publish(inbox, body).await?)
}

async fn refuse(
    client: &Client,
    inbox: async_nats::Subject,
    code: u16,
    words: &str,
) -> anyhow::Result<()> {
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Service-Error", words);
    headers.insert("Nats-Service-Error-Code", code.to_string());
    Ok(client
        .publish_with_headers(inbox, headers, Bytes::new())
        .await?)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a service compares the deadline that it is told with its clock, which is in step with Postgres's"
)]
fn since_1970() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("it is after 1970")
}
