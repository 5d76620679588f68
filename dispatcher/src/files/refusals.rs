//! Refusals that several requests about files have in common.

use fleet::wire::{code::Code, message::Message};

use crate::refusal::Refusal;

/// One sentence for a file that never was, is another tenant's, or is gone: nothing tells them apart.
pub(super) fn no_such_file() -> Refusal {
    let what = Message::fixed("there is no such file", "不存在这个文件");
    Refusal::of_file(Code::NotFound, what)
}
