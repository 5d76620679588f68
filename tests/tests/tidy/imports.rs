//! No circles of imports between the files of a crate, and no type name twice in it.
//!
//! A file imports another if a `use` of it, or a path in it that begins with `crate`, `self` or `super`, leads to something that is
//! defined there. What it leads to is followed through everything that files on the way import or re-export: `super::Name` is an
//! import of the file that defines `Name`, and of the parent only if the parent does. So a `pub use` is no import itself. What is
//! compiled for tests only does not count.

use std::collections::{BTreeMap, BTreeSet};

use super::source::tokens;

/// A module's path in its crate.
type Path = Vec<String>;

/// What is read of a file.
#[derive(Debug, Default)]
struct Module {
    file: String,
    uses: Vec<Use>,
    /// Paths in the code.
    paths: Vec<Path>,
    defines: BTreeSet<String>,
    types: Vec<String>,
}

#[derive(Debug)]
struct Use {
    path: Path,
    /// By which name; `*` for everything.
    name: String,
    is_public: bool,
}

/// The files of a crate.
#[derive(Debug)]
pub(crate) struct Crate(BTreeMap<Path, Module>);

/// How many imports one path is followed through.
const FOLLOWED_MAX: usize = 16;

impl Crate {
    /// Reads files below a folder `src`: their paths below it, and their texts. Files of tests are left out.
    pub(crate) fn read(files: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut modules = BTreeMap::new();
        for (file, text) in files {
            if file.ends_with("tests.rs") || file.contains("tests/") {
                continue;
            }
            let mut path: Path = file
                .trim_end_matches(".rs")
                .split('/')
                .map(ToOwned::to_owned)
                .collect();
            if path
                .last()
                .is_some_and(|last| last == "mod" || last == "lib")
            {
                path.pop();
            }
            let module = Module::read(file, &tokens(&text));
            modules.insert(path, module);
        }
        Self(modules)
    }

    /// Every circle, as lines of who imports what from whom; nothing where there is none.
    pub(crate) fn circles(&self) -> Vec<String> {
        let imports = self.imports();
        let reached: BTreeMap<&str, BTreeSet<&str>> = imports
            .keys()
            .map(|file| (file.as_str(), reached(&imports, file)))
            .collect();
        let leads = |from: &str, to: &str| reached.get(from).is_some_and(|all| all.contains(to));
        let mut lines = Vec::new();
        for (from, targets) in &imports {
            for (to, names) in targets {
                if leads(to, from) {
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    lines.push(format!("{from} -> {to}: {}", names.join(", ")));
                }
            }
        }
        lines
    }

    /// Type names that are defined more than once, with their files.
    pub(crate) fn doubled_types(&self) -> Vec<String> {
        let mut homes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for module in self.0.values() {
            for name in &module.types {
                homes.entry(name).or_default().push(&module.file);
            }
        }
        homes.retain(|_, files| files.len() > 1);
        let doubled = homes.into_iter();
        doubled
            .map(|(name, files)| format!("{name}: {}", files.join(", ")))
            .collect()
    }

    /// What each file imports from which other.
    fn imports(&self) -> BTreeMap<String, BTreeMap<String, BTreeSet<String>>> {
        let mut all: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for (at, module) in &self.0 {
            let targets = all.entry(module.file.clone()).or_default();
            let imported = module.uses.iter().filter(|one| !one.is_public);
            let paths = imported.map(|one| &one.path).chain(&module.paths);
            for path in paths {
                let Some(home) = self.home(at, path, FOLLOWED_MAX) else {
                    continue;
                };
                let file = &self.0[&home].file;
                if *file != module.file {
                    let name = path.last().cloned().unwrap_or_default();
                    targets.entry(file.clone()).or_default().insert(name);
                }
            }
        }
        all
    }

    /// The module in which that is defined to which a path of this module leads; none if it is outside of the crate.
    fn home(&self, from: &[String], path: &[String], left: usize) -> Option<Path> {
        let left = left.checked_sub(1)?;
        let (mut at, mut rest) = (from.to_vec(), path);
        match rest.first().map(String::as_str)? {
            "crate" => (at, rest) = (Path::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|first| first == "super") {
                    at.pop()?;
                    rest = &rest[1..];
                }
            }
            // A module below this one; or the name of another crate.
            first => {
                let below = [from, &[first.to_owned()]].concat();
                self.0.get(&below)?;
            }
        }
        while let Some(next) = rest.first() {
            let below = [at.as_slice(), std::slice::from_ref(next)].concat();
            if self.0.contains_key(&below) {
                (at, rest) = (below, &rest[1..]);
                continue;
            }
            let module = self.0.get(&at)?;
            if module.defines.contains(next) {
                return Some(at);
            }
            if let Some(import) = module.uses.iter().find(|one| one.name == *next) {
                let path = [import.path.as_slice(), &rest[1..]].concat();
                return self.home(&at, &path, left);
            }
            let everything = module.uses.iter().filter(|one| one.name == "*");
            let within = everything.filter_map(|one| self.home(&at, &one.path, left));
            let mut found = within.filter(|home| self.0[home].defines.contains(next));
            // What no file is seen to define, a macro of the module makes.
            return Some(found.next().unwrap_or(at));
        }
        self.0.contains_key(&at).then_some(at)
    }
}

/// Every file to which the imports of this one lead.
fn reached<'a>(
    imports: &'a BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    from: &str,
) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for next in imports.get(file).into_iter().flat_map(BTreeMap::keys) {
            if reached.insert(next.as_str()) {
                open.push(next);
            }
        }
    }
    reached
}

impl Module {
    fn read(file: String, tokens: &[String]) -> Self {
        let mut module = Self {
            file,
            ..Self::default()
        };
        let word = |at: usize| tokens.get(at).map_or("", String::as_str);
        // Whether each open block is one of `impl` or `trait`, whose types are no names of the crate.
        let (mut blocks, mut is_of_type) = (Vec::new(), false);
        let mut at = 0;
        while at < tokens.len() {
            match word(at) {
                "use" if word(at + 1) != "<" => {
                    at = module.read_use(tokens, at);
                    continue;
                }
                "crate" | "self" | "super"
                    if word(at + 1) == "::" && !is_visibility(tokens, at) =>
                {
                    let mut path = vec![word(at).to_owned()];
                    while word(at + 1) == "::" && is_name(word(at + 2)) {
                        path.push(word(at + 2).to_owned());
                        at += 2;
                    }
                    module.paths.push(path);
                }
                "impl" => is_of_type = true,
                kind @ ("struct" | "enum" | "trait" | "type") if is_name(word(at + 1)) => {
                    let name = word(at + 1).to_owned();
                    let is_associated = kind == "type" && blocks.contains(&true);
                    if !is_associated && name.starts_with(char::is_uppercase) {
                        module.types.push(name.clone());
                    }
                    module.defines.insert(name);
                    is_of_type |= kind == "trait";
                }
                "fn" | "const" | "static" | "mod" if is_name(word(at + 1)) => {
                    module.defines.insert(word(at + 1).to_owned());
                }
                "macro_rules" => {
                    module.defines.insert(word(at + 2).to_owned());
                }
                "{" => blocks.push(std::mem::take(&mut is_of_type)),
                "}" => drop(blocks.pop()),
                ";" => is_of_type = false,
                _other => {}
            }
            at += 1;
        }
        module
    }

    /// Takes the imports of one `use`; behind it.
    fn read_use(&mut self, tokens: &[String], at: usize) -> usize {
        let before = at
            .checked_sub(1)
            .map_or("", |before| tokens[before].as_str());
        let is_public = before == "pub" || (before == ")" && is_restricted(tokens, at - 1));
        let mut end = at + 1;
        // Of each open brace the path in front of it; the last one is being read.
        let (mut open, mut path): (Vec<Path>, Path) = (Vec::new(), Path::new());
        let mut name = None;
        while end < tokens.len() {
            match tokens[end].as_str() {
                // What begins with it is another crate.
                "::" if path.is_empty() => path.push("::".to_owned()),
                "::" => {}
                "{" => open.push(path.clone()),
                "as" => {
                    end += 1;
                    name = Some(tokens[end].clone());
                }
                mark @ ("," | "}" | ";") => {
                    let front = open.last().map_or(0, Vec::len);
                    if path.len() > front {
                        self.add_use(std::mem::take(&mut path), name.take(), is_public);
                    }
                    match mark {
                        ";" => return end + 1,
                        "}" => drop(open.pop()),
                        _next => {}
                    }
                    path = open.last().cloned().unwrap_or_default();
                }
                word => path.push(word.to_owned()),
            }
            end += 1;
        }
        end
    }

    fn add_use(&mut self, mut path: Path, name: Option<String>, is_public: bool) {
        let last = path.last().cloned().unwrap_or_default();
        if last == "*" || (last == "self" && path.len() > 1) {
            path.pop();
        }
        let own = match last.as_str() {
            "self" => path.last().cloned().unwrap_or_default(),
            _other => last,
        };
        self.uses.push(Use {
            path,
            name: name.unwrap_or(own),
            is_public,
        });
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|letter: char| letter.is_alphabetic() || letter == '_')
}

/// Whether this bracket closes a visibility, as in `pub(super)`.
fn is_restricted(tokens: &[String], closing: usize) -> bool {
    let opening = tokens[..closing].iter().rposition(|token| token == "(");
    opening.is_some_and(|at| at > 0 && tokens[at - 1] == "pub")
}

/// Whether a path stands in a visibility, as in `pub(in crate::commands)`.
fn is_visibility(tokens: &[String], at: usize) -> bool {
    let before = |back: usize| {
        at.checked_sub(back)
            .map_or("", |place| tokens[place].as_str())
    };
    before(1) == "in" && before(2) == "(" && before(3) == "pub"
}

fn of(files: &[(&str, &str)]) -> Crate {
    let files = files.iter();
    Crate::read(files.map(|(file, text)| ((*file).to_owned(), (*text).to_owned())))
}

#[test]
fn a_child_that_takes_from_its_parent_what_the_parent_defines_is_a_circle() {
    let parent = "mod child;\nuse self::child::{Child as Kid, other};\npub struct Parent;";
    let found = |child: &str| of(&[("lib.rs", parent), ("child.rs", child)]).circles();
    assert_eq!(
        found("use super::Parent; pub struct Child;"),
        [
            "child.rs -> lib.rs: Parent",
            "lib.rs -> child.rs: Child, other"
        ]
    );
    assert_eq!(found("fn f(_: crate::Parent) {}").len(), 2);
    for fine in [
        "use std::fmt; use other::Parent;",
        "pub(in crate::Parent) struct Child;",
        "#[cfg(test)] mod tests { use super::super::Parent; }",
        "// use super::Parent;",
    ] {
        assert!(found(fine).is_empty(), "{fine}: {:?}", found(fine));
    }
}

#[test]
fn a_name_is_followed_to_the_file_that_defines_it() {
    let parent = "mod a; mod b; pub use self::{a::{Of, A}, b::*}; use self::a::Hidden;";
    let found =
        |a: &str, b: &str| of(&[("x/mod.rs", parent), ("x/a.rs", a), ("x/b.rs", b)]).circles();
    let a = "pub struct A; pub struct Of; struct Hidden;";
    assert!(found(a, "use super::{A, Hidden}; pub struct B;").is_empty());
    let a = "use super::B; pub struct A; pub struct Of;";
    assert_eq!(
        found(a, "use crate::x::Of; pub struct B;"),
        ["x/a.rs -> x/b.rs: B", "x/b.rs -> x/a.rs: Of"]
    );
}

#[test]
fn longer_circles_are_found_and_what_leads_into_one_is_none_of_it() {
    let files = [
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a.rs", "use super::b::B; pub struct A;"),
        ("b.rs", "use crate::{c::{self}, d}; pub struct B;"),
        ("c.rs", "fn f() { crate::a::A; } pub struct C;"),
        ("d.rs", "pub fn d() {}"),
    ];
    assert_eq!(
        of(&files).circles(),
        ["a.rs -> b.rs: B", "b.rs -> c.rs: c", "c.rs -> a.rs: A"]
    );
}

#[test]
fn a_type_name_is_one_types_and_that_of_an_associated_type_is_none() {
    let files = [
        (
            "lib.rs",
            "struct Row; enum Seen {} impl T for Row { type Error = u8; }",
        ),
        (
            "a.rs",
            "fn f() { struct Row; } trait Error { type Seen; } impl Seen {}",
        ),
        ("tests.rs", "struct Seen;"),
    ];
    assert_eq!(of(&files).doubled_types(), ["Row: lib.rs, a.rs"]);
}
