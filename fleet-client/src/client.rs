//! A client: one connection, one inbox, any number of requests at a time.

use std::sync::Arc;

use async_nats::{Client, Subscriber};
use fleet::{bus::connect::Bus, wire::subjects::Subjects};
use futures_util::StreamExt;
use tokio::{task::JoinSet, time::timeout};

use crate::{
    answer::Answer,
    error::AskError,
    inbox::{Inbox, is_no_responders},
    question::Question,
    waiting::Waiting,
};

/// Asks the dispatchers of one fleet. Cheap to clone; dropping the last clone ends the subscription.
#[derive(Debug, Clone)]
pub struct FleetClient(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    client: Client,
    subjects: Subjects,
    inbox: Inbox,
    waiting: Arc<Waiting>,
    /// Knows the server's refusals, where the connection is the fleet's own.
    bus: Option<Bus>,
    /// Hands out answers, until this is dropped.
    _answers: JoinSet<()>,
}

impl FleetClient {
    /// A client on a connection that the fleet's own code made.
    ///
    /// # Errors
    ///
    /// [`AskError::Closed`].
    pub async fn of(bus: &Bus) -> Result<Self, AskError> {
        Self::open(&bus.client, bus.subjects.clone(), Some(bus.clone())).await
    }

    /// A client on any connection. Unlike with [`FleetClient::of`], a question that the server does not allow simply gets no
    /// answer.
    ///
    /// # Errors
    ///
    /// [`AskError::Closed`].
    pub async fn over(client: &Client, subjects: Subjects) -> Result<Self, AskError> {
        Self::open(client, subjects, None).await
    }

    async fn open(client: &Client, subjects: Subjects, bus: Option<Bus>) -> Result<Self, AskError> {
        let (inbox, answers) = Inbox::open(client).await?;
        let waiting = Arc::<Waiting>::default();
        let mut router = JoinSet::new();
        router.spawn(hand_out(answers, Arc::clone(&waiting)));
        Ok(Self(Arc::new(Shared {
            client: client.clone(),
            subjects,
            inbox,
            waiting,
            bus,
            _answers: router,
        })))
    }

    /// The subjects of its fleet.
    pub fn subjects(&self) -> &Subjects {
        &self.0.subjects
    }

    /// The connection.
    pub fn connection(&self) -> &Client {
        &self.0.client
    }

    /// How many requests wait for their answers at this moment.
    pub fn waiting(&self) -> usize {
        self.0.waiting.len()
    }

    /// Sends a question and waits for its answer, as long as the question says.
    ///
    /// Dropping the future gives up the answer and leaves nothing behind; the fleet may have accepted the request.
    ///
    /// # Errors
    ///
    /// No answer came; [`AskError`] says whether the request may have been accepted.
    pub async fn ask(&self, question: Question) -> Result<Answer, AskError> {
        let Question {
            subject,
            headers,
            body,
            patience,
        } = question;
        let Shared { client, inbox, .. } = &*self.0;
        let mut waiter = self.0.waiting.enter()?;
        let reply = inbox.address(waiter.token());
        let denied = self.denied(&subject);
        // Around sending too: while its connection is down, the client queues a bounded number of messages and then blocks.
        let answered = timeout(patience, async {
            let to = subject.clone();
            let sent = if headers.is_empty() {
                client.publish_with_reply(to, reply, body).await
            } else {
                client
                    .publish_with_reply_and_headers(to, reply, headers, body)
                    .await
            };
            sent.map_err(|problem| AskError::Unsent(problem.into()))?;
            tokio::select! {
                biased;
                answered = waiter.answered() => answered,
                what = denied => Err(AskError::Denied { what }),
            }
        });
        match answered.await {
            Ok(Ok(message)) if is_no_responders(&message) => {
                Err(AskError::NoResponders { subject })
            }
            Ok(answered) => answered.map(Answer::from),
            Err(_elapsed) => Err(AskError::NoAnswer { waited: patience }),
        }
    }

    /// Waits until the server says that it does not allow a question: that gets no answer. Heard from the call on, not from the first poll;
    /// what it said of the inbox counts from before, too. Cancel-safe.
    fn denied(&self, subject: &str) -> impl Future<Output = String> + use<'_> {
        let denials = self.0.bus.as_ref().map(Bus::denials);
        let quoted = format!("\"{subject}\"");
        async move {
            let Some(mut denials) = denials else {
                return std::future::pending().await;
            };
            let inbox = &self.0.inbox;
            let of_inbox = |what: &&String| inbox.is_meant(what);
            let before = denials.borrow().as_ref().filter(of_inbox).cloned();
            if let Some(what) = before {
                return what;
            }
            let is_meant = |what: &Option<String>| {
                let what = what.as_ref();
                what.is_some_and(|what| what.contains(&quoted) || inbox.is_meant(what))
            };
            loop {
                if denials.changed().await.is_err() {
                    return std::future::pending().await;
                }
                let said = denials.borrow_and_update().clone();
                if is_meant(&said) {
                    return said.unwrap_or_default();
                }
            }
        }
    }
}

async fn hand_out(mut answers: Subscriber, waiting: Arc<Waiting>) {
    while let Some(message) = answers.next().await {
        let subject = message.subject.clone();
        if let Some((_, token)) = subject.rsplit_once('.') {
            waiting.answer(token, message);
        }
    }
    waiting.close();
}
