//! One item, from its beginning to its end.

use fleet::{
    call::Awaiting,
    ids::CallId,
    wire::part::{Image, Part},
};
use time::OffsetDateTime;

use super::{
    arguments::ShownArguments,
    events::{ShellDelta, StreamEvent},
    header::TurnCall,
    heard::HeardPart,
    item::{OutputText, ShellOutput},
    result::ShownResult,
    shape::ItemKind,
    showing::{Closing, Showing},
    voice::Voice,
};

/// The item that is open.
#[derive(Debug)]
pub(super) struct OpenItem {
    /// The index of its call.
    pub(super) index: usize,
    pub(super) kind: ItemKind,
    /// The attempt that it tells of; 0 until one has begun.
    pub(super) attempt: u32,
    /// When it was opened, or last said something, in the stream's time.
    pub(super) said_at: OffsetDateTime,
    id: String,
    behind: Behind,
    /// What a message has said.
    text: String,
    /// How many images were shown.
    images: u32,
    /// Whether its call was said to be at work.
    is_at_work: bool,
}

/// The items of its call that were told before.
#[derive(Debug)]
pub(super) struct Behind {
    /// The request for approval.
    pub(super) approval: Option<String>,
    /// The commands of a shell.
    pub(super) commands: Option<String>,
}

impl OpenItem {
    /// Opens an item of a call.
    pub(super) fn begin(
        (index, call): (usize, &TurnCall),
        kind: ItemKind,
        id: String,
        behind: Behind,
        now: OffsetDateTime,
        voice: &mut Voice,
    ) -> Self {
        let item = Self {
            index,
            kind,
            attempt: 0,
            said_at: now,
            id,
            behind,
            text: String::new(),
            images: 0,
            is_at_work: false,
        };
        voice.add(&item.showing(call).added());
        item.say_beginning(call, voice);
        item
    }

    fn say_beginning(&self, call: &TurnCall, voice: &mut Voice) {
        let (output_index, item_id) = (voice.output_index(), &*self.id);
        match self.kind {
            ItemKind::Mcp => {
                voice.say(&StreamEvent::McpInProgress {
                    output_index,
                    item_id,
                });
                let arguments = &call.arguments;
                voice.say(&StreamEvent::McpArgumentsDone {
                    output_index,
                    item_id,
                    arguments,
                });
            }
            ItemKind::Message => voice.say(&StreamEvent::ContentAdded {
                output_index,
                item_id,
                content_index: 0,
                part: OutputText::of(""),
            }),
            ItemKind::Image => voice.say(&StreamEvent::ImageInProgress {
                output_index,
                item_id,
            }),
            ItemKind::FileSearch => {
                voice.say(&StreamEvent::FileSearchInProgress {
                    output_index,
                    item_id,
                });
            }
            ItemKind::WebSearch => {
                voice.say(&StreamEvent::WebSearchInProgress {
                    output_index,
                    item_id,
                });
            }
            ItemKind::Code => {
                voice.say(&StreamEvent::CodeInProgress {
                    output_index,
                    item_id,
                });
                if let Some(code) = ShownArguments::read(&call.arguments).code() {
                    voice.say(&StreamEvent::CodeDelta {
                        output_index,
                        item_id,
                        delta: code,
                    });
                    voice.say(&StreamEvent::CodeDone {
                        output_index,
                        item_id,
                        code,
                    });
                }
            }
            ItemKind::Shell => {}
        }
    }

    /// Says a part.
    pub(super) fn say_part(&mut self, told: &HeardPart, voice: &mut Voice) {
        self.say_at_work(voice);
        let (output_index, item_id) = (voice.output_index(), &*self.id);
        match (self.kind, &told.part) {
            (ItemKind::Message, Part::Text(text)) => {
                self.text.push_str(text);
                say_text(output_index, item_id, text, voice);
            }
            (ItemKind::Image, Part::Image(image)) => {
                voice.say(&StreamEvent::ImagePartial {
                    output_index,
                    item_id,
                    partial_image_index: self.images,
                    partial_image_b64: &image.b64,
                    output_format: format_of(image),
                });
                self.images += 1;
            }
            (ItemKind::Shell, Part::Text(text)) => voice.say(&StreamEvent::ShellOutputDelta {
                output_index,
                item_id,
                command_index: 0,
                delta: ShellDelta { stdout: text },
            }),
            (
                ItemKind::Mcp
                | ItemKind::Message
                | ItemKind::Image
                | ItemKind::FileSearch
                | ItemKind::WebSearch
                | ItemKind::Code
                | ItemKind::Shell,
                delta,
            ) => voice.say(&StreamEvent::OutputDelta {
                output_index,
                item_id,
                attempt: self.attempt,
                part: told.number,
                delta,
            }),
        }
    }

    /// Says once that its call is at work.
    fn say_at_work(&mut self, voice: &mut Voice) {
        if self.is_at_work {
            return;
        }
        self.is_at_work = true;
        let (output_index, item_id) = (voice.output_index(), &*self.id);
        match self.kind {
            ItemKind::Mcp | ItemKind::Message | ItemKind::Shell => {}
            ItemKind::Image => voice.say(&StreamEvent::ImageGenerating {
                output_index,
                item_id,
            }),
            ItemKind::FileSearch => {
                voice.say(&StreamEvent::FileSearchSearching {
                    output_index,
                    item_id,
                });
            }
            ItemKind::WebSearch => {
                voice.say(&StreamEvent::WebSearchSearching {
                    output_index,
                    item_id,
                });
            }
            ItemKind::Code => voice.say(&StreamEvent::CodeInterpreting {
                output_index,
                item_id,
            }),
        }
    }

    /// Says that its call waits for somebody.
    pub(super) fn say_awaiting(&self, call_id: CallId, whom: Awaiting, voice: &mut Voice) {
        voice.say(&StreamEvent::CallAwaiting {
            output_index: voice.output_index(),
            item_id: &self.id,
            call_id,
            r#for: whom,
        });
    }

    /// Closes it. `may_complete` says whether what a message still lacks may be said as its last part: not where parts are missing.
    pub(super) fn close(
        mut self,
        call: &TurnCall,
        closing: Closing<'_>,
        may_complete: bool,
        voice: &mut Voice,
    ) {
        match closing {
            Closing::Answer(json) => self.say_answer(json, may_complete, voice),
            Closing::Failure(_) | Closing::CutShort => {}
        }
        let (output_index, item_id) = (voice.output_index(), &*self.id);
        match self.kind {
            ItemKind::Message => {
                let (content_index, text) = (0, &*self.text);
                voice.say(&StreamEvent::TextDone {
                    output_index,
                    item_id,
                    content_index,
                    text,
                    logprobs: [],
                });
                let part = OutputText::of(text);
                voice.say(&StreamEvent::ContentDone {
                    output_index,
                    item_id,
                    content_index,
                    part,
                });
            }
            ItemKind::Mcp => match closing {
                Closing::Failure(_) => voice.say(&StreamEvent::McpFailed {
                    output_index,
                    item_id,
                }),
                Closing::Answer(_) | Closing::CutShort => {}
            },
            ItemKind::Image
            | ItemKind::FileSearch
            | ItemKind::WebSearch
            | ItemKind::Code
            | ItemKind::Shell => {}
        }
        let done = self.showing(call).done(closing, &self.text);
        voice.done(done);
    }

    fn say_answer(&mut self, json: Option<&str>, may_complete: bool, voice: &mut Voice) {
        self.say_at_work(voice);
        let (output_index, item_id) = (voice.output_index(), &*self.id);
        match self.kind {
            ItemKind::Mcp => voice.say(&StreamEvent::McpCompleted {
                output_index,
                item_id,
            }),
            ItemKind::Message => {
                let Some(json) = json else {
                    return;
                };
                let result = ShownResult::read(json);
                let whole = result.message();
                let rest = whole
                    .strip_prefix(&*self.text)
                    .filter(|rest| !rest.is_empty());
                if let Some(rest) = rest.filter(|_rest| may_complete) {
                    say_text(output_index, item_id, rest, voice);
                }
                self.text = whole.into_owned();
            }
            ItemKind::Image => voice.say(&StreamEvent::ImageCompleted {
                output_index,
                item_id,
            }),
            ItemKind::FileSearch => {
                voice.say(&StreamEvent::FileSearchCompleted {
                    output_index,
                    item_id,
                });
            }
            ItemKind::WebSearch => {
                voice.say(&StreamEvent::WebSearchCompleted {
                    output_index,
                    item_id,
                });
            }
            ItemKind::Code => voice.say(&StreamEvent::CodeCompleted {
                output_index,
                item_id,
            }),
            ItemKind::Shell => {
                let result = json.map(ShownResult::read);
                voice.say(&StreamEvent::ShellOutputDone {
                    output_index,
                    item_id,
                    command_index: 0,
                    output: [ShellOutput::of(result.as_ref())],
                });
            }
        }
    }

    fn showing<'a>(&'a self, call: &'a TurnCall) -> Showing<'a> {
        Showing {
            kind: self.kind,
            id: &self.id,
            call,
            approval: self.behind.approval.as_deref(),
            commands: self.behind.commands.as_deref(),
        }
    }
}

fn say_text(output_index: usize, item_id: &str, delta: &str, voice: &mut Voice) {
    voice.say(&StreamEvent::TextDelta {
        output_index,
        item_id,
        content_index: 0,
        delta,
        logprobs: [],
    });
}

/// The format of an image, by the words of the API.
fn format_of(image: &Image) -> &str {
    let kind = image.mime.strip_prefix("image/").unwrap_or(&image.mime);
    kind.strip_suffix("+xml").unwrap_or(kind)
}
