//! Every reachable world, walked a second time: is there always a way on?
//!
//! `stateright` looks for broken promises; its `eventually` is sound on acyclic graphs only, and this one has cycles. So the
//! graph is walked here too, and from the worlds that are decided backwards along natural steps: a world that this never
//! reaches is stuck.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher},
};

use fleet::call::State;

use crate::{
    actions::Action,
    properties::{is_decided, is_settled},
    protocol::Protocol,
    state::System,
};

/// What the walk found.
pub(crate) struct Graph {
    pub(crate) states: usize,
    /// The shortest way to a world from which no natural step leads to a decision.
    pub(crate) to_stuck: Option<Vec<Action>>,
    /// The shortest way to a world with a doubt that can never be settled, though Postgres has lost nothing.
    pub(crate) to_unsettled: Option<Vec<Action>>,
    /// Every move that a call made.
    pub(crate) moves: BTreeSet<(State, State)>,
    /// Every step that never changed anything.
    pub(crate) never: Vec<Action>,
}

/// A world's place in the walk.
struct Visit {
    from: u32,
    by: Action,
}

/// Walks all of it.
pub(crate) fn walk(protocol: &Protocol) -> Graph {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let mut known: HashMap<u64, u32> = HashMap::new();
    let mut visits: Vec<Option<Visit>> = vec![None];
    let mut frontier = VecDeque::from([(0_u32, System::START)]);
    let mut natural: Vec<(u32, u32)> = Vec::new();
    let (mut decided, mut settled) = (Vec::new(), Vec::new());
    let (mut moves, mut taken) = (BTreeSet::new(), HashSet::new());
    known.insert(hasher.hash_one(System::START), 0);
    while let Some((index, world)) = frontier.pop_front() {
        if is_decided(protocol, &world) {
            decided.push(index);
        }
        if is_settled(protocol, &world) {
            settled.push(index);
        }
        for action in &protocol.alphabet {
            let Some(next) = protocol.step(&world, *action) else {
                continue;
            };
            let to = *known.entry(hasher.hash_one(next)).or_insert_with(|| {
                let new = u32::try_from(visits.len()).expect("fewer than four thousand million");
                visits.push(Some(Visit {
                    from: index,
                    by: *action,
                }));
                frontier.push_back((new, next));
                new
            });
            taken.insert(*action);
            if action.is_natural(&world) {
                natural.push((to, index));
            }
            if !matches!(action, Action::Failover) {
                note_moves(&world, &next, &mut moves);
            }
        }
    }
    let back = Backwards::new(natural, visits.len());
    let to_first_without = |goals| {
        let reached = back.reaches(goals);
        reached
            .iter()
            .position(|reached| !reached)
            .map(|at| way_to(&visits, at))
    };
    Graph {
        states: visits.len(),
        to_stuck: to_first_without(decided),
        to_unsettled: to_first_without(settled),
        moves,
        never: protocol
            .alphabet
            .iter()
            .filter(|action| !taken.contains(action))
            .copied()
            .collect(),
    }
}

fn note_moves(before: &System, after: &System, moves: &mut BTreeSet<(State, State)>) {
    for at in 0..before.ledger.open.len() {
        let (from, to) = (before.ledger.open[at], after.ledger.find(at));
        if let (Some(from), Some(to)) = (from, to)
            && from.state != to.state
        {
            moves.insert((from.state, to.state));
        }
    }
}

fn way_to(visits: &[Option<Visit>], mut at: usize) -> Vec<Action> {
    let mut way = Vec::new();
    while let Some(visit) = &visits[at] {
        way.push(visit.by);
        at = visit.from as usize;
    }
    way.reverse();
    way
}

/// Natural steps by where they lead to.
struct Backwards {
    steps: Vec<(u32, u32)>,
    starts: Vec<u32>,
}

impl Backwards {
    fn new(mut steps: Vec<(u32, u32)>, worlds: usize) -> Self {
        steps.sort_unstable();
        let mut starts = vec![0; worlds + 1];
        for (to, _) in &steps {
            starts[*to as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        Self { steps, starts }
    }

    /// From which worlds one of these can be reached.
    fn reaches(&self, mut goals: Vec<u32>) -> Vec<bool> {
        let mut reached = vec![false; self.starts.len() - 1];
        for goal in &goals {
            reached[*goal as usize] = true;
        }
        while let Some(world) = goals.pop() {
            let (start, end) = (self.starts[world as usize], self.starts[world as usize + 1]);
            for (_, from) in &self.steps[start as usize..end as usize] {
                if !std::mem::replace(&mut reached[*from as usize], true) {
                    goals.push(*from);
                }
            }
        }
        reached
    }
}

/// The way without the steps that it does not need.
pub(crate) fn shorten(
    protocol: &Protocol,
    way: &[Action],
    breaks: impl Fn(&System) -> bool,
) -> Vec<Action> {
    let walk = |way: &[Action]| {
        let step = |world: System, action: &Action| protocol.step(&world, *action);
        way.iter()
            .try_fold(System::START, step)
            .is_some_and(|world| breaks(&world))
    };
    let mut way = way.to_vec();
    let mut at = 0;
    while at < way.len() {
        let mut without = way.clone();
        without.remove(at);
        if walk(&without) {
            way = without;
            at = 0;
        } else {
            at += 1;
        }
    }
    way
}
