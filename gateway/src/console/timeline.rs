//! The timeline of a call: a lane for each attempt, a bar for each time it spent in a state, and the clock that bounds it. Pure, from the
//! call's story.

use maud::{Markup, html};
use time::{Duration, OffsetDateTime};

use super::{
    moment::{self, TimeForm, span},
    shown,
    visitor::Visitor,
    words::{self, Word},
};

/// A move of a call, as far as time is concerned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moved<'a> {
    pub(super) at: OffsetDateTime,
    pub(super) from: Option<&'a str>,
    pub(super) to: &'a str,
    pub(super) reason: &'a str,
}

/// What is known of a call beside its moves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clocks<'a> {
    /// Now, by Postgres's clock.
    pub(super) now: OffsetDateTime,
    /// Whether it is held where it waits now.
    pub(super) is_held: bool,
    /// When its next attempt may begin.
    pub(super) not_before: Option<OffsetDateTime>,
    pub(super) deadline: Option<OffsetDateTime>,
    /// How long attempts may take, each with its number, from 1.
    pub(super) timeouts: &'a [(usize, Duration)],
    /// Where moves are left out.
    pub(super) gap: Option<Gap>,
}

/// Moves that are left out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    /// How many moves are before it.
    pub(super) behind: usize,
    /// How many attempts begin within it.
    pub(super) attempts: usize,
}

/// In what a call spent its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BarKind {
    Queued,
    Held,
    Attempt,
    Pause,
    Waiting,
    Doubt,
    Probe,
}

impl BarKind {
    const fn class(self) -> &'static str {
        match self {
            Self::Queued => "bar-queued",
            Self::Held => "bar-held",
            Self::Attempt => "bar-attempt",
            Self::Pause => "bar-pause",
            Self::Waiting => "bar-waiting",
            Self::Doubt => "bar-doubt",
            Self::Probe => "bar-probe",
        }
    }

    const fn word(self) -> Word {
        match self {
            Self::Queued => words::BAR_QUEUED,
            Self::Held => words::BAR_HELD,
            Self::Attempt => words::BAR_ATTEMPT,
            Self::Pause => words::BAR_PAUSE,
            Self::Waiting => words::BAR_WAITING,
            Self::Doubt => words::BAR_DOUBT,
            Self::Probe => words::BAR_PROBE,
        }
    }
}

/// A time that a call spent in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bar {
    /// Which attempt it leads to or follows, from 0.
    pub(super) lane: usize,
    pub(super) kind: BarKind,
    pub(super) from: OffsetDateTime,
    /// `None`: it goes on.
    pub(super) until: Option<OffsetDateTime>,
    /// The clock that bounds it.
    pub(super) bound: Option<OffsetDateTime>,
}

/// The bars of a call. Moves come in their order; a remark, whose two states are equal, ends no bar.
pub(super) fn bars(moves: &[Moved<'_>], clocks: &Clocks<'_>) -> Vec<Bar> {
    let mut bars: Vec<Bar> = Vec::new();
    let mut attempts = 0_usize;
    for (place, moved) in moves.iter().enumerate() {
        if let Some(gap) = clocks.gap.filter(|gap| gap.behind == place) {
            attempts += gap.attempts;
            // When what went on then ended is not shown.
            bars.retain(|bar| bar.until.is_some());
        }
        if moved.from == Some(moved.to) {
            if moved.reason.starts_with("probe") {
                let lane = attempts.saturating_sub(1);
                bars.push(Bar {
                    lane,
                    kind: BarKind::Probe,
                    from: moved.at,
                    until: Some(moved.at),
                    bound: None,
                });
            }
            continue;
        }
        let open = bars.iter_mut().rev().find(|bar| bar.until.is_none());
        if let Some(open) = open {
            open.until = Some(moved.at.max(open.from));
        }
        let kind = match moved.to {
            "queued" if attempts > 0 => BarKind::Pause,
            "queued" => BarKind::Queued,
            "running" => BarKind::Attempt,
            "awaiting_client" => BarKind::Waiting,
            "in_doubt" => BarKind::Doubt,
            _over => continue,
        };
        // A call that waits for a yes has not been attempted yet; one whose tool answers later belongs to its attempt.
        let lane = match kind {
            BarKind::Attempt => {
                attempts += 1;
                attempts - 1
            }
            BarKind::Queued | BarKind::Pause => attempts,
            _other => attempts.saturating_sub(1),
        };
        let bound = match kind {
            BarKind::Attempt => {
                let timeout = clocks
                    .timeouts
                    .iter()
                    .find(|(number, _)| *number == attempts);
                timeout.map(|(_, timeout)| moved.at + *timeout)
            }
            _other => None,
        };
        bars.push(Bar {
            lane,
            kind,
            from: moved.at,
            until: None,
            bound,
        });
    }
    if let Some(last) = bars.iter_mut().rev().find(|bar| bar.until.is_none()) {
        match last.kind {
            BarKind::Queued | BarKind::Pause => {
                if clocks.is_held {
                    last.kind = BarKind::Held;
                }
                let later = clocks.not_before.filter(|at| *at > clocks.now);
                last.bound = later.or(clocks.deadline);
            }
            BarKind::Waiting => last.bound = clocks.deadline,
            _other => {}
        }
    }
    bars
}

const WIDTH: i64 = 1_000;
const LANE: i64 = 28;
const LABEL: i64 = 40;

/// The bars drawn, and the same as a list for who does not see them.
pub(super) fn drawn(visitor: &Visitor, bars: &[Bar], now: OffsetDateTime) -> Markup {
    let Some(first) = bars.first() else {
        return Markup::default();
    };
    let end = bars
        .iter()
        .map(|bar| {
            bar.until.unwrap_or(now).max(
                bar.bound
                    .filter(|_| bar.until.is_none())
                    .unwrap_or(bar.from),
            )
        })
        .max()
        .unwrap_or(now);
    let scale = Scale::new(first.from, end);
    let mut lanes: Vec<usize> = bars.iter().map(|bar| bar.lane).collect();
    lanes.sort_unstable();
    lanes.dedup();
    let row_of = |lane: usize| {
        let row = lanes.partition_point(|other| *other < lane);
        i64::try_from(row).unwrap_or(0)
    };
    let height = i64::try_from(lanes.len()).unwrap_or(1) * LANE;
    let drawing = html! {
        svg.timeline viewBox=(format!("0 0 {} {height}", WIDTH + LABEL + 8)) aria-hidden="true" {
            @for lane in &lanes {
                rect.lane x=(LABEL) y=(row_of(*lane) * LANE + 2) width=(WIDTH) height=(LANE - 4) {}
                text x="4" y=(row_of(*lane) * LANE + 18) { (lane + 1) }
            }
            @for bar in bars { (bar_drawn(visitor, bar, row_of(bar.lane), &scale, now)) }
        }
    };
    html! {
        figure #timeline data-live {
            figcaption.hint { (visitor.say(words::TIMELINE_HINT)) " " (span(end - first.from)) }
            (shown::wide(visitor.say(words::TIMELINE), &drawing))
            ol.timeline-list {
                @for bar in bars { li { (listed(visitor, bar, now)) } }
            }
        }
    }
}

fn bar_drawn(visitor: &Visitor, bar: &Bar, row: i64, scale: &Scale, now: OffsetDateTime) -> Markup {
    let (from, until) = (scale.x(bar.from), scale.x(bar.until.unwrap_or(now)));
    let top = row * LANE + 5;
    html! {
        rect class={ "bar " (bar.kind.class()) } x=(from) y=(top) width=((until - from).max(3)) height=(LANE - 10) {
            title { (visitor.say(bar.kind.word())) " " (span(bar.until.unwrap_or(now) - bar.from)) }
        }
        @if let Some(bound) = bar.bound.filter(|bound| scale.has(*bound)) {
            @let x = scale.x(bound);
            line.bound x1=(x) x2=(x) y1=(row * LANE + 2) y2=(row * LANE + LANE - 2) {}
        }
    }
}

fn listed(visitor: &Visitor, bar: &Bar, now: OffsetDateTime) -> Markup {
    html! {
        span class={ "key " (bar.kind.class()) } aria-hidden="true" {}
        b { (visitor.say(bar.kind.word())) }
        @if bar.kind == BarKind::Attempt { " " (bar.lane + 1) }
        " " (moment::at(bar.from, TimeForm::Time)) ", "
        (span(bar.until.unwrap_or(now) - bar.from))
        @if bar.until.is_none() { ", " (visitor.say(words::UNTIL_NOW)) }
        @if let Some(bound) = bar.bound {
            ", " (visitor.say(words::AT_MOST_UNTIL)) " " (moment::at(bound, TimeForm::Time))
        }
    }
}

/// Where a moment is drawn.
struct Scale {
    from: OffsetDateTime,
    nanos: i128,
}

impl Scale {
    fn new(from: OffsetDateTime, until: OffsetDateTime) -> Self {
        let nanos = (until - from).whole_nanoseconds().max(1);
        Self { from, nanos }
    }

    fn has(&self, moment: OffsetDateTime) -> bool {
        (moment - self.from).whole_nanoseconds() <= self.nanos
    }

    fn x(&self, moment: OffsetDateTime) -> i64 {
        let behind = (moment - self.from)
            .whole_nanoseconds()
            .clamp(0, self.nanos);
        let x = behind * i128::from(WIDTH) / self.nanos;
        LABEL + i64::try_from(x).unwrap_or(WIDTH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH + Duration::seconds(seconds)
    }

    fn moved<'a>(seconds: i64, from: Option<&'a str>, to: &'a str, reason: &'a str) -> Moved<'a> {
        Moved {
            at: at(seconds),
            from,
            to,
            reason,
        }
    }

    fn clocks(now: i64) -> Clocks<'static> {
        const TIMEOUTS: &[(usize, Duration)] =
            &[(1, Duration::seconds(10)), (2, Duration::seconds(10))];
        Clocks {
            now: at(now),
            is_held: false,
            not_before: None,
            deadline: Some(at(100)),
            timeouts: TIMEOUTS,
            gap: None,
        }
    }

    fn told(bars: &[Bar]) -> Vec<(usize, BarKind, i64, Option<i64>)> {
        let second = |moment: OffsetDateTime| moment.unix_timestamp();
        bars.iter()
            .map(|bar| (bar.lane, bar.kind, second(bar.from), bar.until.map(second)))
            .collect()
    }

    #[test]
    fn each_attempt_has_its_lane_with_what_led_to_it() {
        let moves = [
            moved(0, None, "queued", "accepted"),
            moved(1, Some("queued"), "running", "claimed"),
            moved(4, Some("running"), "queued", "timeout"),
            moved(6, Some("queued"), "running", "claimed"),
            moved(9, Some("running"), "succeeded", "applied"),
        ];
        let bars = bars(&moves, &clocks(50));
        assert_eq!(
            told(&bars),
            [
                (0, BarKind::Queued, 0, Some(1)),
                (0, BarKind::Attempt, 1, Some(4)),
                (1, BarKind::Pause, 4, Some(6)),
                (1, BarKind::Attempt, 6, Some(9)),
            ]
        );
        assert_eq!(bars[1].bound, Some(at(11)));
    }

    #[test]
    fn attempts_that_are_left_out_have_their_numbers_and_no_lane() {
        let moves = [
            moved(0, None, "queued", "accepted"),
            moved(1, Some("queued"), "running", "claimed"),
            moved(70, Some("queued"), "running", "claimed"),
            moved(80, Some("running"), "succeeded", "applied"),
        ];
        let gap = Some(Gap {
            behind: 2,
            attempts: 7,
        });
        let bars = bars(&moves, &Clocks { gap, ..clocks(90) });
        assert_eq!(
            told(&bars),
            [
                (0, BarKind::Queued, 0, Some(1)),
                (8, BarKind::Attempt, 70, Some(80)),
            ]
        );
    }

    #[test]
    fn a_doubt_goes_on_and_probes_are_seen_in_it() {
        let moves = [
            moved(0, None, "queued", "accepted"),
            moved(1, Some("queued"), "running", "claimed"),
            moved(4, Some("running"), "in_doubt", "worker_lost"),
            moved(7, Some("in_doubt"), "in_doubt", "probe_undecided"),
        ];
        let bars = bars(&moves, &clocks(50));
        let doubt = (0, BarKind::Doubt, 4, None);
        assert_eq!(told(&bars)[2..], [doubt, (0, BarKind::Probe, 7, Some(7))]);
    }

    #[test]
    fn what_waits_now_is_bounded_by_its_next_attempt_or_its_deadline() {
        let moves = [moved(0, None, "queued", "accepted")];
        let held = Clocks {
            is_held: true,
            ..clocks(5)
        };
        let found = bars(&moves, &held);
        assert_eq!(
            (found[0].kind, found[0].bound),
            (BarKind::Held, Some(at(100)))
        );
        let later = Clocks {
            not_before: Some(at(9)),
            ..clocks(5)
        };
        assert_eq!(bars(&moves, &later)[0].bound, Some(at(9)));
    }

    #[test]
    fn moments_stay_within_the_drawing_whatever_the_clocks_say() {
        let scale = Scale::new(at(10), at(20));
        assert_eq!((scale.x(at(10)), scale.x(at(20))), (LABEL, LABEL + WIDTH));
        assert_eq!((scale.x(at(0)), scale.x(at(90))), (LABEL, LABEL + WIDTH));
        let point = Scale::new(at(10), at(10));
        assert_eq!(point.x(at(10)), LABEL);
    }
}
