//! The files that a call names: whether its tool takes them, and whether its tenant has them.
//!
//! The statement that accepts the call looks again, under locks: what is said here is for people, and may be over by then.

use fleet::{
    files::CallFile,
    ids::{FileId, Label},
    manifest::Manifest,
    said,
    store::{PgPool, accept::NewCall, files},
    wire::code::Code,
};

use crate::refusal::Refusal;

/// Whether a new call of this tool may name these files.
///
/// # Errors
///
/// `invalid_arguments`: the tool does not take them. `not_found`: the tenant has no such file.
pub(crate) async fn check(
    pool: &PgPool,
    tenant: &Label,
    manifest: &Manifest,
    named: &[FileId],
) -> Result<(), Refusal> {
    let Some(spec) = &manifest.files else {
        let tool = &manifest.name;
        let what = said!(
            "the tool {tool} takes no files; call it without Toolfleet-Files",
            "工具 {tool} 不接受文件；调用时请去掉 Toolfleet-Files"
        );
        return Err(Refusal::of_file(Code::InvalidArguments, what));
    };
    if let Some(what) = spec.too_many(named.len()) {
        return Err(Refusal::of_file(Code::InvalidArguments, what));
    }
    let found = find(pool, tenant, named).await?;
    match found.iter().find_map(|file| spec.misfit(file)) {
        Some(what) => Err(Refusal::of_file(Code::InvalidArguments, what)),
        None => Ok(()),
    }
}

/// Why a call was not stored whose key is free: a file that it names is gone.
///
/// # Errors
///
/// It is: `not_found`.
pub(crate) async fn still_there(pool: &PgPool, call: &NewCall) -> Result<(), Refusal> {
    if call.files.is_empty() {
        return Ok(());
    }
    find(pool, &call.tenant, &call.files).await.map(drop)
}

/// All of these files. A foreign one, one that is gone and one that never was are told in the same words.
async fn find(pool: &PgPool, tenant: &Label, named: &[FileId]) -> Result<Vec<CallFile>, Refusal> {
    let found = files::nameable(pool, tenant, named).await;
    let found = found.map_err(|error| Refusal::unreadable(&error))?;
    let lacking = |id: &&FileId| !found.iter().any(|file| file.file_id == **id);
    match named.iter().find(lacking) {
        Some(id) => {
            let what = said!(
                "there is no file {id}; hand it in again, and call with the id that it gets",
                "不存在文件 {id}；请重新上传，并用新的 file_id 调用"
            );
            Err(Refusal::of_file(Code::NotFound, what))
        }
        None => Ok(found),
    }
}
