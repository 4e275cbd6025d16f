//! The owner of a partition, by rendezvous hashing over the live coordinators.

use domain::{WorkerId, subject::Partition};

/// The owner of a partition: the coordinator with the highest weight for it. When a coordinator
/// starts or ends, only its own partitions move.
pub(crate) fn owner(partition: Partition, coordinators: &[WorkerId]) -> Option<&WorkerId> {
    coordinators.iter().max_by_key(|id| (weight(partition, id), *id))
}

/// FNV-1a with a final mix: equal on every machine and in every version.
fn weight(partition: Partition, coordinator: &WorkerId) -> u64 {
    let bytes = coordinator.as_str().bytes().chain(partition.number().to_be_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coordinators(count: usize) -> Vec<WorkerId> {
        (0..count).map(|n| WorkerId::new(&format!("host-{n}-4711")).unwrap()).collect()
    }

    #[test]
    fn partitions_spread_and_only_those_of_a_lost_coordinator_move() {
        let four = coordinators(4);
        let owners = |of: &[WorkerId]| -> Vec<WorkerId> {
            Partition::all(256).map(|partition| owner(partition, of).unwrap().clone()).collect()
        };
        let before = owners(&four);
        for id in &four {
            let owned = before.iter().filter(|owner| *owner == id).count();
            assert!((32..=110).contains(&owned), "{id} owns {owned} of 256");
        }
        let after = owners(&four[..3]);
        for (was, is) in before.iter().zip(&after) {
            assert!(was == is || *was == four[3], "{was} lost a partition to {is}, although it still runs");
        }
        assert_eq!(owner(Partition::all(1).next().unwrap(), &[]), None);
    }
}
