//! A steady load: callers who do what any careful client does. Each has a key for what it wants, and asks again with it
//! when no answer comes, or when the answer says that asking again is safe.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    caller::{Answer, Submission},
    wait::{LONG, until_so},
};

/// Callers at work.
#[derive(Debug)]
pub struct Load {
    callers: JoinSet<()>,
    stop: CancellationToken,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    begun: AtomicUsize,
    repeated: AtomicUsize,
    answered: AtomicUsize,
    answers: std::sync::Mutex<Vec<Answer>>,
}

/// What came of it.
#[derive(Debug)]
pub struct Answered {
    /// The last answer to each call.
    pub answers: Vec<Answer>,
    /// How often a caller asked again.
    pub repeated: usize,
}

/// How long a caller waits for an answer before it asks again.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long it waits when it was sent away at once.
const PAUSE: Duration = Duration::from_millis(20);

impl Load {
    /// So many callers, each with one call after the other, each call with a key of its own; they take these in turn.
    pub fn start(callers: usize, calls: Vec<Submission>) -> Self {
        let mut load = Self {
            callers: JoinSet::new(),
            stop: CancellationToken::new(),
            shared: Arc::default(),
        };
        let calls = Arc::new(calls);
        for _ in 0..callers {
            let (calls, stop, shared) = (
                Arc::clone(&calls),
                load.stop.clone(),
                Arc::clone(&load.shared),
            );
            load.callers.spawn(async move {
                while !stop.is_cancelled() {
                    let n = shared.begun.fetch_add(1, Ordering::Relaxed);
                    let call = calls[n % calls.len()].clone().key(&format!("load-{n}"));
                    let (answer, repeated) = insist(call).await;
                    shared.repeated.fetch_add(repeated, Ordering::Relaxed);
                    let mut answers = shared.answers.lock().expect("nobody panics with it");
                    answers.push(answer);
                    shared.answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        load
    }

    /// Waits until so many more calls have their answer.
    ///
    /// # Panics
    ///
    /// They have it not in time.
    pub async fn until_answered(&self, more: usize) {
        let until = self.shared.answered.load(Ordering::Relaxed) + more;
        until_so("more calls to be answered", async || {
            self.shared.answered.load(Ordering::Relaxed) >= until
        })
        .await;
    }

    /// Lets every caller have its last answer.
    ///
    /// # Panics
    ///
    /// A caller waits in vain.
    pub async fn stop(mut self) -> Answered {
        self.stop.cancel();
        while let Some(ended) = self.callers.join_next().await {
            ended.expect("a caller gets its answer");
        }
        let mut answers = self.shared.answers.lock().expect("nobody panics with it");
        Answered {
            answers: std::mem::take(&mut answers),
            repeated: self.shared.repeated.load(Ordering::Relaxed),
        }
    }
}

/// Makes a call that has a key until it is answered, and says how often it had to ask again.
///
/// # Panics
///
/// Nobody takes it in time.
pub async fn insist(call: Submission) -> (Answer, usize) {
    let (began, mut repeated) = (Instant::now(), 0);
    loop {
        let answer = call.clone().patience(PATIENCE).try_wait().await;
        match answer {
            Some(answer) if !may_be_repeated(&answer) => return (answer, repeated),
            sent_away => {
                let waited = began.elapsed();
                assert!(waited < LONG, "nobody took it in {waited:?}: {sent_away:?}");
                repeated += 1;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn may_be_repeated(answer: &Answer) -> bool {
    answer["state"] == "refused" && answer["error"]["retryable"] == true
}
