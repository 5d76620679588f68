//! A stream whose messages are pulled, and that remembers which of them were handed out and not answered for.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
};

use async_nats::HeaderMap;
use bytes::Bytes;
use futures_util::StreamExt as _;
use shuttle::future::{spawn, yield_now};

use super::nats::{Client, Message, StatusCode, Subject, message};

#[derive(Debug, Clone)]
pub(crate) struct Stream {
    client: Client,
    held: Arc<Mutex<Held>>,
}

#[derive(Debug, Default)]
struct Held {
    waiting: VecDeque<u32>,
    /// Handed out, each time under another number.
    out: BTreeSet<(u32, u32)>,
    deliveries: u32,
    done: BTreeSet<u32>,
}

impl Stream {
    /// A stream with these messages, and the server that it is on.
    pub(crate) async fn start(client: Client, messages: u32) -> Self {
        let held = Held {
            waiting: (0..messages).collect(),
            ..Held::default()
        };
        let stream = Self {
            client: client.clone(),
            held: Arc::new(Mutex::new(held)),
        };
        let mut pulls = client
            .subscribe("$JS.API.CONSUMER.MSG.NEXT.*.*")
            .await
            .expect("it is there");
        let mut answers = client.subscribe("ANSWER.*.*").await.expect("it is there");
        let server = stream.clone();
        drop(spawn(async move {
            while let Some(pull) = pulls.next().await {
                drop(spawn(server.clone().serve(pull)));
            }
        }));
        let server = stream.clone();
        drop(spawn(async move {
            while let Some(answer) = answers.next().await {
                server.hear(&answer);
            }
        }));
        stream
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().expect("nobody yields while holding it")
    }

    /// Messages that are dealt with.
    pub(crate) fn done(&self) -> usize {
        self.held().done.len()
    }

    /// Messages that were handed to a subscription, which has not answered for them.
    pub(crate) fn unanswered(&self) -> usize {
        self.held().out.len()
    }

    /// Hands out what there is, up to what is asked for, then says that it is over.
    async fn serve(self, pull: Message) {
        let asked: serde_json::Value = serde_json::from_slice(&pull.payload).expect("JSON");
        let mut left = asked["batch"].as_u64().expect("a number");
        let inbox = pull.reply.expect("a pull names its inbox");
        let mut patience = 20;
        while left > 0 && patience > 0 {
            yield_now().await;
            if self.hand_out(&inbox) {
                left -= 1;
            } else {
                patience -= 1;
            }
        }
        if left == 0 {
            return;
        }
        let mut over = message(inbox, None, Bytes::new());
        over.status = Some(StatusCode::TIMEOUT);
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Pending-Messages", left.to_string().as_str());
        over.headers = Some(headers);
        self.client.hand_out(over);
    }

    fn hand_out(&self, inbox: &Subject) -> bool {
        let Some((number, delivery)) = self.take() else {
            return false;
        };
        let answer = format!("ANSWER.{number}.{delivery}");
        let body = Bytes::from(number.to_string());
        let heard = self
            .client
            .hand_out(message(inbox.clone(), Some(answer.into()), body));
        if !heard {
            // Lost on its way; the server would find out by time.
            let mut held = self.held();
            held.out.remove(&(number, delivery));
            held.waiting.push_back(number);
        }
        heard
    }

    fn take(&self) -> Option<(u32, u32)> {
        let mut held = self.held();
        let number = held.waiting.pop_front()?;
        held.deliveries += 1;
        let delivery = (number, held.deliveries);
        held.out.insert(delivery);
        Some(delivery)
    }

    fn hear(&self, answer: &Message) {
        let mut numbers = answer.subject.split('.').skip(1);
        let mut number = || numbers.next()?.parse().ok();
        let delivery = (number().expect("a number"), number().expect("a number"));
        let mut held = self.held();
        assert!(held.out.remove(&delivery), "answered for twice");
        if answer.payload.starts_with(b"+ACK") {
            held.done.insert(delivery.0);
        } else {
            held.waiting.push_back(delivery.0);
        }
    }
}
