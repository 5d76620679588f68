//! Releases held calls in turn, and measures for the meter how much room there is.

use std::{collections::HashMap, future::pending, time::Duration};

use async_nats::Subscriber;
use fleet::{
    checkpoint::{Checkpoint, reached},
    controls::ControlId,
    hold::{self, Line},
    ids::{Label, QueueName, ToolName},
    store::{
        PgConnection, StoreError, limited,
        release::{self, Holding, Released},
        session::within,
        under_way,
    },
    telemetry::{metrics, report},
};
use futures_util::{FutureExt, StreamExt, future::join_all};
use tokio::time::{Instant, sleep};

use super::{Sweep, breakers::ReleasedProbes, every, keys::KeyTurn, turn::Turn};
use crate::quota::Look;

/// How often the lines are visited while calls are held, and while none is known to be.
const BUSY: Duration = Duration::from_millis(50);
const IDLE: Duration = Duration::from_secs(1);
/// The pause between two rounds, however many calls are held meanwhile.
const PAUSE: Duration = Duration::from_millis(5);
/// How long a look at the stream stays valid.
const FRESH: Duration = Duration::from_millis(10);
/// How often a busy queue is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// The most queues in one look; the others are next.
const LOOKS_AT_ONCE: usize = 32;
/// How often the slots of live workers are counted, and the meters are audited.
const COUNT: Duration = Duration::from_secs(1);
/// The most lines in one round. Each is a queue or a tool.
const LINES_MAX: u32 = 10_000;
/// The most calls that one statement releases.
const AT_ONCE: usize = 1_000;
/// How long a statement may take before its connection is given up.
const STATEMENT_MAX: Duration = Duration::from_secs(10);

/// The queue group of dispatchers, of which one hears that a place is free.
const RELEASERS: &str = "release";

/// What a releasing dispatcher remembers. No call's fate depends on it.
#[derive(Default)]
struct Releasing {
    connection: Option<PgConnection>,
    /// The tenant that was served last in each line.
    last: HashMap<Line, Label>,
    /// The pause whose calls were handed back last.
    handed_back: Option<ControlId>,
    /// What was released to probe targets.
    probes: ReleasedProbes,
    /// How far the lines of keys were served, of each tool that has some.
    keys: HashMap<ToolName, KeyTurn>,
    /// Whether calls wait for a target, whose time may be over soon.
    await_targets: bool,
    /// Whether the log says already that calls wait in a line of an unknown kind.
    said_unknown: bool,
}

impl Sweep {
    /// Releases held calls. Cancel-safe: a call that was released and not published is found by its age.
    pub(super) async fn release_held(self) {
        let mut releasing = Releasing::default();
        // One dispatcher is enough; if none hears it, the next round comes soon.
        let (subject, one_of) = (self.bus.subjects.room(), RELEASERS.to_owned());
        let mut bell = match self.bus.client.queue_subscribe(subject, one_of).await {
            Ok(bell) => Some(bell),
            Err(error) => {
                tracing::warn!(%error, "cannot listen for places of limited tools; looking for them instead");
                None
            }
        };
        loop {
            let holds = || self.meter.queues().iter().any(|(_, meter)| meter.holds());
            let none_wait = releasing.last.is_empty() && releasing.keys.is_empty();
            let pause = if none_wait && !releasing.await_targets && !holds() {
                IDLE
            } else {
                BUSY
            };
            tokio::select! {
                () = self.meter.until_call_is_held() => {}
                () = rung(&mut bell) => {}
                () = sleep(pause) => {}
            }
            // Calls that are released while nothing can be published would only wait elsewhere.
            if self.bus.is_connected() {
                let released = self.release(&mut releasing).await;
                if released.is_err() {
                    releasing.connection = None;
                }
                self.warn("release", released);
            }
            sleep(PAUSE).await;
        }
    }

    async fn release(&self, releasing: &mut Releasing) -> Result<(), StoreError> {
        let connection = match &mut releasing.connection {
            Some(connection) => connection,
            none => none.insert(release::connect(&self.postgres).await?),
        };
        let looking = release::lines(connection, LINES_MAX);
        let doing = "look which lines hold calls";
        let Holding {
            lines,
            pauses,
            breakers,
            keyed,
            unknown,
        } = within(doing, STATEMENT_MAX, looking).await?;
        if let Some(line) = unknown.filter(|_| !releasing.said_unknown) {
            releasing.said_unknown = true;
            tracing::warn!(
                line,
                "calls are held in a line that this program does not know: a newer dispatcher releases them"
            );
        }
        releasing.last.retain(|line, _| lines.contains(line));
        self.meter.lines_hold(&lines);
        self.running.lines_hold(&lines);
        let seem_half_full = self.running.to_be_counted();
        for (of, look, calls) in self.count_running(connection, seem_half_full).await? {
            self.running.seen(&of, look, calls);
        }
        self.hand_back(&pauses, &mut releasing.handed_back).await;
        releasing.await_targets = !breakers.is_empty();
        self.release_breakers(connection, &breakers, &mut releasing.probes)
            .await?;
        for line in lines {
            let last = releasing.last.remove(&line);
            let last = self.release_line(connection, &line, last).await?;
            releasing.last.extend(last.map(|last| (line, last)));
        }
        releasing.keys.retain(|tool, _| keyed.contains(tool));
        for tool in keyed {
            let turn = releasing.keys.remove(&tool).unwrap_or_default();
            let turn = self.release_keys(connection, &tool, turn).await?;
            releasing.keys.insert(tool, turn);
        }
        Ok(())
    }

    /// Hands out the room of a line, beginning after the tenant `last`; returns the tenant that was served last.
    async fn release_line(
        &self,
        connection: &mut PgConnection,
        line: &Line,
        last: Option<Label>,
    ) -> Result<Option<Label>, StoreError> {
        let room = self.room_of(connection, line).await?;
        self.release_room(connection, line, room, last).await
    }

    /// Hands out so much room of a line, beginning after the tenant `last`; returns the tenant that was served last.
    pub(super) async fn release_room(
        &self,
        connection: &mut PgConnection,
        line: &Line,
        mut room: usize,
        mut last: Option<Label>,
    ) -> Result<Option<Label>, StoreError> {
        let is_paced = self.is_paced(line);
        let mut all_served = false;
        while room > 0 {
            let at_once = room.min(AT_ONCE);
            let asked = match line {
                // Those that have all they may have take no part in the turn.
                Line::Slots(_) => AT_ONCE,
                Line::Tool(_) if is_paced => AT_ONCE,
                Line::Queue(_)
                | Line::Tool(_)
                | Line::Key(..)
                | Line::Pause(_)
                | Line::Breaker(_)
                | Line::After(_) => at_once,
            };
            let asking = release::tenants(connection, line, last.as_ref(), asked);
            let tenants = within("look who waits in a line", STATEMENT_MAX, asking).await?;
            let (last_asked, asked_all) = (tenants.last().cloned(), tenants.len());
            let turn = match line {
                Line::Slots(queue) => {
                    self.turn_of_slots(connection, queue, tenants, at_once)
                        .await?
                }
                Line::Tool(tool) if is_paced => {
                    self.turn_of_starts(connection, tool, tenants, at_once)
                        .await?
                }
                Line::Queue(_)
                | Line::Tool(_)
                | Line::Key(..)
                | Line::Pause(_)
                | Line::Breaker(_)
                | Line::After(_) => Turn::of(tenants, at_once),
            };
            all_served = turn.shares.is_empty();
            if all_served {
                // Who waits for a start time keeps its turn, unless others wait behind a thousand of them.
                if !is_paced || asked_all == asked {
                    last = last_asked.or(last);
                }
                break;
            }
            let released = self.release_turn(connection, line, &turn).await?;
            last = turn.last;
            if released == 0 || is_paced {
                // Start times are counted once in a look: those who were released have not asked for theirs yet.
                // Another dispatcher is releasing the same calls, or the calls that wait here can no longer run.
                break;
            }
            room = room.saturating_sub(released);
        }
        if let Line::Queue(queue) | Line::Slots(queue) = line {
            // Set only at the end of a turn: calls that were held meanwhile are released by the next, and a call that comes
            // while there is room need not wait behind them. Otherwise a busy queue that once held calls would hold calls for
            // ever.
            self.meter.queue(queue).set_holds(!all_served);
        }
        Ok(last)
    }

    /// The turn of tenants that may each have only so many calls of a queue under way.
    async fn turn_of_slots(
        &self,
        connection: &mut PgConnection,
        queue: &QueueName,
        tenants: Vec<Label>,
        room: usize,
    ) -> Result<Turn, StoreError> {
        let Some(most) = self.running.most_of(queue) else {
            return Ok(Turn::of(tenants, room));
        };
        if tenants.len() < AT_ONCE {
            self.running.only_these_wait(queue, &tenants);
        }
        let of = tenants.into_iter().map(|tenant| (queue.clone(), tenant));
        let counted = self.count_running(connection, of.collect()).await?;
        let turn = Turn::within(
            counted
                .iter()
                .map(|((_, tenant), _, calls)| (tenant.clone(), most.saturating_sub(*calls))),
            room,
        );
        let mut shares = turn.shares.iter().peekable();
        for (of, look, calls) in counted {
            let share = shares.next_if(|(tenant, _)| *tenant == of.1);
            let released = share.map_or(0, |(_, share)| *share as u64);
            self.running.seen(&of, look, calls.saturating_add(released));
        }
        Ok(turn)
    }

    /// Counts the calls of tenants that are under way in queues.
    async fn count_running(
        &self,
        connection: &mut PgConnection,
        of: Vec<(QueueName, Label)>,
    ) -> Result<Vec<((QueueName, Label), Look, u64)>, StoreError> {
        let Some(most) = self.running.most().filter(|_| !of.is_empty()) else {
            return Ok(Vec::new());
        };
        let looks = self.running.begin(&of);
        let counting = under_way::counts(connection, &of, most);
        let counted = within("count the calls of tenants", STATEMENT_MAX, counting).await?;
        let counted = looks.into_iter().zip(counted);
        Ok(of
            .into_iter()
            .zip(counted)
            .map(|(of, (look, calls))| (of, look, calls))
            .collect())
    }

    /// How many more of a line's calls may go to NATS now.
    pub(super) async fn room_of(
        &self,
        connection: &mut PgConnection,
        line: &Line,
    ) -> Result<usize, StoreError> {
        let room = match line {
            Line::Queue(queue) | Line::Slots(queue) => self.room_of_queue(queue).await,
            // Nobody is released from there: who waits for a pause, for a breaker to close or for another call, goes back to another
            // line first.
            Line::Pause(_) | Line::Breaker(_) | Line::After(_) => 0,
            // All keys of a tool share its room.
            Line::Tool(tool) | Line::Key(tool, _) => {
                let counting = limited::admitted(&mut *connection, tool);
                let mut counted =
                    within("count the calls of a tool", STATEMENT_MAX, counting).await?;
                let current = self.registry.current(tool);
                let manifest = current.as_ref().map(|current| &current.manifest);
                let places = manifest.and_then(|manifest| manifest.concurrency);
                let by_key = manifest.is_some_and(|manifest| manifest.rate_pointer().is_some());
                if let Some(places) = places.filter(|_| by_key) {
                    let counting = limited::on_their_way_by_key(connection, tool, places);
                    let doing = "count the calls of a tool's values";
                    let more = within(doing, STATEMENT_MAX, counting).await?;
                    counted.on_its_way = counted.on_its_way.saturating_add(more);
                }
                let paced = manifest.filter(|manifest| manifest.rate_limit.is_some());
                match paced {
                    // Who has a start time is on its way, too, for half a second: without places only the stream bounds them.
                    Some(paced) => {
                        let places = places.map_or(u64::MAX, |places| {
                            u64::from(hold::room_of_tool(Some(places), counted))
                        });
                        places.min(self.room_of_queue(&paced.queue).await)
                    }
                    // What nobody claims counts for a moment only: the stream bounds how much of it there is.
                    None => {
                        let room = u64::from(hold::room_of_tool(places, counted));
                        match manifest {
                            Some(manifest) => room.min(self.room_of_queue(&manifest.queue).await),
                            None => room,
                        }
                    }
                }
            }
        };
        Ok(usize::try_from(room).unwrap_or(usize::MAX))
    }

    /// How many more pointers of a queue the stream may hold.
    async fn room_of_queue(&self, queue: &QueueName) -> u64 {
        let meter = self.meter.queue(queue);
        if meter.is_older_than(FRESH) {
            self.look(queue).await;
        }
        meter.room()
    }

    /// Releases this turn's calls and publishes them. Returns their number.
    async fn release_turn(
        &self,
        connection: &mut PgConnection,
        line: &Line,
        turn: &Turn,
    ) -> Result<usize, StoreError> {
        let of_line = |(tenant, share): &(Label, usize)| (line.clone(), tenant.clone(), *share);
        let shares: Vec<_> = turn.shares.iter().map(of_line).collect();
        self.release_shares(connection, &shares).await
    }

    /// Releases so many calls of these tenants in these lines and publishes them. Returns their number.
    pub(super) async fn release_shares(
        &self,
        connection: &mut PgConnection,
        shares: &[(Line, Label, usize)],
    ) -> Result<usize, StoreError> {
        let releasing = release::release_of_lines(connection, shares);
        let released = within("release held calls", STATEMENT_MAX, releasing).await;
        // Without an answer they may have been released, and are not published.
        let released = released.inspect_err(|_silent| self.publisher.suspect())?;
        if !released.is_empty() {
            reached(Checkpoint::Released);
        }
        let count = released.len();
        for Released { call, held_ms } in released {
            metrics().released(Duration::from_millis(held_ms));
            self.meter.queue(&call.queue).count(1);
            self.publish(vec![call]).await;
        }
        Ok(count)
    }

    /// Keeps the meters of busy queues up to date. Cancel-safe: each look is one request.
    pub(super) async fn keep_meters(self) {
        let mut ticks = every(LOOK);
        let mut counted = None::<Instant>;
        loop {
            ticks.tick().await;
            if counted.is_none_or(|counted| counted.elapsed() >= COUNT) {
                counted = Some(Instant::now());
                self.meter.audit();
                self.warn("meter", self.count_slots().await);
            }
            if !self.bus.is_connected() {
                continue;
            }
            let busy = self.meter.queues().into_iter();
            let busy = busy.filter(|(_, meter)| meter.is_busy() && meter.is_older_than(LOOK / 2));
            let looks = busy.take(LOOKS_AT_ONCE);
            let sweep = &self;
            let looks = looks.map(|(queue, _)| async move { sweep.look(&queue).await });
            join_all(looks.collect::<Vec<_>>()).await;
        }
    }

    async fn count_slots(&self) -> Result<(), StoreError> {
        let counting = release::slots(&self.pool);
        let slots = within("count the slots of live workers", STATEMENT_MAX, counting).await?;
        self.meter.slots_are(slots);
        Ok(())
    }

    /// Looks at the stream. Without an answer the last look stands: publications since then count, so the room is never too
    /// large.
    async fn look(&self, queue: &QueueName) {
        if let Err(error) = self.meter.queue(queue).look(&self.bus, queue).await {
            tracing::debug!(%queue, error = report(&error), "what the stream holds was not seen");
        }
    }
}

/// Waits until workers have told that places are free, and takes all such messages. Cancel-safe.
async fn rung(bell: &mut Option<Subscriber>) {
    let Some(words) = bell else {
        return pending().await;
    };
    loop {
        match words.next().await {
            // A body names a call that has ended, of which its followers hear.
            Some(word) if !word.payload.is_empty() => {}
            Some(_place) => break,
            None => {
                *bell = None;
                return;
            }
        }
    }
    while let Some(Some(_word)) = words.next().now_or_never() {}
}
