//! What is promised to readers of the code: who may know what, which file may name which, what the rules are.

mod boundaries;
mod imports;
mod map;
mod rules;
