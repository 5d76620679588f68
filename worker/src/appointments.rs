//! The time at which a call that found no free program slot comes again. Each tenant has a line of its own, and the calls of a
//! line come one after the other, as fast as programs end here. Pure: the time is an argument.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use crate::waiting::Tenant;

/// The appointments of one worker.
#[derive(Debug)]
pub(crate) struct Appointments {
    /// How long a program holds its slot, as a moving average.
    held: Duration,
    /// The last appointment of each tenant that has one.
    lines: HashMap<Tenant, Instant>,
}

impl Default for Appointments {
    fn default() -> Self {
        Self {
            held: Duration::from_millis(250),
            lines: HashMap::new(),
        }
    }
}

impl Appointments {
    /// The shortest pause.
    const MIN: Duration = Duration::from_millis(500);
    /// The longest pause: by then another worker may be idle. Long enough that thousands of calls do not come and go all the
    /// while.
    const MAX: Duration = Duration::from_secs(60);
    /// How many more calls come than programs end: a call that is put back again costs less than an idle slot.
    const OVERBOOKED: u32 = 2;
    /// The most lines. Further tenants share the line of messages without a tenant.
    const LINES_MAX: usize = 10_000;

    /// The pause of a tenant's next call, on a worker with `slots` program slots.
    pub(crate) fn next(&mut self, now: Instant, slots: usize, tenant: Tenant) -> Duration {
        let known = self.lines.contains_key(&tenant);
        if !known && self.lines.len() >= Self::LINES_MAX {
            // Rare, for it visits every line: the map is full only after so many tenants.
            self.lines.retain(|_, last| *last > now);
        }
        let line = if known || self.lines.len() < Self::LINES_MAX {
            tenant
        } else {
            None
        };
        let slots = u32::try_from(slots).unwrap_or(u32::MAX).max(1);
        let apart = self.held / slots / Self::OVERBOOKED;
        let behind = self.lines.get(&line).map_or(now, |last| *last + apart);
        let at = behind.clamp(now + Self::MIN, now + Self::MAX);
        self.lines.insert(line, at);
        at - now
    }

    /// A program held its slot for this long.
    pub(crate) fn learn(&mut self, held: Duration) {
        self.held = (self.held * 7 + held) / 8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Tenant {
        Some(name.parse().unwrap())
    }

    fn holding(held: Duration) -> Appointments {
        Appointments {
            held,
            ..Appointments::default()
        }
    }

    #[test]
    fn calls_of_one_tenant_come_again_one_after_the_other() {
        let (mut appointments, now) = (holding(Duration::from_secs(1)), Instant::now());
        let mut next = |now| appointments.next(now, 10, tenant("a"));
        let pauses: Vec<Duration> = (0..2_000).map(|_| next(now)).collect();
        assert_eq!(pauses[0], Duration::from_millis(500));
        assert_eq!(pauses[1], Duration::from_millis(550));
        assert_eq!(pauses[80], Duration::from_millis(4_500));
        assert_eq!(pauses[1_999], Appointments::MAX);
        // Appointments in the past do not delay later calls.
        assert_eq!(next(now + Duration::from_secs(90)), Appointments::MIN);
    }

    #[test]
    fn two_thousand_calls_of_one_tenant_do_not_delay_the_call_of_another() {
        let (mut appointments, now) = (holding(Duration::from_secs(15)), Instant::now());
        for _ in 0..2_000 {
            appointments.next(now, 2, tenant("greedy"));
        }
        for other in ["a", "b", "c"] {
            let pause = appointments.next(now, 2, tenant(other));
            assert_eq!(pause, Appointments::MIN);
        }
    }

    #[test]
    fn beyond_ten_thousand_tenants_the_others_share_a_line() {
        let (mut appointments, now) = (holding(Duration::from_secs(15)), Instant::now());
        for n in 0..Appointments::LINES_MAX + 10 {
            appointments.next(now, 2, tenant(&format!("t{n}")));
        }
        assert_eq!(appointments.lines.len(), Appointments::LINES_MAX + 1);
        let later = now + Duration::from_secs(90);
        appointments.next(later, 2, tenant("late"));
        assert_eq!(appointments.lines.len(), 1);
    }

    #[test]
    fn how_long_programs_take_is_learned() {
        let mut appointments = Appointments::default();
        for _ in 0..100 {
            appointments.learn(Duration::from_secs(2));
        }
        assert!(appointments.held > Duration::from_millis(1_990));
    }
}
