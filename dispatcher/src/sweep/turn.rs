//! Whose turn it is: a pure division of the room in a line among the tenants that wait there.

use fleet::{hold, ids::Label};

/// Which tenants get how many of the places, and which is last.
pub(super) struct Turn {
    pub(super) shares: Vec<(Label, usize)>,
    /// The tenant after which the next turn begins, with those that got less.
    pub(super) last: Option<Label>,
}

impl Turn {
    /// The turn of tenants each of which may get only so many: those that may get none are left out.
    pub(super) fn within(tenants: impl Iterator<Item = (Label, u64)>, room: usize) -> Self {
        let open: Vec<_> = tenants.filter(|(_, most)| *most > 0).collect();
        let mut turn = Self::of(
            open.iter().map(|(tenant, _)| tenant.clone()).collect(),
            room,
        );
        for ((_, share), (_, most)) in turn.shares.iter_mut().zip(open) {
            *share = (*share).min(usize::try_from(most).unwrap_or(usize::MAX));
        }
        turn
    }

    /// Leaves each tenant no more than this; those with nothing left have no share.
    pub(super) fn at_most(&mut self, left: impl Fn(&Label) -> u64) {
        for (tenant, share) in &mut self.shares {
            *share = (*share).min(usize::try_from(left(tenant)).unwrap_or(usize::MAX));
        }
        self.shares.retain(|(_, share)| *share > 0);
    }

    /// The turn of tenants that share the room equally.
    pub(super) fn of(tenants: Vec<Label>, room: usize) -> Self {
        let shares = hold::shares(room, tenants.len());
        let most = shares.first().copied();
        let least = shares.last().copied();
        let last = if most == least {
            shares.len().checked_sub(1)
        } else {
            shares.iter().rposition(|share| Some(*share) == most)
        };
        Self {
            last: last.and_then(|place| tenants.get(place).cloned()),
            shares: tenants.into_iter().zip(shares).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(names: &[&str], room: usize) -> (Vec<(String, usize)>, Option<String>) {
        let tenants = names.iter().map(|name| name.parse().unwrap()).collect();
        let turn = Turn::of(tenants, room);
        let shares = turn.shares.into_iter();
        let shares = shares.map(|(tenant, share)| (tenant.to_string(), share));
        (shares.collect(), turn.last.map(|last| last.to_string()))
    }

    #[test]
    fn who_got_less_is_first_in_the_next_turn() {
        let shares = |shares: &[(&str, usize)]| {
            let shares = shares.iter();
            shares
                .map(|(name, share)| ((*name).to_owned(), *share))
                .collect::<Vec<_>>()
        };
        let all = ["a", "b", "c"];
        assert_eq!(
            turn(&all, 7),
            (
                shares(&[("a", 3), ("b", 2), ("c", 2)]),
                Some("a".to_owned())
            )
        );
        assert_eq!(
            turn(&all, 6),
            (
                shares(&[("a", 2), ("b", 2), ("c", 2)]),
                Some("c".to_owned())
            )
        );
        assert_eq!(
            turn(&all, 2),
            (shares(&[("a", 1), ("b", 1)]), Some("b".to_owned()))
        );
        assert_eq!(turn(&[], 5), (Vec::new(), None));
    }

    #[test]
    fn a_tenant_gets_what_it_may_have_and_one_at_its_bound_takes_no_part() {
        let may = |tenants: &[(&str, u64)], room| {
            let tenants = tenants
                .iter()
                .map(|(tenant, most)| (tenant.parse().unwrap(), *most));
            let shares = Turn::within(tenants, room).shares.into_iter();
            shares
                .map(|(tenant, share)| (tenant.to_string(), share))
                .collect::<Vec<_>>()
        };
        let shares = [("b".to_owned(), 2), ("c".to_owned(), 3)];
        assert_eq!(may(&[("a", 0), ("b", 2), ("c", 9)], 6), shares);
        assert_eq!(may(&[("a", 0), ("b", 1)], 1), [("b".to_owned(), 1)]);
        assert_eq!(may(&[("a", 0)], 6), []);
    }
}
