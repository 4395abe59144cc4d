//! Tells the program how far it is optimized.
#![expect(clippy::disallowed_methods, reason = "cargo speaks to build scripts by variables")]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let level = std::env::var("OPT_LEVEL").unwrap_or_default();
    println!("cargo::rustc-env=POSTERN_OPT_LEVEL={level}");
}
