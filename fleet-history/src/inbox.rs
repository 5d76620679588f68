//! Which of the calls that need somebody are listed.

use fleet::ids::{CallId, Label};

/// Those of a list.
#[derive(Debug, Clone, Copy)]
pub struct InboxOf<'a> {
    /// Of this tenant; `None`: of all.
    pub tenant: Option<&'a Label>,
    /// Of this one in no case.
    pub but_of: Option<&'a str>,
    /// Of tools whose name is `LIKE` one of these; `None`: of all.
    pub tools_like: Option<&'a [String]>,
    /// This one alone.
    pub call: Option<CallId>,
    /// At most so many.
    pub limit: i64,
}
