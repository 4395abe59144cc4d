//! Any text at all as a configuration: it is refused with reasons, or it holds and says what it is.
#![no_main]

use std::path::Path;

use auth::time::Timestamp;
use libfuzzer_sys::fuzz_target;
use postern::config::{self, NoFiles, Source};

fuzz_target!(|text: &str| {
    let load = |text: &str| {
        let source = Source { name: "fuzz.toml", text, base: Path::new(""), files: &NoFiles };
        config::load(source, Timestamp::from_secs(1_800_000_000), 1)
    };
    match load(text) {
        Ok(loaded) => {
            // what is in force can be written down and means the same
            let effective = loaded.effective();
            match load(&effective) {
                Ok(again) => assert_eq!(again.effective(), effective),
                Err(refused) => {
                    panic!("{effective}\n{}", refused.report.lines().collect::<Vec<_>>().join("\n"));
                }
            }
        }
        Err(refused) => {
            assert!(refused.report.refuses());
            assert!(refused.report.faults().iter().all(|fault| !fault.what.is_empty()));
            assert!(!refused.report.display().to_string().is_empty());
        }
    }
});
