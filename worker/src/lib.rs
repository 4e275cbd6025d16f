//! Runs agents. Nothing yet: the worker arrives with the bus it listens on.
