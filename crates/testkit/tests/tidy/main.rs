//! Rules of the repository that a compiler does not know, read from the source text.
//!
//! A file says at its top what lives in it; `unsafe` stands where the design lists it; only `models` names an
//! architecture and only `cli` names a backend; nothing unfinished and no path of one machine is left behind.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use scan::{Strings, has_word, string_literals, without, without_tests};

mod scan;

/// Where `unsafe` may stand: kernels and pool, the memory map, the counting allocator.
const UNSAFE: &[&str] =
    &["crates/cpu/", "crates/cuda/", "crates/gguf/src/map.rs", "crates/testkit/src/allocator.rs"];
/// Crates that hold such a file; every other one forbids `unsafe`.
const MAY_HOLD_UNSAFE: &[&str] = &["cpu", "cuda", "gguf", "testkit"];

/// Crates whose names of pre-tokenisers are also names of architectures, or that stand outside the program.
const MAY_NAME_ARCHITECTURES: &[&str] = &["models", "text", "xtask"];

const MAY_NAME_BACKENDS: &[&str] = &["cli", "cpu", "cuda", "testkit", "xtask"];

#[test]
fn every_file_says_what_lives_in_it() {
    check(sources(), |file| {
        (!file.text.starts_with("//! ")).then(|| "opens without a `//!` sentence".to_string())
    });
}

#[test]
fn unsafe_stands_where_the_design_lists_it() {
    check(sources(), |file| {
        let listed = UNSAFE.iter().any(|place| file.name.starts_with(place));
        let used = has_word(&without(&file.text, Strings::Blank), "unsafe");
        (used && !listed).then(|| "`unsafe` outside the listed places".to_string())
    });
}

#[test]
fn other_crates_forbid_unsafe() {
    let roots = sources().into_iter().filter(|file| {
        ["/src/lib.rs", "/src/main.rs"].iter().any(|end| file.name.ends_with(end))
            && !MAY_HOLD_UNSAFE.contains(&file.crate_name())
    });
    check(roots.collect(), |file| {
        (!file.text.contains("#![forbid(unsafe_code)]"))
            .then(|| "lacks `#![forbid(unsafe_code)]`".to_string())
    });
}

#[test]
fn only_models_names_an_architecture() {
    let families = families();
    assert!(families.contains("llama"), "the files of families were not found: {families:?}");
    let others = sources()
        .into_iter()
        .filter(|file| file.is_shipped() && !MAY_NAME_ARCHITECTURES.contains(&file.crate_name()));
    check(others.collect(), |file| {
        let code = without_tests(&without(&file.text, Strings::Keep));
        let literal = string_literals(&code)
            .into_iter()
            .find(|literal| families.iter().any(|family| names(literal, family)));
        literal.map(|literal| format!("names an architecture: {literal:?}"))
    });
}

#[test]
fn only_cli_names_a_backend() {
    let others = sources()
        .into_iter()
        .filter(|file| file.is_shipped() && !MAY_NAME_BACKENDS.contains(&file.crate_name()));
    check(others.collect(), |file| {
        let code = without_tests(&without(&file.text, Strings::Blank));
        let backend =
            ["apprentice_cpu", "apprentice_cuda"].into_iter().find(|backend| has_word(&code, backend));
        backend.map(|backend| format!("names {backend}"))
    });
}

#[test]
fn nothing_is_left_unfinished() {
    check(sources(), |file| {
        let code = without(&file.text, Strings::Blank);
        let left = ["todo!", "unimplemented!", "dbg!"].into_iter().find(|name| has_word(&code, name));
        left.map(|name| format!("holds `{name}`"))
    });
}

#[test]
fn no_path_of_one_machine() {
    // Spelt apart, so that this file does not find itself.
    let folders = ["root", "home", "Users", "work"].map(|folder| format!("/{folder}/"));
    check(written(), |file| {
        let line = file.text.lines().find(|line| {
            folders
                .iter()
                .any(|folder| line.match_indices(folder.as_str()).any(|(at, _)| starts_a_path(line, at)))
        });
        line.map(|line| format!("names a path of one machine: {}", line.trim()))
    });
}

#[test]
fn a_metadata_key_names_its_architecture() {
    assert!(names("gemma3", "gemma3") && names("gemma3.block_count", "gemma3"));
    assert!(!names("gemma3n", "gemma3") && !names("llama.cpp", "llama"));
}

/// A file of the repository: its path from the root, with `/`, and its text.
struct File {
    name: String,
    text: String,
}

impl File {
    /// The folder of the crate: `graph`, `xtask`.
    fn crate_name(&self) -> &str {
        let path = self.name.strip_prefix("crates/").unwrap_or(&self.name);
        path.split('/').next().unwrap_or(path)
    }

    /// Part of a library or binary, not of its tests.
    fn is_shipped(&self) -> bool {
        self.name.contains("/src/") && !self.name.ends_with("/tests.rs")
    }
}

/// Applies `rule` to each file and fails with every complaint, not only the first.
fn check(files: Vec<File>, rule: impl Fn(&File) -> Option<String>) {
    assert!(!files.is_empty(), "no file was read");
    let complaints: Vec<String> =
        files.iter().filter_map(|file| Some(format!("{}: {}", file.name, rule(file)?))).collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// All Rust files of the workspace.
fn sources() -> Vec<File> {
    files_under(&["crates", "xtask"], |path| path.extension().is_some_and(|end| end == "rs"))
}

/// All files that are written by hand: code, pages, manifests and scripts; not the golden data.
fn written() -> Vec<File> {
    let top = ["README.md", "ARCHITECTURE.md", "Cargo.toml"];
    files_under(&[&["crates", "xtask", "docs", "scripts", ".ci"], &top[..]].concat(), |path| {
        match path.extension() {
            Some(end) => ["rs", "md", "toml"].iter().any(|known| end == *known),
            None => true,
        }
    })
}

fn files_under(places: &[&str], wanted: impl Fn(&Path) -> bool) -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = Vec::new();
    let mut open: Vec<PathBuf> = places.iter().map(|place| root.join(place)).collect();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(
                std::fs::read_dir(&path).expect("a folder").map(|entry| entry.expect("an entry").path()),
            );
        } else if path.is_file() && wanted(&path) {
            paths.push(path);
        }
    }
    paths.sort();
    let file = |path: PathBuf| {
        let name = path.strip_prefix(&root).expect("below the root").to_string_lossy().replace('\\', "/");
        File { name, text: std::fs::read_to_string(&path).expect("UTF-8 text") }
    };
    paths.into_iter().map(file).collect()
}

/// Architectures: a file of `models` is a family where it holds its own name as a string.
fn families() -> BTreeSet<String> {
    let files = files_under(&["crates/models/src"], |path| path.extension().is_some_and(|end| end == "rs"));
    let stem = |file: &File| Some(Path::new(&file.name).file_stem()?.to_str()?.to_string());
    let is_family = |file: &File, stem: &str| file.text.contains(&format!("\"{stem}\""));
    files.iter().filter_map(|file| stem(file).filter(|stem| is_family(file, stem))).collect()
}

/// `literal` is the architecture or a metadata key of it.
fn names(literal: &str, family: &str) -> bool {
    match literal.strip_prefix(family) {
        Some("") => true,
        Some(rest) => rest.starts_with('.') && literal != "llama.cpp" && !literal.contains(' '),
        None => false,
    }
}

/// A path begins at `at`: nothing that could be a folder stands before it.
fn starts_a_path(line: &str, at: usize) -> bool {
    !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-~$}/".contains(c))
}
