//! Holds a prefix for a ledger: no other ledger's process hears its callers or pulls its pointers. [`crate::owner`] decides.

use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::{
    BusError,
    connect::Bus,
    watermark::{self, Recalled},
};
use crate::{
    lost_writes::Watermark,
    owner::{ForeignLedger, LedgerName, LeftWatermark, PrefixOwner, owner},
    telemetry::report,
};

/// How often a running process checks which ledger its prefix belongs to.
const LOOK: Duration = Duration::from_secs(1);
/// How long a worker waits for a dispatcher that makes the streams, before its supervisor starts it again.
const MADE_MAX: Duration = Duration::from_secs(30);
/// How often publishing a watermark is tried again because another dispatcher of this ledger came first. Its watermark serves
/// as well.
const TRIES_MAX: usize = 16;

/// The claim of this process to a prefix, for its ledger. Clones share the connection.
#[derive(Debug, Clone)]
pub struct PrefixClaim {
    bus: Bus,
    ledger: LedgerName,
    made_max: Duration,
}

impl PrefixClaim {
    /// For the bus's prefix and this ledger. Sends nothing yet.
    pub const fn new(bus: Bus, ledger: LedgerName) -> Self {
        Self {
            bus,
            ledger,
            made_max: MADE_MAX,
        }
    }

    /// The same, for a process that waits for so long, and not for 30 s, where others have to make the streams.
    #[must_use]
    pub fn waiting(self, made_max: Duration) -> Self {
        Self { made_max, ..self }
    }

    /// The watermark that NATS keeps of this ledger. For the start, before anything is written.
    ///
    /// # Errors
    ///
    /// The prefix is another ledger's, or the watermark cannot be read; or NATS does not answer, or does not allow it.
    pub async fn recall(&self) -> Result<Option<Watermark>, BusError> {
        let left = watermark::recall(&self.bus).await?.left;
        match owner(self.ledger.id, left) {
            PrefixOwner::Free => Ok(None),
            PrefixOwner::Unnamed(watermark) | PrefixOwner::Ours(watermark) => Ok(Some(watermark)),
            PrefixOwner::Foreign(theirs) => Err(self.foreign(theirs)),
        }
    }

    /// Publishes this watermark, unless NATS has a later one of this ledger. From then on the prefix is this ledger's.
    ///
    /// If several ledgers do it at once, one succeeds. Cancel-safe, and safe to repeat.
    ///
    /// # Errors
    ///
    /// The prefix is another ledger's, or the watermark cannot be read; or NATS does not answer, or does not allow it.
    pub async fn hold(&self, watermark: &Watermark) -> Result<(), BusError> {
        for _ in 0..TRIES_MAX {
            let Recalled { left, sequence } = watermark::recall(&self.bus).await?;
            match owner(self.ledger.id, left) {
                PrefixOwner::Foreign(theirs) => return Err(self.foreign(theirs)),
                PrefixOwner::Ours(left) if !watermark.is_after(&left) => return Ok(()),
                PrefixOwner::Ours(_) | PrefixOwner::Unnamed(_) => {}
                PrefixOwner::Free => self.make_stream().await?,
            }
            if watermark::replace(&self.bus, &self.left(watermark), sequence).await? {
                return Ok(());
            }
        }
        let busy = "others leave theirs all the time";
        Err(BusError::unavailable("leave the ledger's watermark", busy))
    }

    /// Makes the stream of watermarks; a user who may not, as a worker, waits until a dispatcher has made it.
    async fn make_stream(&self) -> Result<(), BusError> {
        let denied = match watermark::ensure(&self.bus).await {
            Err(denied @ BusError::Denied { .. }) => denied,
            made => return made,
        };
        // What is refused later has another reason.
        self.bus.forget_denied();
        tracing::info!("waiting for a dispatcher to make the streams of this prefix");
        let until_made = async {
            while !watermark::is_kept(&self.bus).await? {
                sleep(LOOK).await;
            }
            Ok(())
        };
        match timeout(self.made_max, until_made).await {
            Ok(made) => made,
            Err(_elapsed) => Err(BusError::unavailable(
                "wait for a dispatcher to make the streams of this prefix",
                // As text: as a cause it would say that the permissions have to be corrected before the next start.
                denied.to_string(),
            )),
        }
    }

    /// Takes the prefix from the ledger whose watermark was recalled, for this one.
    ///
    /// False: NATS has another watermark by now, and keeps it; if it is one of the same ledger, that ledger has live processes.
    /// Cancel-safe: it is taken or it is not, and the next look finds out.
    ///
    /// # Errors
    ///
    /// NATS does not answer, or does not allow it.
    pub async fn take_over(
        &self,
        recalled: &Recalled,
        watermark: &Watermark,
    ) -> Result<bool, BusError> {
        watermark::replace(&self.bus, &self.left(watermark), recalled.sequence).await
    }

    /// Waits until the process is told to stop, or until its prefix is another ledger's, as after a replacement of nats-server.
    /// Looks every second, and at once after a reconnection.
    ///
    /// # Errors
    ///
    /// [`BusError::ForeignLedger`].
    pub async fn held_until(&self, told: impl Future<Output = ()>) -> Result<(), BusError> {
        tokio::select! {
            () = told => Ok(()),
            foreign = self.until_foreign() => Err(foreign),
        }
    }

    async fn until_foreign(&self) -> BusError {
        let mut epoch = self.bus.epoch();
        let mut ticks = interval(LOOK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = true;
        let mut unreadable = false;
        loop {
            let look = async {
                ticks.tick().await;
                if self.bus.is_connected() {
                    self.recall().await.map(drop)
                } else {
                    Ok(())
                }
            };
            tokio::select! {
                looked = look => match looked {
                    Ok(()) => unreadable = false,
                    // It stays until a person has looked at it, and no process starts meanwhile. This one goes on, for it holds
                    // the prefix already.
                    Err(error @ BusError::UnreadableWatermark { .. }) if !unreadable => {
                        tracing::error!(error = report(&error), "no process of this prefix can be started");
                        unreadable = true;
                    }
                    Err(foreign @ BusError::ForeignLedger(_)) => {
                        tracing::error!(error = report(&foreign), "this process stops");
                        return foreign;
                    }
                    Err(error) => tracing::debug!(
                        error = report(&error),
                        "NATS does not say whose the prefix is; the next look does"
                    ),
                },
                // A question that was under way gets no answer any more.
                changed = epoch.changed(), if told => {
                    told = changed.is_ok();
                    ticks.reset_immediately();
                }
            }
        }
    }

    fn left(&self, watermark: &Watermark) -> LeftWatermark {
        LeftWatermark {
            watermark: Watermark {
                ledger_id: Some(self.ledger.id),
                ..watermark.clone()
            },
            place: self.ledger.place.clone(),
        }
    }

    fn foreign(&self, theirs: LedgerName) -> BusError {
        let foreign = ForeignLedger {
            prefix: self.bus.subjects.prefix().clone(),
            theirs,
            ours: self.ledger.clone(),
        };
        BusError::ForeignLedger(Box::new(foreign))
    }
}
