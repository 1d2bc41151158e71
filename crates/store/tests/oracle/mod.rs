//! What the objects of a store may hold after calls that were acknowledged, or cut off.

use std::collections::BTreeMap;

use store::{Lease, ObjectStore, Result, SimFs, SimStore, StoreError};

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x5eed)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = match self.below(3) {
            0 => self.below(20),
            1 => self.below(3000),
            _ => 500 + self.below(30) * 512,
        };
        (0..len).map(|_| 1 + self.below(255) as u8).collect()
    }
}

/// One thing that may be under a name.
#[derive(Clone, Debug, PartialEq)]
enum State {
    Absent,
    Bytes(Vec<u8>),
    /// A punch of a range was cut off: each byte in it is old or zero.
    Torn(Vec<u8>, std::ops::Range<usize>),
}

impl State {
    fn matches(&self, found: Option<&[u8]>) -> bool {
        match (self, found) {
            (State::Absent, None) => true,
            (State::Bytes(bytes), Some(found)) => bytes == found,
            (State::Torn(bytes, range), Some(found)) => {
                bytes.len() == found.len()
                    && (bytes.iter().zip(found).enumerate())
                        .all(|(at, (old, new))| old == new || (*new == 0 && range.contains(&at)))
            }
            _ => false,
        }
    }
}

struct Held {
    name: String,
    hold: Box<dyn Lease>,
}

pub struct Oracle {
    objects: BTreeMap<String, Vec<State>>,
    holds: Vec<Held>,
    held_names: u64,
}

impl Oracle {
    pub fn new() -> Self {
        Self { objects: BTreeMap::new(), holds: Vec::new(), held_names: 0 }
    }

    /// One random call.
    pub fn step(&mut self, random: &mut Random, store: &SimStore, fs: &SimFs) {
        let object = format!("p/{}/{}", random.below(4), random.below(3));
        let manifest = format!("m/{}/manifest", random.below(3));
        match random.below(20) {
            0..=5 => self.put(store, fs, &object, &random.bytes(), random.below(2) == 0),
            6..=9 => self.swap(store, fs, &manifest, &random.bytes()),
            10 => self.load(store, fs, &manifest),
            11..=12 => self.delete(store, fs, &object),
            13 if random.below(2) == 0 => self.delete(store, fs, &manifest),
            13..=14 => {
                let (from, len) = (random.below(4000) as usize, random.below(6000) as usize);
                self.punch(store, fs, &object, from, len);
            }
            15..=16 => self.hold(store, fs, &random.bytes()),
            17 if !self.holds.is_empty() => {
                let at = random.below(self.holds.len() as u64) as usize;
                self.replace(fs, at, &random.bytes());
            }
            18 if !self.holds.is_empty() => {
                let at = random.below(self.holds.len() as u64) as usize;
                self.drop_hold(at);
            }
            19 => drop(acknowledged(store.sweep(), fs)),
            _ => self.peek(store, fs, &object),
        }
    }

    /// A piece of work with every kind of call in it.
    pub fn fixed_work(&mut self, store: &SimStore, fs: &SimFs) {
        let data = vec![7; 5000];
        self.delete(store, fs, "p/a/b");
        self.put(store, fs, "p/a/b", &data, false);
        self.put(store, fs, "p/a/c", &data[..1700], true);
        self.swap(store, fs, "m/a/manifest", &data);
        self.swap(store, fs, "m/a/manifest", &data[..600]);
        self.hold(store, fs, b"session");
        if !self.holds.is_empty() {
            self.replace(fs, 0, &data[..900]);
        }
        self.punch(store, fs, "p/a/b", 700, 3000);
        self.delete(store, fs, "p/a/c");
        self.delete(store, fs, "m/a/manifest");
        if !self.holds.is_empty() {
            self.drop_hold(0);
        }
        drop(acknowledged(store.sweep(), fs));
    }

    /// Puts an object that was never there.
    pub fn put_fresh(&mut self, store: &SimStore, fs: &SimFs, name: &str, byte: u8) {
        self.put(store, fs, name, &[byte; 1500], false);
    }

    /// All processes ended: nobody holds anything.
    pub fn forget_holds(&mut self) {
        self.holds.clear();
    }

    /// Compares the store with what it may hold.
    pub fn check(&self, store: &SimStore) {
        let mut listed = Vec::new();
        store
            .list("", &mut |entry| {
                listed.push(entry);
                Ok(())
            })
            .unwrap();
        for entry in listed {
            assert!(self.objects.contains_key(&entry.name), "{} came from nowhere", entry.name);
            assert_eq!(store.read(&entry.name, u64::MAX).unwrap().len() as u64, entry.len);
        }
        for (name, states) in &self.objects {
            let found = look(store, name);
            assert!(may_be(states, found.as_deref()), "{name}: {}", describe(states, found.as_deref()));
            let held = self.holds.iter().any(|held| held.name == *name);
            assert_eq!(store.is_leased(name).unwrap(), held, "{name}");
        }
    }

    /// After a power cut, what is seen is what there is.
    pub fn settle(&mut self, store: &SimStore) {
        for (name, states) in &mut self.objects {
            *states = vec![look(store, name).map_or(State::Absent, State::Bytes)];
        }
        self.objects.retain(|_, states| *states != [State::Absent]);
    }

    fn states(&mut self, name: &str) -> &mut Vec<State> {
        self.objects.entry(name.to_owned()).or_insert_with(|| vec![State::Absent])
    }

    fn put(&mut self, store: &SimStore, fs: &SimFs, name: &str, data: &[u8], pieces: bool) {
        let result = if pieces {
            store.writer(name).and_then(|mut writer| {
                for piece in data.chunks(700) {
                    writer.append(piece)?;
                }
                writer.finish()
            })
        } else {
            let (a, b) = data.split_at(data.len() / 3);
            store.put(name, &[a, b])
        };
        let states = self.states(name);
        match acknowledged(result, fs) {
            Some(Ok(())) => {
                assert!(states.contains(&State::Absent), "{name} was put twice");
                *states = vec![State::Bytes(data.to_vec())];
            }
            Some(Err(StoreError::AlreadyExists { .. })) => {
                states.retain(|state| *state != State::Absent);
                assert!(!states.is_empty(), "{name} does not exist");
            }
            Some(Err(e)) => panic!("put {name}: {e}"),
            None if states.contains(&State::Absent) => states.push(State::Bytes(data.to_vec())),
            None => {}
        }
    }

    fn load(&mut self, store: &SimStore, fs: &SimFs, name: &str) {
        let Some(found) = acknowledged(store.load(name), fs) else { return };
        let found = found.unwrap().map(|(bytes, _)| bytes);
        let states = self.states(name);
        assert!(may_be(states, found.as_deref()), "{name}: {}", describe(states, found.as_deref()));
        *states = vec![found.map_or(State::Absent, State::Bytes)];
    }

    fn swap(&mut self, store: &SimStore, fs: &SimFs, name: &str, data: &[u8]) {
        self.load(store, fs, name);
        let Some(loaded) = acknowledged(store.load(name), fs) else { return };
        let tag = loaded.unwrap().map(|(_, tag)| tag);
        let states = self.states(name);
        match acknowledged(store.swap(name, tag, data), fs) {
            Some(Ok(_)) => *states = vec![State::Bytes(data.to_vec())],
            Some(Err(e)) => panic!("swap {name}: {e}"),
            None => states.push(State::Bytes(data.to_vec())),
        }
    }

    fn delete(&mut self, store: &SimStore, fs: &SimFs, name: &str) {
        let states = self.states(name);
        match acknowledged(store.delete(name), fs) {
            Some(Ok(there)) => {
                assert!(
                    states.iter().any(|state| (*state != State::Absent) == there),
                    "delete {name}: {there}"
                );
                *states = vec![State::Absent];
            }
            Some(Err(e)) => panic!("delete {name}: {e}"),
            None => states.push(State::Absent),
        }
    }

    fn punch(&mut self, store: &SimStore, fs: &SimFs, name: &str, from: usize, len: usize) {
        let states = self.states(name);
        // Torn ranges of torn ranges are more than this oracle keeps.
        let [State::Bytes(bytes)] = states.as_slice() else { return };
        let range = from..from + len;
        let result = acknowledged(store.punch(name, &[(from as u64, len as u64)]), fs);
        if range.end > bytes.len() {
            assert!(matches!(result, None | Some(Err(StoreError::OutOfRange { .. }))));
            return;
        }
        let mut punched = bytes.clone();
        punched[range.clone()].fill(0);
        *states = match result {
            Some(result) => {
                result.unwrap();
                vec![State::Bytes(punched)]
            }
            None => vec![State::Torn(bytes.clone(), range)],
        };
    }

    fn hold(&mut self, store: &SimStore, fs: &SimFs, data: &[u8]) {
        self.held_names += 1;
        let name = format!("s/{}", self.held_names);
        let states = self.states(&name);
        match acknowledged(store.lease(&name, data), fs) {
            Some(hold) => {
                *states = vec![State::Bytes(data.to_vec())];
                self.holds.push(Held { name, hold: hold.unwrap() });
            }
            None => states.push(State::Bytes(data.to_vec())),
        }
    }

    fn replace(&mut self, fs: &SimFs, at: usize, data: &[u8]) {
        let held = &mut self.holds[at];
        let result = acknowledged(held.hold.replace(data), fs);
        let name = held.name.clone();
        let states = self.states(&name);
        match result {
            Some(result) => {
                result.unwrap();
                *states = vec![State::Bytes(data.to_vec())];
            }
            None => states.push(State::Bytes(data.to_vec())),
        }
    }

    fn drop_hold(&mut self, at: usize) {
        let name = self.holds.remove(at).name;
        // As far as that is possible: a power cut may bring it back.
        self.states(&name).push(State::Absent);
    }

    fn peek(&mut self, store: &SimStore, fs: &SimFs, name: &str) {
        let Some(found) = acknowledged(store.read(name, u64::MAX), fs) else { return };
        let found = match found {
            Ok(bytes) => Some(bytes),
            Err(StoreError::NotFound { .. }) => None,
            Err(e) => panic!("read {name}: {e}"),
        };
        let states = self.states(name);
        assert!(may_be(states, found.as_deref()), "{name}: {}", describe(states, found.as_deref()));
    }
}

/// The result of a call, unless the simulated machine stopped during it.
fn acknowledged<T>(result: Result<T>, fs: &SimFs) -> Option<Result<T>> {
    match result {
        Err(_) if fs.is_stopped() => None,
        result => Some(result),
    }
}

fn look(store: &SimStore, name: &str) -> Option<Vec<u8>> {
    match store.read(name, u64::MAX) {
        Ok(bytes) => Some(bytes),
        Err(StoreError::NotFound { .. }) => None,
        Err(e) => panic!("read {name}: {e}"),
    }
}

fn may_be(states: &[State], found: Option<&[u8]>) -> bool {
    states.iter().any(|state| state.matches(found))
}

fn describe(states: &[State], found: Option<&[u8]>) -> String {
    let lengths: Vec<_> = states
        .iter()
        .map(|state| match state {
            State::Absent => "absent".to_owned(),
            State::Bytes(bytes) => format!("{} bytes", bytes.len()),
            State::Torn(bytes, range) => format!("{} bytes torn in {range:?}", bytes.len()),
        })
        .collect();
    format!("found {:?} bytes, may be {}", found.map(<[u8]>::len), lengths.join(" or "))
}
