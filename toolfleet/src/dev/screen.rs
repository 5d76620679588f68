//! The output of `dev`.

use std::{
    io::Write,
    sync::{Arc, Mutex, PoisonError},
};

/// The output of `dev`. A reader that closes it does not stop `dev`.
#[derive(Clone)]
pub struct Screen(Arc<Mutex<dyn Write + Send>>);

impl Screen {
    /// Prints here.
    pub fn new(writer: impl Write + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(writer)))
    }

    pub(crate) fn line(&self, text: &str) {
        let mut writer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The reader may have closed it; the fleet lives on.
        let _written = writeln!(writer, "{text}").and_then(|()| writer.flush());
    }
}
