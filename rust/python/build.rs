//! Takes the docstrings of functions, methods and classes out of the stub, so that `help` shows them.
//!
//! Owns: one file a docstring in cargo's folder for what is generated, which `docstring!` includes. Does
//! not own: whether each has its place; `tests/test_docstrings.py` compares them at run time.

use std::error::Error;
use std::fs;
use std::iter::Peekable;
use std::path::Path;
use std::str::Lines;

const STUB: &str = "../../python/lancemem/_lancemem.pyi";
const QUOTES: &str = "\"\"\"";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={STUB}");
    let folder = Path::new(&std::env::var("OUT_DIR")?).join("docstrings");
    fs::create_dir_all(&folder)?;
    let stub = fs::read_to_string(STUB)?;
    let (mut lines, mut class) = (stub.lines().peekable(), String::new());
    while let Some(line) = lines.next() {
        let inner = line.trim_start();
        if let Some(named) = line.strip_prefix("class ") {
            class = name(named);
            if let Some(docstring) = docstring(line, &mut lines) {
                fs::write(folder.join(&class), docstring)?;
            }
        } else if let Some(named) = inner.strip_prefix("def ") {
            let whole = if inner.len() == line.len() {
                name(named)
            } else {
                format!("{class}.{}", name(named))
            };
            if let Some(docstring) = docstring(line, &mut lines) {
                fs::write(folder.join(whole), docstring)?;
            }
        }
    }
    Ok(())
}

fn name(definition: &str) -> String {
    definition.chars().take_while(|it| it.is_alphanumeric() || *it == '_').collect()
}

/// A line without its comment.
fn code(line: &str) -> &str {
    line.split("  #").next().unwrap_or_default()
}

/// The text behind a signature that begins in `first`, without the indentation of its body.
fn docstring(first: &str, lines: &mut Peekable<Lines<'_>>) -> Option<String> {
    let indentation = first.len() - first.trim_start().len() + 4;
    let mut end = first;
    while !code(end).ends_with(':') && !code(end).ends_with("...") {
        end = lines.next()?;
    }
    lines.next_if(|line| line.trim_start().starts_with(QUOTES)).and_then(|opening| {
        let opening = opening.trim_start().trim_start_matches(QUOTES);
        if let Some(whole) = opening.strip_suffix(QUOTES) {
            return Some(whole.to_owned());
        }
        let mut text = opening.to_owned();
        for line in lines {
            if let Some(rest) = line.trim_end().strip_suffix(QUOTES) {
                text.push('\n');
                text.push_str(rest.trim_start());
                return Some(text.trim_end().to_owned());
            }
            text.push('\n');
            text.push_str(line.get(indentation..).unwrap_or_default());
        }
        None
    })
}
