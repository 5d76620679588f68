//! **Which methods are served, and in which revision?** A table: what answers a request goes by it, and so does what counts the answers.

use super::{revision::Revision, task::OfTask};

/// The name of all methods that are not served.
pub(super) const OTHER: &str = "other";

/// A method that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServedMethod {
    Discover,
    Initialize,
    Ping,
    SetLogLevel,
    ListTools,
    CallTool,
    Task(OfTask),
    /// `subscriptions/listen`, where there are streams.
    Listen,
    ListResources,
    ListTemplates,
    ReadResource,
    /// Subscribes to a resource, or does not want that any more.
    SubscribeResource,
    ListPrompts,
    GetPrompt,
    Complete,
}

/// By name, with the only revision that has it.
const TABLE: [(&str, ServedMethod, Option<Revision>); 18] = {
    use ServedMethod as M;
    const MODERN: Option<Revision> = Some(Revision::Modern);
    const LEGACY: Option<Revision> = Some(Revision::Legacy);
    [
        ("server/discover", M::Discover, MODERN),
        ("initialize", M::Initialize, LEGACY),
        ("ping", M::Ping, LEGACY),
        ("logging/setLevel", M::SetLogLevel, LEGACY),
        ("tools/list", M::ListTools, None),
        ("tools/call", M::CallTool, None),
        ("tasks/get", M::Task(OfTask::Get), MODERN),
        ("tasks/update", M::Task(OfTask::Update), MODERN),
        ("tasks/cancel", M::Task(OfTask::Cancel), MODERN),
        ("subscriptions/listen", M::Listen, MODERN),
        ("resources/list", M::ListResources, None),
        ("resources/templates/list", M::ListTemplates, None),
        ("resources/read", M::ReadResource, None),
        ("resources/subscribe", M::SubscribeResource, LEGACY),
        ("resources/unsubscribe", M::SubscribeResource, LEGACY),
        ("prompts/list", M::ListPrompts, None),
        ("prompts/get", M::GetPrompt, None),
        ("completion/complete", M::Complete, None),
    ]
};

impl ServedMethod {
    /// The method of this name in this revision; `None`: it is not served there.
    pub(super) fn of(revision: Revision, name: &str) -> Option<Self> {
        let (_, method, only) = row(name)?;
        only.is_none_or(|only| only == revision).then_some(method)
    }

    /// The name under which answers are counted, one of a fixed set: its own where some revision has it, else [`OTHER`].
    pub(super) fn counted_as(name: &str) -> &'static str {
        row(name).map_or(OTHER, |(known, ..)| known)
    }
}

fn row(name: &str) -> Option<(&'static str, ServedMethod, Option<Revision>)> {
    TABLE.into_iter().find(|(known, ..)| *known == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_served_where_the_table_says_and_counted_by_its_name_everywhere() {
        let of = |revision, name| ServedMethod::of(revision, name);
        for name in ["tools/call", "prompts/get", "completion/complete"] {
            assert!(of(Revision::Modern, name).is_some(), "{name}");
            assert_eq!(of(Revision::Modern, name), of(Revision::Legacy, name));
        }
        for (name, only) in [
            ("ping", Revision::Legacy),
            ("tasks/update", Revision::Modern),
        ] {
            for revision in [Revision::Modern, Revision::Legacy] {
                assert_eq!(of(revision, name).is_some(), revision == only, "{name}");
            }
            assert_eq!(ServedMethod::counted_as(name), name);
        }
        for odd in ["", "tools/none", "Tools/Call", "tools/call "] {
            assert!(of(Revision::Modern, odd).is_none());
            assert_eq!(ServedMethod::counted_as(odd), OTHER);
        }
    }

    #[test]
    fn no_name_stands_twice() {
        for (name, ..) in TABLE {
            let rows = TABLE.into_iter().filter(|(known, ..)| *known == name);
            assert_eq!(rows.count(), 1, "{name}");
        }
    }
}
