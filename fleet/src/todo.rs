//! **What is on the todo list of a session, and which changes can be written?** Pure.
//!
//! Changes name items by their ids, so those of two writers at one time add up. What is wrong is told entry by entry, and the rest is
//! written.

use std::{fmt, num::ParseIntError, str::FromStr};

use serde::Serialize;

use crate::{arguments::shorten, call::words, said, wire::message::Message};

/// The most items of a list.
pub const ITEMS_MAX: usize = 100;
/// The most characters of a title.
pub const TITLE_MAX: usize = 500;
/// The most bytes of what was asked that a problem repeats.
const REPEATED_MAX: usize = 64;

words! {
    /// How far an item of a todo list is.
    TodoStatus {
        /// Not begun.
        Pending = "pending",
        /// Begun.
        InProgress = "in_progress",
        /// Done.
        Completed = "completed",
        /// Not to be done any more.
        Cancelled = "cancelled",
    }
}

/// An item of a list: `t1`, `t2`, …; no number is given twice in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TodoId(pub i32);

impl fmt::Display for TodoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}

impl FromStr for TodoId {
    type Err = ParseIntError;

    /// The number alone is read as well.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        text.strip_prefix('t').unwrap_or(text).parse().map(Self)
    }
}

impl Serialize for TodoId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An item of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TodoItem {
    /// Its id.
    pub id: TodoId,
    /// What is to be done, one line.
    pub title: String,
    /// How far it is.
    pub status: TodoStatus,
}

/// What is asked of a list, as a model wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TodoChanges {
    /// The titles of new items.
    pub add: Vec<String>,
    /// New statuses of items.
    pub update: Vec<TodoUpdate>,
}

/// The new status of an item, as a model wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TodoUpdate {
    /// The id of the item.
    pub id: String,
    /// How far it is.
    pub status: String,
}

/// A change that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TodoPlace {
    /// In `add`.
    Add(usize),
    /// In `update`.
    Update(usize),
}

impl fmt::Display for TodoPlace {
    /// A JSON pointer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add(index) => write!(f, "/add/{index}"),
            Self::Update(index) => write!(f, "/update/{index}"),
        }
    }
}

/// A change that was not made, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TodoProblem {
    /// Which.
    pub place: TodoPlace,
    /// What is wrong and what to send instead.
    pub message: Message,
}

/// The changes that can be written, unless the list says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FitChanges {
    /// The titles of new items, and where they stood.
    pub add: Vec<(TodoPlace, String)>,
    /// The new statuses of items, and where they stood.
    pub update: Vec<(TodoPlace, TodoId, TodoStatus)>,
    /// What is wrong with the others.
    pub problems: Vec<TodoProblem>,
}

impl TodoChanges {
    /// Whether nothing is asked.
    pub const fn is_empty(&self) -> bool {
        self.add.is_empty() && self.update.is_empty()
    }

    /// What of it can be written.
    pub fn fit(&self) -> FitChanges {
        let mut fit = FitChanges::default();
        for (index, text) in self.add.iter().enumerate() {
            let place = TodoPlace::Add(index);
            match title(text) {
                Ok(title) => fit.add.push((place, title)),
                Err(message) => fit.problems.push(TodoProblem { place, message }),
            }
        }
        for (index, update) in self.update.iter().enumerate() {
            let place = TodoPlace::Update(index);
            let found = match update.status.trim().parse() {
                Ok(status) => item(&update.id).map(|id| (place, id, status)),
                Err(_unknown) => Err(no_status(&update.status)),
            };
            match found {
                Ok(update) => fit.update.push(update),
                Err(message) => fit.problems.push(TodoProblem { place, message }),
            }
        }
        fit
    }
}

/// A title in one line: the list is told line by line, and a title cannot look like another item of it.
///
/// # Errors
///
/// Nothing is left of it, or it is too long.
pub fn title(text: &str) -> Result<String, Message> {
    let mut title = String::new();
    let mut characters = 0;
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    for word in words.filter(|word| !word.is_empty()) {
        characters += word.chars().count() + usize::from(!title.is_empty());
        if characters > TITLE_MAX {
            return Err(said!(
                "a title has at most {TITLE_MAX} characters; write what is to be done in one line",
                "标题最多 {TITLE_MAX} 个字符；请用一行写明要做的事"
            ));
        }
        if !title.is_empty() {
            title.push(' ');
        }
        title.push_str(word);
    }
    if title.is_empty() {
        return Err(Message::fixed(
            "the title is empty; write what is to be done",
            "标题是空的；请写明要做的事",
        ));
    }
    Ok(title)
}

fn item(id: &str) -> Result<TodoId, Message> {
    id.parse().map_err(|_no_number| unknown(id))
}

/// That no item has this id.
pub fn unknown(id: &str) -> Message {
    let id = shorten(id, REPEATED_MAX);
    said!(
        "there is no item {id:?} in the list; write the id of an item of it, such as t1",
        "列表中没有 {id:?}；请写列表中某一项的 id，例如 t1"
    )
}

fn no_status(status: &str) -> Message {
    let status = shorten(status, REPEATED_MAX);
    said!(
        "{status:?} is no status; write pending, in_progress, completed or cancelled",
        "{status:?} 不是状态；请写 pending、in_progress、completed 或 cancelled"
    )
}

/// That the list has no room for another item.
pub fn full() -> Message {
    said!(
        "the list has {ITEMS_MAX} items that are neither completed nor cancelled; complete or cancel some first",
        "列表中已有 {ITEMS_MAX} 项既未完成也未取消；请先完成或取消其中一些"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn update(id: &str, status: &str) -> TodoUpdate {
        TodoUpdate {
            id: id.to_owned(),
            status: status.to_owned(),
        }
    }

    #[test]
    fn what_is_wrong_is_told_entry_by_entry_and_the_rest_fits() {
        let changes = TodoChanges {
            add: vec![
                " Buy\n milk\u{0} ".to_owned(),
                "\u{7}\n".to_owned(),
                "x".repeat(10 * 1024),
                "天".repeat(TITLE_MAX),
            ],
            update: vec![
                update("t2", "completed"),
                update("3", " in_progress "),
                update("later", "completed"),
                update("t2", "done"),
                update("t99999999999", "pending"),
            ],
        };
        let fit = changes.fit();
        assert_eq!(
            fit.add,
            [
                (TodoPlace::Add(0), "Buy milk".to_owned()),
                (TodoPlace::Add(3), "天".repeat(500)),
            ]
        );
        assert_eq!(
            fit.update,
            [
                (TodoPlace::Update(0), TodoId(2), TodoStatus::Completed),
                (TodoPlace::Update(1), TodoId(3), TodoStatus::InProgress),
            ]
        );
        let problems = fit.problems.iter();
        let problems: Vec<String> = problems
            .map(|problem| format!("{} {}", problem.place, problem.message))
            .collect();
        for (problem, (begins, says)) in problems.iter().zip([
            ("/add/1 ", "empty"),
            ("/add/2 ", "at most 500 characters"),
            ("/update/2 ", "no item \"later\""),
            ("/update/3 ", "\"done\" is no status"),
            ("/update/4 ", "no item \"t99999999999\""),
        ]) {
            assert!(
                problem.starts_with(begins) && problem.contains(says),
                "{problem}"
            );
        }
        assert_eq!(problems.len(), 5, "{problems:?}");
    }

    proptest! {
        #[test]
        fn a_title_is_one_line_of_bounded_length(text in "[ \n\t\u{85}\u{2028}\r\0a天]{0,700}") {
            if let Ok(title) = title(&text) {
                prop_assert!((1..=TITLE_MAX).contains(&title.chars().count()));
                prop_assert!(!title.chars().any(|c| c.is_control() || c.is_whitespace() && c != ' '));
                prop_assert_eq!(super::title(&title), Ok(title.clone()));
            }
        }

        #[test]
        fn what_a_problem_says_is_bounded(id in ".{0,2000}", status in ".{0,2000}") {
            let changes = TodoChanges { add: Vec::new(), update: vec![update(&id, &status)] };
            for problem in changes.fit().problems {
                prop_assert!(problem.message.english().len() < 700);
            }
        }

        #[test]
        fn an_id_is_read_as_it_is_shown(number in 0..i32::MAX) {
            prop_assert_eq!(TodoId(number).to_string().parse(), Ok(TodoId(number)));
        }
    }
}
