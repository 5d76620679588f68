//! Tools written in Rust, as part of the worker's own program.
//!
//! A tool is a type. Its arguments and its result are types as well, and their JSON Schemas are derived. The arguments of
//! [`Tool::call`] fit the schema already. What it returns is a claim about the world, with the same degrees of certainty as for
//! every other kind of tool:
//!
//! | returned | means | then |
//! |---|---|---|
//! | `Ok(output)` | it was done | the call succeeds |
//! | [`ToolError::Business`] | the tool says no, and nothing was done | the call fails with `tool_error` and the tool's words |
//! | [`ToolError::NotStarted`] | proven: nothing has reached the outside world | tried again, even for a `once` tool |
//! | [`ToolError::Unknown`], or a panic | it may have been done | a `read` or `idempotent` tool is tried again, a `once` call goes in doubt |
//!
//! A wrong `Unknown` costs a person a look; a wrong `NotStarted` costs a customer a second charge. So `?` on any other error
//! is [`ToolError::Unknown`].

mod context;
mod error;
mod file;
pub(crate) mod manifest;
mod schema;
mod settings;

use fleet::call::Effect;
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

pub use self::{
    context::ToolContext,
    error::ToolError,
    file::{FileError, FileReader},
    settings::Settings,
};

/// A tool.
///
/// ```
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
/// use worker::{Effect, Tool, ToolContext, ToolError};
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Numbers {
///     /// What to divide.
///     dividend: i64,
///     /// What to divide it by, such as 7.
///     divisor: i64,
/// }
///
/// #[derive(Serialize, JsonSchema)]
/// struct Quotient {
///     quotient: i64,
/// }
///
/// struct Divide;
///
/// impl Tool for Divide {
///     type Args = Numbers;
///     type Output = Quotient;
///     const NAME: &'static str = "divide";
///     const VERSION: i32 = 1;
///     const EFFECT: Effect = Effect::Read;
///     const DESCRIPTION: &'static str = "Divides one whole number by another, rounded towards zero.";
///
///     async fn call(&self, args: Numbers, _context: ToolContext) -> Result<Quotient, ToolError> {
///         let quotient = args.dividend.checked_div(args.divisor);
///         let quotient = quotient.ok_or(ToolError::business("the divisor must not be 0"))?;
///         Ok(Quotient { quotient })
///     }
/// }
/// ```
pub trait Tool: Send + Sync + 'static {
    /// The arguments, an object: a struct with named fields. Properties that it does not name are refused, unless it says
    /// otherwise, as with a flattened map. A model reads the comments on the fields.
    type Args: DeserializeOwned + JsonSchema + Send + 'static;
    /// The result, anything that JSON can hold.
    type Output: Serialize + JsonSchema + Send + 'static;

    /// The name callers use: 1 to 64 characters of a-z, 0-9 and _.
    const NAME: &'static str;
    /// Raised whenever anything that callers see changes: a version that was applied once never changes.
    const VERSION: i32;
    /// What running it again would mean.
    const EFFECT: Effect;
    /// What a model reads to decide whether to call it.
    const DESCRIPTION: &'static str;

    /// The rest of the manifest, where the defaults will not do.
    fn settings(&self) -> Settings {
        Settings::default()
    }

    /// Runs it once.
    ///
    /// Many calls run at a time, on the worker's own threads: code that blocks a thread belongs in [`ToolContext::blocking`].
    /// When the time is over or the caller cancels the call, [`ToolContext::cancelled`] resolves. Two seconds later the future
    /// is dropped, wherever it waits.
    ///
    /// # Errors
    ///
    /// What is known of the effect when it did not succeed; see [`ToolError`].
    fn call(
        &self,
        args: Self::Args,
        context: ToolContext,
    ) -> impl Future<Output = Result<Self::Output, ToolError>> + Send;
}
