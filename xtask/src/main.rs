//! Long runs and reports; never shipped.
//!
//! `cargo run --release -p xtask -- experiment NAME` repeats a measurement of `docs/decisions`: `attention-pages`, or
//! `products`, which may be given a model and its folder of golden data. `measure overhead [MODEL]` repeats one of
//! `docs/measuring.md`.

#![forbid(unsafe_code)]

mod attention_pages;
mod measure;
mod products;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["experiment", "attention-pages"] => attention_pages::run(),
        ["experiment", "products"] => products::run(None),
        ["experiment", "products", model, folder] => products::run(Some((*model, *folder))),
        ["measure", "overhead"] => measure::overhead(None),
        ["measure", "overhead", model] => measure::overhead(Some(model)),
        _ => anyhow::bail!(
            "usage: xtask experiment attention-pages | experiment products [MODEL GOLDEN-FOLDER] | measure overhead [MODEL]"
        ),
    }
}
