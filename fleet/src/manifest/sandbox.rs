//! What a program may reach and use.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{optional, size};

/// What a program may reach and use; the default is `strict`, and each field that is written gives more or less of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Sandbox {
    /// Files and folders that it may read and execute, beside the system's own.
    pub read: Vec<String>,
    /// Files and folders that it may read and change.
    pub write: Vec<String>,
    /// What it reaches over a network.
    pub network: Network,
    /// The most bytes of memory of all its processes together.
    pub memory: usize,
    /// The most processes and threads at a time.
    pub processes: u32,
    /// The most processor time of each process, in whole seconds. `None`: as much as its timeout leaves.
    pub cpu: Option<Duration>,
    /// The most descriptors of each process.
    pub open_files: u64,
    /// The most bytes of a file that it writes.
    pub file_size: usize,
    /// Whether each attempt gets a folder of its own that is removed after it.
    pub tmp: bool,
}

/// What a program reaches over a network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Nothing: it can make no socket.
    #[default]
    None,
    /// Connections over TCP to these ports.
    Tcp(Vec<u16>),
    /// What the worker's user may reach.
    Host,
}

impl Default for Sandbox {
    fn default() -> Self {
        SandboxFields::default().into()
    }
}

/// As it stands in a manifest.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Word(SandboxWord),
    Fields(SandboxFields),
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SandboxWord {
    Strict,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SandboxFields {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    read: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    write: Vec<String>,
    network: Network,
    #[serde(with = "size")]
    memory: usize,
    processes: u32,
    #[serde(skip_serializing_if = "Option::is_none", with = "optional")]
    cpu: Option<Duration>,
    open_files: u64,
    #[serde(with = "size")]
    file_size: usize,
    tmp: bool,
}

const MIB: usize = 1024 * 1024;

impl Default for SandboxFields {
    fn default() -> Self {
        Self {
            read: Vec::new(),
            write: Vec::new(),
            network: Network::None,
            memory: 512 * MIB,
            processes: 64,
            cpu: None,
            open_files: 256,
            file_size: 64 * MIB,
            tmp: false,
        }
    }
}

impl From<SandboxFields> for Sandbox {
    fn from(fields: SandboxFields) -> Self {
        Self {
            read: fields.read,
            write: fields.write,
            network: fields.network,
            memory: fields.memory,
            processes: fields.processes,
            cpu: fields.cpu,
            open_files: fields.open_files,
            file_size: fields.file_size,
            tmp: fields.tmp,
        }
    }
}

impl From<Written> for Sandbox {
    fn from(written: Written) -> Self {
        match written {
            Written::Word(SandboxWord::Strict) => Self::default(),
            Written::Fields(fields) => fields.into(),
        }
    }
}

impl From<Sandbox> for Written {
    fn from(sandbox: Sandbox) -> Self {
        if sandbox == Sandbox::default() {
            return Self::Word(SandboxWord::Strict);
        }
        Self::Fields(SandboxFields {
            read: sandbox.read,
            write: sandbox.write,
            network: sandbox.network,
            memory: sandbox.memory,
            processes: sandbox.processes,
            cpu: sandbox.cpu,
            open_files: sandbox.open_files,
            file_size: sandbox.file_size,
            tmp: sandbox.tmp,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(value: &Value) -> Sandbox {
        serde_json::from_value(value.clone()).unwrap()
    }

    #[test]
    fn strict_is_what_no_field_changes_and_is_written_as_a_word() {
        let strict = read(&json!("strict"));
        assert_eq!(strict, read(&json!({})));
        assert_eq!(strict.network, Network::None);
        assert_eq!(serde_json::to_value(&strict).unwrap(), "strict");
    }

    #[test]
    fn what_is_written_is_read_back() {
        let written = json!({
            "read": ["/srv"], "network": {"tcp": [443]}, "memory": "64MiB", "cpu": "5s", "tmp": true,
        });
        let sandbox = read(&written);
        assert_eq!((sandbox.memory, sandbox.processes), (64 * MIB, 64));
        assert_eq!(read(&serde_json::to_value(&sandbox).unwrap()), sandbox);
        assert!(serde_json::from_value::<Sandbox>(json!({"net": 1})).is_err());
    }
}
