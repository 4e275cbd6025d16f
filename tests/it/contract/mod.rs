//! What is promised to readers and users: who may know what in the code, the protocol, its schemas, what is shipped.

mod boundaries;
mod deploy;
mod imports;
mod map;
mod protocol;
mod python;
mod rules;
mod schemas;
