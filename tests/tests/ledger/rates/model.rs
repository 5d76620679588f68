//! A bucket of start times as plain data: the generic cell rate algorithm, in microseconds from any moment.

/// How many may start in which time, as the ledger keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) step: i64,
    pub(super) burst: i64,
}

/// A bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bucket {
    /// From when on it is as if nothing had ever started; `None`: nothing has.
    pub(super) tat: Option<i64>,
    /// Until when a remote has closed it.
    pub(super) closed: Option<i64>,
}

/// What was handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) count: i64,
    pub(super) first: i64,
    pub(super) next: i64,
}

/// No start time is handed out that is further away.
pub(super) const AHEAD: i64 = 500_000;

impl Bucket {
    /// Hands out start times one by one, each as early as the rule allows: `burst` at once, then one in each step.
    pub(super) fn take(&mut self, at: i64, numbers: Numbers, wanted: i64, within: i64) -> Given {
        let Numbers { step, burst } = numbers;
        let credit = (burst - 1) * step;
        let mut tat = self.tat.unwrap_or(at).max(at);
        if let Some(closed) = self.closed {
            tat = tat.max(closed + credit);
        }
        let first = tat - credit;
        let mut count = 0;
        while count < wanted && tat - credit <= at + within {
            tat += step;
            count += 1;
        }
        if count > 0 {
            self.tat = Some(tat);
        }
        Given {
            count,
            first,
            next: tat - credit,
        }
    }

    /// Nothing starts before this.
    pub(super) fn close(&mut self, until: i64) {
        self.closed = Some(self.closed.map_or(until, |closed| closed.max(until)));
    }

    /// So much time passes.
    pub(super) fn passes(&mut self, time: i64) {
        self.tat = self.tat.map(|tat| tat - time);
        self.closed = self.closed.map(|closed| closed - time);
    }
}

/// Whether in every window there are at most `burst` starts and one more for each step that it lasts.
pub(super) fn keeps(starts: &mut [i64], numbers: Numbers) -> Result<(), String> {
    starts.sort_unstable();
    let Numbers { step, burst } = numbers;
    let burst = usize::try_from(burst).expect("a burst is no negative number");
    // As many as a burst and one more are one step from end to end, and so on.
    let mut earliest = i64::MIN;
    for (place, start) in starts.iter().enumerate() {
        // The virtual time after this start, if every one before was as late as it could be.
        let credit = (i64::try_from(burst).unwrap_or(i64::MAX) - 1) * step;
        let tat = earliest.max(*start);
        if tat - credit > *start {
            return Err(format!(
                "start {place} at {start} is {} us too early",
                tat - credit - start
            ));
        }
        earliest = tat + step;
    }
    Ok(())
}
