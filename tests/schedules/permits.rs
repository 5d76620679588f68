//! The slots of a worker: each of its queues never runs more than its share, and every slot comes back.

use std::sync::{Arc, Mutex};

use fleet::ids::QueueName;
use shuttle::{
    future::{block_on, spawn, yield_now},
    rand::{Rng as _, thread_rng},
};
use tokio_util::sync::CancellationToken;

use crate::{
    check::{finds, holds, saw},
    world::{
        nats::Bus,
        once_in,
        stream::Stream,
        time,
        tokio::{select, sync::Semaphore},
    },
    woven::intake,
};

/// Of each queue.
const SHARE: usize = 2;
const MESSAGES: u32 = 5;
/// After that a puller leaves it to the server to find out.
const GIVING_BACK_MAX: time::Duration = time::Duration::from_secs(2);

/// As much of a worker's settings as its intake reads.
pub(crate) struct Config {
    pub(crate) queues: Vec<QueueName>,
    pub(crate) concurrency: usize,
}

/// As much of a worker as its intake uses, and what a test counts.
pub(crate) struct WorkerProcess {
    pub(crate) bus: Bus,
    /// The slots of each queue that was heard of, and how many of its attempts run.
    queues: Mutex<Vec<(Arc<Semaphore>, usize)>>,
}

impl WorkerProcess {
    /// Which of the queues these slots are of.
    fn queue(&self, slots: &Arc<Semaphore>) -> usize {
        let mut queues = self.queues.lock().unwrap();
        let known = queues
            .iter()
            .position(|(known, _)| Arc::ptr_eq(known, slots));
        known.unwrap_or_else(|| {
            queues.push((Arc::clone(slots), 0));
            queues.len() - 1
        })
    }
}

pub(crate) mod attempt {
    //! Attempts that succeed, or are dropped where they stand, as one that panics is.

    use super::*;
    use crate::woven::pull::Delivered;

    /// Runs one.
    pub(crate) async fn run(worker: Arc<WorkerProcess>, delivered: Delivered) {
        let acker = delivered.acker.clone();
        let life = if once_in(4) {
            thread_rng().gen_range(0..6)
        } else {
            u32::MAX
        };
        select! {
            biased;
            () = one(&worker, delivered) => {}
            () = steps(life) => {
                saw("an attempt was dropped");
                // A server finds that out by time.
                acker.again_after(time::Duration::ZERO).await;
            }
        }
    }

    async fn one(worker: &WorkerProcess, delivered: Delivered) {
        let queue = worker.queue(delivered.permit.semaphore());
        let Delivered { acker, permit, .. } = delivered;
        let running = Running::begin(worker, queue);
        steps(thread_rng().gen_range(0..8)).await;
        drop(running);
        drop(permit);
        acker.ack().await;
    }

    /// Counts itself for as long as it lives.
    struct Running<'a> {
        worker: &'a WorkerProcess,
        queue: usize,
    }

    impl<'a> Running<'a> {
        fn begin(worker: &'a WorkerProcess, queue: usize) -> Self {
            let running = &mut worker.queues.lock().unwrap()[queue].1;
            assert!(*running < SHARE, "more attempts than slots");
            *running += 1;
            if *running == SHARE {
                saw("every slot was taken");
            }
            Self { worker, queue }
        }
    }

    impl Drop for Running<'_> {
        fn drop(&mut self) {
            self.worker.queues.lock().unwrap()[self.queue].1 -= 1;
        }
    }
}

/// Two queues have each their share of the slots of a worker, which loses its connection once, and is stopped.
fn worker(stops_early: bool) {
    block_on(async move {
        let worker = Arc::new(WorkerProcess {
            bus: Bus::default(),
            queues: Mutex::default(),
        });
        let config = Config {
            queues: ["one", "two"].map(|name| name.parse().unwrap()).into(),
            concurrency: 2 * SHARE,
        };
        let stream = Stream::start(worker.bus.client.clone(), MESSAGES).await;
        let intake = CancellationToken::new();
        let (running, stop) = (Arc::clone(&worker), intake.clone());
        let working = spawn(async move { intake::run(running, &config, stop).await });
        steps(thread_rng().gen_range(0..40)).await;
        worker.bus.reconnect();
        if stops_early {
            steps(thread_rng().gen_range(0..40)).await;
        } else {
            while stream.done() < MESSAGES as usize {
                time::sleep(time::Duration::from_millis(50)).await;
            }
        }
        // Seconds, which a server is given to answer, are made of many of these.
        let ended = CancellationToken::new();
        let ticking = spawn(ticks(ended.clone()));
        let stopped_at = time::Instant::now();
        intake.cancel();
        working.await.unwrap();
        let took = stopped_at.elapsed();
        for (slots, running) in worker.queues.lock().unwrap().iter() {
            assert_eq!(*running, 0, "an attempt is left");
            assert_eq!(slots.available_permits(), SHARE, "a slot did not come back");
            saw("every slot came back");
        }
        let mut patience = 20;
        while stream.unanswered() > 0 && patience > 0 {
            // Answers are on their way to the server.
            time::sleep(time::Duration::from_millis(50)).await;
            patience -= 1;
        }
        if took < GIVING_BACK_MAX {
            assert_eq!(stream.unanswered(), 0, "a message was kept");
            saw("every message was answered for");
        } else {
            saw("giving back took too long");
        }
        ended.cancel();
        ticking.await.unwrap();
        if stream.done() < MESSAGES as usize {
            saw("stopped with messages left");
        }
    });
}

async fn steps(count: u32) {
    for _ in 0..count {
        yield_now().await;
    }
}

async fn ticks(ended: CancellationToken) {
    while !ended.is_cancelled() {
        time::sleep(time::Duration::from_millis(50)).await;
    }
}

fn until_all_is_done() {
    worker(false);
}

fn that_stops() {
    worker(true);
}

const SIGHTS: [&str; 4] = [
    "an attempt was dropped",
    "every message was answered for",
    "every slot was taken",
    "every slot came back",
];

#[test]
fn slots_bound_the_attempts_and_come_back() {
    holds("slots", &SIGHTS, until_all_is_done);
}

#[test]
fn a_stop_loses_no_slot_and_no_message() {
    holds("slots, stopped", &SIGHTS, that_stops);
}

#[test]
fn mistakes_about_slots_are_found() {
    finds("there is a slot too many", "slot", until_all_is_done);
    finds("what is too much is kept", "max_steps", until_all_is_done);
    finds(
        "a permit is lost at the end",
        "a slot did not come back",
        that_stops,
    );
    finds(
        "what comes at the end is kept",
        "a message was kept",
        that_stops,
    );
    finds(
        "nobody waits for attempts",
        "a message was kept",
        that_stops,
    );
}
