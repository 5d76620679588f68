//! **Who speaks next?** Pure.

use super::header::SpeakingOrder;

/// What counts of a call that is not the one that speaks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    /// Its place in the turn.
    pub(super) index: usize,
    /// Where in the stream it told the first of what it has to say; `None` where it has nothing to say.
    pub(super) ready_at: Option<u64>,
    /// Whether it may have the word before it has something to say: it runs, or is about to.
    pub(super) may_begin: bool,
    /// Whether it has been silent for as long as one may be.
    pub(super) is_silent: bool,
}

/// The index of the call that speaks next; `None` while nobody does.
///
/// By index a call that has nothing to say yet has the word, too, but not if it is silent while another has something to say.
pub(super) fn next_speaker(
    order: SpeakingOrder,
    candidates: impl Iterator<Item = Candidate> + Clone,
) -> Option<usize> {
    match order {
        SpeakingOrder::FirstReady => candidates
            .filter_map(|one| Some((one.ready_at?, one.index)))
            .min()
            .map(|(_ready_at, index)| index),
        SpeakingOrder::CallIndex => {
            let anybody = candidates.clone().any(|one| one.ready_at.is_some());
            candidates
                .filter(|one| {
                    one.ready_at.is_some() || (one.may_begin && !(anybody && one.is_silent))
                })
                .map(|one| one.index)
                .min()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Candidate = Candidate {
        index: 0,
        ready_at: None,
        may_begin: true,
        is_silent: false,
    };

    fn next(order: SpeakingOrder, candidates: &[Candidate]) -> Option<usize> {
        let numbered = candidates.iter().enumerate();
        next_speaker(
            order,
            numbered.map(|(index, one)| Candidate { index, ..*one }),
        )
    }

    #[test]
    fn by_index_the_lowest_has_the_word_before_it_says_anything() {
        let ready = Candidate {
            ready_at: Some(1),
            ..IDLE
        };
        let silent = Candidate {
            is_silent: true,
            ..IDLE
        };
        let waiting = Candidate {
            may_begin: false,
            ..IDLE
        };
        for (candidates, expected) in [
            (&[IDLE, ready][..], Some(0)),
            (&[silent, ready], Some(1)),
            (&[silent, IDLE, ready], Some(1)),
            (&[silent, silent], Some(0)),
            (&[waiting, silent], Some(1)),
            (&[waiting, waiting], None),
            (&[], None),
        ] {
            assert_eq!(
                next(SpeakingOrder::CallIndex, candidates),
                expected,
                "{candidates:?}"
            );
        }
    }

    #[test]
    fn by_readiness_whoever_has_waited_longest_has_the_word_and_nobody_without_one() {
        let ready = |seq| Candidate {
            ready_at: Some(seq),
            ..IDLE
        };
        for (candidates, expected) in [
            (&[ready(9), ready(7), ready(8)][..], Some(1)),
            (&[ready(7), ready(7)], Some(0)),
            (&[IDLE, ready(7)], Some(1)),
            (&[IDLE, IDLE], None),
        ] {
            assert_eq!(
                next(SpeakingOrder::FirstReady, candidates),
                expected,
                "{candidates:?}"
            );
        }
    }
}
