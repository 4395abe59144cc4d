//! postern.
fn main() {}
