//! **Where does a follower begin?** From what it asks for and from how the stream stands. Pure.

use fleet::bus::kept::KeptEvents;
use time::OffsetDateTime;

use super::place::EventId;

/// From where somebody wants to follow a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BeginAt {
    /// From now on.
    Now,
    /// With the oldest event that the stream has.
    Start,
    /// Behind this event.
    Behind(EventId),
}

/// Where a follower begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Beginning {
    /// Behind this place.
    pub(crate) behind: EventId,
    /// What may be missing before it.
    pub(crate) missing: Missing,
}

/// What may be missing before what is told next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// Nothing.
    Nothing,
    /// The events of calls that were accepted before this moment; `None`: of any call. There may be none of these.
    Older(Option<OffsetDateTime>),
    /// What came behind this event.
    Behind(EventId, WhyMissing),
}

/// Why events are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhyMissing {
    /// They are in a stream that is gone.
    Epoch,
    /// The stream has dropped them: they were too old, or too many.
    Dropped,
}

/// The stream has never had the event with this id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotYet;

/// Where a follower begins.
///
/// # Errors
///
/// It was never told what it says that it was told.
pub(crate) fn begin(at: BeginAt, stream: &KeptEvents) -> Result<Beginning, NotYet> {
    let place = |sequence| EventId {
        epoch: stream.epoch,
        sequence,
    };
    let oldest = place(stream.first - 1);
    let (behind, missing) = match at {
        BeginAt::Now => (place(stream.last), Missing::Nothing),
        BeginAt::Start => {
            // What was told before the stream was made is in none.
            let whole = stream.first == 1;
            let since = if whole {
                Some(stream.made_at)
            } else {
                stream.first_at
            };
            (oldest, Missing::Older(since))
        }
        BeginAt::Behind(last) if last.epoch != stream.epoch => {
            (oldest, Missing::Behind(last, WhyMissing::Epoch))
        }
        BeginAt::Behind(last) if last.sequence > stream.last => return Err(NotYet),
        BeginAt::Behind(last) if last.sequence < oldest.sequence => {
            (oldest, Missing::Behind(last, WhyMissing::Dropped))
        }
        BeginAt::Behind(last) => (last, Missing::Nothing),
    };
    Ok(Beginning { behind, missing })
}

/// What is missing for who has been told everything up to `known`, and has to begin anew.
pub(crate) fn begin_again(known: EventId, stream: &KeptEvents) -> Missing {
    match begin(BeginAt::Behind(known), stream) {
        Ok(Beginning { missing, .. }) => missing,
        // The same stream, and it has forgotten that it ever had this event.
        Err(NotYet) => Missing::Behind(known, WhyMissing::Dropped),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADE_AT: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    fn stream(first: u64, last: u64) -> KeptEvents {
        KeptEvents {
            epoch: 5,
            made_at: MADE_AT,
            first,
            first_at: (first <= last).then_some(MADE_AT + time::Duration::SECOND),
            last,
        }
    }

    const fn id(epoch: u64, sequence: u64) -> EventId {
        EventId { epoch, sequence }
    }

    fn begun(at: BeginAt, stream: &KeptEvents) -> (EventId, Missing) {
        let Beginning { behind, missing } = begin(at, stream).unwrap();
        (behind, missing)
    }

    #[test]
    fn from_now_on_nothing_is_missing() {
        assert_eq!(
            begun(BeginAt::Now, &stream(3, 9)),
            (id(5, 9), Missing::Nothing)
        );
        assert_eq!(
            begun(BeginAt::Now, &stream(1, 0)),
            (id(5, 0), Missing::Nothing)
        );
    }

    #[test]
    fn from_the_start_calls_from_before_it_are_missing() {
        let first_at = stream(3, 9).first_at;
        for (stream, behind, since) in [
            (stream(1, 9), 0, Some(MADE_AT)),
            (stream(1, 0), 0, Some(MADE_AT)),
            (stream(3, 9), 2, first_at),
            (stream(10, 9), 9, None),
        ] {
            let begun = begun(BeginAt::Start, &stream);
            assert_eq!(begun, (id(5, behind), Missing::Older(since)), "{stream:?}");
        }
    }

    #[test]
    fn behind_an_event_goes_on_what_the_stream_has_and_the_rest_is_missing() {
        let behind = |last, stream: &KeptEvents| begun(BeginAt::Behind(last), stream);
        let (old, other) = (id(5, 1), id(4, 100));
        for (last, place, missing) in [
            (id(5, 2), id(5, 2), Missing::Nothing),
            (id(5, 9), id(5, 9), Missing::Nothing),
            (old, id(5, 2), Missing::Behind(old, WhyMissing::Dropped)),
            (other, id(5, 2), Missing::Behind(other, WhyMissing::Epoch)),
        ] {
            assert_eq!(behind(last, &stream(3, 9)), (place, missing), "{last:?}");
        }
        assert_eq!(behind(id(5, 9), &stream(10, 9)).1, Missing::Nothing);
        let future = BeginAt::Behind(id(5, 10));
        assert_eq!(begin(future, &stream(3, 9)), Err(NotYet));
        let again = begin_again(id(5, 10), &stream(3, 9));
        assert_eq!(again, Missing::Behind(id(5, 10), WhyMissing::Dropped));
    }
}
