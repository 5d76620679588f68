//! One sentence in every language that a model may ask for.
//!
//! Both texts are made where the fact is known, so neither translates the other. The reader's language is chosen later, where
//! the answer is written. Operators and `Display` get the English text.

use std::{borrow::Cow, fmt};

use crate::words::words;

words! {
    /// The language of messages for models.
    Language {
        /// English.
        En = "en",
        /// Chinese.
        Zh = "zh",
    }
}

/// A sentence, or a part of one, in English and Chinese.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    english: Cow<'static, str>,
    chinese: Cow<'static, str>,
}

/// A [`Message`] of two format strings: `said!("at most {max} bytes", "最多 {max} 字节")`.
///
/// Parts that are messages themselves are named after the formats, and each is shown in the sentence's language: `said!("header
/// {name} must be {rule}", "请求头 {name} 必须{rule}", rule)`.
#[macro_export]
macro_rules! said {
    ($english:literal, $chinese:literal $(,)?) => {
        $crate::message::Message::new(format!($english), format!($chinese))
    };
    ($english:literal, $chinese:literal, $($part:ident),+ $(,)?) => {
        $crate::message::Message::new(
            {
                $(let $part = $part.told($crate::message::Language::En);)+
                format!($english)
            },
            {
                $(let $part = $part.told($crate::message::Language::Zh);)+
                format!($chinese)
            },
        )
    };
}
pub(crate) use said;

impl Message {
    /// Of two texts.
    pub fn new(
        english: impl Into<Cow<'static, str>>,
        chinese: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            english: english.into(),
            chinese: chinese.into(),
        }
    }

    /// Of two texts that are the same everywhere.
    pub const fn fixed(english: &'static str, chinese: &'static str) -> Self {
        Self {
            english: Cow::Borrowed(english),
            chinese: Cow::Borrowed(chinese),
        }
    }

    /// The words of a tool or of a person, the same in both languages: they are not translated.
    pub fn verbatim(text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        Self {
            english: text.clone(),
            chinese: text,
        }
    }

    /// In this language.
    pub fn told(&self, language: Language) -> &str {
        match language {
            Language::En => &self.english,
            Language::Zh => &self.chinese,
        }
    }

    /// For operators.
    pub fn english(&self) -> &str {
        &self.english
    }

    /// With each text replaced by what `change` returns.
    #[must_use]
    pub fn map(self, change: impl Fn(String) -> String) -> Self {
        Self {
            english: change(self.english.into_owned()).into(),
            chinese: change(self.chinese.into_owned()).into(),
        }
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.english)
    }
}
