//! The document of `OpenAPI` 3.1: as it is written (`schemas/openapi.json`), bundled with the schemas that it refers to (`bundle`),
//! and with an operation per tool (`per_tool`).

pub(crate) mod bundle;
pub(crate) mod per_tool;
