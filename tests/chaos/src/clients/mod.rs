//! Programs that submit, wait, cancel and settle, and write down what they were told.
//!
//! Each is a program as a user would write it: a plain NATS client that keeps its key until it has an answer.
//!
//! ```text
//! call      the n-th call, by the seed
//! hostile   arguments that must be refused
//! programs  the steps of a client with a call
//! batch     the same for many calls in one request
//! submit    one client: how it submits, asks again and waits
//! settle    settles a call in doubt
//! marks     looks in the file of effects for a call in doubt
//! waited    those for whom calls wait
//! rule      says yes or no to a call
//! hand      runs a call that was handed out, and hands in what came of it
//! desk      writes down each question and its answer
//! accounts  asks the open questions when all faults are undone
//! summary   the outcomes, and those that no fault explains
//! ```

mod accounts;
mod batch;
mod call;
mod desk;
mod hand;
mod hostile;
mod marks;
mod programs;
mod rule;
mod settle;
mod submit;
mod summary;
mod waited;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use futures_util::future;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use self::{desk::Desk, marks::Marks, submit::Client};
use crate::{effects, history::Writer, login::Login};

pub use self::{
    accounts::{Accounts, settle_accounts},
    call::{Call, HOSTILE_KEY, Program},
    summary::Summary,
};

/// The clients of a run.
#[derive(Debug)]
pub struct Clients {
    /// What their calls are made of.
    pub seed: u64,
    /// Where they reach the fleet, as whom.
    pub agent: Login,
    /// As whom those of the other tenant do.
    pub other_agent: Login,
    /// As whom they settle.
    pub operator: Login,
    /// Where they write down what they do and are told.
    pub history: PathBuf,
    /// Where they see what happened at the tools.
    pub effects_file: PathBuf,
    /// Raised by one with every question.
    pub asked: watch::Sender<u64>,
    /// They begin no call after this is cancelled, and ask nothing more.
    pub stop: CancellationToken,
    /// How many there are.
    pub clients: u32,
    /// How long each of them pauses between two calls.
    pub pace: Option<Duration>,
}

/// How many connections the clients of the other tenant share.
const OTHERS: u32 = 4;

/// Lets clients make calls until they are to stop.
///
/// # Errors
///
/// There is no such address, the history cannot be written, or a client panicked.
pub async fn run(clients: Clients) -> anyhow::Result<Summary> {
    let making = || format!("make the history {}", clients.history.display());
    let writer = Writer::create(&clients.history).with_context(making)?;
    let connecting = (0..clients.clients).map(|_| clients.agent.connect());
    let connections = future::try_join_all(connecting).await?;
    let connecting = (0..OTHERS).map(|_| clients.other_agent.connect());
    let others = future::try_join_all(connecting).await?;
    // Clients stop by themselves when nothing can be written down any more.
    let stop = clients.stop.child_token();
    let (hears, waited) = mpsc::unbounded_channel();
    let desk = Desk::new(
        clients.seed,
        writer,
        0,
        clients.asked,
        stop,
        (connections, others),
        clients.operator.connect().await?,
    );
    let desk = Arc::new(desk.telling(hears));
    let file = effects::File::open(&clients.effects_file).context("open the file of effects")?;
    let marks = Arc::new(Marks::of(clients.effects_file));
    let next = Arc::new(Numbers::default());
    let mut tasks = JoinSet::new();
    for id in 0..clients.clients {
        let client = Client {
            id,
            desk: Arc::clone(&desk),
            marks: Some(Arc::clone(&marks)),
        };
        tasks.spawn(client.work(Arc::clone(&next), clients.pace));
    }
    let somebody = Client {
        id: clients.clients,
        desk: Arc::clone(&desk),
        marks: None,
    };
    tasks.spawn(waited::serve(somebody, waited, Arc::new(file)));
    while let Some(ended) = tasks.join_next().await {
        ended.context("a client panicked")?;
    }
    desk.close(&clients.history)
}

impl Client {
    async fn work(self, next: Arc<Numbers>, pace: Option<Duration>) {
        while !self.desk.stop.is_cancelled() {
            let call = next.take(self.desk.seed);
            self.desk.begun();
            Box::pin(self.run(&call)).await;
            if let Some(pace) = pace {
                self.desk.pause(pace).await;
            }
        }
    }
}

/// Gives calls out by their numbers. A batch gets as many as it has calls, so that which numbers begin a program depends
/// on the seed alone.
#[derive(Debug, Default)]
struct Numbers {
    next: Mutex<u64>,
}

impl Numbers {
    fn take(&self, seed: u64) -> Call {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let call = Call::drawn(seed, *next);
        *next += call.numbers();
        call
    }
}

/// The calls that begin a program, in the order in which clients take them.
pub fn drawn(seed: u64) -> impl Iterator<Item = Call> {
    let numbers = Numbers::default();
    std::iter::repeat_with(move || numbers.take(seed))
}
