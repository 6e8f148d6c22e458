//! The tree reads itself: file sizes, headers, layers (ARCHITECTURE.md) and words, so that a review need not.
//! It sees text only. Function sizes, prints, unfinished code and what needs types are clippy's; the
//! order between crates is Cargo's.
//!
//! A failing test prints `file:line: rule`, one line for each place. To give a new module its
//! layer, add a line to `LAYERS`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const FILE_LINES: usize = 600;
const HEADER_LINES: usize = 2;

/// What one module may name with `crate::` (a wing: with `crate::table::`), and words that have no
/// business in it.
struct Layer {
    source: &'static str,
    module: &'static str,
    may_import: &'static [&'static str],
    never: &'static [&'static str],
}

const fn layer(
    source: &'static str,
    module: &'static str,
    may_import: &'static [&'static str],
    never: &'static [&'static str],
) -> Layer {
    Layer { source, module, may_import, never }
}

const CORE: &str = "rust/core/src";
const ENGINE: &str = "rust/engine/src";
const FLIGHT: &str = "rust/flight/src";
const FACE: &str = "rust/face/src";
/// Its folders are the wings of `Table`, layers of their own inside the layer `table`.
const TABLE: &str = "rust/engine/src/table";

/// No I/O, no locks, no runtime: values only.
const PURE: &[&str] = &["tokio", "object_store", "parking_lot", "std::fs", "Mutex", "RwLock"];
/// Bytes and values; the same input gives the same bytes, whatever the clock says.
const BYTES: &[&str] = &["tokio", "object_store", "std::fs", "SystemTime", "Instant"];
/// Only `store` knows where bytes live.
const NO_STORE: &[&str] = &["object_store"];
/// A binding brings its own language.
const NO_LANGUAGE: &[&str] = &["pyo3", "ShardWriter"];
/// A reader never takes the pen.
const NO_WRITER: &[&str] = &["shard::writer", "ShardWriter"];

const BELOW_SNAPSHOT: &[&str] = &["errors", "row_address", "schema", "sstable", "record_index"];
const BELOW_VISIBILITY: &[&str] =
    &["errors", "row_address", "schema", "sstable", "record_index", "snapshot", "stages"];
const BELOW_PLAN: &[&str] = &[
    "errors",
    "row_address",
    "schema",
    "sstable",
    "record_index",
    "snapshot",
    "visibility",
    "memory_indexes",
];
const BELOW_MERGED: &[&str] = &["errors", "schema", "snapshot", "visibility", "lookup"];
const BELOW_CHANGES: &[&str] = &[
    "errors",
    "damage",
    "row_address",
    "schema",
    "sstable",
    "record_index",
    "snapshot",
    "visibility",
    "plan",
];
const BELOW_COMPACTION: &[&str] = &[
    "errors",
    "holds",
    "schema",
    "sstable",
    "stages",
    "record_index",
    "snapshot",
    "visibility",
    "deletion_vectors",
    "changes",
];
const BELOW_TABLE: &[&str] = &[
    "errors",
    "damage",
    "holds",
    "schema",
    "sstable",
    "stages",
    "record_index",
    "snapshot",
    "visibility",
    "deletion_vectors",
    "plan",
    "lookup",
    "merged",
    "changes",
    "compaction",
    "garbage",
    "metric",
    "memory_indexes",
    "table",
];

const BELOW_ENDPOINT: &[&str] =
    &["token", "address", "tls", "bounded", "service", "connection_limit"];

/// The layers of ARCHITECTURE.md's code map. `lib.rs` stands above all of them.
const LAYERS: &[Layer] = &[
    layer(CORE, "mutants", &[], PURE),
    layer(CORE, "types", &[], PURE),
    // The rows of a table follow its merge rule, and a rule names columns by their field ids.
    layer(CORE, "format", &["types", "merge"], BYTES),
    layer(CORE, "merge", &["types", "format"], PURE),
    layer(CORE, "store", &["types", "format"], &[]),
    layer(CORE, "memtable", &["types", "merge"], NO_STORE),
    layer(CORE, "wal", &["types", "format", "store"], NO_STORE),
    layer(CORE, "shard", &["types", "format", "store", "memtable", "wal"], NO_STORE),
    layer(ENGINE, "errors", &[], NO_WRITER),
    layer(ENGINE, "damage", &["errors"], NO_WRITER),
    layer(ENGINE, "holds", &[], NO_WRITER),
    layer(ENGINE, "lance_threads", &["errors"], NO_WRITER),
    layer(ENGINE, "row_address", &[], PURE),
    layer(ENGINE, "stages", &[], NO_WRITER),
    layer(ENGINE, "metric", &[], PURE),
    layer(ENGINE, "memory_indexes", &["sstable"], NO_WRITER),
    layer(ENGINE, "schema", &["errors"], NO_WRITER),
    layer(ENGINE, "sstable", &["errors"], NO_WRITER),
    layer(ENGINE, "record_index", &["errors", "row_address", "sstable", "stages"], NO_WRITER),
    layer(ENGINE, "snapshot", BELOW_SNAPSHOT, NO_WRITER),
    // Beside `snapshot`, whose sources it compares; `snapshot` knows nothing of it.
    layer(ENGINE, "visibility", BELOW_VISIBILITY, NO_WRITER),
    layer(ENGINE, "plan", BELOW_PLAN, NO_WRITER),
    layer(ENGINE, "lookup", BELOW_PLAN, NO_WRITER),
    layer(ENGINE, "merged", BELOW_MERGED, NO_WRITER),
    // Above `visibility`, whose dead rows it stores and gives back.
    layer(ENGINE, "deletion_vectors", BELOW_PLAN, NO_WRITER),
    layer(ENGINE, "changes", BELOW_CHANGES, NO_WRITER),
    layer(ENGINE, "compaction", BELOW_COMPACTION, NO_WRITER),
    layer(ENGINE, "garbage", BELOW_PLAN, NO_WRITER),
    layer(ENGINE, "table", BELOW_TABLE, &[]),
    layer(TABLE, "catalog", &[], NO_WRITER),
    layer(TABLE, "read", &["catalog"], NO_WRITER),
    // These two need each other: a job holds its maintenance, which flushes by a job.
    layer(TABLE, "write", &["catalog", "read", "maintain"], &[]),
    layer(TABLE, "maintain", &["catalog", "read", "write"], NO_WRITER),
    layer(ENGINE, "provider", BELOW_TABLE, NO_WRITER),
    layer(ENGINE, "search", BELOW_TABLE, NO_WRITER),
    layer(FLIGHT, "wire", &[], NO_WRITER),
    layer(FLIGHT, "token", &[], NO_WRITER),
    layer(FLIGHT, "address", &[], NO_WRITER),
    layer(FLIGHT, "tls", &[], NO_WRITER),
    layer(FLIGHT, "latest", &[], NO_WRITER),
    layer(FLIGHT, "bounded", &[], NO_WRITER),
    layer(FLIGHT, "service", &["wire", "latest", "bounded"], NO_WRITER),
    layer(FLIGHT, "connection_limit", &[], NO_WRITER),
    layer(FLIGHT, "endpoint", BELOW_ENDPOINT, NO_WRITER),
    // The reader's end knows nothing of the endpoint.
    layer(FLIGHT, "remote", &["wire", "token", "address", "tls"], NO_WRITER),
    layer(FACE, "error", &[], NO_LANGUAGE),
    layer(FACE, "stack", &[], NO_LANGUAGE),
    layer(FACE, "panics", &[], NO_LANGUAGE),
    layer(FACE, "random", &["error"], NO_LANGUAGE),
    layer(FACE, "fork_guard", &["error"], NO_LANGUAGE),
    layer(FACE, "runtime", &["error", "random", "stack"], NO_LANGUAGE),
    layer(FACE, "call", &["error", "panics", "runtime", "stack"], NO_LANGUAGE),
    layer(FACE, "log_lines", &[], NO_LANGUAGE),
    layer(FACE, "array_size", &["error"], NO_LANGUAGE),
    layer(FACE, "array_copy", &["error"], NO_LANGUAGE),
    layer(FACE, "options", &["error"], NO_LANGUAGE),
    layer(FACE, "prometheus", &[], NO_LANGUAGE),
];

/// Work that is not done, or a look that was not taken back. In other crates clippy refuses them.
const UNFINISHED: &[&str] = &["todo!", "unimplemented!", "dbg!"];
/// Needs a compiler of its own (`scripts/fuzz.py`), so clippy does not read it.
const NOT_LINTED: &str = "rust/fuzz/";

/// Names that the code had before its present ones, which are the names of the field. Bytes on disk keep
/// theirs, such as `lancemem:mark:`; none of these is among them.
const OLD_NAMES: &[&str] = &[
    // SSTables.
    "InRun",
    "OlderRunVector",
    "OrphanRun",
    "RunContext",
    "RunFacts",
    "RunFiles",
    "RunKeysExec",
    "RunKeysScan",
    "RunReport",
    "RunVectors",
    "check_runs",
    "run_keys",
    "verify_runs",
    // Snapshots.
    "CutName",
    "PinnedMemTable",
    "PinnedShard",
    "ReadView",
    "ShardCut",
    "ShardView",
    "named_cut",
    "read_view",
    "KeptBound",
    "KeptStats",
    // Transaction ids.
    "StaleMarkError",
    "delete_marked",
    "put_marked",
    "recorded_marks",
    // Bulk writes.
    "LinkResult",
    "StagedRun",
    "start_stage",
    // Modules.
    "far_numbers",
    "dense_numbers",
    "head_start",
    "key_bits",
    "run_columns",
    // Calls.
    "check_record_index",
    "cut_wal",
    "get_with_missing",
    "rebuild_record_index",
    "set_deletion_vectors",
    "widen_column",
];

/// Words that pages, code and comments do without: each hides the one who acts, or what is meant.
const DIALECT: &[&str] = &[
    "nobody",
    "somebody",
    "anybody",
    "whoever",
    "of before",
    "by now",
    "other bytes",
    "gives way",
    "is believed",
];
/// The same for pages alone: Python writes these words as an operator and its operand.
const PAGE_DIALECT: &[&str] = &["is none"];

#[test]
fn every_rust_file_opens_with_what_it_owns() {
    let mut broken = Report::default();
    for file in rust_sources() {
        let header = file.text.lines().take_while(|line| line.starts_with("//!")).count();
        if header < HEADER_LINES {
            broken.add(
                &file,
                1,
                "open with `//!`: what this file owns and what it does not, in two lines or more",
            );
        }
    }
    broken.check();
}

#[test]
fn no_file_outgrows_its_limit() {
    let mut broken = Report::default();
    for file in rust_sources().into_iter().filter(|file| !file.is_test()) {
        let lines = without_test_module(&file.text).lines().count();
        if lines > FILE_LINES {
            broken.add(&file, lines, &format!("{lines} lines without tests; at most {FILE_LINES}"));
        }
    }
    broken.check();
}

#[test]
fn a_module_names_only_what_lies_below_it() {
    let mut broken = Report::default();
    for file in rust_sources().into_iter().filter(|file| !file.is_test()) {
        let Some((source, module)) = place(&file.path) else {
            continue;
        };
        let Some(layer) = LAYERS.iter().find(|it| it.source == source && it.module == module)
        else {
            broken.add(
                &file,
                1,
                &format!("`{module}` has no layer; give it one in LAYERS of tidy.rs"),
            );
            continue;
        };
        let code = code_only(without_test_module(&file.text));
        for (line, import) in imports_of(&code, "crate::") {
            if import != module && !layer.may_import.contains(&import.as_str()) {
                broken.add(&file, line, &format!("`{module}` may not name `crate::{import}`"));
            }
        }
        for (line, word) in words(&code, layer.never) {
            broken.add(&file, line, &format!("`{word}` has no place in `{module}`"));
        }
    }
    broken.check();
}

#[test]
fn a_wing_of_the_table_names_only_the_wings_below_it() {
    let mut broken = Report::default();
    let mut seen = 0;
    for file in rust_sources().into_iter().filter(|file| !file.is_test()) {
        let Some((wing, _)) = inside(&file.path, TABLE).and_then(|path| path.split_once('/'))
        else {
            continue;
        };
        let Some(layer) = LAYERS.iter().find(|it| it.source == TABLE && it.module == wing) else {
            broken.add(&file, 1, &format!("`{wing}` has no layer; give it one in LAYERS"));
            continue;
        };
        seen += 1;
        let code = code_only(without_test_module(&file.text));
        for (line, import) in imports_of(&code, "crate::table::") {
            // The facade names every wing, so only its type may be named, not what it re-exports.
            if import != "Table" && !layer.may_import.contains(&import.as_str()) {
                let rule = format!("`{wing}` may not name `crate::table::{import}`");
                broken.add(&file, line, &rule);
            }
        }
        // The other way to another wing; `pub(super)` and the sibling's `super::` are free.
        for (line, word) in words(&code, &["super::super"]) {
            broken.add(&file, line, &format!("write `crate::table::` for `{word}`"));
        }
        for (line, word) in words(&code, layer.never) {
            broken.add(&file, line, &format!("`{word}` has no place in `{wing}`"));
        }
    }
    broken.check();
    assert!(seen > 25, "only {seen} files: have the wings moved?");
}

#[test]
fn nothing_is_left_unfinished_where_clippy_does_not_look() {
    let mut broken = Report::default();
    for file in rust_files().into_iter().filter(|file| file.path.starts_with(NOT_LINTED)) {
        let code = code_only(&file.text);
        for (line, word) in words(&code, UNFINISHED) {
            broken.add(&file, line, &format!("`{word}` does not belong in the tree"));
        }
    }
    broken.check();
}

#[test]
fn no_file_names_a_folder_of_one_machine() {
    // In two pieces, or this file would find itself.
    let folders = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];
    let mut broken = Report::default();
    for file in tracked_text_files() {
        for (number, line) in file.text.lines().enumerate() {
            for folder in folders.iter().filter(|folder| has_absolute_path(line, folder)) {
                broken.add(&file, number + 1, &format!("`{folder}` is a folder of one machine"));
            }
        }
    }
    broken.check();
}

#[test]
fn the_set_up_names_packages_and_never_addresses() {
    let set_up = ["requirements/", "scripts/", ".ci/", ".cargo/", "Makefile"];
    let address = concat!(":", "//");
    let mut broken = Report::default();
    for file in tracked_text_files() {
        if !set_up.iter().any(|start| file.path.starts_with(start)) {
            continue;
        }
        for (number, _) in file.text.lines().enumerate().filter(|(_, line)| line.contains(address))
        {
            broken.add(&file, number + 1, "where packages come from is the machine's choice");
        }
    }
    broken.check();
}

#[test]
fn every_python_file_says_what_it_is_for() {
    let mut broken = Report::default();
    for file in files_with("python", &["py"]) {
        let first =
            file.text.lines().find(|line| !line.trim().is_empty() && !line.starts_with('#'));
        if !first.is_some_and(|line| line.starts_with("\"\"\"") || line.starts_with("r\"\"\"")) {
            broken.add(&file, 1, "open with a docstring");
        }
    }
    broken.check();
}

#[test]
fn the_spark_side_never_reaches_for_the_extension() {
    let mut broken = Report::default();
    for file in files_with("python/lancemem/spark", &["py"]) {
        for (number, line) in file.text.lines().enumerate() {
            if line.contains("_lancemem") && line.contains("import") {
                broken.add(&file, number + 1, "use lancemem's public names, not `_lancemem`");
            }
        }
    }
    broken.check();
}

#[test]
fn the_old_words_are_gone() {
    let mut broken = Report::default();
    let itself = "rust/testkit/tests/tidy.rs";
    let is_code = |file: &Source| {
        let endings = [".rs", ".py", ".pyi"];
        file.path != itself && endings.iter().any(|ending| file.path.ends_with(ending))
    };
    // Whole files: names stand in strings too, which Python calls by.
    for file in tracked_text_files().into_iter().filter(is_code) {
        for (line, word) in words(&file.text, OLD_NAMES) {
            broken.add(&file, line, &format!("`{word}` has another name now: docs/vocabulary.md"));
        }
    }
    broken.check();
}

#[test]
fn prose_names_who_acts() {
    let mut broken = Report::default();
    let itself = "rust/testkit/tests/tidy.rs";
    for file in tracked_text_files().into_iter().filter(|file| file.path != itself) {
        let in_docs = file.path.strip_prefix("docs/");
        // Decisions and records of soaks are histories, and keep their words.
        let is_guide = |name: &str| name.starts_with("howto/") || name.starts_with("reference/");
        let is_page = file.path == "README.md"
            || in_docs.is_some_and(|name| !name.contains('/') || is_guide(name));
        let is_code = [".rs", ".py", ".pyi"].iter().any(|ending| file.path.ends_with(ending));
        let words: &[&[&str]] = match (is_page, is_code) {
            (true, _) => &[DIALECT, PAGE_DIALECT],
            (false, true) => &[DIALECT],
            (false, false) => continue,
        };
        let (text, lines) = on_one_line(&file.text);
        for word in words.iter().copied().flatten() {
            for at in places_of(&text, word) {
                let why = format!("`{word}`: name the one who acts, or the thing");
                broken.add(&file, lines[at], &why);
            }
        }
    }
    broken.check();
}

#[test]
fn tidy_sees_through_strings_comments_and_lifetimes() {
    let text = "fn a<'x>() -> char {\n let s = r#\"fn b() { todo!() \"#; /* { */ '{' // }\n}\n";
    let code = code_only(text);
    assert_eq!(words(&code, &["fn", "let", "b"]), [(1, "fn"), (2, "let")]);
    assert!(words(&code, UNFINISHED).is_empty());
    assert_eq!(words("x = todo!()", UNFINISHED), [(1, "todo!")]);
    assert!(words("my_todo!()", UNFINISHED).is_empty());
}

#[test]
fn tidy_finds_words_across_a_break() {
    let (text, lines) = on_one_line("Rows of\n  Before: none is.\n`of_before`");
    let found: Vec<_> = places_of(&text, "of before").into_iter().map(|at| lines[at]).collect();
    assert_eq!(found, [1]);
    assert!(places_of(&text, "is none").is_empty());
}

#[test]
fn tidy_reads_imports_in_every_form() {
    let code = "use crate::wal::Tail;\nuse crate::{types::{Error, Result}, store as s};\nlet x = crate::plan::y();";
    let found: Vec<_> = imports_of(code, "crate::")
        .into_iter()
        .map(|(line, name)| format!("{line} {name}"))
        .collect();
    assert_eq!(found, ["1 wal", "2 types", "2 store", "3 plan"]);
}

// --- what a rule has found -------------------------------------------------

#[derive(Default)]
struct Report(String);

impl Report {
    fn add(&mut self, file: &Source, line: usize, rule: &str) {
        let _ = writeln!(self.0, "{}:{line}: {rule}", file.path);
    }

    #[track_caller]
    fn check(&self) {
        assert!(self.0.is_empty(), "\n{}", self.0);
    }
}

// --- files -----------------------------------------------------------------

/// One text file; its path is relative to the root of the tree, with `/`.
struct Source {
    path: String,
    text: String,
}

impl Source {
    fn read(path: &Path) -> Option<Self> {
        let bytes = fs::read(path).ok()?;
        let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))?;
        let path = path.strip_prefix(root()).ok()?.to_string_lossy().replace('\\', "/");
        Some(Self { path, text })
    }

    /// Tests beside the code: `tests.rs`, `x_tests.rs`, or anything under a folder `tests`.
    fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("tests.rs")
    }
}

fn root() -> PathBuf {
    // At run time first: cargo and nextest set it, and a shared target folder may hold the
    // binary of a checkout that has moved.
    let manifest =
        env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    PathBuf::from(manifest).ancestors().nth(2).map(Path::to_path_buf).unwrap_or_default()
}

/// Every file under `folder` (relative to the root) with one of the endings, in a fixed order.
fn files_with(folder: &str, endings: &[&str]) -> Vec<Source> {
    let mut paths = Vec::new();
    walk(&root().join(folder), &mut paths);
    paths.retain(|path| {
        path.extension().is_some_and(|it| endings.iter().any(|ending| it == *ending))
    });
    paths.iter().filter_map(|path| Source::read(path)).collect()
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let mut entries: Vec<_> = entries.flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        let name = entry.file_name();
        if kind.is_dir() && ![".git", ".venv", "target"].iter().any(|skip| name == *skip) {
            walk(&entry.path(), found);
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
}

fn rust_files() -> Vec<Source> {
    let files = files_with("rust", &["rs"]);
    assert!(!files.is_empty(), "no Rust below {}: has the layout moved?", root().display());
    files
}

/// The `.rs` files of the crates themselves, without `tests/` and `benches/` beside them.
fn rust_sources() -> Vec<Source> {
    let mut files = rust_files();
    files.retain(|file| file.path.split('/').nth(2) == Some("src"));
    files
}

/// What git tracks or would track; in a tree without git, every file.
fn tracked_text_files() -> Vec<Source> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output();
    let paths = match listed {
        Ok(output) if output.status.success() => {
            let names = String::from_utf8_lossy(&output.stdout).into_owned();
            names
                .split('\0')
                .filter(|name| !name.is_empty())
                .map(|name| root().join(name))
                .collect()
        }
        _ => {
            let mut found = Vec::new();
            walk(&root(), &mut found);
            found
        }
    };
    paths.iter().filter_map(|path| Source::read(path)).collect()
}

/// Source folder and module of a file: `rust/core/src/wal/tail.rs` is `(rust/core/src, wal)`.
/// Nothing for `lib.rs`, and for crates without layers.
fn place(path: &str) -> Option<(&'static str, String)> {
    let source =
        [CORE, ENGINE, FLIGHT, FACE].into_iter().find(|source| path.starts_with(source))?;
    let module = inside(path, source)?.split('/').next()?.trim_end_matches(".rs");
    (module != "lib").then(|| (source, module.to_owned()))
}

/// The path of a file below `folder`.
fn inside<'p>(path: &'p str, folder: &str) -> Option<&'p str> {
    path.strip_prefix(folder)?.strip_prefix('/')
}

// --- text ------------------------------------------------------------------

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn line_of(text: &str, position: usize) -> usize {
    text[..position].matches('\n').count() + 1
}

/// The wanted words that stand in `code`, each with its line.
fn words<'w>(code: &str, wanted: &[&'w str]) -> Vec<(usize, &'w str)> {
    let mut found = Vec::new();
    for word in wanted {
        found.extend(places_of(code, word).into_iter().map(|at| (line_of(code, at), *word)));
    }
    found
}

/// Where `word` stands in `text`, not as a part of a longer word.
fn places_of(text: &str, word: &str) -> Vec<usize> {
    let stands_alone = |at: usize| {
        let joined_before = text[..at].chars().next_back().is_some_and(is_word);
        let joined_after = text[at + word.len()..].chars().next().is_some_and(is_word);
        !joined_before && (!joined_after || word.ends_with('!'))
    };
    text.match_indices(word).map(|(at, _)| at).filter(|at| stands_alone(*at)).collect()
}

/// The words of a text in small letters with one space between them, and the line of each byte: a
/// break or an indentation between two words hides neither.
fn on_one_line(text: &str) -> (String, Vec<usize>) {
    let mut joined = String::with_capacity(text.len());
    let mut lines = Vec::with_capacity(text.len());
    for (number, line) in text.lines().enumerate() {
        for word in line.split_whitespace() {
            joined.push_str(&word.to_ascii_lowercase());
            joined.push(' ');
            lines.resize(joined.len(), number + 1);
        }
    }
    (joined, lines)
}

/// Whether `folder` stands in `line` as the start of a path, not in the middle of one.
fn has_absolute_path(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|character| is_word(character) || "-.*})/".contains(character))
    })
}

/// The text up to `#[cfg(test)] mod tests {`, if there is one.
fn without_test_module(text: &str) -> &str {
    let inline = text.match_indices("#[cfg(test)]").find(|(at, txn)| {
        let rest = text[at + txn.len()..].trim_start();
        let declared = rest.lines().next().unwrap_or_default();
        rest.starts_with("mod ") && declared.contains('{')
    });
    inline.map_or(text, |(at, _)| &text[..at])
}

/// The first name after each `start`, such as `crate::`, with its line; a group `{a, b::c}` gives
/// several.
fn imports_of(code: &str, start: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, txn) in code.match_indices(start) {
        if code[..at].chars().next_back().is_some_and(|before| is_word(before) || before == '$') {
            continue;
        }
        let rest = &code[at + txn.len()..];
        let line = line_of(code, at);
        if rest.starts_with('{') {
            found.extend(group_heads(rest).into_iter().map(|name| (line, name)));
        } else {
            found.push((line, first_word(rest)));
        }
    }
    found
}

fn first_word(text: &str) -> String {
    text.trim_start().chars().take_while(|character| is_word(*character)).collect()
}

/// The first word of each element of `{a::{x, y}, b}`: `a` and `b`.
fn group_heads(group: &str) -> Vec<String> {
    let mut heads = Vec::new();
    let mut depth = 0;
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if depth == 1 && (at == 0 || character == ',') {
            heads.push(first_word(&group[at + 1..]));
        }
    }
    heads.retain(|head| !head.is_empty());
    heads
}

/// The text with comments, strings and characters blanked; lines and positions stay.
fn code_only(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let joined = code.chars().next_back().is_some_and(is_word);
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => 1 + quoted(&rest[1..], '"'),
            '\'' => character_literal(rest),
            'r' | 'b' | 'c' if !joined => raw_string(rest),
            _ => 0,
        };
        if length == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            let blanked = rest[..length].bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' });
            code.extend(blanked);
            rest = &rest[length..];
        }
    }
    code
}

/// Length of the comment at the start; they nest.
fn block_comment(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut depth = 0;
    let mut at = 0;
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => {
                depth += 1;
                at += 2;
            }
            b"*/" => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    text.len()
}

/// Length up to and with the closing quote; a backslash hides the next character.
fn quoted(text: &str, quote: char) -> usize {
    let mut hidden = false;
    for (at, character) in text.char_indices() {
        if hidden {
            hidden = false;
        } else if character == '\\' {
            hidden = true;
        } else if character == quote {
            return at + quote.len_utf8();
        }
    }
    text.len()
}

/// Length of a character at the start, or 0 for a lifetime.
fn character_literal(text: &str) -> usize {
    let mut inside = text[1..].chars();
    match (inside.next(), inside.next()) {
        (Some('\\'), _) => 1 + quoted(&text[1..], '\''),
        (Some(one), Some('\'')) => 2 + one.len_utf8(),
        _ => 0,
    }
}

/// Length of `r"..."`, `r#"..."#`, `br"..."` at the start, or 0 if a name starts here.
fn raw_string(text: &str) -> usize {
    let after_prefix = text.trim_start_matches(['b', 'c']);
    let Some(after_r) = after_prefix.strip_prefix('r') else {
        return 0;
    };
    let body = after_r.trim_start_matches('#');
    let hashes = &after_r[..after_r.len() - body.len()];
    let Some(body) = body.strip_prefix('"') else {
        return 0;
    };
    let opened = text.len() - body.len();
    let closing = format!("\"{hashes}");
    body.find(&closing).map_or(text.len(), |at| opened + at + closing.len())
}
