//! Configuration files: checking never panics, and gives the same result again.
//!
//! Input: the text of a file that can read no other file.
//!
//! Checked:
//!
//! - Loading twice gives the same report.
//! - A refusal states a reason.
//! - The effective configuration of a valid file is valid, and shows itself unchanged.

#![no_main]

use std::path::Path;

use auth::time::Timestamp;
use config::{ConfigSource, NoFiles, Report, load};
use libfuzzer_sys::fuzz_target;

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

fn source(text: &str) -> ConfigSource<'_> {
    ConfigSource { name: "postern.toml", text, base: Path::new("/etc/postern"), files: &NoFiles }
}

/// A report with the lines of the file that it refers to, as a terminal shows them.
fn shown_in_full(report: &Report) -> String {
    format!("{report}{:?}", report.excerpts().collect::<Vec<_>>())
}

fuzz_target!(|text: &str| {
    match (load(source(text), NOW, 1), load(source(text), NOW, 1)) {
        (Ok(loaded), Ok(again)) => {
            assert_eq!(shown_in_full(&loaded.report), shown_in_full(&again.report));
            let shown = loaded.effective();
            assert_eq!(shown, again.effective());
            if shown.contains("[redacted]") {
                return; // the values that distinguish two routes may be redacted
            }
            match load(source(&shown), NOW, 1) {
                Ok(reloaded) => assert_eq!(reloaded.effective(), shown),
                Err(refused) => panic!("{}\n{shown}", shown_in_full(&refused.report)),
            }
        }
        (Err(refused), Err(again)) => {
            assert_eq!(shown_in_full(&refused.report), shown_in_full(&again.report));
            assert!(refused.report.has_faults(), "a refusal without a fault");
        }
        _ => panic!("valid once and invalid once"),
    }
});
