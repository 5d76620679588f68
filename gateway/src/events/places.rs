//! How many streams there are: in all, and of each token or address. Pure.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use fleet::ids::Label;

/// The streams that are open. Clones share the counts.
#[derive(Debug, Clone)]
pub(crate) struct StreamPlaces(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    all_max: usize,
    each_max: usize,
    open: Mutex<HashMap<StreamHolder, usize>>,
    /// Told how many there are in all.
    told: fn(usize),
}

/// Whose streams are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum StreamHolder {
    /// Those of a token, by its id.
    Token(String),
    /// Those from an address, where nobody is asked for a token.
    Address(IpAddr),
    /// Those of a tenant, by whichever token.
    Tenant(Label),
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// The gateway has as many as it may have.
    All,
    /// The holder has.
    Each,
}

/// The place of one stream. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct StreamPlace {
    holder: StreamHolder,
    places: StreamPlaces,
}

impl StreamPlaces {
    /// At most so many in all, and of each holder. `told` hears how many there are in all.
    pub(crate) fn new(all_max: usize, each_max: usize, told: fn(usize)) -> Self {
        Self(Arc::new(Counted {
            all_max,
            each_max,
            open: Mutex::default(),
            told,
        }))
    }

    /// One more stream of this holder.
    ///
    /// # Errors
    ///
    /// There is no place for it.
    pub(crate) fn take(&self, holder: StreamHolder) -> Result<StreamPlace, NoPlace> {
        let mut open = self.open();
        let own = open.get(&holder).copied().unwrap_or_default();
        if own >= self.0.each_max {
            return Err(NoPlace::Each);
        }
        let all = open.values().sum::<usize>();
        if all >= self.0.all_max {
            return Err(NoPlace::All);
        }
        open.insert(holder.clone(), own + 1);
        (self.0.told)(all + 1);
        Ok(StreamPlace {
            holder,
            places: self.clone(),
        })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<StreamHolder, usize>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut open = self.places.open();
        if let Some(count) = open.get_mut(&self.holder) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.holder);
            }
        }
        (self.places.0.told)(open.values().sum());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(id: &str) -> StreamHolder {
        StreamHolder::Token(id.to_owned())
    }

    #[test]
    fn a_holder_and_all_together_have_so_many_places_and_a_closed_stream_frees_its_own() {
        let places = StreamPlaces::new(3, 2, |_open| {});
        let first = places.take(token("a")).unwrap();
        let second = places.take(token("a")).unwrap();
        assert_eq!(places.take(token("a")).unwrap_err(), NoPlace::Each);
        let address = StreamHolder::Address([10, 0, 0, 1].into());
        let third = places.take(address).unwrap();
        assert_eq!(places.take(token("b")).unwrap_err(), NoPlace::All);
        drop(first);
        let fourth = places.take(token("b")).unwrap();
        drop((second, third, fourth));
        assert!(places.open().is_empty());
    }
}
