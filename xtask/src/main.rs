//! Long runs and reports; never shipped.
//!
//! `cargo run --release -p xtask -- experiment attention-pages` repeats a measurement of `docs/decisions`.

#![forbid(unsafe_code)]

mod attention_pages;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["experiment", "attention-pages"] => attention_pages::run(),
        _ => anyhow::bail!("usage: xtask experiment attention-pages"),
    }
}
