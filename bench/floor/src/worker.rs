//! The worker's part: pulls pointers, claims, runs a tool that does nothing, completes, and reports it.

use anyhow::Context;
use async_nats::{Client, Subject, Subscriber};
use bytes::Bytes;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::{
    batch, bus,
    store::{Claimed, Lane},
};

/// The tool's answer.
pub const RESULT: &str = r#"{"ok": true}"#;
const NAME: &str = "floor";
const ACK: Bytes = Bytes::from_static(b"+ACK");

/// The worker's connection and its slots.
#[derive(Debug)]
pub struct Worker {
    client: Client,
    pointers: Subscriber,
    pulls: Pulls,
}

/// Asks for as many pointers as there are free slots, in portions worth a message.
#[derive(Debug)]
struct Pulls {
    client: Client,
    inbox: Subject,
    slots: usize,
    /// Free and not yet asked for.
    free: usize,
}

impl Worker {
    /// A worker with twice as many slots as there are calls, so that slots that are not requested yet are never missed.
    ///
    /// # Errors
    ///
    /// NATS does not take the subscription.
    pub async fn new(client: Client, in_flight: usize) -> anyhow::Result<Self> {
        let inbox = client.new_inbox();
        let pointers = client.subscribe(inbox.clone()).await?;
        let slots = (2 * in_flight).max(64);
        let pulls = Pulls {
            client: client.clone(),
            inbox: inbox.into(),
            slots,
            free: slots,
        };
        Ok(Self {
            client,
            pointers,
            pulls,
        })
    }

    /// Its two halves, which run side by side until the subscription ends.
    pub fn split(
        self,
        claims: Lane,
        completions: Lane,
    ) -> (
        impl Future<Output = anyhow::Result<()>> + Send,
        impl Future<Output = anyhow::Result<()>> + Send,
    ) {
        let (ran, running) = mpsc::channel(self.pulls.slots);
        let claiming = claim(self.client.clone(), self.pointers, claims, ran);
        (
            claiming,
            complete(self.client, self.pulls, completions, running),
        )
    }
}

/// The result of running a call.
#[derive(Debug)]
struct Ran {
    call: Claimed,
    result: &'static str,
}

async fn claim(
    client: Client,
    mut pointers: Subscriber,
    mut lane: Lane,
    ran: mpsc::Sender<Ran>,
) -> anyhow::Result<()> {
    while let Some(batch) = batch::next(&mut pointers).await {
        let calls = batch
            .iter()
            .map(|message| Uuid::from_slice(&message.payload));
        let calls: Vec<Uuid> = calls.collect::<Result<_, _>>().context("read a pointer")?;
        let claimed = lane.claim(&calls, NAME).await?;
        for message in batch {
            let reply = message
                .reply
                .context("a pointer says not how to acknowledge")?;
            client.publish(reply, ACK).await?;
        }
        for call in claimed {
            let result = no_op(&call);
            ran.send(Ran { call, result }).await?;
        }
    }
    anyhow::bail!("the subscription to pointers ended")
}

/// The tool.
fn no_op(call: &Claimed) -> &'static str {
    std::hint::black_box((&call.tool, &call.args));
    RESULT
}

async fn complete(
    client: Client,
    mut pulls: Pulls,
    mut lane: Lane,
    mut running: mpsc::Receiver<Ran>,
) -> anyhow::Result<()> {
    pulls.ask().await?;
    let mut batch = Vec::new();
    let done = Subject::from_static(bus::DONE);
    while running.recv_many(&mut batch, batch::ROWS_MAX).await > 0 {
        let calls: Vec<Uuid> = batch.iter().map(|ran| ran.call.call_id).collect();
        let attempts: Vec<Uuid> = batch.iter().map(|ran| ran.call.attempt_id).collect();
        let results: Vec<&str> = batch.iter().map(|ran| ran.result).collect();
        lane.complete(&calls, &attempts, &results).await?;
        for (call_id, result) in calls.iter().zip(results) {
            let said =
                format!(r#"{{"call_id":"{call_id}","state":"succeeded","result":{result}}}"#);
            client.publish(done.clone(), Bytes::from(said)).await?;
        }
        pulls.freed(batch.len()).await?;
        batch.clear();
    }
    anyhow::bail!("nothing is claimed any more")
}

impl Pulls {
    async fn freed(&mut self, slots: usize) -> anyhow::Result<()> {
        self.free += slots;
        if self.free >= self.slots / 4 {
            self.ask().await?;
        }
        Ok(())
    }

    async fn ask(&mut self) -> anyhow::Result<()> {
        let request = format!(r#"{{"batch":{}}}"#, self.free);
        self.free = 0;
        let asking =
            self.client
                .publish_with_reply(bus::PULL, self.inbox.clone(), Bytes::from(request));
        asking.await.context("ask for pointers")
    }
}
