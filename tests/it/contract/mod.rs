//! Promises to readers and users: boundaries and layers of the code, the protocol and its schemas,
//! the documents, the deployment files.

mod book;
mod boundaries;
mod deploy;
mod image_sources;
mod map;
mod metrics;
mod package;
mod protocol;
mod python;
mod rules;
mod schemas;
mod supply_chain;
mod versions;
