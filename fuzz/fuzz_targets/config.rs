//! Configuration files: judged without a panic, and the same way again.
//!
//! Input: the text of a file that can read no other.
//!
//! Checked: loading twice gives the same report; a refusal says why; what holds can be shown, and what is shown
//! holds and shows itself.

#![no_main]

use std::path::Path;

use auth::time::Timestamp;
use config::{NoFiles, Source, load};
use libfuzzer_sys::fuzz_target;

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

fn source(text: &str) -> Source<'_> {
    Source { name: "postern.toml", text, base: Path::new("/etc/postern"), files: &NoFiles }
}

fuzz_target!(|text: &str| {
    match (load(source(text), NOW, 1), load(source(text), NOW, 1)) {
        (Ok(loaded), Ok(again)) => {
            assert_eq!(loaded.report.display().to_string(), again.report.display().to_string());
            let shown = loaded.effective();
            assert_eq!(shown, again.effective());
            if shown.contains("[redacted]") {
                return; // what told two routes apart may be gone
            }
            match load(source(&shown), NOW, 1) {
                Ok(reloaded) => assert_eq!(reloaded.effective(), shown),
                Err(refused) => panic!("{}\n{shown}", refused.report.display()),
            }
        }
        (Err(refused), Err(again)) => {
            assert_eq!(refused.report.display().to_string(), again.report.display().to_string());
            assert!(refused.report.refuses(), "a refusal without a fault");
        }
        _ => panic!("once it holds and once it does not"),
    }
});
