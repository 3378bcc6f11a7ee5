//! The command line of Apprentice.
fn main() {}
