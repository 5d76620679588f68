//! What interceptors carry from one hook of a call to the next.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    fmt,
};

/// Values by their type, for one call on its way through the worker. All its interceptors share them: use types of your own.
#[derive(Default)]
pub struct Carried(HashMap<TypeId, Box<dyn Any + Send + Sync>>);

// The values may be sensitive and must not be logged.
impl fmt::Debug for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carried").finish_non_exhaustive()
    }
}

impl Carried {
    /// Keeps a value, and returns the one of its type that was there.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) -> Option<T> {
        let before = self.0.insert(TypeId::of::<T>(), Box::new(value));
        before.and_then(|before| before.downcast().ok().map(|value| *value))
    }

    /// The value of this type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref()
    }

    /// The value of this type, to be changed.
    pub fn get_mut<T: Send + Sync + 'static>(&mut self) -> Option<&mut T> {
        self.0.get_mut(&TypeId::of::<T>())?.downcast_mut()
    }

    /// Takes the value of this type out.
    pub fn take<T: Send + Sync + 'static>(&mut self) -> Option<T> {
        let value = self.0.remove(&TypeId::of::<T>())?;
        value.downcast().ok().map(|value| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_one_value() {
        struct Started(u32);
        let mut carried = Carried::default();
        assert!(carried.insert(Started(1)).is_none());
        carried.insert("another type");
        assert_eq!(carried.insert(Started(2)).map(|before| before.0), Some(1));
        if let Some(started) = carried.get_mut::<Started>() {
            started.0 += 1;
        }
        assert_eq!(carried.get::<Started>().map(|now| now.0), Some(3));
        assert_eq!(carried.take::<Started>().map(|now| now.0), Some(3));
        assert!(carried.get::<Started>().is_none());
        assert_eq!(carried.get::<&str>(), Some(&"another type"));
    }
}
