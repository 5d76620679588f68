//! A turn whose header is known: who has the word, and what was told of each call.

use fleet::{call::Awaiting, ids::CallId};
use time::{Duration, OffsetDateTime};

use super::{
    buckets::Buckets,
    choose::{Candidate, next_speaker},
    ending::CallEnd,
    events::{ResponseBody, ResponseStatus, StreamEvent},
    header::{OnFinal, TurnCall, TurnHeader, TurnSlot},
    heard::{HeardCall, Standing},
    open::{Behind, OpenItem},
    shape::{ClientKind, ItemKind},
    showing::Closing,
    voice::Voice,
    whole::{say_approval_request, say_client_call, say_shell_call},
};

/// For how long the item that is open may be silent while another has something to say.
const SILENCE_MAX: Duration = Duration::seconds(15);
/// How many items a call may have. The last of them tells its end alone.
const ITEMS_MAX: u32 = 32;

/// What is known once the header is there.
#[derive(Debug)]
pub(super) struct ToldTurn {
    header: TurnHeader,
    /// The call whose answer is the assistant's.
    winner: Option<usize>,
    told: Vec<ToldCall>,
    open: Option<OpenItem>,
    /// Whether a call that was told is in doubt.
    has_doubt: bool,
    has_advised: bool,
}

/// What was told of a call.
#[derive(Debug, Clone)]
struct ToldCall {
    /// How many items it has had, those of responses before included.
    items: u32,
    /// Whether the client was told to run it.
    is_handed_over: bool,
    /// The request for approval that was shown.
    approval: Option<String>,
}

impl ToldTurn {
    /// Says that the response of this turn has begun.
    pub(super) fn begin(header: TurnHeader, now: OffsetDateTime, voice: &mut Voice) -> Self {
        let now = now.unix_timestamp();
        let response = &ResponseBody::of(&header, ResponseStatus::InProgress, &[], now);
        voice.say(&StreamEvent::Created { response });
        voice.say(&StreamEvent::InProgress { response });
        let told = header.calls.iter().map(|call| ToldCall {
            items: call.items_before,
            is_handed_over: false,
            approval: call.approval_request_id.clone(),
        });
        Self {
            winner: header.winner(),
            told: told.collect(),
            open: None,
            has_doubt: false,
            has_advised: false,
            header,
        }
    }

    /// The header.
    pub(super) const fn header(&self) -> &TurnHeader {
        &self.header
    }

    /// Says what can be said next; whether anything may be left to say.
    pub(super) fn step(
        &mut self,
        buckets: &mut Buckets,
        now: OffsetDateTime,
        voice: &mut Voice,
    ) -> bool {
        match self.open.take() {
            Some(open) => self.go_on(open, buckets, now, voice),
            None => match self.next(buckets, now) {
                Some(index) => {
                    self.give_word(index, buckets, now, voice);
                    true
                }
                None => false,
            },
        }
    }

    /// Who speaks next.
    fn next(&self, buckets: &Buckets, now: OffsetDateTime) -> Option<usize> {
        let shown = self.shown(buckets);
        let candidates = shown.map(|(index, call, heard)| {
            let said = heard.said_at();
            let is_silent = said.is_some_and(|said| now - said >= SILENCE_MAX);
            // Who had the word and gave it up for silence has it again when there is something to say.
            let gave_up = is_silent && self.told[index].items > 0;
            Candidate {
                index,
                ready_at: self.ready_at(index, heard),
                may_begin: matches!(heard.standing, Standing::GoesOn)
                    && !call.is_clients
                    && !heard.is_between_attempts()
                    && !heard.is_mute()
                    && !gave_up,
                is_silent,
            }
        });
        next_speaker(self.header.order, candidates)
    }

    /// Where in the stream a call told the first of what is still to be said of it.
    fn ready_at(&self, index: usize, heard: &HeardCall) -> Option<u64> {
        let is_over = heard.has_ended() && self.told[index].is_handed_over;
        // What the client has run it knows.
        heard.ready_at().filter(|_seq| !is_over)
    }

    fn shown<'a>(
        &'a self,
        buckets: &'a Buckets,
    ) -> impl Iterator<Item = (usize, &'a TurnCall, &'a HeardCall)> + Clone {
        let calls = self.header.calls.iter().zip(buckets.calls()).enumerate();
        let shown = calls.filter(|(_index, (call, _heard))| call.is_shown());
        shown.map(|(index, (call, heard))| (index, call, heard))
    }

    /// Says what the open item has to say, and closes it where its time is over. Whether another may speak then.
    fn go_on(
        &mut self,
        mut open: OpenItem,
        buckets: &mut Buckets,
        now: OffsetDateTime,
        voice: &mut Voice,
    ) -> bool {
        let index = open.index;
        let heard = &buckets.calls()[index];
        if open.attempt == 0 {
            open.attempt = heard.attempt();
        }
        let goes_on = matches!(heard.standing, Standing::GoesOn);
        let is_lost = heard.attempt() != open.attempt || heard.is_between_attempts();
        if is_lost && goes_on {
            self.close(open, Closing::CutShort, true, voice);
            return true;
        }
        if let Some(said) = heard.said_at() {
            open.said_at = open.said_at.max(said);
        }
        while let Some(part) = buckets.with(index, HeardCall::next_part) {
            open.say_part(&part, voice);
        }
        let heard = &buckets.calls()[index];
        match &heard.standing {
            Standing::Ended { end, .. } => {
                let (closing, is_whole) = (Closing::of(end), !heard.is_broken());
                let can_tell = end.fits(open.kind);
                let closed = match end {
                    CallEnd::Answer(_) if !can_tell => Closing::CutShort,
                    CallEnd::Answer(_) | CallEnd::Failure(_) => closing,
                };
                self.close(open, closed, is_whole, voice);
                if !can_tell {
                    let other = self.open(index, ItemKind::Mcp, now, voice);
                    self.close(other, closing, is_whole, voice);
                }
                self.has_said_end(index, buckets);
                true
            }
            Standing::Waits(wait) => {
                let whom = wait.whom;
                if let TurnSlot::CallId(call_id) = self.header.calls[index].slot {
                    open.say_awaiting(call_id, whom, voice);
                }
                self.close(open, Closing::CutShort, true, voice);
                // That it waits for the client's answer was said with it.
                if whom == Awaiting::Input {
                    buckets.with(index, has_said_wait);
                }
                true
            }
            Standing::GoesOn => {
                let is_silent = now - open.said_at >= SILENCE_MAX;
                if is_silent && self.has_another(index, buckets) {
                    self.close(open, Closing::CutShort, true, voice);
                    return true;
                }
                self.open = Some(open);
                false
            }
        }
    }

    fn has_another(&self, index: usize, buckets: &Buckets) -> bool {
        let mut others = self.shown(buckets).filter(|(other, ..)| *other != index);
        others.any(|(other, _call, heard)| self.ready_at(other, heard).is_some())
    }

    /// Gives the word to a call that has none of its items open.
    fn give_word(
        &mut self,
        index: usize,
        buckets: &mut Buckets,
        now: OffsetDateTime,
        voice: &mut Voice,
    ) {
        let call = &self.header.calls[index];
        let heard = &buckets.calls()[index];
        let kind = ItemKind::of(call, self.winner == Some(index));
        match (&heard.standing, &call.slot) {
            (Standing::Waits(wait), TurnSlot::CallId(call_id)) if wait.is_clients => {
                match wait.whom {
                    Awaiting::Approval => {
                        let id = self.item_id(index, "mcpr");
                        say_approval_request(&id, &self.header.calls[index], voice);
                        self.told[index].approval = Some(id);
                    }
                    Awaiting::Client | Awaiting::Completion => {
                        let (call_id, prefix) = (*call_id, ClientKind::of(call).prefix());
                        let id = self.item_id(index, prefix);
                        say_client_call(&id, call_id, &self.header.calls[index], voice);
                        self.told[index].is_handed_over = true;
                    }
                    Awaiting::Input => {
                        self.open = Some(self.open(index, kind, now, voice));
                        return;
                    }
                }
                buckets.with(index, has_said_wait);
            }
            // What it has told meanwhile would not change what such an item shows.
            (Standing::Ended { end, .. }, _) if end.is_told_alone(kind) => {
                let kind = if end.fits(kind) { kind } else { ItemKind::Mcp };
                let ended = self.open(index, kind, now, voice);
                self.close(ended, Closing::of(end), false, voice);
                buckets.with(index, HeardCall::break_off);
                self.has_said_end(index, buckets);
            }
            (Standing::Ended { .. } | Standing::Waits(_) | Standing::GoesOn, _) => {
                let mut open = self.open(index, kind, now, voice);
                open.attempt = heard.attempt();
                self.open = Some(open);
            }
        }
        if self.told[index].items >= ITEMS_MAX {
            buckets.with(index, HeardCall::mute);
        }
    }

    fn open(
        &mut self,
        index: usize,
        kind: ItemKind,
        now: OffsetDateTime,
        voice: &mut Voice,
    ) -> OpenItem {
        let commands = (kind == ItemKind::Shell).then(|| {
            let id = self.item_id(index, ClientKind::Shell.prefix());
            say_shell_call(&id, &self.header.calls[index], voice);
            id
        });
        let id = self.item_id(index, kind.prefix());
        let behind = Behind {
            approval: self.told[index].approval.clone(),
            commands,
        };
        let call = (index, &self.header.calls[index]);
        OpenItem::begin(call, kind, id, behind, now, voice)
    }

    fn close(&self, open: OpenItem, closing: Closing<'_>, is_whole: bool, voice: &mut Voice) {
        let call = &self.header.calls[open.index];
        open.close(call, closing, is_whole, voice);
    }

    /// An id for the next item of a call, made of what every gateway knows.
    fn item_id(&mut self, index: usize, prefix: &str) -> String {
        let nth = self.told[index].items;
        self.told[index].items += 1;
        match self.header.calls[index].slot {
            TurnSlot::CallId(id) => format!("{prefix}_{}_{nth}", id.0.simple()),
            TurnSlot::Refused { .. } => format!("{prefix}_{}_{index}_{nth}", self.header.turn_id),
        }
    }

    fn has_said_end(&mut self, index: usize, buckets: &mut Buckets) {
        let is_doubt = buckets.with(index, |heard| match &mut heard.standing {
            Standing::Ended { end, is_said, .. } => {
                *is_said = true;
                matches!(end, CallEnd::Failure(failure) if failure.is_doubt)
            }
            Standing::GoesOn | Standing::Waits(_) => false,
        });
        self.has_doubt |= is_doubt;
    }

    /// Which calls are of no use any more; told once.
    pub(super) fn advice(&mut self, buckets: &Buckets) -> Vec<CallId> {
        let is_answered = self.winner.is_some_and(|winner| {
            let end = &buckets.calls()[winner].standing;
            matches!(
                end,
                Standing::Ended {
                    end: CallEnd::Answer(_),
                    ..
                }
            )
        });
        if self.has_advised || !is_answered || self.header.on_final == OnFinal::Await {
            return Vec::new();
        }
        self.has_advised = true;
        let calls = self.header.calls.iter().zip(buckets.calls());
        let open = calls.filter(|(_call, heard)| !heard.has_ended());
        open.filter_map(|(call, _heard)| call.id()).collect()
    }

    /// Whether all is said but what waits for the client.
    pub(super) fn is_told(&self, buckets: &Buckets) -> bool {
        self.open.is_none()
            && self
                .shown(buckets)
                .all(|(index, _call, heard)| match &heard.standing {
                    Standing::Ended { is_said, .. } => *is_said || self.told[index].is_handed_over,
                    Standing::Waits(_) => heard.is_left_for_client(),
                    Standing::GoesOn => false,
                })
    }

    /// The calls that wait for the client and were told so, for the next response.
    pub(super) fn left_for_client(&self, buckets: &Buckets) -> Vec<TurnCall> {
        let told = self.shown(buckets);
        let left = told.filter(|(_index, _call, heard)| heard.is_left_for_client());
        let left = left.zip(0..).map(|((place, call, heard), index)| TurnCall {
            index,
            told_until: heard.seen(),
            items_before: self.told[place].items,
            approval_request_id: self.told[place].approval.clone(),
            ..call.clone()
        });
        left.collect()
    }

    /// Says that the response is over.
    pub(super) fn end(&self, now: OffsetDateTime, voice: &mut Voice) {
        let status = if self.has_doubt {
            ResponseStatus::Incomplete
        } else {
            ResponseStatus::Completed
        };
        let output = voice.output().to_vec();
        let response = &ResponseBody::of(&self.header, status, &output, now.unix_timestamp());
        voice.say(&match status {
            ResponseStatus::Incomplete => StreamEvent::Incomplete { response },
            ResponseStatus::Completed | ResponseStatus::InProgress => {
                StreamEvent::Completed { response }
            }
        });
    }
}

fn has_said_wait(heard: &mut HeardCall) {
    if let Standing::Waits(wait) = &mut heard.standing {
        wait.is_said = true;
    }
}
