//! Reads the folder: every `.yaml` in it says what there is, and names the other files of it that it needs.

use std::{collections::BTreeSet, fs::File, io::Read, path::Path};

use bytes::Bytes;
use fleet::config::ConfigError;

use super::{
    ContentNames, HeldContent, McpContent, MessageBlock, PromptArgument, PromptForm, PromptMessage,
    ResourceTemplate, StaticPrompt, StaticResource,
    template::{UriPattern, is_name},
    written::{ContentDocument, Role, WrittenMessage, WrittenPrompt, WrittenResource},
};

/// The most `.yaml` files of a folder.
const DOCUMENTS_MAX: usize = 100;
/// The most bytes of one, and of a file that one names.
const FILE_MAX: u64 = 1024 * 1024;
/// The most bytes of all.
const ALL_MAX: u64 = 16 * 1024 * 1024;
/// The most resources, templates and prompts, each: a list is one page.
const LISTED_MAX: usize = 200;
/// The most entries of a folder that are looked at.
const ENTRIES_MAX: usize = 10_000;
/// How the addresses of the fleet begin.
const OWN: &str = "toolfleet://";
/// How the names of the gateway's own prompts begin.
const OWN_NAMES: &str = "toolfleet_";

impl McpContent {
    /// What this folder has; nothing, without one.
    ///
    /// # Errors
    ///
    /// As for [`Self::read`].
    pub fn of(folder: Option<&Path>) -> Result<Self, ConfigError> {
        folder.map_or_else(|| Ok(Self::default()), Self::read)
    }

    /// What this folder has.
    ///
    /// # Errors
    ///
    /// A file is not as it should be: the message names it. Or the folder has more than is taken.
    pub fn read(folder: &Path) -> Result<Self, ConfigError> {
        let read = Folder::open(folder).and_then(|mut folder| folder.read());
        read.map_err(|problem| ConfigError(vec![format!("--mcp-content: {problem}")]))
    }
}

struct Folder<'a> {
    path: &'a Path,
    documents: Vec<String>,
    bytes: u64,
}

impl<'a> Folder<'a> {
    fn open(path: &'a Path) -> Result<Self, String> {
        let told = |problem: std::io::Error| format!("{}: {problem}", path.display());
        let mut documents = BTreeSet::new();
        for entry in std::fs::read_dir(path).map_err(told)?.take(ENTRIES_MAX) {
            let name = entry.map_err(told)?.file_name();
            let Some(name) = name.to_str() else {
                continue;
            };
            if name.ends_with(".yaml") && !name.starts_with('.') {
                documents.insert(name.to_owned());
            }
        }
        if documents.len() > DOCUMENTS_MAX {
            return Err(format!("there are more than {DOCUMENTS_MAX} .yaml files"));
        }
        Ok(Self {
            path,
            documents: documents.into_iter().collect(),
            bytes: 0,
        })
    }

    fn read(&mut self) -> Result<McpContent, String> {
        let mut content = McpContent::default();
        for name in std::mem::take(&mut self.documents) {
            let read = self.document(&name, &mut content);
            read.map_err(|problem| format!("{name}: {problem}"))?;
        }
        content
            .resources
            .sort_by(|one, other| one.uri.cmp(&other.uri));
        content
            .templates
            .sort_by(|one, other| one.pattern.as_str().cmp(other.pattern.as_str()));
        content
            .prompts
            .sort_by(|one, other| one.described.name.cmp(&other.described.name));
        Ok(content)
    }

    fn document(&mut self, name: &str, content: &mut McpContent) -> Result<(), String> {
        let bytes = self.file(name)?;
        let text = str::from_utf8(&bytes).map_err(|_other| "it is not UTF-8".to_owned())?;
        let read: ContentDocument =
            yaml_serde::from_str(text).map_err(|problem| problem.to_string())?;
        for resource in read.resources {
            let what = format!("resource {:?}", resource.name);
            let added = self.resource(resource, content);
            added.map_err(|problem| format!("{what}: {problem}"))?;
        }
        for prompt in read.prompts {
            let what = format!("prompt {:?}", prompt.name);
            let added = self.prompt(prompt, content);
            added.map_err(|problem| format!("{what}: {problem}"))?;
        }
        let most = content
            .resources
            .len()
            .max(content.templates.len())
            .max(content.prompts.len());
        if most > LISTED_MAX {
            return Err(format!(
                "with it there are more than {LISTED_MAX} resources, templates or prompts"
            ));
        }
        Ok(())
    }

    fn resource(
        &mut self,
        written: WrittenResource,
        content: &mut McpContent,
    ) -> Result<(), String> {
        let WrittenResource {
            uri,
            uri_template,
            name,
            title,
            description,
            mime_type,
            text,
            file,
            values,
        } = written;
        let described = ContentNames {
            name,
            title,
            description,
        };
        match (uri, uri_template) {
            (Some(uri), None) => {
                is_address(&uri)?;
                if content.resources.iter().any(|known| known.uri == uri) {
                    return Err(format!("{uri} stands there twice"));
                }
                if !values.is_empty() {
                    return Err("values are for uri_template".to_owned());
                }
                let (mime, held) = self.held(mime_type, text, file)?;
                content.resources.push(StaticResource {
                    uri,
                    described,
                    mime,
                    held,
                });
            }
            (None, Some(template)) => {
                is_address(&template)?;
                let pattern = UriPattern::read(&template)
                    .map_err(|problem| format!("uri_template: {problem}"))?;
                let known = &content.templates;
                if known.iter().any(|one| one.pattern.as_str() == template) {
                    return Err(format!("{template} stands there twice"));
                }
                if let Some(name) = values.keys().find(|name| !pattern.has(name)) {
                    return Err(format!("values: uri_template has no {{{name}}}"));
                }
                let (mime, held) = self.held(mime_type, text, file)?;
                let HeldContent::Text(text) = held else {
                    return Err("what uri_template shows must be text".to_owned());
                };
                content.templates.push(ResourceTemplate {
                    pattern,
                    described,
                    mime,
                    text,
                    values,
                });
            }
            (_, _) => return Err("write uri or uri_template".to_owned()),
        }
        Ok(())
    }

    fn prompt(&mut self, written: WrittenPrompt, content: &mut McpContent) -> Result<(), String> {
        let WrittenPrompt {
            name,
            title,
            description,
            arguments,
            messages,
            ask,
        } = written;
        if name.is_empty() || name.len() > 128 || name.starts_with(OWN_NAMES) {
            return Err(format!(
                "a name has 1 to 128 bytes and does not begin with {OWN_NAMES}"
            ));
        }
        if content.prompts.iter().any(|one| one.described.name == name) {
            return Err("there is another of that name".to_owned());
        }
        let mut names = BTreeSet::new();
        let fields = ask.values().flat_map(|form| form.fields.keys());
        for name in arguments.iter().map(|one| &one.name).chain(fields) {
            if !is_name(name) {
                return Err(format!("{name:?} is no name of letters, digits and _"));
            }
            if !names.insert(name.clone()) {
                return Err(format!("{name} stands there twice"));
            }
        }
        let messages: Result<Vec<PromptMessage>, String> =
            messages.into_iter().map(|one| self.message(one)).collect();
        let messages = messages?;
        if messages.is_empty() {
            return Err("it has no messages".to_owned());
        }
        let arguments = arguments.into_iter().map(|one| PromptArgument {
            name: one.name,
            description: one.description,
            is_required: one.required,
            values: one.values,
        });
        let asks = ask.into_iter().map(|(name, form)| {
            let all = || form.fields.keys().cloned().collect();
            let form = PromptForm {
                message: form.message,
                required: form.required.unwrap_or_else(all),
                fields: form.fields,
            };
            (name, form)
        });
        content.prompts.push(StaticPrompt {
            described: ContentNames {
                name,
                title,
                description,
            },
            arguments: arguments.collect(),
            messages,
            asks: asks.collect(),
        });
        Ok(())
    }

    fn message(&mut self, written: WrittenMessage) -> Result<PromptMessage, String> {
        let WrittenMessage {
            role,
            text,
            file,
            mime_type,
            resource,
        } = written;
        let block = match (resource, text, file) {
            (None, Some(text), None) => MessageBlock::Text(text),
            (None, None, Some(file)) => {
                let (mime, held) = self.held(mime_type, None, Some(file))?;
                match held {
                    HeldContent::Text(text) => MessageBlock::Text(text),
                    HeldContent::Bytes(bytes)
                        if mime.starts_with("image/") || mime.starts_with("audio/") =>
                    {
                        MessageBlock::Media { mime, bytes }
                    }
                    HeldContent::Bytes(_) => {
                        return Err(
                            "the file of a message must be text, an image or a sound".to_owned()
                        );
                    }
                }
            }
            (Some(embedded), None, None) => {
                let (mime, held) = self.held(embedded.mime_type, embedded.text, embedded.file)?;
                MessageBlock::Resource {
                    uri: embedded.uri,
                    mime,
                    held,
                }
            }
            (_, _, _) => return Err("a message has text, a file or a resource".to_owned()),
        };
        let role = match role {
            Role::User => "user",
            Role::Assistant => "assistant",
        };
        Ok(PromptMessage { role, block })
    }

    fn held(
        &mut self,
        mime: Option<String>,
        text: Option<String>,
        file: Option<String>,
    ) -> Result<(String, HeldContent), String> {
        match (text, file) {
            (Some(text), None) => {
                let mime = mime.unwrap_or_else(|| "text/plain".to_owned());
                Ok((mime, HeldContent::Text(text)))
            }
            (None, Some(file)) => {
                let bytes = self.named(&file)?;
                let mime = mime.unwrap_or_else(|| mime_of(&file).to_owned());
                let is_text = mime.starts_with("text/") || super::template::is_json(&mime);
                let held = match String::from_utf8(bytes.to_vec()) {
                    Ok(text) if is_text => HeldContent::Text(text),
                    Err(_other) if is_text => return Err(format!("{file} is not UTF-8")),
                    Ok(_) | Err(_) => HeldContent::Bytes(bytes),
                };
                Ok((mime, held))
            }
            (_, _) => Err("write text or file".to_owned()),
        }
    }

    /// A file that a document names.
    fn named(&mut self, name: &str) -> Result<Bytes, String> {
        if name.contains(['/', '\\']) || name.starts_with('.') || name.is_empty() {
            return Err(format!("{name:?} is no file of this folder"));
        }
        let read = self.file(name);
        read.map_err(|problem| format!("{name}: {problem}"))
    }

    fn file(&mut self, name: &str) -> Result<Bytes, String> {
        let path = self.path.join(name);
        let told = |problem: std::io::Error| problem.to_string();
        // What is no file may never end, or begin.
        if !std::fs::metadata(&path).map_err(told)?.is_file() {
            return Err("it is no file".to_owned());
        }
        let mut bytes = Vec::new();
        let file = File::open(&path).map_err(told)?;
        file.take(FILE_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(told)?;
        let length = bytes.len() as u64;
        if length > FILE_MAX {
            return Err("it has more than 1 MiB".to_owned());
        }
        self.bytes += length;
        if self.bytes > ALL_MAX {
            return Err("with it the folder has more than 16 MiB".to_owned());
        }
        Ok(bytes.into())
    }
}

fn is_address(uri: &str) -> Result<(), String> {
    let scheme = uri.split_once(':').map_or("", |(scheme, _)| scheme);
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    if !is_scheme || uri.len() > 2_048 {
        return Err(format!(
            "{uri:?} is no address with its scheme, of at most 2048 bytes"
        ));
    }
    if uri.starts_with(OWN) {
        return Err(format!("{OWN} is the fleet's own"));
    }
    Ok(())
}

/// The type of a file, by its name.
fn mime_of(name: &str) -> &'static str {
    let end = name.rsplit_once('.').map_or("", |(_, end)| end);
    match end.to_ascii_lowercase().as_str() {
        "txt" | "md" => "text/plain",
        "html" => "text/html",
        "csv" => "text/csv",
        "json" => "application/json",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        "wav" => "audio/wav",
        "mp3" => "audio/mpeg",
        "pdf" => "application/pdf",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(files: &[(&str, &[u8])]) -> Result<McpContent, String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        McpContent::read(folder.path()).map_err(|ConfigError(problems)| problems.join("; "))
    }

    #[test]
    fn a_folder_has_what_its_documents_say() {
        let document = "resources:\n\
            - {uri: 'test://a', name: a, text: hello}\n\
            - {uri: 'test://b', name: b, file: b.png}\n\
            - {uri_template: 'test://t/{id}', name: t, mime_type: application/json, text: '{\"id\":\"{id}\"}', values: {id: ['1', '12']}}\n\
            prompts:\n\
            - {name: greet, arguments: [{name: who, required: true}], messages: [{role: user, text: 'Greet {who}'}]}\n\
            - {name: look, messages: [{role: user, file: b.png}], ask: {c: {message: 'What?', fields: {context: {type: string}}}}}\n";
        let content = read(&[
            ("a.yaml", document.as_bytes()),
            ("b.png", b"\x89PNG"),
            (".c.yaml", b"{"),
            ("notes.txt", b"\xff"),
        ]);
        let content = content.unwrap();
        let kinds = (
            content.resources.len(),
            content.templates.len(),
            content.prompts.len(),
        );
        assert_eq!(kinds, (2, 1, 2));
        assert!(matches!(content.resources[1].held, HeldContent::Bytes(_)));
        let contents = content.templates[0]
            .contents("test://t/7")
            .unwrap()
            .unwrap();
        assert_eq!(contents["text"], r#"{"id":"7"}"#);
        let values = [("who".to_owned(), "Ann".to_owned())].into();
        let messages = content.prompts[0].messages(&values).unwrap();
        assert_eq!(messages[0]["content"]["text"], "Greet Ann");
        assert_eq!(
            content.prompts[1].messages(&values).unwrap()[0]["content"]["type"],
            "image"
        );
        assert_eq!(
            content.prompts[1].listed()["arguments"][0]["name"],
            "context"
        );
    }

    #[test]
    fn what_is_wrong_is_named_with_its_file() {
        for (document, problem) in [
            ("resources: 7", "invalid type"),
            ("other: []", "unknown field"),
            ("resources: [{uri: 'a b', name: a, text: x}]", "no address"),
            (
                "resources: [{uri: 'toolfleet://call/x', name: a, text: x}]",
                "own",
            ),
            ("resources: [{name: a, text: x}]", "uri or uri_template"),
            ("resources: [{uri: 'test://a', name: a}]", "text or file"),
            (
                "resources: [{uri: 'test://a', name: a, file: ../x}]",
                "no file of this folder",
            ),
            (
                "resources: [{uri: 'test://a', name: a, file: x.png}]",
                "x.png",
            ),
            (
                "resources: [{uri: 'test://a', name: a, text: x}, {uri: 'test://a', name: b, text: x}]",
                "twice",
            ),
            (
                "resources: [{uri_template: 'test://a', name: a, text: x}]",
                "no variable",
            ),
            ("prompts: [{name: a, messages: []}]", "no messages"),
            (
                "prompts: [{name: toolfleet_x, messages: [{role: user, text: a}]}]",
                "toolfleet_",
            ),
            (
                "prompts: [{name: a, messages: [{role: system, text: a}]}]",
                "unknown variant",
            ),
            (
                "prompts: [{name: a, messages: [{role: user}]}]",
                "a message has",
            ),
        ] {
            let said = read(&[("bad.yaml", document.as_bytes())]).unwrap_err();
            assert!(
                said.contains("bad.yaml") && said.contains(problem),
                "{said}"
            );
        }
        let large = vec![b'x'; usize::try_from(FILE_MAX).unwrap() + 1];
        assert!(read(&[("bad.yaml", &large)]).unwrap_err().contains("1 MiB"));
        let said = McpContent::read(Path::new("/nowhere")).unwrap_err();
        assert!(said.to_string().contains("/nowhere"));
    }
}
