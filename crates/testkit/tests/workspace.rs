//! The workspace as the design draws it: which crate may name which, what is taken from outside and under what licence.
//!
//! Read from `cargo metadata` for this machine's platform, offline, with the lock file as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Arrows of normal dependencies, by folder of crate. What is not listed is forbidden.
const ARROWS: &[(&str, &[&str])] = &[
    ("cli", BELOW_CLI),
    ("server", &["engine", "text", "models"]),
    ("train", &["engine", "text", "models"]),
    ("check", &["engine", "text", "models", "graph", "quant"]),
    ("engine", &["models", "graph"]),
    ("text", &["gguf"]),
    ("models", &["graph", "gguf", "quant"]),
    ("cpu", &["graph", "quant"]),
    ("cuda", &["graph", "quant"]),
    ("graph", &["quant"]),
    ("gguf", &["quant"]),
    ("quant", &[]),
    ("testkit", BELOW_TESTKIT),
    ("xtask", BELOW_XTASK),
];

const BELOW_CLI: &[&str] =
    &["server", "train", "check", "engine", "text", "models", "cpu", "cuda", "graph", "gguf", "quant"];
const BELOW_TESTKIT: &[&str] =
    &["cli", "server", "train", "check", "engine", "text", "models", "cpu", "cuda", "graph", "gguf", "quant"];
const BELOW_XTASK: &[&str] = &[
    "cli", "server", "train", "check", "engine", "text", "models", "cpu", "cuda", "graph", "gguf", "quant",
    "testkit",
];

/// Licences under which a package may be taken.
const LICENCES: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MPL-2.0",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
];

#[test]
fn every_arrow_is_in_the_design() {
    let arrows: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let workspace = Workspace::read();
    let mut wrong = Vec::new();
    for package in &workspace.members {
        let Some(allowed) = arrows.get(package.folder.as_str()) else {
            wrong.push(format!("{}: a crate that the design does not list", package.folder));
            continue;
        };
        for (dependency, kind) in &package.inside {
            let listed = allowed.contains(&dependency.as_str());
            let ok = match kind {
                Kind::Normal => listed,
                // A test may stand on anything that is not an edge of the program.
                Kind::Development => !matches!(dependency.as_str(), "cli" | "server" | "xtask"),
                Kind::Build => false,
            };
            if !ok {
                wrong.push(format!("{} -> {dependency} ({kind:?})", package.folder));
            }
        }
    }
    assert!(wrong.is_empty(), "arrows that DESIGN section 2 does not list:\n{}", wrong.join("\n"));
    assert!(workspace.members.iter().any(|package| !package.inside.is_empty()), "no arrow was read at all");
}

#[test]
fn packages_are_named_by_their_folders() {
    for package in Workspace::read().members {
        let expected = match package.folder.as_str() {
            "cli" => "apprentice".to_string(),
            "xtask" => "xtask".to_string(),
            folder => format!("apprentice-{folder}"),
        };
        assert_eq!(package.name, expected, "the package in folder {}", package.folder);
    }
}

#[test]
fn every_dependency_has_its_reason() {
    let workspace = Workspace::read();
    let page = std::fs::read_to_string(root().join("docs/decisions/dependencies.md")).unwrap();
    let reasons: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("- `")?.split_once("`: "))
        .map(|(name, _)| name)
        .collect();
    let used: BTreeSet<&str> =
        workspace.members.iter().flat_map(|package| package.outside.iter().map(String::as_str)).collect();
    let missing: Vec<_> = used.difference(&reasons).collect();
    assert!(missing.is_empty(), "dependencies without a line in docs/decisions/dependencies.md: {missing:?}");
    assert!(used.contains("thiserror"), "the dependencies were not read: {used:?}");
}

#[test]
fn every_licence_is_on_the_list() {
    let workspace = Workspace::read();
    let refused: Vec<String> = workspace
        .licences
        .iter()
        .filter(|(_, licence)| !permitted(licence))
        .map(|(name, licence)| format!("{name}: {licence:?}"))
        .collect();
    assert!(refused.is_empty(), "packages under licences that are not listed:\n{}", refused.join("\n"));
    assert!(workspace.licences.len() > workspace.members.len(), "no package from outside was read");
}

#[test]
fn licence_expressions_are_read_as_spdx() {
    let check =
        |expression: &str, expected: bool| assert_eq!(permitted(expression), expected, "{expression}");
    check("MIT", true);
    check("GPL-3.0", false);
    check("", false);
    check("MIT OR GPL-3.0", true);
    check("MIT AND GPL-3.0", false);
    check("MIT/Apache-2.0", true);
    check("(MIT OR Apache-2.0) AND Unicode-3.0", true);
    check("(MIT OR Apache-2.0) AND GPL-3.0", false);
    check("GPL-3.0 AND MIT OR ISC", true);
    check("Apache-2.0 WITH LLVM-exception", true);
    check("MIT OR", false);
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Normal,
    Development,
    Build,
}

/// A crate of the workspace.
struct Member {
    name: String,
    /// The last part of its folder, by which the design calls it.
    folder: String,
    /// Crates of the workspace that it names, by folder.
    inside: Vec<(String, Kind)>,
    /// Packages from outside that it names.
    outside: Vec<String>,
}

struct Workspace {
    members: Vec<Member>,
    /// Name and licence of every package in the graph of the lock file.
    licences: Vec<(String, String)>,
}

impl Workspace {
    fn read() -> Self {
        let metadata = metadata();
        let packages = metadata["packages"].as_array().expect("packages");
        let member_ids: BTreeSet<&str> =
            metadata["workspace_members"].as_array().expect("workspace_members").iter().map(text).collect();
        let (inside, outside): (Vec<&Value>, Vec<&Value>) =
            packages.iter().partition(|package| member_ids.contains(text(&package["id"])));
        let folders: BTreeMap<&str, String> =
            inside.iter().map(|package| (text(&package["name"]), folder(package))).collect();
        let members = inside.iter().map(|package| member(package, &folders)).collect();
        let licences = outside.iter().chain(&inside).map(|package| {
            (text(&package["name"]).to_string(), package["license"].as_str().unwrap_or_default().to_string())
        });
        Workspace { members, licences: licences.collect() }
    }
}

fn member(package: &Value, folders: &BTreeMap<&str, String>) -> Member {
    let mut member = Member {
        name: text(&package["name"]).to_string(),
        folder: folder(package),
        inside: Vec::new(),
        outside: Vec::new(),
    };
    for dependency in package["dependencies"].as_array().expect("dependencies") {
        let name = text(&dependency["name"]);
        match folders.get(name) {
            Some(folder) => member.inside.push((folder.clone(), kind(dependency))),
            None => member.outside.push(name.to_string()),
        }
    }
    member
}

fn kind(dependency: &Value) -> Kind {
    match dependency["kind"].as_str() {
        None => Kind::Normal,
        Some("dev") => Kind::Development,
        Some("build") => Kind::Build,
        Some(other) => panic!("a dependency of kind {other:?}"),
    }
}

fn folder(package: &Value) -> String {
    let manifest = Path::new(text(&package["manifest_path"]));
    manifest.parent().and_then(Path::file_name).expect("a folder").to_string_lossy().into_owned()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string in cargo's metadata")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Only this platform's packages are asked for, because a fresh machine has downloaded no others.
fn metadata() -> Value {
    let version = cargo(&["-vV"]);
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("cargo names its host");
    let arguments =
        ["metadata", "--format-version", "1", "--offline", "--locked", "--filter-platform", host.trim()];
    serde_json::from_str(&cargo(&arguments)).expect("cargo's metadata is JSON")
}

fn cargo(arguments: &[&str]) -> String {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(program).args(arguments).current_dir(root()).output().expect("cargo starts");
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("cargo writes UTF-8")
}

/// Whether an SPDX expression can be met with listed licences; `/` is the older spelling of OR.
fn permitted(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    any(&mut words) && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any(words: &mut Words<'_>) -> bool {
    let mut met = all(words);
    while words.next_if_eq(&"OR").is_some() {
        // An alternative that is missing makes the expression unreadable, and that is refused.
        if words.peek().is_none() {
            return false;
        }
        met |= all(words);
    }
    met
}

fn all(words: &mut Words<'_>) -> bool {
    let mut met = one(words);
    while words.next_if_eq(&"AND").is_some() {
        met &= one(words);
    }
    met
}

fn one(words: &mut Words<'_>) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let met = any(words);
        return words.next() == Some(")") && met;
    }
    let met = words.next().is_some_and(|licence| LICENCES.contains(&licence));
    if words.next_if_eq(&"WITH").is_some() {
        words.next(); // an exception only ever permits more
    }
    met
}
