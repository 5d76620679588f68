//! The dispatcher's part: commits calls, publishes pointers, and answers when calls are completed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context;
use async_nats::{Client, Message, Subject, Subscriber};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::{
    batch, bus,
    store::{Arrived, Lane},
};

/// The dispatcher's connection and what it has taken on.
#[derive(Debug)]
pub struct Dispatcher {
    client: Client,
    calls: Subscriber,
    done: Subscriber,
    callers: Arc<Callers>,
}

/// The reply subject of each open call.
#[derive(Debug, Default)]
struct Callers(Mutex<HashMap<Uuid, Subject>>);

#[derive(Deserialize)]
struct Question<'a> {
    tenant: &'a str,
    tool: &'a str,
    key: &'a str,
    #[serde(borrow)]
    args: &'a RawValue,
}

#[derive(Deserialize)]
struct Done {
    call_id: Uuid,
}

impl Dispatcher {
    /// Subscribes to both of its subjects.
    ///
    /// # Errors
    ///
    /// NATS does not take a subscription.
    pub async fn new(client: Client) -> anyhow::Result<Self> {
        let calls = client.subscribe(bus::CALLS).await?;
        let done = client.subscribe(bus::DONE).await?;
        Ok(Self {
            client,
            calls,
            done,
            callers: Arc::default(),
        })
    }

    /// Its two halves, which run side by side until the subscriptions end.
    pub fn split(
        self,
        lane: Lane,
    ) -> (
        impl Future<Output = anyhow::Result<()>> + Send,
        impl Future<Output = anyhow::Result<()>> + Send,
    ) {
        let accepting = accept(
            self.client.clone(),
            self.calls,
            lane,
            Arc::clone(&self.callers),
        );
        (accepting, answer(self.client, self.done, self.callers))
    }
}

async fn accept(
    client: Client,
    mut calls: Subscriber,
    mut lane: Lane,
    callers: Arc<Callers>,
) -> anyhow::Result<()> {
    while let Some(batch) = batch::next(&mut calls).await {
        let mut arrived = Arrived::default();
        for message in &batch {
            let question: Question<'_> =
                serde_json::from_slice(&message.payload).context("read a call")?;
            arrived.ids.push(Uuid::now_v7());
            arrived.tenants.push(question.tenant);
            arrived.tools.push(question.tool);
            arrived.keys.push(question.key);
            arrived.args.push(question.args.get());
        }
        lane.accept(&arrived).await?;
        // Before the worker can report one of them as done.
        callers.remember(&arrived.ids, &batch);
        for call_id in arrived.ids {
            let subject = format!("{}.{}", bus::JOBS, call_id.as_simple());
            let pointer = Bytes::copy_from_slice(call_id.as_bytes());
            client.publish(subject, pointer).await?;
        }
    }
    anyhow::bail!("the subscription to calls ended")
}

async fn answer(client: Client, mut done: Subscriber, callers: Arc<Callers>) -> anyhow::Result<()> {
    while let Some(batch) = batch::next(&mut done).await {
        for message in batch {
            let done: Done = serde_json::from_slice(&message.payload).context("read an end")?;
            if let Some(caller) = callers.forget(done.call_id) {
                client.publish(caller, message.payload).await?;
            }
        }
    }
    anyhow::bail!("the subscription to what is done ended")
}

impl Callers {
    fn remember(&self, calls: &[Uuid], messages: &[Message]) {
        let mut callers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (call_id, message) in calls.iter().zip(messages) {
            if let Some(reply) = &message.reply {
                callers.insert(*call_id, reply.clone());
            }
        }
    }

    fn forget(&self, call_id: Uuid) -> Option<Subject> {
        let mut callers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        callers.remove(&call_id)
    }
}
