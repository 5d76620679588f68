//! How calls of a tool are shown: to who follows their session, and in a turn; and whether models are told of the tool.

use crate::call::words;

words! {
    /// Who is told of a tool and of its calls.
    #[derive(Default)]
    Visibility {
        /// Models of the tool, and followers of a session of its calls.
        #[default]
        Shown = "shown",
        /// Models of the tool, and nobody of its calls but who makes them: they tell their session nothing.
        Hidden = "hidden",
        /// Followers of a session of its calls, and no model of the tool. Whoever knows its name can call it.
        Unlisted = "unlisted",
    }
}

words! {
    /// As what kind of item of a turn a call is shown that the fleet runs, in the words of OpenAI's Responses API.
    ShownAs {
        /// An image is made.
        ImageGenerationCall = "image_generation_call",
        /// Files are searched.
        FileSearchCall = "file_search_call",
        /// The web is searched.
        WebSearchCall = "web_search_call",
        /// Code is run.
        CodeInterpreterCall = "code_interpreter_call",
        /// A command is run in a shell.
        ShellCall = "shell_call",
    }
}

impl Visibility {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
