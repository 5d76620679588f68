//! Asks NATS for the stream of events: how it stands, what it has, and its new events.

use std::time::Duration;

use async_nats::{Client, HeaderMap, Subscriber};
use fleet::{
    bus::{
        connect::Bus,
        kept::{self, ApiQuestion, ConsumerWanted, KeptEvent, KeptEvents},
    },
    ids::Label,
    telemetry::report,
};
use fleet_client::{Answer, FleetClient, Question};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::unheard::Unheard;

/// How long the server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// A session of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SessionOf {
    pub(crate) tenant: Label,
    pub(crate) session: Label,
}

/// Who has the stream. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Keeper {
    bus: Bus,
    client: FleetClient,
    /// What takes consumers away.
    tasks: TaskTracker,
}

/// A consumer of the stream. Dropping it has the server take it away.
#[derive(Debug)]
pub(super) struct Consumer {
    name: String,
    keeper: Keeper,
}

impl Keeper {
    /// Over this connection, with this inbox for the answers.
    pub(crate) const fn new(bus: Bus, client: FleetClient, tasks: TaskTracker) -> Self {
        Self { bus, client, tasks }
    }

    /// How the stream stands.
    ///
    /// # Errors
    ///
    /// Nothing is heard of it.
    pub(crate) async fn stands(&self) -> Result<KeptEvents, Unheard> {
        let answer = self.ask(kept::ask_stands(self.client.subjects())).await?;
        Ok(kept::read_stands(answer.bytes())?)
    }

    /// The first event of a session that has this sequence or a later one, if there is one.
    ///
    /// # Errors
    ///
    /// Nothing is heard of the stream.
    pub(crate) async fn next(
        &self,
        of: &SessionOf,
        from: u64,
    ) -> Result<Option<KeptEvent>, Unheard> {
        let SessionOf { tenant, session } = of;
        let filter = self.client.subjects().events_of_session(tenant, session);
        let question = kept::ask_next(self.client.subjects(), &filter, from);
        let answer = self.ask(question).await?;
        Ok(kept::read_next(answer.bytes())?)
    }

    /// The first header of the turn of a session that has this sequence or a later one, if there is one.
    ///
    /// # Errors
    ///
    /// Nothing is heard of the stream.
    pub(crate) async fn next_header(
        &self,
        of: &SessionOf,
        from: u64,
    ) -> Result<Option<KeptEvent>, Unheard> {
        let subject = self.client.subjects().turn(&of.tenant, &of.session);
        let question = kept::ask_next(self.client.subjects(), &subject, from);
        let answer = self.ask(question).await?;
        Ok(kept::read_next(answer.bytes())?)
    }

    /// Stores a header where the last one of its turn has this sequence, or, with 0, where there is none. `None`: that is not so.
    ///
    /// # Errors
    ///
    /// Nothing is heard of the stream; it may have been stored.
    pub(crate) async fn store_header(
        &self,
        of: &SessionOf,
        header: Vec<u8>,
        last: u64,
    ) -> Result<Option<u64>, Unheard> {
        let mut headers = HeaderMap::new();
        headers.insert(kept::EXPECTED_LAST, last.to_string());
        let question = Question {
            headers,
            patience: ANSWER_MAX,
            ..Question::new(self.client.subjects().turn(&of.tenant, &of.session), header)
        };
        if !self.bus.is_connected() {
            return Err(Unheard::Away);
        }
        let answer = self.client.ask(question).await?;
        Ok(kept::read_stored(answer.bytes())?)
    }

    /// Stores a record behind the headers of a turn; its sequence.
    ///
    /// # Errors
    ///
    /// Nothing is heard of the stream; it may have been stored.
    pub(crate) async fn store_record(
        &self,
        of: &SessionOf,
        record: Vec<u8>,
    ) -> Result<u64, Unheard> {
        let question = Question {
            patience: ANSWER_MAX,
            ..Question::new(self.client.subjects().turn(&of.tenant, &of.session), record)
        };
        if !self.bus.is_connected() {
            return Err(Unheard::Away);
        }
        let answer = self.client.ask(question).await?;
        let stored = kept::read_stored(answer.bytes())?;
        // It expects nothing to be the last, so it was stored.
        stored.ok_or(Unheard::Away)
    }

    /// A consumer of the events of a session from this sequence on, and what it delivers. Dropping the consumer, or the future, has the
    /// server take it away.
    ///
    /// # Errors
    ///
    /// Nothing is heard of the stream.
    pub(super) async fn consumer(
        &self,
        of: &SessionOf,
        from: u64,
    ) -> Result<(Subscriber, Consumer), Unheard> {
        let SessionOf { tenant, session } = of;
        let inbox = self.bus.private_inbox();
        let subscribed = self.bus.client.subscribe(inbox.clone()).await;
        let heard = subscribed.map_err(|_closed| Unheard::Away)?;
        // From here on it is taken away, also where nobody waits for the answer any more.
        let consumer = Consumer {
            name: format!("gateway-{}", Uuid::new_v4().simple()),
            keeper: self.clone(),
        };
        let wanted = ConsumerWanted {
            name: &consumer.name,
            inbox: &inbox,
            from,
        };
        let question = kept::ask_consumer(self.client.subjects(), tenant, session, &wanted);
        let answer = self.ask(question).await?;
        kept::read_consumer(answer.bytes())?;
        Ok((heard, consumer))
    }

    /// The connection, for answers to what a consumer says.
    pub(super) fn client(&self) -> Client {
        self.bus.client.clone()
    }

    /// Changes whenever the connection is lost or restored from now on.
    pub(crate) fn connection(&self) -> watch::Receiver<u64> {
        self.bus.epoch()
    }

    async fn ask(&self, asked: ApiQuestion) -> Result<Answer, Unheard> {
        // What is sent without a connection would be sent later, when nobody waits for it any more.
        if !self.bus.is_connected() {
            return Err(Unheard::Away);
        }
        let question = Question {
            patience: ANSWER_MAX,
            ..Question::new(asked.subject, asked.body)
        };
        Ok(self.client.ask(question).await?)
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // Where that is lost, the server takes it away some seconds after nobody listens.
        let keeper = self.keeper.clone();
        let question = kept::ask_consumer_end(keeper.client.subjects(), &self.name);
        self.keeper.tasks.spawn(async move {
            if let Err(error) = keeper.ask(question).await {
                tracing::debug!(error = report(&error), "a consumer was not taken away");
            }
        });
    }
}
