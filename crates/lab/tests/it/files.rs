//! Files: what is written is read again, and what cannot be read is named.

use lab::files::{read_baseline, read_record, write_report};
use lab_analysis::test_support::sample;

#[test]
fn every_file_is_written_and_the_json_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let record = sample::record(1);
    let paths = write_report(&record, &folder.path().join("new/folder")).unwrap();
    assert_eq!(read_record(&paths[0]).unwrap(), record);
    let text = |name: &str| {
        let path = paths.iter().find(|path| path.ends_with(name)).unwrap();
        std::fs::read_to_string(path).unwrap()
    };
    let texts = [text("report.md"), text("report.html")];
    for text in &texts {
        for word in ["Verdict", "commit 13ef7b1", "fused/oidc", "published, other hardware", "envoy"] {
            assert!(text.contains(word), "{word} in {text}");
        }
    }
    assert!(texts[1].contains("<svg") && !texts[0].contains("<svg"));
    assert!(text("report.figures.csv").starts_with("variant,iteration,component,figure,value,unit\n"));
    assert!(text("report.percentiles.csv").contains("\nfused/oidc,0.5"));
    assert!(text("report.series.csv").contains("\nfused/oidc,8,latency,P99,"));
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hey.csv");
    std::fs::write(&path, "response-time,DNS+dialup\n").unwrap();
    let said = read_record(&path).unwrap_err().to_string();
    assert!(said.contains("lab import") && said.contains("hey.csv"), "{said}");
    let said = read_baseline(&path).unwrap_err().to_string();
    assert!(said.contains("--update") && said.contains("hey.csv"), "{said}");
    let missing = folder.path().join("missing");
    for said in [read_record(&missing).unwrap_err(), read_baseline(&missing).unwrap_err()] {
        let said = said.to_string();
        assert!(said.contains("cannot read") && said.contains("missing"), "{said}");
    }
}
