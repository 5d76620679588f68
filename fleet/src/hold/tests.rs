//! The laws of metering, turns and ageing.

use proptest::prelude::*;

use super::*;

#[test]
fn a_tools_line_is_never_a_queues() {
    let queue: Line = "tool".parse().unwrap();
    let tool: Line = "tool/tool".parse().unwrap();
    assert_ne!(queue, tool);
    let slots: Line = "slots/tool".parse().unwrap();
    assert!(slots != queue && slots != tool);
    let pause: Line = "pause/7".parse().unwrap();
    assert_eq!(pause, Line::Pause(ControlId(7)));
    for line in [queue, tool, slots, pause] {
        assert_eq!(line.to_string().parse::<Line>().unwrap(), line);
    }
    let key = "tool/tool/0123456789abcdef0123456789abcdef";
    let line: Line = key.parse().unwrap();
    assert!(matches!(&line, Line::Key(..)) && line.to_string() == key);
    for other in [
        "tool/tool/",
        "tool/tool/0",
        "tool//0123456789abcdef0123456789abcdef",
    ] {
        assert!(other.parse::<Line>().is_err(), "{other}");
    }
    assert!("tool/".parse::<Line>().is_err());
    assert!("slots/".parse::<Line>().is_err());
    assert!("pause/".parse::<Line>().is_err());
    assert!("pause/x".parse::<Line>().is_err());
}

#[test]
fn a_tenant_leaves_the_last_quarter_of_the_slots() {
    let shares = [0, 1, 3, 4, 8, 100, 1_000].map(|slots| tenant_share(128, slots));
    assert_eq!(shares, [128, 1, 3, 3, 6, 75, 128]);
}

#[test]
fn the_stream_feeds_every_slot_and_half_a_second() {
    assert_eq!(allowance(0, 0.0), 64);
    // The workers are gone, so the old drain says nothing.
    assert_eq!(allowance(0, 10_000.0), 64);
    assert_eq!(allowance(1, 0.0), 16);
    assert_eq!(allowance(64, 0.0), 128);
    assert_eq!(allowance(64, 20_000.0), 10_000);
    assert_eq!(allowance(64, 100.0), 128);
    assert_eq!(allowance(u64::MAX, f64::NAN), u64::MAX);
}

#[test]
fn a_drain_is_learned_within_a_second_and_kept_while_nobody_waits() {
    let tick = Duration::from_millis(100);
    let mut drain = Drain::default();
    for _ in 0..10 {
        drain = drain.after(1_000, tick, true);
    }
    assert!((8_000.0..=10_000.0).contains(&drain.per_s()), "{drain:?}");
    // An idle queue is not a slow one.
    for _ in 0..100 {
        drain = drain.after(1, tick, false);
    }
    assert!(drain.per_s() > 8_000.0, "{drain:?}");
    for _ in 0..20 {
        drain = drain.after(1, tick, true);
    }
    assert!(drain.per_s() < 200.0, "{drain:?}");
    assert_eq!(drain.after(5, Duration::ZERO, true), drain);
}

#[test]
fn a_low_call_is_a_minute_behind_a_high_one_and_no_more() {
    assert_eq!(penalty(Priority::High), Duration::ZERO);
    assert_eq!(penalty(Priority::Normal), Duration::from_secs(30));
    assert_eq!(penalty(Priority::Low), Duration::from_secs(60));
}

/// How often a pointer that waits for ten minutes is published again by a walk with this period in seconds.
fn republished(every: u64) -> usize {
    let every = Duration::from_secs(every);
    let rounds = 600 / every.as_secs();
    (1..=rounds)
        .filter(|round| {
            let age = every * u32::try_from(*round).unwrap();
            worth_republishing(every)
                .iter()
                .any(|worth| worth.contains(&age))
        })
        .count()
}

#[test]
fn a_pointer_that_waits_ten_minutes_is_published_again_three_times() {
    let worth = worth_republishing(Duration::from_secs(1));
    let from: Vec<u64> = worth.iter().map(|worth| worth.start.as_secs()).collect();
    assert_eq!(from, [3, 24, 192, 1_536, 12_288]);
    assert_eq!(worth[1].start, DOUBTED_AFTER, "never at the first step");
    for every in [1, 2, 3, 5, 12, 20] {
        assert_eq!(republished(every), 3, "every {every} s");
    }
}

#[test]
fn who_has_never_looked_finds_everything_worth_it() {
    let worth = worth_republishing(WAITS_MAX);
    assert_eq!(worth.len(), 1);
    assert!(worth[0].contains(&Duration::from_secs(3)));
    assert!(worth[0].contains(&WAITS_MAX));
    assert!(!worth[0].contains(&Duration::from_secs(2)));
}

proptest! {
    #[test]
    fn room_is_given_out_whole_and_evenly(room in 0_usize..2_000, tenants in 0_usize..300) {
        let shares = shares(room, tenants);
        prop_assert!(shares.len() <= tenants);
        prop_assert!(shares.iter().all(|share| *share > 0));
        let (most, least) = (shares.first(), shares.last());
        prop_assert!(most.unwrap_or(&0) - least.unwrap_or(&0) <= 1);
        prop_assert!(shares.is_sorted_by(|one, next| one >= next), "the first in turn first");
        let given: usize = shares.iter().sum();
        prop_assert_eq!(given, if tenants == 0 { 0 } else { room });
    }

    #[test]
    fn a_step_of_age_is_seen_once_whoever_looks_regularly(every_ms in 100_u64..60_000, began_ms in 0_u64..60_000) {
        let every = Duration::from_millis(every_ms);
        let worth = worth_republishing(every);
        // Looks at these ages; each step is seen by the first look after it.
        for step in [3_u64, 24, 192, 1_536] {
            let step = Duration::from_secs(step);
            let mut age = Duration::from_millis(began_ms % every_ms);
            while age < step {
                age += every;
            }
            prop_assert!(worth.iter().any(|worth| worth.contains(&age)), "{age:?} after {step:?}");
        }
    }

    #[test]
    fn an_allowance_never_shrinks_with_more_hands(slots in 1_u64..5_000, more in 0_u64..5_000, drain in 0.0_f64..50_000.0) {
        prop_assert!(allowance(slots, drain) <= allowance(slots + more, drain));
        prop_assert!(allowance(slots, drain) >= slots);
    }
}

#[test]
fn a_tool_has_room_for_what_neither_runs_nor_is_on_its_way() {
    let room = |limit, running, on_its_way| {
        room_of_tool(
            Some(limit),
            Admitted {
                running,
                on_its_way,
            },
        )
    };
    assert_eq!(room(3, 0, 0), 3);
    assert_eq!(room(3, 1, 1), 1);
    // Retries come back without a release, and a limit can be lowered.
    assert_eq!((room(3, 2, 4), room(1, 3, 0)), (0, 0));
    let on_their_way = Admitted {
        running: 500,
        on_its_way: 4,
    };
    assert_eq!(room_of_tool(None, on_their_way), 60);
}
