//! What the targets share: how one begins.
//!
//! Owns: real bytes to begin with, and the words of a panic.
//! Does not own: what has to hold (`lancemem_testkit::decoders`), or how long it is tried (`scripts/fuzz.py`).

use std::panic::PanicHookInfo;
use std::path::PathBuf;

use lancemem_testkit::decoders::DECODERS;

/// Names a folder of the corpus, into which a target writes its real bytes before libFuzzer reads it.
const EXAMPLES: &str = "LANCEMEM_FUZZ_EXAMPLES";

/// Before the first input of a target.
///
/// # Panics
/// Where the folder cannot be written.
pub fn begin(decoder: &str) {
    std::panic::set_hook(Box::new(say_ours));
    let Some(folder) = std::env::var_os(EXAMPLES).map(PathBuf::from) else { return };
    let decoder = DECODERS.iter().find(|it| it.name == decoder).expect("a decoder of the core");
    for (number, example) in (decoder.examples)().iter().enumerate() {
        std::fs::write(folder.join(format!("example-{number}")), example).expect("a folder");
    }
}

/// Arrow's decoder panics on some bytes, and the core makes an error of it: libFuzzer's own hook would end
/// the process there. Whatever else panics is not caught, and ends it too.
fn say_ours(panic: &PanicHookInfo<'_>) {
    let is_ours = panic.location().is_some_and(|place| !place.file().contains("/arrow-"));
    if is_ours {
        eprintln!("{panic}");
    }
}
