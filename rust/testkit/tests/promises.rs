//! Every promise has evidence, and every test, chapter and file that is named as evidence exists.
//!
//! Owns: the ids of docs/guarantees.md, the lists and the last column of the tables of
//! docs/guarantees-evidence.md, and the tests of the scripts that put known bugs back. Does not own:
//! whether a test proves its promise; `make mutants` does, for the known bugs.

use std::path::{Path, PathBuf};
use std::{env, fs};

const PROMISES: &str = "docs/guarantees.md";
const EVIDENCE: &str = "docs/guarantees-evidence.md";
const SCRIPTS: &[&str] = &["scripts/mutants.sh", "scripts/table_mutants.py"];

/// A Rust or Python file below the root, with `/`.
struct Source {
    path: String,
    text: String,
}

#[test]
fn every_name_in_the_evidence_exists() {
    let root = root();
    let mut sources = Vec::new();
    for folder in ["rust", "tests"] {
        collect(&root, &root.join(folder), &mut sources);
    }
    let mut missing = Vec::new();
    let mut found = 0;
    for (line, row) in read(&root, EVIDENCE).lines().enumerate() {
        for name in names_in(row) {
            if exists(&root, &sources, name) {
                found += 1;
            } else {
                missing.push(format!("{EVIDENCE}:{}: there is no `{name}`", line + 1));
            }
        }
    }
    for script in SCRIPTS {
        let stories = stories_in(&read(&root, script));
        assert!(stories.len() > 6, "{script}: only {} tests: has the list moved?", stories.len());
        for name in stories {
            if exists(&root, &sources, &name) {
                found += 1;
            } else {
                missing.push(format!("{script}: there is no `{name}`"));
            }
        }
    }
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
    assert!(found > 250, "only {found} names: have the lists moved?");
}

#[test]
fn every_promise_has_evidence() {
    let root = root();
    let [promises, evidence] = [PROMISES, EVIDENCE].map(|page| read(&root, page));
    let promised = promised_ids(&promises).len();
    assert!(promised > 100, "only {promised} promises: have the tables moved?");
    let broken = unmatched(&promises, &evidence);
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

#[test]
fn a_promise_without_evidence_is_missed() {
    let promises = "| id | promise |\n| --- | --- |\n| P1 | One. |\n| W12 | Two. |\n";
    let both = "- **P1**\n  - kills: `damage`\n  - `fencing`\n- **W12**: `a::b`, `c`\n";
    assert_eq!(names_in("- **W12**: `a::b`, `c`"), ["a::b", "c"]);
    assert_eq!(names_in("  - `damage` in `rust/engine`"), ["damage", "rust/engine"]);
    assert_eq!(names_in("| `not` | `this` |"), ["this"]);
    assert!(unmatched(promises, both).is_empty());
    let wrong = [
        "- **P1**: `damage`\n",
        "- **P1**: `damage`\n- **W12**\n\n`fencing`\n",
        "- **P1**: `damage`\n- **W12**: by hand\n",
        "- **P1**: `damage`\n- **W12**: `c`\n- **W12**: `c`\n",
        "- **P1**: `damage`\n- **W12**: `c`\n- **W13**: `c`\n",
    ];
    for evidence in wrong {
        assert_eq!(unmatched(promises, evidence).len(), 1, "{evidence}");
    }
    assert_eq!(unmatched(&format!("{promises}| P1 | Again. |\n"), both).len(), 2);
}

#[test]
fn stories_of_known_bugs_are_found_in_both_scripts() {
    let bash =
        "declare -A bug=(\n    [B1]=\"no proof\" [B2]=\"a fence\"\n)\n    [B1]=damage::a_hole\n";
    assert_eq!(stories_in(bash), ["damage::a_hole"]);
    let python = "Bug(\n    \"a row\",\n    \"test_a.py::\"\n    \"test_b\",\n)\nx = \"tests/test_c.py::test_d\"\n";
    assert_eq!(stories_in(python), ["tests/test_a.py::test_b", "tests/test_c.py::test_d"]);
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

/// The ids of the promises, in the order of their rows.
fn promised_ids(promises: &str) -> Vec<&str> {
    let first_cells =
        promises.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next());
    first_cells.filter(|cell| is_id(cell)).collect()
}

/// What stands on one of the two pages only, or twice on one of them, or has no name below it.
fn unmatched(promises: &str, evidence: &str) -> Vec<String> {
    let promised = promised_ids(promises);
    let mut held: Vec<(&str, usize)> = Vec::new();
    for line in evidence.lines() {
        if let Some((id, _)) = line.strip_prefix("- **").and_then(|rest| rest.split_once("**")) {
            held.push((id, 0));
        }
        if let Some((_, names)) = held.last_mut() {
            *names += if line.starts_with('|') { 0 } else { names_in(line).len() };
        }
    }
    let mut broken = Vec::new();
    for id in &promised {
        let times = promised.iter().filter(|it| *it == id).count();
        let lists: Vec<_> = held.iter().filter(|(it, _)| it == id).collect();
        if times != 1 {
            broken.push(format!("{PROMISES}: {id} is there {times} times"));
        } else if !matches!(lists[..], [(_, 1..)]) {
            broken.push(format!("{EVIDENCE}: {id} needs one list with a name, has {lists:?}"));
        }
    }
    let unknown = held.iter().filter(|(id, _)| !promised.contains(id));
    broken.extend(unknown.map(|(id, _)| format!("{EVIDENCE}: {PROMISES} has no {id}")));
    broken
}

/// A capital letter and a number: `P1`.
fn is_id(cell: &str) -> bool {
    let number = cell.strip_prefix(|it: char| it.is_ascii_uppercase()).unwrap_or_default();
    !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit())
}

/// The names that a line gives as evidence: those of a list, or of the last column of a table.
fn names_in(line: &str) -> Vec<&str> {
    let cell = if line.starts_with("| ") {
        line.trim_end().trim_end_matches('|').rsplit(" | ").next().unwrap_or_default()
    } else if line.trim_start().starts_with("- ") {
        line
    } else {
        ""
    };
    cell.split('`').skip(1).step_by(2).collect()
}

/// The tests that a script names for known bugs: `[B1]=damage::a_hole` in a shell script,
/// `"test_jobs.py::test_x"` in a Python script, where literals may be split.
fn stories_in(script: &str) -> Vec<String> {
    let in_shell = script.lines().filter_map(|line| {
        let (_, name) = line.trim().strip_prefix('[')?.split_once("]=")?;
        name.contains("::").then(|| name.to_owned())
    });
    let joined = script.split_whitespace().collect::<Vec<_>>().join(" ").replace("\" \"", "");
    let is_test = |text: &&str| text.contains(".py::test_") && !text.contains(' ');
    let in_python = joined.split('"').filter(is_test);
    let in_python =
        in_python.map(|text| format!("tests/{}", text.strip_prefix("tests/").unwrap_or(text)));
    in_shell.chain(in_python).collect()
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

fn read(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
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
