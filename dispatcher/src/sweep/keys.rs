//! Releases calls that wait by a key, where each value of an argument has start times of its own.
//!
//! There may be as many lines as open calls, so one round serves a stretch of them: those that have a start free, tenant by tenant, and
//! of a tenant those that have waited longest. The next round goes on behind it.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use fleet::{
    hold::Line,
    ids::{Label, ToolName},
    rate_key::RateKey,
    store::{
        PgConnection, StoreError,
        session::within,
        starts::{self, KeyLine},
    },
};

use super::Sweep;

/// How long a statement may take before its connection is given up.
const STATEMENT_MAX: Duration = Duration::from_secs(10);
/// The most calls that one statement releases.
const AT_ONCE: usize = 1_000;
/// The most lines of a tool that one round looks at.
const LINES_AT_ONCE: usize = 1_000;
/// How many steps of calls a round moves whose tool has no such limit any more.
const STEPS_AT_ONCE: usize = 10;

/// How far the lines of a tool were served. No call's fate depends on it.
#[derive(Debug, Default)]
pub(super) struct KeyTurn {
    /// The last line that was looked at; `None`: the next round begins with the first.
    at: Option<RateKey>,
    /// The tenant that was served last.
    last: Option<Label>,
}

impl Sweep {
    /// Hands out a tool's room to the lines of its keys, beginning where `turn` has ended.
    pub(super) async fn release_keys(
        &self,
        connection: &mut PgConnection,
        tool: &ToolName,
        turn: KeyTurn,
    ) -> Result<KeyTurn, StoreError> {
        let looking = starts::free_by_key(&mut *connection, tool, turn.at, LINES_AT_ONCE);
        let doing = "look for free start times of values";
        let lines = within(doing, STATEMENT_MAX, looking).await?;
        let is_whole = lines.len() < LINES_AT_ONCE;
        let at = lines.last().map(|line| line.key).filter(|_| !is_whole);
        let mut steps = STEPS_AT_ONCE;
        let mut open = Vec::with_capacity(lines.len());
        for KeyLine {
            key,
            tenant,
            since,
            free,
        } in lines
        {
            match free {
                // Its calls go to the line where they would wait without it.
                None if steps > 0 => {
                    self.hand_back_of(&Line::Key(tool.clone(), key), &mut steps)
                        .await?;
                }
                None => {}
                Some(_) if self.is_without_limit(tool, &tenant) => {
                    open.push((since, key, tenant, usize::MAX));
                }
                Some(free) => {
                    let free = usize::try_from(free).unwrap_or(usize::MAX);
                    open.push((since, key, tenant, free));
                }
            }
        }
        open.retain(|(.., free)| *free > 0);
        let mut last = turn.last;
        if !open.is_empty() {
            let of_tool = Line::Tool(tool.clone());
            let room = self.room_of(connection, &of_tool).await?.min(AT_ONCE);
            let left = match self.most_of_starts(tool) {
                Some(most) => Some((most, self.left_of_tenants(connection, tool, most).await?)),
                None => None,
            };
            let most_of = |tenant: &Label| match &left {
                Some((most, left)) => left.get(tenant).copied().unwrap_or(*most),
                None => u64::MAX,
            };
            open.sort_unstable();
            let open = open.into_iter();
            let open: Vec<_> = open
                .map(|(_, key, tenant, free)| (key, tenant, free))
                .collect();
            let (shares, served) = in_turn(&open, room, last.as_ref(), most_of);
            last = served.or(last);
            let line = |(key, tenant, share)| (Line::Key(tool.clone(), key), tenant, share);
            let shares: Vec<_> = shares.into_iter().map(line).collect();
            if !shares.is_empty() {
                self.release_shares(connection, &shares).await?;
            }
        }
        Ok(KeyTurn { at, last })
    }
}

/// What a tenant may still get in a turn.
struct KeysOfTenant {
    /// In all.
    left: u64,
    /// The places of its lines and how many each of them may get, the next first.
    lines: VecDeque<(usize, usize)>,
}

/// How many calls of each of these lines get some of the room, and which tenant is last.
///
/// A line may have only so many. Tenants take turns, beginning behind `last`, and so do the lines of each tenant, in their order: none gets
/// a second one before all have one. `most_of`: how many a tenant may get in all.
fn in_turn(
    lines: &[(RateKey, Label, usize)],
    mut room: usize,
    last: Option<&Label>,
    most_of: impl Fn(&Label) -> u64,
) -> (Vec<(RateKey, Label, usize)>, Option<Label>) {
    let mut of_tenant: BTreeMap<&Label, KeysOfTenant> = BTreeMap::new();
    for (place, (_, tenant, free)) in lines.iter().enumerate() {
        let of_tenant = of_tenant.entry(tenant).or_insert_with(|| KeysOfTenant {
            left: most_of(tenant),
            lines: VecDeque::new(),
        });
        of_tenant.lines.push_back((place, *free));
    }
    let mut tenants: Vec<_> = of_tenant.into_iter().collect();
    let behind = tenants.partition_point(|(tenant, _)| last.is_some_and(|last| *tenant <= last));
    tenants.rotate_left(behind);
    let mut shares = vec![0; lines.len()];
    let mut served = None;
    while room > 0 && !tenants.is_empty() {
        tenants.retain(|(_, of)| of.left > 0 && !of.lines.is_empty());
        for (tenant, of) in tenants.iter_mut().take(room) {
            let Some((place, free)) = of.lines.pop_front() else {
                continue;
            };
            shares[place] += 1;
            of.left -= 1;
            served = Some(*tenant);
            if free > 1 {
                of.lines.push_back((place, free - 1));
            }
        }
        room = room.saturating_sub(tenants.len());
    }
    let served = served.cloned();
    let shares = lines.iter().zip(shares);
    let shares = shares.filter(|(_, share)| *share > 0);
    let shares = shares.map(|((key, tenant, _), share)| (*key, tenant.clone(), share));
    (shares.collect(), served)
}

#[cfg(test)]
mod tests {
    use fleet::controls::LazyArguments;

    use super::*;

    fn line(tenant: &str, value: u32, free: usize) -> (RateKey, Label, usize) {
        let tenant: Label = tenant.parse().unwrap();
        let arguments = format!(r#"{{"a":{value}}}"#);
        let key = RateKey::of(&tenant, "/a", &LazyArguments::new(&arguments));
        (key, tenant, free)
    }

    /// The share of each line, and the tenant that was served last.
    fn turn(
        lines: &[(RateKey, Label, usize)],
        room: usize,
        last: Option<&str>,
        most: u64,
    ) -> (Vec<usize>, Option<String>) {
        let last: Option<Label> = last.map(|last| last.parse().unwrap());
        let (shares, served) = in_turn(lines, room, last.as_ref(), |_| most);
        let share = |(key, ..): &(RateKey, Label, usize)| {
            let found = shares.iter().find(|(found, ..)| found == key);
            found.map_or(0, |(_, _, share)| *share)
        };
        (
            lines.iter().map(share).collect(),
            served.map(|served| served.to_string()),
        )
    }

    #[test]
    fn tenants_take_turns_and_so_do_the_lines_of_each() {
        let lines = [
            line("a", 1, 9),
            line("a", 2, 9),
            line("a", 3, 1),
            line("b", 1, 9),
        ];
        let a = Some("a".to_owned());
        let b = Some("b".to_owned());
        assert_eq!(turn(&lines, 0, None, 99), (vec![0, 0, 0, 0], None));
        assert_eq!(turn(&lines, 1, None, 99), (vec![1, 0, 0, 0], a.clone()));
        assert_eq!(turn(&lines, 1, Some("a"), 99), (vec![0, 0, 0, 1], b));
        assert_eq!(
            turn(&lines, 1, Some("b"), 99),
            (vec![1, 0, 0, 0], a.clone())
        );
        assert_eq!(turn(&lines, 6, None, 99).0, [1, 1, 1, 3]);
        assert_eq!(turn(&lines, 7, None, 99), (vec![2, 1, 1, 3], a));
        // None gets more than it may have.
        assert_eq!(turn(&lines, 99, None, 99).0, [9, 9, 1, 9]);
        assert_eq!(turn(&lines, 99, None, 2).0, [1, 1, 0, 2]);
        assert_eq!(turn(&lines, 99, None, 0), (vec![0; 4], None));
        assert_eq!(turn(&[], 99, None, 9), (Vec::new(), None));
    }
}
