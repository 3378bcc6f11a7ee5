//! Long runs and reports; never shipped.
fn main() {}
