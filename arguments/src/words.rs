//! Enums whose values are words: the same snake case in JSON, in text and in metric labels.

/// An enum of words: `words! { /// … Name { /// … Variant = "variant", … } }`.
///
/// It gets `ALL`, `as_str`, `Display`, `FromStr` (error: [`UnknownWord`](crate::words::UnknownWord)) and serde's two traits, all
/// with these words. The crate that calls the macro depends on `serde` itself.
#[macro_export]
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $word)] $variant),+ }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word for it in JSON, in text and in metric labels.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::words::UnknownWord;

            fn from_str(word: &str) -> Result<Self, $crate::words::UnknownWord> {
                match word {
                    $($word => Ok(Self::$variant),)+
                    _ => Err($crate::words::UnknownWord { what: stringify!($name), word: word.to_owned() }),
                }
            }
        }
    };
}
pub(crate) use words;

/// A word that this version of the program does not know: refused, never defaulted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is not a known {what}")]
pub struct UnknownWord {
    /// The type that was expected.
    pub what: &'static str,
    /// What stood there.
    pub word: String,
}
