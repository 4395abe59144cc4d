//! `postern demo`.

use crate::support::{output_text, postern};

#[test]
fn the_tour_goes_as_expected() {
    let output = postern(&["demo", "--check"]);
    assert_eq!(output.status.code(), Some(0), "{}", output_text(&output));
    let text = output_text(&output);
    assert!(text.contains("as expected") && !text.contains('✗'), "{text}");
}

#[test]
fn the_configuration_it_runs_on_can_be_seen() {
    let output = postern(&["demo", "--print-config"]);
    assert!(output_text(&output).contains("[[route]]"));
}
