//! What is promised to readers of the code: who may know what, which file may name which.

mod boundaries;
mod imports;
