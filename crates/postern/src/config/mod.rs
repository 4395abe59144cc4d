//! The configuration: text → raw → checked.
mod fault;
mod files;
pub mod raw;
mod scalar;
pub mod schema;
mod shape;
mod sound;
mod text;
pub use fault::{Fault, KeyPath, Report, Severity};
pub use files::{Disk, Files, NoFiles};

/// try
pub fn trial(name: &str, input: &str) -> Report {
    let mut faults = fault::Faults::default();
    if let Some(doc) = text::Document::parse(input, &mut faults) {
        let sound = sound::Sound::read(doc, &mut faults);
        let mut f2 = fault::Faults::default();
        let place = text::Document::parse(input, &mut f2).expect("same text");
        if let Some(s) = sound {
            eprintln!("{}", toml::to_string(&s.file).expect("toml"));
        }
        return faults.into_report(name, input, |p, a| place.locate(p, a));
    }
    faults.into_report(name, input, |_, _| 0..0)
}

/// Reads a duration as the configuration file writes it, for arguments of the command line.
pub fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    use scalar::Word as _;
    scalar::Timespan::read(text).map(|span| span.0).map_err(|why| {
        format!("expected {}{}{why}", scalar::Timespan::EXPECTED, if why.is_empty() { "" } else { ": " })
    })
}
