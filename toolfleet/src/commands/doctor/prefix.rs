//! Which ledger has the prefix.

use fleet::{
    ids::Prefix,
    owner::{LedgerName, PrefixOwner},
};

use super::check::{Check, count};

const NAME: &str = "prefix";

pub(super) fn judge(prefix: &Prefix, ours: &LedgerName, owner: &PrefixOwner) -> Check {
    match owner {
        PrefixOwner::Free => {
            let found =
                format!("{prefix} is no ledger's yet; the first process takes it for {ours}");
            Check::ok(NAME, found)
        }
        PrefixOwner::Unnamed(_) => {
            let found = format!(
                "{prefix} has a watermark without an identity, as the release before leaves it; the next process takes it for {ours}"
            );
            Check::ok(NAME, found)
        }
        PrefixOwner::Ours(_) => {
            let found = format!("{prefix} belongs to this ledger, {ours}");
            Check::ok(NAME, found)
        }
        PrefixOwner::Foreign(theirs) => {
            let found = format!(
                "{prefix} belongs to ledger {theirs}, and DATABASE_URL names ledger {ours}"
            );
            let advice = "Set the DATABASE_URL of that ledger, or another --prefix for this one. \
                          Where the other is gone for good: toolfleet doctor --take-prefix --note WHY";
            Check::unfit(NAME, found, advice)
        }
    }
}

/// The stream and its consumers under another ledger's prefix: they belong to that ledger, and are not checked for this one.
pub(super) fn unseen(prefix: &Prefix, theirs: &LedgerName) -> Check {
    let found = format!(
        "the stream, the consumers and the pointers under prefix {prefix} are of ledger {theirs}, so nothing of them is looked at"
    );
    Check::warn("stream", found, "Settle first whose the prefix is")
}

/// Dispatchers that answer under another ledger's prefix: they belong to that ledger, for a dispatcher of this one stops there.
pub(super) fn heard(heard: Option<usize>, theirs: &LedgerName) -> Check {
    let found = match heard {
        None => return super::nats::heard(None),
        Some(0) => {
            "none answers, neither of this ledger nor of the one that has the prefix".to_owned()
        }
        Some(heard) => format!(
            "none of this ledger; callers there are answered by {} of ledger {theirs}, which has the prefix",
            count(heard, "dispatcher")
        ),
    };
    let advice = "A dispatcher of this ledger does not start under a prefix of another one: settle first whose it is";
    Check::warn("dispatchers", found, advice)
}

#[cfg(test)]
mod tests {
    use fleet::ids::LedgerId;
    use uuid::Uuid;

    use super::{super::check::Status, *};

    fn ledger(number: u128, place: &str) -> LedgerName {
        LedgerName {
            id: LedgerId(Uuid::from_u128(number)),
            place: Some(place.to_owned()),
        }
    }

    #[test]
    fn a_prefix_of_another_ledger_fails_with_both_names_and_what_to_do() {
        let prefix = "toolfleet".parse().unwrap();
        let (ours, theirs) = (ledger(1, "a:5432/x"), ledger(2, "b:5432/y"));
        let check = judge(&prefix, &ours, &PrefixOwner::Foreign(theirs));
        assert_eq!(check.status, Status::Fail);
        assert_eq!(
            check.found,
            "toolfleet belongs to ledger 00000000-0000-0000-0000-000000000002 (b:5432/y), and DATABASE_URL names ledger \
             00000000-0000-0000-0000-000000000001 (a:5432/x)"
        );
        let advice = check.advice.unwrap();
        assert!(advice.contains("--prefix") && advice.contains("--take-prefix"));
        assert_eq!(judge(&prefix, &ours, &PrefixOwner::Free).status, Status::Ok);
    }
    #[test]
    fn what_answers_under_a_prefix_of_another_ledger_is_not_counted_as_ours() {
        let theirs = ledger(2, "b:5432/y");
        let check = heard(Some(2), &theirs);
        assert_eq!(check.status, Status::Warn);
        assert_eq!(
            check.found,
            "none of this ledger; callers there are answered by 2 dispatchers of ledger 00000000-0000-0000-0000-000000000002 \
             (b:5432/y), which has the prefix"
        );
        assert!(heard(Some(0), &theirs).found.starts_with("none answers"));
        assert_eq!(heard(None, &theirs).status, Status::Fail);
    }
}
