//! Compares the answers with the effects: lost and doubled effects.

use fleet::call::Effect;

use crate::{answer::Told, effects::Happened};

/// The answers to the callers of a workload, by the number of the call: one byte each.
#[derive(Debug, Default)]
pub(crate) struct Tally(Vec<Told>);

/// What is wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Verdict {
    /// Calls without an effect whose callers were told that they succeeded.
    pub lost: u64,
    /// Calls that had their effect more than once.
    pub doubled: u64,
}

impl Tally {
    /// Adds calls that were sent; returns the number of the first.
    pub(crate) fn sent(&mut self, calls: usize) -> u64 {
        let first = self.0.len();
        self.0.resize(first + calls, Told::Nothing);
        first as u64
    }

    /// Records the answer to a call that was sent.
    pub(crate) fn told(&mut self, number: u64, told: Told) {
        if let Some(place) = usize::try_from(number)
            .ok()
            .and_then(|number| self.0.get_mut(number))
        {
            *place = told;
        }
    }

    /// How many were sent.
    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64
    }

    /// How many had this answer.
    pub(crate) fn count(&self, told: Told) -> u64 {
        self.0.iter().filter(|one| **one == told).count() as u64
    }

    /// Compares them with the effects, which are in the order of the calls. `question` says whose effect a call's answer is of:
    /// its own, or that of the call that asked the same before.
    ///
    /// The effect of an idempotent tool counts once for each key that the tool got, for it recognises a repetition. A read may
    /// happen any number of times.
    pub(crate) fn compare(
        &self,
        effect: Effect,
        happened: &[Happened],
        question: impl Fn(u64) -> u64,
    ) -> Verdict {
        let mut verdict = Verdict::default();
        for (number, told) in (0..).zip(&self.0) {
            let number = question(number);
            let begin = happened.partition_point(|one| one.number < number);
            let end = happened.partition_point(|one| one.number <= number);
            let these = &happened[begin..end];
            let happened = match effect {
                Effect::Idempotent => these.chunk_by(|one, next| one.key == next.key).count(),
                Effect::Read | Effect::Once | Effect::Transaction => these.len(),
            };
            verdict.lost += u64::from(*told == Told::Succeeded && happened == 0);
            verdict.doubled += u64::from(effect != Effect::Read && happened > 1);
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(told: &[Told]) -> Tally {
        let mut tally = Tally::default();
        let first = tally.sent(told.len());
        for (number, told) in (first..).zip(told) {
            tally.told(number, *told);
        }
        tally
    }

    fn happened(effects: &[(u64, u64)]) -> Vec<Happened> {
        let effects = effects.iter();
        effects
            .map(|&(number, key)| Happened { number, key })
            .collect()
    }

    #[test]
    fn a_success_without_its_effect_is_lost_and_two_effects_of_a_call_are_doubled() {
        let told = tally(&[
            Told::Succeeded,
            Told::Succeeded,
            Told::Succeeded,
            Told::Failed,
        ]);
        let effects = happened(&[(0, 1), (2, 1), (2, 1)]);
        let verdict = |lost, doubled| Verdict { lost, doubled };
        assert_eq!(
            told.compare(Effect::Once, &effects, |own| own),
            verdict(1, 1)
        );
        assert_eq!(
            told.compare(Effect::Transaction, &effects, |own| own),
            verdict(1, 1)
        );
        assert_eq!(
            told.compare(Effect::Read, &effects, |own| own),
            verdict(1, 0)
        );
        assert_eq!(
            told.compare(Effect::Idempotent, &effects, |own| own),
            verdict(1, 0)
        );
        let other_key = happened(&[(0, 1), (1, 1), (2, 1), (2, 2)]);
        assert_eq!(
            told.compare(Effect::Idempotent, &other_key, |own| own),
            verdict(0, 1)
        );
    }

    #[test]
    fn a_repeated_question_has_the_effect_of_the_first_who_asked() {
        let told = tally(&[Told::Succeeded, Told::Succeeded, Told::Succeeded]);
        let first = |_number| 0;
        let effects = happened(&[(0, 1)]);
        assert_eq!(
            told.compare(Effect::Read, &effects, first),
            Verdict::default()
        );
        assert_eq!(told.compare(Effect::Read, &[], first).lost, 3);
    }

    #[test]
    fn only_who_was_told_of_a_success_can_lose_one_but_anything_can_be_doubled() {
        let told = tally(&[Told::Nothing, Told::Failed, Told::Refused, Told::Open]);
        assert_eq!(
            told.compare(Effect::Once, &[], |own| own),
            Verdict::default()
        );
        let twice = happened(&[(0, 1), (0, 1), (3, 1)]);
        assert_eq!(told.compare(Effect::Once, &twice, |own| own).doubled, 1);
    }

    #[test]
    fn numbers_go_on_where_they_were() {
        let mut told = tally(&[Told::Succeeded]);
        assert_eq!(told.sent(2), 1);
        told.told(2, Told::Succeeded);
        told.told(9, Told::Succeeded);
        assert_eq!(
            (told.count(Told::Succeeded), told.count(Told::Nothing)),
            (2, 1)
        );
    }
}
