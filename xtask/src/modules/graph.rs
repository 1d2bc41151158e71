//! A directed graph whose arrows carry the names that tie its nodes, and the circles in it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Display;

/// Nodes, the nodes that each uses, and the names that it uses of them.
#[derive(Debug)]
pub struct Graph<N>(BTreeMap<N, BTreeMap<N, BTreeSet<String>>>);

impl<N> Default for Graph<N> {
    fn default() -> Graph<N> {
        Graph(BTreeMap::new())
    }
}

/// An arrow as text: `a.rs -> b.rs: Item, other`.
pub fn tie(from: &impl Display, to: &impl Display, names: &BTreeSet<String>) -> String {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    format!("{from} -> {to}: {}", names.join(", "))
}

impl<N: Ord + Clone + Display> Graph<N> {
    /// Adds a name to the arrow between two nodes.
    pub fn add(&mut self, from: N, to: N, name: String) {
        self.0.entry(from).or_default().entry(to).or_default().insert(name);
    }

    /// All arrows with their names.
    pub fn arrows(&self) -> impl Iterator<Item = (&N, &N, &BTreeSet<String>)> {
        self.0.iter().flat_map(|(from, uses)| uses.iter().map(move |(to, names)| (from, to, names)))
    }

    /// The names on one arrow; empty where there is none.
    pub fn names(&self, from: &N, to: &N) -> BTreeSet<String> {
        self.0.get(from).and_then(|uses| uses.get(to)).cloned().unwrap_or_default()
    }

    /// The arrows of a circle as text.
    pub fn ties(&self, circle: &[N]) -> Vec<String> {
        let next = circle.iter().cycle().skip(1);
        circle.iter().zip(next).map(|(from, to)| tie(from, to, &self.names(from, to))).collect()
    }

    /// Circles without a common arrow, short ones first, each beginning with its lowest node. Every other circle has an
    /// arrow in common with one of these.
    pub fn circles(&self) -> Vec<Vec<N>> {
        let mut shortest = BTreeSet::new();
        for (from, to, _) in self.arrows() {
            if let Some(mut circle) = self.shortest_path(to, from) {
                let lowest = (0..circle.len()).min_by_key(|&n| &circle[n]).unwrap_or(0);
                circle.rotate_left(lowest);
                shortest.insert((circle.len(), circle));
            }
        }
        let mut named: BTreeSet<(N, N)> = BTreeSet::new();
        let mut circles = Vec::new();
        for (_, circle) in shortest {
            let arrows: Vec<(N, N)> =
                circle.iter().cloned().zip(circle.iter().cycle().skip(1).cloned()).collect();
            if arrows.iter().all(|arrow| !named.contains(arrow)) {
                named.extend(arrows);
                circles.push(circle);
            }
        }
        circles
    }

    /// The nodes on a shortest path, both ends included.
    fn shortest_path(&self, from: &N, to: &N) -> Option<Vec<N>> {
        let mut reached_from: BTreeMap<&N, Option<&N>> = BTreeMap::from([(from, None)]);
        let mut queue = VecDeque::from([from]);
        while let Some(node) = queue.pop_front() {
            if node == to {
                let mut path = vec![node.clone()];
                let mut at = node;
                while let Some(before) = reached_from[at] {
                    path.push(before.clone());
                    at = before;
                }
                path.reverse();
                return Some(path);
            }
            for next in self.0.get(node).into_iter().flat_map(BTreeMap::keys) {
                reached_from.entry(next).or_insert_with(|| {
                    queue.push_back(next);
                    Some(node)
                });
            }
        }
        None
    }

    /// The nodes by floors: those that use no other, those that use only these, and so on; then the nodes that are
    /// left because they reach a circle.
    pub fn floors<'n>(&self, nodes: impl Iterator<Item = &'n N>) -> (Vec<Vec<&'n N>>, Vec<&'n N>) {
        let mut left: Vec<&N> = nodes.collect();
        let mut placed: BTreeSet<&N> = BTreeSet::new();
        let mut floors = Vec::new();
        loop {
            let stands =
                |node: &&N| self.0.get(node).is_none_or(|uses| uses.keys().all(|u| placed.contains(u)));
            let (floor, above): (Vec<&N>, Vec<&N>) = left.into_iter().partition(stands);
            left = above;
            if floor.is_empty() {
                return (floors, left);
            }
            placed.extend(&floor);
            floors.push(floor);
        }
    }
}
