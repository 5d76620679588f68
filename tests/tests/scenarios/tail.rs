//! No call waits for a slow, large or finished one: quick calls beside slow and large ones, and the time after an outage.
//!
//! Times are compared with times of the same run, for machines differ.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use fleet_tests::{
    fleet::{Fleet, Spec},
    invariants,
    postgres::Cluster,
    wait::until_so,
    witness::{Reply, Witness},
};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;

/// Calls of the quick tool that are timed in one go.
const TIMED: usize = 60;
/// By how much the median of quick calls may grow beside calls that wait, on a machine of two cores that is busy with tests.
const BESIDE_SLOW_MAX: f64 = 5.0;
/// The same beside calls that take the processor, in a fleet that was built without optimisation and is one process.
const BESIDE_LARGE_MAX: f64 = 10.0;

#[tokio::test]
async fn slow_and_hanging_tools_do_not_slow_a_quick_one_while_slots_are_free() {
    let witness = Witness::start().await;
    let hanging = witness.tool("hang", "read") + "timeout: 2s\nretry: {strategy: none}\n";
    let tools = [
        witness.tool("quick", "read"),
        witness.tool("slow", "read"),
        hanging,
    ];
    let spec = Spec::with(tools).workers(1, &["--concurrency", "32"]);
    let fleet = Fleet::start(spec).await;
    witness.always("slow", Reply::DoneAfter(Duration::from_millis(400)));
    witness.always("hang", Reply::Hang);

    let before = timed(&fleet, "quick").await;
    let busy = Busy::default();
    busy.spawn(&fleet, 12, "slow", &json!({"what": "slow"}));
    busy.spawn(&fleet, 12, "hang", &json!({"what": "hang"}));
    witness
        .until("slow and hanging calls", |seen| seen.running >= 20)
        .await;
    let beside = timed(&fleet, "quick").await;
    assert!(witness.asked("hang") >= 12, "they hang while others run");
    let slow = busy.stop().await;
    let after = timed(&fleet, "quick").await;

    let ratio = ratio("24 slow and hanging calls", &before, &beside, &after);
    assert!(ratio <= BESIDE_SLOW_MAX, "{ratio:.2} times as long");
    assert!(
        slow.iter()
            .any(|answer| answer["error"]["code"] == "timeout"),
        "a hanging call ends with its timeout"
    );
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn a_queue_of_hanging_tools_takes_no_more_than_its_share_of_a_worker() {
    let witness = Witness::start().await;
    let tools = [
        witness.tool("quick", "read"),
        witness.tool("hang", "read") + "queue: slow\n",
    ];
    let flags = ["--queues", "default,slow", "--concurrency", "5"];
    let fleet = Fleet::start(Spec::with(tools).workers(1, &flags)).await;
    witness.always("hang", Reply::DoneWhenReleased);
    let mut hanging = Vec::new();
    for _ in 0..8 {
        let call = fleet.submit("hang", &json!({"what": "hang"}));
        hanging.push(call.asynchronous().await.call_id());
    }
    witness.until_asked("hang", 2).await;
    // Each gives a slot back, for which hanging calls wait too; it is not theirs.
    for _ in 0..20 {
        let answer = fleet.submit("quick", &json!({"what": "quick"})).wait();
        assert_eq!(answer.await["state"], "succeeded");
    }
    assert_eq!(witness.asked("hang"), 2);
    witness.release("hang");
    for call in hanging {
        fleet.until_state(call, "succeeded").await;
    }
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn large_arguments_and_results_do_not_stall_small_calls() {
    let witness = Witness::start().await;
    let tools = [witness.tool("quick", "read"), witness.tool("copy", "read")];
    let fleet = Fleet::start(Spec::with(tools)).await;
    let text = "x".repeat(64 * 1024);
    witness.always("large", Reply::Body(json!({ "text": text }).to_string()));

    let before = timed(&fleet, "quick").await;
    let busy = Busy::default();
    busy.spawn(&fleet, 4, "copy", &json!({"what": "large", "text": text}));
    witness.until_asked("large", 8).await;
    let beside = timed(&fleet, "quick").await;
    let large = busy.stop().await;
    let after = timed(&fleet, "quick").await;

    let ratio = ratio("4 callers with 64 KiB", &before, &beside, &after);
    assert!(ratio <= BESIDE_LARGE_MAX, "{ratio:.2} times as long");
    assert!(large.len() > 8, "the large calls went on: {}", large.len());
    assert!(large.iter().all(|answer| answer["state"] == "succeeded"));
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn when_postgres_is_back_the_fleet_is_at_its_former_speed_within_two_seconds() {
    let witness = Witness::start().await;
    let mut cluster = Cluster::alone(true).await;
    let database = cluster.database().await;
    let fleet = Fleet::start_on(database, Spec::with([witness.tool("quick", "read")])).await;
    witness.always("quick", Reply::DoneAfter(TAKES));
    let steady = Steady::start(&fleet);
    let former = steady.former_rate().await;
    cluster.stop().await;
    tokio::time::sleep(OUTAGE).await;
    cluster.start().await;
    steady.recovers("Postgres", former).await;
    invariants::hold(&fleet, &witness).await;
}

#[tokio::test]
async fn when_nats_is_back_the_fleet_is_at_its_former_speed_within_two_seconds() {
    let witness = Witness::start().await;
    let mut fleet = Fleet::start(Spec::with([witness.tool("quick", "read")])).await;
    witness.always("quick", Reply::DoneAfter(TAKES));
    let steady = Steady::start(&fleet);
    let former = steady.former_rate().await;
    fleet.stop_nats().await;
    tokio::time::sleep(OUTAGE).await;
    fleet.start_nats().await;
    steady.recovers("nats-server", former).await;
    invariants::hold(&fleet, &witness).await;
}

/// Each call has a key of its own.
fn new_key() -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    format!("tail-{}", LAST.fetch_add(1, Ordering::Relaxed))
}

/// How long each of some calls took, one after the other, shortest first.
async fn timed(fleet: &Fleet, tool: &str) -> Vec<Duration> {
    let mut took = Vec::with_capacity(TIMED);
    for _ in 0..TIMED {
        let call = fleet.submit(tool, &json!({"what": tool})).key(&new_key());
        let began = Instant::now();
        let answer = call.wait().await;
        took.push(began.elapsed());
        assert_eq!(answer["state"], "succeeded", "{}", *answer);
    }
    took.sort_unstable();
    took
}

fn median(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() / 2]
}

/// The median beside others over that of the slower time alone.
#[expect(
    clippy::print_stdout,
    reason = "what was measured belongs into the report"
)]
fn ratio(what: &str, before: &[Duration], beside: &[Duration], after: &[Duration]) -> f64 {
    let alone = median(before).max(median(after));
    let ratio = median(beside).as_secs_f64() / alone.as_secs_f64();
    println!(
        "beside {what}: median {:?}, longest {:?}; alone {:?} and {:?}, longest {:?}; ratio {ratio:.2}",
        median(beside),
        beside[TIMED - 1],
        median(before),
        median(after),
        before[TIMED - 1].max(after[TIMED - 1]),
    );
    ratio
}

/// Callers who keep others from being alone.
#[derive(Default)]
struct Busy {
    callers: Mutex<JoinSet<Vec<fleet_tests::caller::Answer>>>,
    stop: CancellationToken,
}

impl Busy {
    /// So many callers, each with one call after the other.
    fn spawn(&self, fleet: &Fleet, callers: usize, tool: &str, args: &Value) {
        let mut tasks = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..callers {
            let (call, stop) = (fleet.submit(tool, args), self.stop.clone());
            tasks.spawn(async move {
                let mut answers = Vec::new();
                while !stop.is_cancelled() {
                    answers.push(call.clone().key(&new_key()).wait().await);
                }
                answers
            });
        }
    }

    /// Lets every caller have its last answer; all of them.
    async fn stop(self) -> Vec<fleet_tests::caller::Answer> {
        self.stop.cancel();
        let callers = self.callers.into_inner();
        let callers = callers.unwrap_or_else(PoisonError::into_inner);
        callers.join_all().await.into_iter().flatten().collect()
    }
}

/// How long a server is gone: longer than the first, short pauses of the processes that try to reach it.
const OUTAGE: Duration = Duration::from_secs(4);
/// Callers at a time, and how long the tool takes: the load is the same on every machine that is not far too slow.
const CALLERS: usize = 16;
const TAKES: Duration = Duration::from_millis(60);
/// How long a caller waits for an answer before it asks again with its key.
const PATIENCE: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_millis(100);
/// When a fleet has to be back at its former speed, and how long it is looked at then.
const BACK_AFTER: Duration = Duration::from_secs(2);
const LOOKED_AT: Duration = Duration::from_secs(2);

/// The same callers all the time, who write down when they were answered.
struct Steady {
    answered: Arc<Mutex<Vec<Instant>>>,
    callers: JoinSet<()>,
    stop: CancellationToken,
}

impl Steady {
    fn start(fleet: &Fleet) -> Self {
        let steady = Self {
            answered: Arc::default(),
            callers: JoinSet::new(),
            stop: CancellationToken::new(),
        };
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let call = fleet.submit("quick", &json!({"what": "quick"}));
            let (answered, stop) = (Arc::clone(&steady.answered), steady.stop.clone());
            callers.spawn(async move {
                while !stop.is_cancelled() {
                    let call = call.clone().key(&new_key()).patience(PATIENCE);
                    while !call
                        .clone()
                        .try_wait()
                        .await
                        .is_some_and(|answer| answer["state"] == "succeeded")
                    {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    answered.lock().unwrap().push(Instant::now());
                }
            });
        }
        Self { callers, ..steady }
    }

    fn answered_between(&self, from: Instant, to: Instant) -> usize {
        let answered = self.answered.lock().unwrap();
        let within = answered.iter().filter(|at| **at >= from && **at < to);
        within.count()
    }

    /// Answers in a second, over two of them, once all is warm.
    async fn former_rate(&self) -> f64 {
        until_so("the first answers", async || {
            self.answered.lock().unwrap().len() > 10 * CALLERS
        })
        .await;
        let from = Instant::now();
        tokio::time::sleep(LOOKED_AT).await;
        per_second(self.answered_between(from, from + LOOKED_AT), LOOKED_AT)
    }

    /// Waits until it can be said how fast the fleet is from two seconds after now, says it, and stops.
    #[expect(
        clippy::print_stdout,
        reason = "what was measured belongs into the report"
    )]
    async fn recovers(mut self, what: &str, former: f64) {
        let back = Instant::now();
        tokio::time::sleep(BACK_AFTER + LOOKED_AT).await;
        let (from, to) = (back + BACK_AFTER, back + BACK_AFTER + LOOKED_AT);
        let rate = per_second(self.answered_between(from, to), LOOKED_AT);
        let windows: Vec<usize> = (0..40)
            .map(|n| self.answered_between(back + n * WINDOW, back + (n + 1) * WINDOW))
            .collect();
        let is_back = |n: &usize| per_second(*n, WINDOW) >= 0.8 * former;
        let at_80 = windows.iter().position(is_back);
        println!(
            "{what} back: {former:.0}/s before, {rate:.0}/s from {BACK_AFTER:?} to {:?}; 80 % after {:?}; {windows:?}",
            BACK_AFTER + LOOKED_AT,
            at_80.map(|n| WINDOW * (u32::try_from(n).unwrap() + 1)),
        );
        self.stop.cancel();
        // Whatever was lost on the way is found again.
        let all = async {
            while self
                .callers
                .join_next()
                .await
                .transpose()
                .unwrap()
                .is_some()
            {}
        };
        timeout(Duration::from_secs(60), all)
            .await
            .expect("every caller has its answer");
        assert!(
            rate >= former / 2.0,
            "{rate:.0} calls a second after the outage, {former:.0} before"
        );
    }
}

fn per_second(count: usize, over: Duration) -> f64 {
    f64::from(u32::try_from(count).unwrap()) / over.as_secs_f64()
}
