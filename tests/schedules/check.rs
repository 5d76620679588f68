//! Going through schedules: all must hold, and each planted mistake must be found.

#![expect(
    clippy::print_stdout,
    reason = "the counts are what a reader wants to see"
)]

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    panic::{self, catch_unwind},
    sync::Once,
    thread,
    time::Instant,
};

use shuttle::{
    Config, FailurePersistence, MaxSteps, Runner,
    scheduler::{PctScheduler, RandomScheduler, Scheduler},
};

use crate::world;

/// Where the drawing of schedules begins, unless `SHUTTLE_RANDOM_SEED` says another number.
const SEED: u64 = 0x700_1f1e;
/// How often the PCT scheduler changes its mind.
const DEPTH: usize = 4;
/// Schedules for each scheduler and scenario, unless `SCHEDULES` says another number.
const SCHEDULES: usize = 2_000;
/// Schedules in which a planted mistake must show itself.
const MISTAKE_SCHEDULES_MAX: usize = 20_000;
/// Beyond that many steps a task waits for ever.
const STEPS_MAX: usize = 20_000;

/// Something came up that the scenario is about.
pub(crate) fn saw(what: &'static str) {
    SEEN.with_borrow_mut(|seen| *seen.entry(what).or_default() += 1);
}

/// Holds a scenario against many schedules: half of them drawn evenly, half by priorities (PCT). All of `sights` must come
/// up, for what never happened proves nothing.
pub(crate) fn holds(name: &str, sights: &[&str], scenario: fn()) {
    let count = schedules();
    let started = Instant::now();
    let random = run(
        RandomScheduler::new_from_seed(SEED, count),
        Print::Schedule,
        scenario,
    );
    let pct = run(
        PctScheduler::new_from_seed(SEED, DEPTH, count),
        Print::Schedule,
        scenario,
    );
    assert_eq!(
        (random, pct),
        (count, count),
        "every schedule was gone through"
    );
    println!(
        "{name}: {} schedules hold, {random} random and {pct} PCT, in {:.1} s",
        random + pct,
        started.elapsed().as_secs_f64()
    );
    let seen = SEEN.take();
    println!("  came up: {seen:?}");
    for sight in sights {
        assert!(seen.contains_key(sight), "{name}: {sight} never came up");
    }
}

/// Plants a mistake, and sees that the scenario finds it, by what it says then.
pub(crate) fn finds(mistake: &'static str, says: &str, scenario: fn()) {
    // A thread of its own: what a failed schedule leaves behind in it does not matter.
    let looking = thread::spawn(move || {
        world::plant(Some(mistake));
        let scheduler = RandomScheduler::new_from_seed(SEED, MISTAKE_SCHEDULES_MAX);
        let found = catch_unwind(|| run(scheduler, Print::Nothing, scenario));
        found.is_err().then(|| (STARTED.get(), SAID.take()))
    });
    let found = looking.join().unwrap();
    let (schedule, said) = found.unwrap_or_else(|| panic!("nobody noticed that {mistake}"));
    assert!(said.contains(says), "{mistake}: found, but by {said:?}");
    println!("found in schedule {schedule}: {mistake}");
}

/// Keeps what is said in a panic, and says it aloud unless a mistake is planted.
fn listen() {
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        // The first run installs the hook of shuttle.
        Runner::new(RandomScheduler::new(1), Config::new()).run(|| {});
        let aloud = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if world::mistaken() {
                let text = panic.payload_as_str().unwrap_or_default().to_owned();
                // The first is the cause; what ends because of it says so, too.
                SAID.with_borrow_mut(|said| {
                    if said.is_empty() {
                        *said = text;
                    }
                });
            } else {
                aloud(panic);
            }
        }));
    });
}

enum Print {
    Schedule,
    Nothing,
}

thread_local! {
    static STARTED: Cell<usize> = const { Cell::new(0) };
    static SAID: RefCell<String> = RefCell::default();
    static SEEN: RefCell<BTreeMap<&'static str, usize>> = RefCell::default();
}

fn run(scheduler: impl Scheduler + 'static, print: Print, scenario: fn()) -> usize {
    let mut config = Config::new();
    config.stack_size = 0x4_0000;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    config
        .ungraceful_shutdown_config
        .immediately_return_on_panic = true;
    if matches!(print, Print::Nothing) {
        config.failure_persistence = FailurePersistence::None;
    }
    listen();
    STARTED.set(0);
    Runner::new(scheduler, config).run(move || {
        STARTED.set(STARTED.get() + 1);
        world::begin();
        scenario();
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "a test program has no settings but this one"
)]
fn schedules() -> usize {
    std::env::var("SCHEDULES").map_or(SCHEDULES, |count| {
        count.parse().expect("SCHEDULES is a number")
    })
}
