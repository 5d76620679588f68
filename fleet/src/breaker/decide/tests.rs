use proptest::prelude::*;

use super::*;

const TERMS: BreakerTerms = BreakerTerms {
    calls: 4,
    failures: 50,
    slow: None,
    open_ms: 1_000,
    open_max_ms: 3_000,
    probes: 2,
};

const fn counted(calls: i64, failures: i64, slow: i64) -> Counted {
    Counted {
        calls,
        failures,
        slow,
    }
}

fn judged(all: &[Counted], terms: &BreakerTerms) -> ReportVerdict {
    Breaker::default().judge(all[0], all, ALONE_MS, 0, terms)
}

#[test]
fn a_closed_breaker_opens_at_its_share_of_enough_attempts() {
    let slow = BreakerTerms {
        slow: Some(100),
        ..TERMS
    };
    for (counted, terms, verdict) in [
        (counted(3, 3, 0), TERMS, ReportVerdict::Stays),
        (counted(4, 1, 0), TERMS, ReportVerdict::Stays),
        (counted(4, 2, 0), TERMS, ReportVerdict::Opened),
        (counted(4, 0, 4), TERMS, ReportVerdict::Stays),
        (counted(4, 0, 3), slow, ReportVerdict::Stays),
        (counted(4, 0, 4), slow, ReportVerdict::Opened),
    ] {
        assert_eq!(judged(&[counted], &terms), verdict, "{counted:?}");
    }
}

#[test]
fn one_bad_worker_among_several_opens_nothing() {
    let good = counted(10, 0, 0);
    for (all, verdict) in [
        // Only the reporting one fails: enough by itself, too little for all.
        (vec![counted(4, 4, 0), good], ReportVerdict::Local),
        (
            vec![counted(9, 9, 0), counted(1, 0, 0)],
            ReportVerdict::Local,
        ),
        (vec![counted(3, 3, 0), good], ReportVerdict::Stays),
        // Another one does.
        (
            vec![counted(1, 0, 0), counted(9, 9, 0)],
            ReportVerdict::Stays,
        ),
        // Two fail, and that is the target.
        (
            vec![counted(9, 9, 0), counted(1, 1, 0)],
            ReportVerdict::Opened,
        ),
        // Nobody else has called.
        (
            vec![counted(4, 4, 0), counted(0, 0, 0)],
            ReportVerdict::Opened,
        ),
    ] {
        assert_eq!(judged(&all, &TERMS), verdict, "{all:?}");
    }
}

#[test]
fn one_worker_that_is_heard_alone_decides_nothing_at_once() {
    let failed = counted(4, 4, 0);
    let judged = |all: &[Counted], heard_for_ms| {
        Breaker::default().judge(all[0], all, heard_for_ms, 0, &TERMS)
    };
    assert_eq!(judged(&[failed], ALONE_MS - 1), ReportVerdict::Unsure);
    assert_eq!(judged(&[failed], ALONE_MS), ReportVerdict::Opened);
    assert_eq!(judged(&[failed, failed], 0), ReportVerdict::Opened);
    assert_eq!(judged(&[counted(3, 3, 0)], 0), ReportVerdict::Stays);
}

#[test]
fn a_breaker_goes_round() {
    let mut breaker = Breaker::default();
    let failed = counted(4, 4, 0);
    assert_eq!(
        breaker.judge(failed, &[failed], ALONE_MS, 0, &TERMS),
        ReportVerdict::Opened
    );
    let ask = |breaker: &mut Breaker, now| breaker.permit(now, 500, &TERMS).verdict;
    assert_eq!(breaker.permit(999, 500, &TERMS).left_ms, Some(1));
    assert_eq!(ask(&mut breaker, 1_000), PermitVerdict::Granted);
    assert_eq!(ask(&mut breaker, 1_001), PermitVerdict::Granted);
    assert_eq!(ask(&mut breaker, 1_002), PermitVerdict::Refused);
    // One comes back unused, and is given out again.
    assert!(!breaker.give_back(1));
    assert!(breaker.give_back(2));
    assert_eq!(ask(&mut breaker, 1_003), PermitVerdict::Granted);
    // A probe fails: open twice as long, then as long as it may be.
    let bad = counted(2, 1, 0);
    for (now, until) in [(2_000, 4_000), (5_000, 8_000), (9_000, 12_000)] {
        if breaker.state == BreakerState::Open {
            assert_eq!(ask(&mut breaker, now), PermitVerdict::Granted);
        }
        assert_eq!(
            breaker.judge(bad, &[bad], ALONE_MS, now, &TERMS),
            ReportVerdict::Opened
        );
        assert_eq!(breaker.open_until, Some(until));
    }
    // A round that nobody answers lapses, and another begins.
    let round = breaker.permit(12_000, 500, &TERMS).generation;
    assert_eq!(ask(&mut breaker, 12_001), PermitVerdict::Granted);
    assert_eq!(ask(&mut breaker, 22_500), PermitVerdict::Refused);
    let next = breaker.permit(22_501, 500, &TERMS);
    assert_eq!(
        (next.verdict, next.generation),
        (PermitVerdict::Granted, round + 1)
    );
    // Its probes succeed.
    let (one, two) = (counted(1, 0, 0), counted(2, 0, 0));
    assert_eq!(
        breaker.judge(one, &[one], ALONE_MS, 22_600, &TERMS),
        ReportVerdict::Stays
    );
    assert_eq!(
        breaker.judge(two, &[two], ALONE_MS, 22_700, &TERMS),
        ReportVerdict::Closed
    );
    assert_eq!((breaker.state, breaker.open_ms), (BreakerState::Closed, 0));
}

#[derive(Debug, Clone)]
enum Step {
    Wait(i64),
    Permit,
    GiveBack,
    Report(Counted),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step =
        prop_oneof![
            (1_i64..5_000).prop_map(Step::Wait),
            Just(Step::Permit),
            Just(Step::GiveBack),
            (0_i64..6, 0_i64..6, 0_i64..6).prop_map(|(calls, failures, slow)| Step::Report(
                counted(calls, failures.min(calls), slow.min(calls))
            )),
        ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    #[test]
    fn no_generation_has_more_probes_than_it_may_and_none_comes_back(steps in steps()) {
        let (mut breaker, mut now) = (Breaker::default(), 0);
        for step in steps {
            let before = breaker;
            match step {
                Step::Wait(ms) => now += ms,
                Step::Permit => {
                    let answer = breaker.permit(now, 100, &TERMS);
                    if before.state == BreakerState::Open && before.open_until > Some(now) {
                        prop_assert_eq!(answer.verdict, PermitVerdict::Refused);
                    }
                    prop_assert_eq!(answer.generation, breaker.generation);
                }
                Step::GiveBack => { breaker.give_back(before.generation); }
                Step::Report(counted) => { breaker.judge(counted, &[counted], ALONE_MS, now, &TERMS); }
            }
            prop_assert!(breaker.probes_out <= TERMS.probes);
            prop_assert!(breaker.generation >= before.generation);
            if breaker.state != before.state {
                prop_assert_eq!(breaker.generation, before.generation + 1);
            }
            prop_assert!(breaker.open_ms <= TERMS.open_max_ms);
            if breaker.state == BreakerState::Open {
                prop_assert!(breaker.open_until <= Some(now + TERMS.open_max_ms));
            }
            if breaker.state == BreakerState::HalfOpen {
                prop_assert!(breaker.round_until.is_some());
            }
        }
        // From anywhere, time alone leads back to a probe.
        if breaker.state != BreakerState::Closed {
            let later = now + TERMS.open_max_ms + 100 + ROUND_GRACE_MS;
            prop_assert_eq!(breaker.permit(later, 100, &TERMS).verdict, PermitVerdict::Granted);
        }
    }
}
