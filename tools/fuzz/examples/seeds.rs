//! Writes the seeds into the corpus.

use std::path::Path;
use testudo_fuzz::{TARGETS, seeds};

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for target in TARGETS {
        let dir = corpus.join(target.name);
        std::fs::create_dir_all(&dir)?;
        for (name, input) in seeds::of(target.name) {
            std::fs::write(dir.join(format!("seed-{name}")), input)?;
        }
    }
    Ok(())
}
