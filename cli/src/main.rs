//! The `trellis` binary.
fn main() {}
