//! The pages, a file each.

mod actor;
pub(super) mod acts;
mod again;
pub(super) mod call;
mod details;
mod doubt;
pub(super) mod doubts;
pub(super) mod files;
pub(super) mod find;
pub(super) mod live;
pub(super) mod login;
mod make;
pub(super) mod overview;
mod playground;
pub(super) mod protection;
mod sent;
mod settle;
pub(super) mod story;
pub(super) mod streams;
mod switches;
pub(super) mod tool;
pub(super) mod tools;
mod versions;
pub(super) mod waiting;
pub(super) mod whole;
pub(super) mod workers;
