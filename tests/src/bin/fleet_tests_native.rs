//! The worker of the example, to the letter, in a build that is there whenever these tests are.
include!("../../../examples/native/src/main.rs");
