//! Every test, chapter and file that docs/guarantees.md and docs/mutants.md name as a proof exists.
//!
//! Owns: the last column of the tables of those pages. Does not own: whether a test proves what
//! the page says; `make mutants` does, for the known bugs.

use std::path::{Path, PathBuf};
use std::{env, fs};

const PAGES: &[&str] = &["docs/guarantees.md", "docs/mutants.md"];

/// A Rust or Python file below the root, with `/`.
struct Source {
    path: String,
    text: String,
}

#[test]
fn every_proof_that_a_promise_names_is_there() {
    let root = root();
    let mut sources = Vec::new();
    for folder in ["rust", "tests"] {
        collect(&root, &root.join(folder), &mut sources);
    }
    let mut missing = Vec::new();
    let mut found = 0;
    for page in PAGES {
        let text = fs::read_to_string(root.join(page)).unwrap_or_else(|e| panic!("{page}: {e}"));
        for (line, row) in text.lines().enumerate().filter(|(_, line)| line.starts_with("| ")) {
            let Some(cell) = row.trim_end().trim_end_matches('|').rsplit(" | ").next() else {
                continue;
            };
            for name in cell.split('`').skip(1).step_by(2) {
                if exists(&root, &sources, name) {
                    found += 1;
                } else {
                    missing.push(format!("{page}:{}: there is no `{name}`", line + 1));
                }
            }
        }
    }
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
    assert!(found > 50, "only {found} names: have the tables moved?");
}

#[test]
fn a_name_that_is_nowhere_is_missed() {
    let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
    let sources = [
        source("rust/core/tests/damage.rs", "async fn a_hole_is_named() {"),
        source("rust/core/src/store/manifests.rs", "mod tests {\n fn a_claim_is_one() {"),
    ];
    let there = |name| exists(Path::new("nowhere"), &sources, name);
    assert!(there("damage") && there("damage::a_hole_is_named") && there("store::manifests"));
    assert!(there("store::manifests::tests::a_claim_is_one"));
    assert!(!there("fencing") && !there("damage::a_hole") && !there("manifests::store"));
    assert!(!there("damage::a_claim_is_one") && !there("tests/test_nothing.py"));
}

/// A chapter (`damage`), a module (`store::manifests`), a test in either, a file, or a test in a
/// file (`tests/test_jobs.py::test_x`).
fn exists(root: &Path, sources: &[Source], name: &str) -> bool {
    let (place, test) = name.rsplit_once("::").unwrap_or((name, ""));
    if place.contains('/') {
        let path = root.join(place);
        let text = fs::read_to_string(&path).unwrap_or_default();
        return path.exists() && (test.is_empty() || defines(&text, test));
    }
    let whole: Vec<&str> = name.split("::").collect();
    let outer: Vec<&str> = whole[..whole.len() - 1].to_vec();
    sources.iter().any(|source| {
        is_module(source, &whole)
            || (!outer.is_empty() && is_module(source, &outer) && defines(&source.text, test))
    })
}

/// Whether the file is the module, holds it, or is one of its parts.
fn is_module(source: &Source, segments: &[&str]) -> bool {
    let stem = source.path.trim_end_matches(".rs").trim_end_matches("/mod");
    let parts: Vec<&str> = stem.split('/').collect();
    let is_chapter = segments.len() > 1 || source.path.contains("/tests/");
    let inner = segments.last().is_some_and(|last| source.text.contains(&format!("mod {last} {{")));
    let outer = &segments[..segments.len() - 1];
    (is_chapter && parts.windows(segments.len()).any(|window| window == segments))
        || (inner && !outer.is_empty() && parts.ends_with(outer))
}

fn defines(text: &str, test: &str) -> bool {
    [format!("fn {test}("), format!("def {test}(")].iter().any(|head| text.contains(head))
}

fn root() -> PathBuf {
    let manifest =
        env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    PathBuf::from(manifest).ancestors().nth(2).map(Path::to_path_buf).unwrap_or_default()
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<Source>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            collect(root, &path, found);
        } else if path.extension().is_some_and(|it| it == "rs" || it == "py")
            && let (Ok(text), Ok(inside)) = (fs::read_to_string(&path), path.strip_prefix(root))
        {
            found.push(Source { path: inside.to_string_lossy().replace('\\', "/"), text });
        }
    }
}
