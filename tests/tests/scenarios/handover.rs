//! The files of a call on their way to its tool: into the folder of a program, as URLs, and into a handler.

mod handler;
mod program;
mod service;

use fleet::{canonical, ids::FileId};
use fleet_tests::fleet::Fleet;
use serde_json::Value;

/// Keeps a text as a file of the tenant `default`, as any client does.
async fn keep(fleet: &Fleet, name: &str, text: &str) -> FileId {
    let tenant = "default".parse().unwrap();
    let client = &fleet.caller;
    let new = fleet_client::files::NewFile {
        name,
        mime: "text/plain",
        bytes: text.len() as u64,
    };
    let begun = client.begin_file(&tenant, &new).await.unwrap();
    let begun: Value = begun.read().unwrap();
    let file: FileId = begun["file_id"].as_str().unwrap().parse().unwrap();
    let mut at = 0;
    for piece in text.as_bytes().chunks(256 * 1024) {
        let sent = client.send_chunk(&tenant, file, at, piece.to_vec()).await;
        assert!(!sent.unwrap().head().unwrap().is_refused());
        at += piece.len() as u64;
    }
    let ended = client.finish_file(&tenant, file, &sha256(text)).await;
    let ended: Value = ended.unwrap().read().unwrap();
    assert_eq!(ended["state"], "ready", "{ended}");
    file
}

fn sha256(text: &str) -> String {
    let hash = canonical::hash_text(text);
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes the bytes of a file others than they were.
async fn change(fleet: &Fleet, file: FileId) {
    let mut connection = fleet.database.connect().await;
    let changing = "UPDATE toolfleet.file_chunks SET data = set_byte(data, 0, get_byte(data, 0) # 1) WHERE file_id = $1";
    let changed = sqlx::query(changing).bind(file.0).execute(&mut connection);
    assert_eq!(changed.await.unwrap().rows_affected(), 1);
}

/// As `Toolfleet-Files` has them.
fn named(files: &[FileId]) -> String {
    let ids: Vec<String> = files.iter().map(FileId::to_string).collect();
    ids.join(",")
}
