//! Configuration files: judged without a panic, and the same way again.
//!
//! Input: the text of a file that can read no other.
//!
//! Checked: loading twice gives the same report; a refusal says why; what holds can be shown, and what is shown
//! holds and shows itself.

#![no_main]

use std::path::Path;

use auth::time::Timestamp;
use config::{ConfigSource, NoFiles, Report, load};
use libfuzzer_sys::fuzz_target;

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

fn source(text: &str) -> ConfigSource<'_> {
    ConfigSource { name: "postern.toml", text, base: Path::new("/etc/postern"), files: &NoFiles }
}

/// A report with the lines of the file that are meant, as a terminal shows them.
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
                return; // what told two routes apart may be gone
            }
            match load(source(&shown), NOW, 1) {
                Ok(reloaded) => assert_eq!(reloaded.effective(), shown),
                Err(refused) => panic!("{}\n{shown}", shown_in_full(&refused.report)),
            }
        }
        (Err(refused), Err(again)) => {
            assert_eq!(shown_in_full(&refused.report), shown_in_full(&again.report));
            assert!(refused.report.refuses(), "a refusal without a fault");
        }
        _ => panic!("once it holds and once it does not"),
    }
});
