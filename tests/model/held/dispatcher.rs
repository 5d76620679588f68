//! What dispatchers do: admit, hold, publish, release. `dispatcher/src/{admission,meter,commit}.rs`, `sweep/{release,due}.rs`.

use fleet::{
    call::State,
    hold::{Admitted, room_of_tool},
};

use super::{
    model::HeldModel,
    rules::HeldMutant,
    state::{
        ALLOWANCE, Dispatcher, HeldLine, HeldRow, HeldState, HeldStep, Message, Request, UNDER_WAY,
    },
};

impl HeldModel {
    /// A permit where the queue is open and has room; a call of a tool with a limit is always held.
    pub(crate) fn admit(&self, s: &mut HeldState, call: usize, dispatcher: u8) -> bool {
        if s.requests[call] != Request::NotSent {
            return false;
        }
        let meter = &mut s.dispatchers[usize::from(dispatcher)];
        let line = self.config.lines[call];
        let shares = line == Some(HeldLine::Slots);
        let at_its_bound = shares && (meter.tenant_waits || meter.under_way >= UNDER_WAY);
        let of_queue = shares || line == Some(HeldLine::Queue);
        let permit = of_queue && !at_its_bound && !meter.holds && meter.room > 0;
        if permit {
            meter.room -= 1;
            meter.on_their_way += 1;
            meter.under_way += u8::from(shares);
        }
        s.requests[call] = Request::Admitted { dispatcher, permit };
        true
    }

    /// The call gets its row, held where it has no permit.
    pub(crate) fn commit(&self, s: &mut HeldState, call: usize, answered: bool) -> bool {
        let Request::Admitted { dispatcher, permit } = s.requests[call] else {
            return false;
        };
        s.rows[call] = Some(HeldRow::accepted(!permit));
        if answered {
            s.requests[call] = Request::Committed { dispatcher, permit };
        } else {
            self.give_up(s, call);
        }
        true
    }

    /// The request ends; a permit that it has is dropped unused.
    pub(crate) fn give_up(&self, s: &mut HeldState, call: usize) -> bool {
        let Request::Admitted { dispatcher, permit } = s.requests[call] else {
            return false;
        };
        s.requests[call] = Request::Over;
        if permit && self.config.lines[call] == Some(HeldLine::Slots) {
            let believed = &mut s.dispatchers[usize::from(dispatcher)].under_way;
            *believed = believed.saturating_sub(1);
        }
        let leaks =
            self.lacks(HeldMutant::PermitLeaked) || self.lacks(HeldMutant::PermitLeakedUnaudited);
        if permit && !leaks {
            let back = if self.lacks(HeldMutant::PermitGivenBackTwice) {
                2
            } else {
                1
            };
            let meter = &mut s.dispatchers[usize::from(dispatcher)];
            meter.on_their_way -= back;
            meter.room += back;
        }
        true
    }

    /// Publishes with the permit, which uses it up; or closes the queue to later calls.
    pub(crate) fn announce(&self, s: &mut HeldState, call: usize) -> bool {
        let Request::Committed { dispatcher, permit } = s.requests[call] else {
            return false;
        };
        s.requests[call] = Request::Over;
        if permit {
            s.publish(call);
            s.dispatchers[usize::from(dispatcher)].on_their_way -= 1;
        } else {
            let line = self.config.lines[call];
            let meter = &mut s.dispatchers[usize::from(dispatcher)];
            let shares = line == Some(HeldLine::Slots);
            meter.tenant_waits |= shares;
            meter.holds |= line == Some(HeldLine::Queue) || shares && meter.room <= 0;
            if self.lacks(HeldMutant::LineForgotten) {
                meter.told[usize::from(line == Some(HeldLine::Tool))] = true;
            }
        }
        true
    }

    /// What it had in hand ends with it; its permits were its own memory.
    pub(crate) fn end_dispatcher(s: &mut HeldState, dispatcher: usize) -> bool {
        s.dispatchers[dispatcher] = Dispatcher::NEW;
        for request in &mut s.requests {
            if let Request::Admitted { dispatcher: at, .. }
            | Request::Committed { dispatcher: at, .. } = *request
                && usize::from(at) == dispatcher
            {
                *request = Request::Over;
            }
        }
        true
    }

    /// The stream may hold so much; what is on its way to it counts as there.
    pub(crate) fn look_at_stream(&self, s: &mut HeldState, dispatcher: usize) -> bool {
        let of_queue = self.of_line(HeldLine::Queue);
        let of_queue = of_queue.chain(self.of_line(HeldLine::Slots));
        let waiting = of_queue.map(|call| {
            let of = s.pointers[call];
            i8::from(of.current == Message::Waiting) + i8::from(of.earlier)
        });
        let waiting: i8 = waiting.sum();
        let meter = &mut s.dispatchers[dispatcher];
        meter.room = (ALLOWANCE - waiting).max(0) - meter.on_their_way;
        true
    }

    /// What counts as on its way and has no permit is given back.
    pub(crate) fn audit(s: &mut HeldState, dispatcher: usize) -> bool {
        let permits = s.permits(dispatcher);
        let meter = &mut s.dispatchers[dispatcher];
        let phantoms = (meter.on_their_way - permits).max(0);
        meter.on_their_way -= phantoms;
        meter.room += phantoms;
        phantoms > 0
    }

    /// Whether this dispatcher goes through the lines at all, and through this one.
    fn goes_through(&self, s: &HeldState, dispatcher: usize, line: HeldLine) -> bool {
        let holds_newer = || self.held_in(s, HeldLine::Newer).next().is_some();
        if self.lacks(HeldMutant::UnknownLineStopsReleases) && holds_newer() {
            return false;
        }
        let told = s.dispatchers[dispatcher].told[usize::from(line == HeldLine::Tool)];
        told || !self.lacks(HeldMutant::LineForgotten)
    }

    /// One turn of the queue's line: as many as there is room for. The queue is open again when all have gone.
    pub(crate) fn release_queue(&self, s: &mut HeldState, dispatcher: usize) -> bool {
        if !self.goes_through(s, dispatcher, HeldLine::Queue) {
            return false;
        }
        let opens = !self.lacks(HeldMutant::QueueStaysClosed);
        let waiting: Vec<usize> = self.held_in(s, HeldLine::Queue).collect();
        if waiting.is_empty() {
            s.dispatchers[dispatcher].holds &= !opens;
            return true;
        }
        let room = s.dispatchers[dispatcher].room;
        let places = usize::try_from(room).unwrap_or(0);
        for call in waiting.iter().take(places) {
            self.release(s, *call);
            s.dispatchers[dispatcher].count_one();
        }
        s.dispatchers[dispatcher].holds = places <= waiting.len() || !opens;
        true
    }

    /// One turn of the line of a queue whose slots tenants share: the tenant's calls under way are counted, and it gets as many as
    /// it may have and there is room for. Who is not in the line waits no more.
    pub(crate) fn release_slots(&self, s: &mut HeldState, dispatcher: usize) -> bool {
        let under_way = |call: &usize| {
            s.rows[*call].is_some_and(|row| match row.state {
                State::Running => true,
                State::Queued => !row.held && !row.waits,
                State::InDoubt => !row.time_is_over,
                _ => false,
            })
        };
        let counted = self.of_line(HeldLine::Slots).filter(under_way).count();
        let counted = u8::try_from(counted).expect("a handful");
        let admitted = s.requests.iter().zip(&self.config.lines).filter(|(request, line)| {
            **line == Some(HeldLine::Slots)
                && matches!(request, Request::Admitted { dispatcher: at, permit: true } if usize::from(*at) == dispatcher)
        });
        let admitted = u8::try_from(admitted.count()).expect("a handful");
        let waiting: Vec<usize> = self.held_in(s, HeldLine::Slots).collect();
        let room = usize::try_from(s.dispatchers[dispatcher].room).unwrap_or(0);
        if !waiting.is_empty() && room == 0 {
            s.dispatchers[dispatcher].holds = true;
            return true;
        }
        let mut share = UNDER_WAY.saturating_sub(counted);
        if self.lacks(HeldMutant::ShareNeverCounted) {
            share = UNDER_WAY.saturating_sub(s.dispatchers[dispatcher].under_way);
        }
        let places = room.min(share.into()).min(waiting.len());
        for call in waiting.iter().take(places) {
            self.release(s, *call);
            s.dispatchers[dispatcher].count_one();
        }
        let of = &mut s.dispatchers[dispatcher];
        let released = u8::try_from(places).expect("a handful");
        if self.lacks(HeldMutant::ShareNeverCounted) {
            of.under_way += released;
        } else {
            of.under_way = counted + released + admitted;
        }
        // Where the room is used up, calls that come later wait behind those that are left.
        of.holds = !waiting.is_empty() && room == places;
        let waits = of.holds || places < waiting.len();
        of.tenant_waits = waits || of.tenant_waits && self.lacks(HeldMutant::TenantWaitsForEver);
        true
    }

    /// `limited::admitted` and `fleet::hold::room_of_tool`.
    pub(crate) fn count_places(&self, s: &mut HeldState, dispatcher: usize) -> bool {
        if !self.goes_through(s, dispatcher, HeldLine::Tool)
            || self.held_in(s, HeldLine::Tool).next().is_none()
        {
            return false;
        }
        let handed_over = |call: &usize| {
            s.rows[*call].is_some_and(|row| row.state == State::Queued && !row.held && !row.waits)
        };
        let count = |n: usize| u32::try_from(n).expect("a handful");
        let admitted = Admitted {
            running: count(s.live().iter().filter(|live| **live).count()),
            on_its_way: count(self.of_line(HeldLine::Tool).filter(handed_over).count()),
        };
        let room = room_of_tool(Some(s.limit.into()), admitted);
        s.dispatchers[dispatcher].counted = u8::try_from(room).ok().filter(|room| *room > 0);
        true
    }

    /// One turn of the tool's line. Another dispatcher may have released the same meanwhile, or a call its last one.
    pub(crate) fn release_tool(&self, s: &mut HeldState, dispatcher: usize) -> bool {
        let Some(room) = s.dispatchers[dispatcher].counted.take() else {
            return false;
        };
        let waiting: Vec<usize> = self.held_in(s, HeldLine::Tool).collect();
        for call in waiting.into_iter().take(room.into()) {
            self.release(s, call);
        }
        true
    }

    /// `release.sql`: held and queued, looked at once more under the lock. It gets a new number.
    fn release(&self, s: &mut HeldState, call: usize) {
        let Some(row) = &mut s.rows[call] else { return };
        row.held = false;
        if !self.lacks(HeldMutant::ReleaseKeepsNumber) {
            s.renumber(call);
        }
    }

    /// `take_due`: a line that is not a queue's is not named there, so it has no room.
    pub(crate) fn take_due(&self, s: &mut HeldState, call: usize, dispatcher: usize) -> bool {
        let Some(row) = s.rows[call].filter(|row| row.state == State::Queued && row.waits) else {
            return false;
        };
        let meter = &mut s.dispatchers[dispatcher];
        let of_queue = self.config.lines[call] == Some(HeldLine::Queue);
        let fits = of_queue && !meter.holds && meter.room > 0;
        if fits {
            meter.count_one();
        }
        s.rows[call] = Some(HeldRow {
            waits: false,
            held: !fits,
            ..row
        });
        if fits {
            s.publish(call);
        }
        true
    }

    /// After a release, or because it has waited: the stream refuses what it has.
    pub(crate) fn publish_again(s: &mut HeldState, call: usize) -> bool {
        let may_run =
            s.rows[call].is_some_and(|row| row.state == State::Queued && !row.held && !row.waits);
        may_run && s.publish(call)
    }

    /// Calls whose line this is.
    pub(crate) fn of_line(&self, line: HeldLine) -> impl Iterator<Item = usize> {
        let lines = self.config.lines;
        (0..lines.len()).filter(move |call| lines[*call] == Some(line))
    }

    /// Calls that are held in this line.
    pub(crate) fn held_in(&self, s: &HeldState, line: HeldLine) -> impl Iterator<Item = usize> {
        let rows = s.rows;
        self.of_line(line)
            .filter(move |call| rows[*call].is_some_and(|row| row.held))
    }
}

impl Dispatcher {
    /// A publication that is made whether there is room or not. Below this the next look makes no difference.
    const fn count_one(&mut self) {
        if self.room > -2 {
            self.room -= 1;
        }
    }
}

impl HeldState {
    /// Whether the stream has taken it.
    pub(crate) fn publish(&mut self, call: usize) -> bool {
        let of = &mut self.pointers[call];
        let taken = of.current == Message::Absent;
        if taken {
            (of.current, of.ever) = (Message::Waiting, true);
        }
        taken
    }

    /// The call has a new number: messages under the one before are earlier ones from now on.
    pub(crate) fn renumber(&mut self, call: usize) {
        let of = &mut self.pointers[call];
        of.earlier |= of.current == Message::Waiting;
        of.current = Message::Absent;
        for worker in &mut self.workers {
            if let Some(taken) = worker.step.taken_mut()
                && usize::from(taken.call) == call
            {
                taken.current = false;
            }
        }
    }

    /// A message goes back into the stream.
    pub(crate) fn hand_back(&mut self, step: HeldStep) {
        let Some(taken) = step.taken() else { return };
        let of = &mut self.pointers[usize::from(taken.call)];
        if taken.current {
            of.current = Message::Waiting;
        }
    }
}
