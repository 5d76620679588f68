//! Tells a turn to one follower: the events of its session go through the speaker, from the first one, and what the follower has already is
//! left out.

use std::{collections::HashSet, sync::Arc};

use fleet::{
    ids::{CallId, Label},
    wire::event::{Event, Happening},
};
use time::OffsetDateTime;

use super::{
    answered::take_back,
    header::TURN,
    rows::{row, row_if_over},
};
use crate::{
    events::{
        begin::WhyMissing,
        deliver::{StreamGoes, Wording},
        place::EventId,
        raw,
        told::{EventGap, SessionEvent, Told},
        way::Said,
    },
    speaker::{
        FinalRow, News, Resume, SpeakerInput, Speech, SpokenId, SpokenPlace, StreamEpoch,
        TurnHeader,
    },
    state::Gateway,
};

/// The place among the events of a message that none has: whoever has it was told by their rows of the calls of a turn that is lost.
const BY_ROWS: u32 = u32::MAX;

/// What a follower of a turn wants.
#[derive(Debug, Clone)]
pub(crate) struct TurnWanted {
    pub(crate) tenant: Label,
    /// Which response of it.
    pub(crate) response: String,
    /// The last event that it was told, if it was told one.
    pub(crate) last: Option<SpokenId>,
    /// Behind which number it wants to go on, if it says one.
    pub(crate) after: Option<u64>,
    /// Whether it wants events that only the fleet has.
    pub(crate) extensions: bool,
    /// Whether the stream has the header of that response.
    pub(crate) is_kept: bool,
}

impl TurnWanted {
    /// A response of which the stream has the header, from its first event on.
    pub(crate) const fn all_of(tenant: Label, response: String) -> Self {
        Self {
            tenant,
            response,
            last: None,
            after: None,
            extensions: false,
            is_kept: true,
        }
    }

    /// Whether its follower has had something of it.
    pub(crate) const fn goes_on(&self) -> bool {
        self.last.is_some() || self.after.is_some()
    }
}

/// A turn that is told.
#[derive(Debug)]
pub(crate) struct TurnTold {
    gateway: Arc<Gateway>,
    wanted: TurnWanted,
    speech: Speech,
    resume: Resume,
    /// The stream, once something of it was heard.
    epoch: Option<u64>,
    /// The place of the last event that was said.
    last: Option<SpokenPlace>,
    /// What is to be made good once the header is there.
    gap: Option<EventGap>,
    /// What is told with the header then: who has had all of that already is told nothing.
    held: Said,
    /// The last event that was heard.
    heard: Option<EventId>,
    /// The calls whose ends were heard.
    ended: HashSet<CallId>,
}

impl TurnTold {
    /// Nothing is told yet.
    pub(crate) fn new(gateway: Arc<Gateway>, wanted: TurnWanted) -> Self {
        let resume = match (&wanted.last, wanted.after) {
            (Some(last), _) => Resume::BehindId(last.place),
            (None, Some(number)) => Resume::BehindNumber(number),
            (None, None) => Resume::Start,
        };
        Self {
            gateway,
            speech: Speech::of(&wanted.response),
            resume,
            wanted,
            epoch: None,
            last: None,
            gap: None,
            held: Said::default(),
            heard: None,
            ended: HashSet::new(),
        }
    }

    /// Begins with the stream of this epoch. Who was told something of another one hears so, and then everything.
    fn begins(&mut self, id: EventId, to: &mut Said) {
        if self.epoch.is_some() {
            return;
        }
        self.epoch = Some(id.epoch);
        let epoch = name_of(id.epoch);
        let is_other = |last: &SpokenId| last.within(&epoch).is_none();
        if self.wanted.last.as_ref().is_some_and(is_other) {
            self.resume = Resume::Start;
            let gap = EventGap {
                behind: None,
                why: Some(WhyMissing::Epoch),
                up_to: id,
                calls: None,
            };
            raw::write_said(&gap, to.text());
        }
    }

    async fn hear(&mut self, event: &SessionEvent, to: &mut Said) {
        let news = self.news(event).await;
        if let News::Finished { event, .. } = &news {
            self.ended.insert(event.call_id);
        }
        self.heard = Some(event.id);
        let input = SpeakerInput {
            seq: event.id.sequence,
            at: event.at,
            news,
        };
        let Some(gap) = self.gap.take() else {
            self.speak(event.id.epoch, input, to);
            return;
        };
        let mut story = std::mem::take(&mut self.held);
        self.speak(event.id.epoch, input, &mut story);
        if self.speech.header().is_none() {
            (self.gap, self.held) = (Some(gap), story);
            return;
        }
        self.make_good(event.id, &gap, &mut story).await;
        if !self.has_had_all(event.id.epoch) {
            to.append(story);
        }
    }

    /// Whether everything is said, and the follower has had the last of it.
    fn has_had_all(&self, epoch: u64) -> bool {
        let had = self.had(epoch);
        self.speech.is_over() && had.is_some() && had == self.last
    }

    /// The place of what the follower was told last, where that is of this stream.
    fn had(&self, epoch: u64) -> Option<SpokenPlace> {
        self.wanted.last.as_ref()?.within(&name_of(epoch))
    }

    async fn news(&self, event: &SessionEvent) -> News {
        if event.kind == TURN {
            let header = TurnHeader::read(&event.payload);
            return header.map_or(News::Other, |header| News::Header(Box::new(header)));
        }
        let Ok(told) = Event::read(&event.payload) else {
            return News::Other;
        };
        if !self.speech.wants_row(&told) {
            return News::Event(told);
        }
        match self.row(told.call_id).await {
            Some(row) => News::Finished {
                event: told,
                row: Box::new(row),
            },
            None => News::Event(told),
        }
    }

    async fn row(&self, call: CallId) -> Option<FinalRow> {
        let row = row(&self.gateway.dispatchers, &self.wanted.tenant, call).await?;
        let answers = &self.gateway.stories.answers;
        Some(FinalRow {
            result: row.result.map(|result| answers.shared(result)),
            ..row
        })
    }

    /// Has the speaker hear something, and writes what it says. Several messages at one place go on with its numbers.
    fn speak(&mut self, epoch: u64, input: SpeakerInput, to: &mut Said) {
        let seq = input.seq;
        let mut spoken = self.speech.hear(input);
        let next = match self.last {
            Some(last) if last.seq == seq => last.k + 1,
            Some(_) | None => 0,
        };
        for (k, event) in (next..).zip(&mut spoken.events) {
            event.place = SpokenPlace { seq, k };
            self.last = Some(event.place);
        }
        take_back(&self.gateway, &self.wanted.tenant, &spoken.cancel);
        let stories = &self.gateway.stories;
        self.speech.share(|item| stories.items.shared(item));
        let epoch = name_of(epoch);
        for event in spoken.events {
            if (self.wanted.extensions || !event.is_extension) && self.resume.needs(&event) {
                to.event(event.to_sse(&epoch), &stories.events);
            }
        }
    }

    /// Something of the session is lost. The calls that are over are told from their rows, as soon as the speaker knows its turn; where it
    /// never will, the story cannot be told any more, and what the rows say stands for it: once, for the id behind that says that
    /// it was told.
    async fn lost(&mut self, gap: &EventGap, to: &mut Said) -> StreamGoes {
        self.epoch = Some(gap.up_to.epoch);
        self.resume = Resume::Start;
        if self.speech.header().is_some() {
            raw::write_said(gap, to.text());
            self.make_good(gap.up_to, gap, to).await;
        } else if self.wanted.is_kept {
            raw::write_said(gap, self.held.text());
            self.gap = Some(gap.clone());
        } else {
            let had = self.had(gap.up_to.epoch);
            if had.is_none_or(|had| had.k != BY_ROWS) {
                raw::write_said(gap, to.text());
                raw::write_snapshots(gap, to.text());
                let id = SpokenId {
                    epoch: name_of(gap.up_to.epoch),
                    place: SpokenPlace {
                        seq: gap.up_to.sequence,
                        k: BY_ROWS,
                    },
                };
                raw::write_id(&id, to.text());
            }
            return StreamGoes::Over;
        }
        StreamGoes::On
    }

    const fn goes(&self) -> StreamGoes {
        if self.speech.is_over() {
            StreamGoes::Over
        } else {
            StreamGoes::On
        }
    }

    /// Tells of the calls that are over what their rows say, without what was told before their ends.
    async fn make_good(&mut self, place: EventId, gap: &EventGap, to: &mut Said) {
        let over = gap.calls.iter().flat_map(|calls| &calls.over);
        let over: HashSet<&str> = over.map(|call| call.call_id.as_str()).collect();
        for call in self.open_calls() {
            if over.contains(call.to_string().as_str())
                && let Some(row) = self.row(call).await
            {
                self.ends(place, call, row, to);
            }
        }
    }

    /// The calls whose ends were not heard.
    fn open_calls(&self) -> Vec<CallId> {
        let header = self.speech.header();
        let calls = header.iter().flat_map(|header| &header.calls);
        let calls = calls.filter_map(|call| call.id());
        calls.filter(|call| !self.ended.contains(call)).collect()
    }

    /// Has the speaker hear the end of a call of which the stream says nothing.
    fn ends(&mut self, place: EventId, call: CallId, row: FinalRow, to: &mut Said) {
        self.ended.insert(call);
        let event = Event {
            call_id: call,
            // Behind everything that it has told.
            sequence: u64::MAX,
            // Time never goes back: that of the stream counts.
            at: OffsetDateTime::UNIX_EPOCH,
            what: Happening::Finished {
                state: row.state,
                outcome: row.outcome,
                attempts: 0,
                code: row.error.as_ref().map(|error| error.code),
            },
        };
        let input = SpeakerInput {
            seq: place.sequence,
            at: event.at,
            news: News::Finished {
                event,
                row: Box::new(row),
            },
        };
        self.speak(place.epoch, input, to);
    }
}

impl Wording for TurnTold {
    async fn say(&mut self, told: Arc<Told>, to: &mut Said) -> StreamGoes {
        match &*told {
            Told::Event(event) => {
                self.begins(event.id, to);
                self.hear(event, to).await;
            }
            Told::Gap(gap) => {
                if self.lost(gap, to).await == StreamGoes::Over {
                    return StreamGoes::Over;
                }
            }
        }
        self.goes()
    }

    /// An end may have been lost on its way: the rows know it.
    async fn idle(&mut self, to: &mut Said) -> StreamGoes {
        if let Some(place) = self.heard {
            for call in self.open_calls() {
                let dispatchers = &self.gateway.dispatchers;
                if let Some(row) = row_if_over(dispatchers, &self.wanted.tenant, call).await {
                    self.ends(place, call, row, to);
                }
            }
        }
        self.goes()
    }
}

fn name_of(epoch: u64) -> StreamEpoch {
    let name = epoch.to_string().parse();
    name.expect("a number is the name of an epoch")
}
