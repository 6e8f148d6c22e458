//! What the targets share: the begin of a target.
//!
//! Owns: real bytes to begin with.
//! Does not own: the invariants (`lancemem_testkit::decoders`), or the time of a run
//! (`scripts/fuzz.py`).

use std::path::PathBuf;

use lancemem_testkit::decoders::{DECODERS, quiet_arrow};

/// Names a folder of the corpus, into which a target writes its real bytes before libFuzzer reads
/// it.
const EXAMPLES: &str = "LANCEMEM_FUZZ_EXAMPLES";

/// Before the first input of a target.
///
/// # Panics
/// Where the folder cannot be written.
pub fn begin(decoder: &str) {
    // Replaces libFuzzer's hook, which ends the process although the core catches the panic. A
    // panic that is not caught still ends it.
    let _ = std::panic::take_hook();
    quiet_arrow();
    let Some(folder) = std::env::var_os(EXAMPLES).map(PathBuf::from) else { return };
    let decoder = DECODERS.iter().find(|it| it.name == decoder).expect("a decoder of the core");
    for (number, example) in (decoder.examples)().iter().enumerate() {
        std::fs::write(folder.join(format!("example-{number}")), example).expect("a folder");
    }
}
