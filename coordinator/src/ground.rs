//! What all loops of a coordinator have in common: its handles, its clock, and where traces live.

use shared::{
    TraceId,
    bus::Bus,
    subject::{Home, Partition},
};

use crate::{Config, clock::Clock, epoch::Epoch, store::Store};

#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) config: Config,
    pub(crate) bus: Bus,
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) epoch: Epoch,
}

impl Ground {
    pub(crate) fn partition(&self, trace: TraceId) -> Partition {
        Partition::of(trace, self.config.topology.partitions)
    }

    pub(crate) fn home(&self, trace: TraceId) -> Home {
        Home { namespace: self.bus.namespace().clone(), partition: self.partition(trace) }
    }

    pub(crate) fn resend_ms(&self) -> u64 {
        millis(self.config.resend_after)
    }

    pub(crate) fn retention_ms(&self) -> u64 {
        millis(self.config.retention)
    }
}

pub(crate) fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
