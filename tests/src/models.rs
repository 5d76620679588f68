//! The stand-in for vendors of models, `examples/models/model_server.py`, with a script.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{process::get, wait::until};

/// A running stand-in. It ends when it is dropped.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    server: Child,
    _folder: TempDir,
}

impl ModelServer {
    /// Starts it with a script, whose form is in `examples/models/README.md`, and further flags.
    ///
    /// # Panics
    ///
    /// It does not start.
    pub fn start(script: &Value, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let file = folder.path().join("script.json");
        fs::write(&file, script.to_string()).expect("the script can be written");
        let program =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/models/model_server.py");
        let mut server = Command::new("python3")
            .arg(program)
            .args(["--port", "0", "--script"])
            .arg(file)
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is installed");
        let mut line = String::new();
        let out = server.stdout.take().expect("it is a pipe");
        BufReader::new(out)
            .read_line(&mut line)
            .expect("it says where it is");
        let said: Value = serde_json::from_str(&line).expect("its first line is JSON");
        let port = said["port"]
            .as_u64()
            .and_then(|port| u16::try_from(port).ok());
        let port = port.expect("it says its port");
        Self {
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            server,
            _folder: folder,
        }
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What came, in its order, with the bodies as they were sent in `raw`.
    ///
    /// # Panics
    ///
    /// It does not answer.
    pub async fn log(&self) -> Vec<Value> {
        let (_, body) = get(self.address, "/log?raw=1").await.expect("it answers");
        let mut log: Value = serde_json::from_str(&body).expect("its log is JSON");
        match log["entries"].take() {
            Value::Array(entries) => entries,
            other => panic!("{other} is no log"),
        }
    }

    /// Its own sums of a model, once nothing is being answered any more.
    ///
    /// # Panics
    ///
    /// It does not answer.
    pub async fn sums(&self, model: &str) -> Value {
        let sums = until("the stand-in to be done", async || {
            let (_, body) = get(self.address, "/sums").await.expect("it answers");
            let sums: Value = serde_json::from_str(&body).expect("its sums are JSON");
            (sums["in_flight"] == 0).then_some(sums)
        });
        sums.await["models"][model].take()
    }

    /// How many requests this model was sent.
    ///
    /// # Panics
    ///
    /// It does not answer.
    pub async fn asked(&self, model: &str) -> usize {
        let log = self.log().await;
        log.iter().filter(|entry| entry["model"] == model).count()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        // Failing, it has ended by itself.
        drop(self.server.kill());
        drop(self.server.wait());
    }
}
