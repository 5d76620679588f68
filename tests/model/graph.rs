//! Every reachable world, walked a second time: is there always a way on?
//!
//! `stateright` looks for broken promises; its `eventually` is sound on acyclic graphs only, and this one has cycles. So the
//! graph is walked here too, and from the worlds that are decided backwards along natural steps: a world that this never
//! reaches is stuck.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    fmt::Debug,
    hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hash},
};

use fleet::call::State;
use stateright::Model;

/// A model whose worlds can be walked.
pub(crate) trait Walked:
    Model<State: Copy + Eq + Hash + Debug, Action: Copy + Eq + Hash + Debug>
{
    /// What is broken when a world is stuck.
    const DECIDED: &'static str;
    /// What is broken when all is decided and something is left over for ever.
    const SETTLED: &'static str;

    /// The configuration's name.
    fn name(&self) -> &'static str;
    /// The first world.
    fn start(&self) -> Self::State;
    /// Every step that there is.
    fn alphabet(&self) -> &[Self::Action];
    /// The world after a step; `None` when it cannot be taken.
    fn take(&self, before: &Self::State, action: Self::Action) -> Option<Self::State>;
    /// The same world in its simplest words.
    fn simplify(&self, world: &mut Self::State);
    /// The simplified world after a step; `None` when it cannot be taken, or changes nothing.
    fn step(&self, before: &Self::State, action: Self::Action) -> Option<Self::State> {
        let mut after = self.take(before, action)?;
        self.simplify(&mut after);
        (after != *before).then_some(after)
    }
    /// Whether the step needs no fault, no deadline and no client.
    fn is_natural(&self, action: Self::Action, before: &Self::State) -> bool;
    /// Whether every call is decided.
    fn is_decided(&self, world: &Self::State) -> bool;
    /// Whether, besides, nothing is left over.
    fn is_settled(&self, world: &Self::State) -> bool;
    /// Notes the moves that calls made in a step.
    fn moved(
        before: &Self::State,
        action: Self::Action,
        after: &Self::State,
        moves: &mut BTreeSet<(State, State)>,
    );
    /// The moves that calls make in all.
    fn expected_moves(&self) -> BTreeSet<(State, State)>;
    /// The steps that are never taken.
    fn impossible(&self) -> Vec<Self::Action>;
    /// A world in a line.
    fn digest(&self, world: &Self::State) -> String;
}

/// What the walk found.
pub(crate) struct Graph<Action> {
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
struct Visit<Action> {
    from: u32,
    by: Action,
}

/// Walks all of it.
pub(crate) fn walk<M: Walked>(model: &M) -> Graph<M::Action> {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let mut known: HashMap<u64, u32> = HashMap::new();
    let mut visits: Vec<Option<Visit<M::Action>>> = vec![None];
    let mut frontier = VecDeque::from([(0_u32, model.start())]);
    let mut natural: Vec<(u32, u32)> = Vec::new();
    let (mut decided, mut settled) = (Vec::new(), Vec::new());
    let (mut moves, mut taken) = (BTreeSet::new(), HashSet::new());
    known.insert(hasher.hash_one(model.start()), 0);
    while let Some((index, world)) = frontier.pop_front() {
        if model.is_decided(&world) {
            decided.push(index);
        }
        if model.is_settled(&world) {
            settled.push(index);
        }
        for action in model.alphabet() {
            let Some(after) = model.take(&world, *action) else {
                continue;
            };
            let mut next = after;
            model.simplify(&mut next);
            if next == world {
                continue;
            }
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
            if model.is_natural(*action, &world) {
                natural.push((to, index));
            }
            M::moved(&world, *action, &after, &mut moves);
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
        never: model
            .alphabet()
            .iter()
            .filter(|action| !taken.contains(action))
            .copied()
            .collect(),
    }
}

fn way_to<Action: Copy>(visits: &[Option<Visit<Action>>], mut at: usize) -> Vec<Action> {
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

/// The shortest way to a world like this, if there is one.
pub(crate) fn shortest<M: Walked>(
    model: &M,
    is_it: impl Fn(&M::State) -> bool,
) -> Option<Vec<M::Action>> {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let mut known = HashSet::from([hasher.hash_one(model.start())]);
    let mut visits: Vec<Option<Visit<M::Action>>> = vec![None];
    let mut frontier = VecDeque::from([(0_u32, model.start())]);
    while let Some((index, world)) = frontier.pop_front() {
        if is_it(&world) {
            return Some(way_to(&visits, index as usize));
        }
        for action in model.alphabet() {
            let Some(next) = model.step(&world, *action) else {
                continue;
            };
            if known.insert(hasher.hash_one(next)) {
                let new = u32::try_from(visits.len()).expect("fewer than four thousand million");
                visits.push(Some(Visit {
                    from: index,
                    by: *action,
                }));
                frontier.push_back((new, next));
            }
        }
    }
    None
}

/// The way without the steps that it does not need.
pub(crate) fn shorten<M: Walked>(
    model: &M,
    way: &[M::Action],
    breaks: impl Fn(&M::State) -> bool,
) -> Vec<M::Action> {
    let walk = |way: &[M::Action]| {
        let step = |world: M::State, action: &M::Action| model.step(&world, *action);
        way.iter()
            .try_fold(model.start(), step)
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
