//! The connection to NATS, and whether it is up.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_nats::{Client, Event};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::watch;
use uuid::Uuid;

use super::{BusError, login, malformed, rights::USER_INFO};
use crate::{config::BusArgs, delay, wire::subjects::Subjects};

/// How JetStream's answer begins where the account may not use it (10039). The client has a different error type for each
/// request, but the same text in all of them.
const NO_JETSTREAM: &str = "not enabled for account";

/// One connection to NATS and the subjects of the fleet.
#[derive(Debug, Clone)]
pub struct Bus {
    /// The client; cheap to clone.
    pub client: Client,
    /// The subjects of the fleet.
    pub subjects: Subjects,
    /// Counts connects and disconnects; odd: connected now, even: not.
    epoch: watch::Receiver<u64>,
    /// Why the client has not connected again, as far as it says; `None` while it is connected.
    trouble: Arc<Mutex<Option<String>>>,
    /// The server's last refusal for lack of a permission, of this connection.
    denied: watch::Sender<Option<String>>,
}

impl Bus {
    /// The oldest server that has what we need and none of the bugs that we know.
    const SERVER_MIN: [u64; 3] = [2, 12, 6];
    const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
    const ROUND_TRIP_MAX: Duration = Duration::from_secs(5);
    const ANSWER_MAX: Duration = Duration::from_secs(2);

    /// Connects, and refuses a server that is too old. After that the client reconnects by itself, for ever.
    ///
    /// # Errors
    ///
    /// No server answers within ten seconds, or it is unfit.
    pub async fn connect(args: &BusArgs, name: &str) -> Result<Self, BusError> {
        let doing = "connect to NATS";
        let (sender, mut epoch) = watch::channel(0);
        let denied = watch::Sender::new(None);
        let heard = denied.clone();
        let trouble = Arc::<Mutex<Option<String>>>::default();
        let noted = Arc::clone(&trouble);
        let (address, options) = login::read(args).await?;
        let options = options
            .name(name)
            .custom_inbox_prefix(args.nats_inbox.as_str())
            .ping_interval(Duration::from_secs(10))
            .client_capacity(8192)
            .reconnect_delay_callback(delay::reconnect)
            .event_callback(move |event| {
                if !is_about_user_info(&event) {
                    notice(&event, &sender, &noted);
                    match &event {
                        // The user may have other rights by now; what it asks for again is refused again.
                        Event::Connected => drop(heard.send_replace(None)),
                        Event::ServerError(error) => {
                            if let Some(what) = permission(&error.to_string()) {
                                heard.send_replace(Some(what));
                            }
                        }
                        _ => {}
                    }
                }
                std::future::ready(())
            });
        let connecting =
            tokio::time::timeout(Self::CONNECT_TIMEOUT, options.connect(address)).await;
        let client = match connecting {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(BusError::unavailable(doing, error)),
            Err(elapsed) => return Err(BusError::unavailable(doing, elapsed)),
        };
        // The client reports the connection a moment later; from here on a change of the epoch is a real change.
        let noticing = tokio::time::timeout(Self::CONNECT_TIMEOUT, epoch.wait_for(|n| n & 1 == 1));
        match noticing.await {
            Ok(Ok(_connected)) => {}
            Ok(Err(gone)) => return Err(BusError::unavailable(doing, gone)),
            Err(elapsed) => return Err(BusError::unavailable(doing, elapsed)),
        }
        let server = client.server_info();
        let version: Vec<u64> = server
            .version
            .split(['.', '-'])
            .map_while(|part| part.parse().ok())
            .collect();
        if version.as_slice() < Self::SERVER_MIN.as_slice() {
            let what = format!(
                "nats-server is too old ({}); install 2.12.6 or newer",
                server.version
            );
            return Err(BusError::UnfitServer(what));
        }
        if !server.jetstream {
            return Err(BusError::UnfitServer(
                "nats-server runs without JetStream; start it with --jetstream".into(),
            ));
        }
        malformed::show(&client);
        Ok(Self {
            client,
            subjects: Subjects::new(args.prefix.clone()),
            epoch,
            trouble,
            denied,
        })
    }

    /// The server's last refusal for lack of a permission. The server sends no other answer to a request that is not allowed.
    pub fn denied(&self) -> Option<String> {
        self.denied.borrow().clone()
    }

    /// The same, to wait for the next one.
    pub fn denials(&self) -> watch::Receiver<Option<String>> {
        self.denied.subscribe()
    }

    /// Forgets that refusal: this program goes on without what was refused.
    pub(super) fn forget_denied(&self) {
        self.denied.send_replace(None);
    }

    /// The error of a failed request: `Denied` if the server said so, else `Unavailable`.
    pub fn failed(
        &self,
        doing: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> BusError {
        if let Some(what) = self.denied() {
            return BusError::Denied { doing, what };
        }
        let source = source.into();
        if source.to_string().contains(NO_JETSTREAM) {
            let what = "nats-server has JetStream, but not for the account of this user; enable JetStream in that account";
            return BusError::UnfitServer(what.to_owned());
        }
        BusError::unavailable(doing, source)
    }

    /// Waits until the server has received everything that was sent before, a few seconds at most. A flush only waits for the
    /// socket.
    ///
    /// # Errors
    ///
    /// It did not answer.
    pub async fn round_trip(&self) -> Result<(), BusError> {
        let doing = "wait for NATS";
        let inbox = self.client.new_inbox();
        let echo = async {
            let mut echo = self
                .client
                .subscribe(inbox.clone())
                .await
                .map_err(|error| BusError::unavailable(doing, error))?;
            let sent = self.client.publish(inbox, Bytes::new()).await;
            sent.map_err(|error| BusError::unavailable(doing, error))?;
            drop(echo.next().await);
            Ok(())
        };
        tokio::time::timeout(Self::ROUND_TRIP_MAX, echo)
            .await
            .unwrap_or_else(|elapsed| Err(BusError::unavailable(doing, elapsed)))
    }

    /// Whether the server answers now, within two seconds: a connection may be open to a server that hangs.
    ///
    /// Cancel-safe.
    pub async fn answers(&self) -> bool {
        let answer = tokio::time::timeout(Self::ANSWER_MAX, self.round_trip());
        self.is_connected() && matches!(answer.await, Ok(Ok(())))
    }

    /// Why the server does not answer, as far as the client says.
    pub fn trouble(&self) -> String {
        if self.is_connected() {
            return format!(
                "no answer on an open connection within {:?}",
                Self::ANSWER_MAX
            );
        }
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble
            .clone()
            .unwrap_or_else(|| "the connection was closed".to_owned())
    }

    /// An inbox with an unguessable name. The client's own inboxes are numbered: a program that has seen one knows the next.
    pub fn private_inbox(&self) -> String {
        format!("{}.{}", self.client.new_inbox(), Uuid::new_v4().simple())
    }

    /// Whether the connection is up.
    pub fn is_connected(&self) -> bool {
        matches!(
            self.client.connection_state(),
            async_nats::connection::State::Connected
        )
    }

    /// Publishes something that is also in the ledger. Gives up after two seconds and logs `lost`: while its connection is down,
    /// the client queues a bounded number of messages and then blocks for ever.
    pub async fn tell(&self, subject: String, body: Bytes, lost: &'static str) {
        let telling = self.client.publish(subject, body);
        let told = tokio::time::timeout(Duration::from_secs(2), telling).await;
        if !matches!(told, Ok(Ok(()))) {
            tracing::debug!("{lost}");
        }
    }

    /// Sends what the client still holds, before the process ends. Gives up after two seconds: without a connection it
    /// would wait for one.
    pub async fn flush(&self) {
        let flushing = tokio::time::timeout(Duration::from_secs(2), self.client.flush());
        if !matches!(flushing.await, Ok(Ok(()))) {
            tracing::debug!("the last messages may not have been sent");
        }
    }

    /// Changes whenever the connection is lost or restored from now on. Wait on it with `changed`.
    pub fn epoch(&self) -> watch::Receiver<u64> {
        let mut epoch = self.epoch.clone();
        epoch.mark_unchanged();
        epoch
    }

    /// The largest message the server takes.
    pub fn payload_max(&self) -> usize {
        self.client.max_payload()
    }
}

/// The permission in a server's error: `publish to "a.b"`.
fn permission(error: &str) -> Option<String> {
    let (_, what) = error.split_once("Permissions Violation for ")?;
    let what = what.trim_end_matches('\'');
    let (verb, rest) = what.split_once(' ')?;
    Some(format!("{} {rest}", verb.to_lowercase()))
}

/// Whether the server only does not tell what this user may do. Nothing depends on it.
fn is_about_user_info(event: &Event) -> bool {
    matches!(event, Event::ServerError(error) if error.to_string().contains(USER_INFO))
}

/// Acts on what the client reports. That NATS does not answer is said by the process, once: the client tries again several
/// times a second.
fn notice(event: &Event, epoch: &watch::Sender<u64>, trouble: &Mutex<Option<String>>) {
    let note = |why| *trouble.lock().unwrap_or_else(PoisonError::into_inner) = why;
    match event {
        Event::Connected => {
            note(None);
            if *epoch.borrow() == 0 {
                tracing::info!("connected to NATS");
            } else {
                tracing::debug!("connected to NATS again");
            }
            epoch.send_modify(|count| *count |= 1);
        }
        Event::Disconnected => {
            tracing::debug!("disconnected from NATS");
            epoch.send_modify(|count| *count += *count & 1);
        }
        Event::SlowConsumer(_) => {
            tracing::warn!("messages were dropped: a subscription is read too slowly")
        }
        Event::ServerError(error) => {
            tracing::error!(%error, "NATS server refused something; check its permissions")
        }
        Event::ClientError(error) if *epoch.borrow() & 1 == 0 => {
            tracing::debug!(%error, "NATS client does not reach its server");
            note(Some(error.to_string()));
        }
        Event::ClientError(error) => tracing::warn!(%error, "NATS client failed"),
        Event::LameDuckMode | Event::Draining | Event::Closed => {
            tracing::info!(%event, "NATS connection")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_permission_is_read_from_what_the_server_says() {
        let said = "nats: Permissions Violation for Publish to \"$JS.API.STREAM.INFO.X\"";
        let what = permission(said);
        assert_eq!(
            what.as_deref(),
            Some("publish to \"$JS.API.STREAM.INFO.X\"")
        );
        assert_eq!(permission("nats: maximum connections exceeded"), None);
    }
}
