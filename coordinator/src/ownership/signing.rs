//! Signs valid data again with the first key, if it was signed with another key, or with none while
//! unsigned data is accepted (S3). An earlier key can then be dropped, even if no client changes a
//! profile, a schedule, a graph or a waiting run. This happens once after a start, and for live
//! runs when their partition becomes owned.
//!
//! A second coordinator that does the same stores nothing, or the same data again. Data that fails
//! its check is left unchanged.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bus::{Bus, keys::Keys};
use domain::{
    Timestamp, TraceId,
    subject::{Filter, Partition, Subject},
};
use tokio::sync::watch;
use trace::Command;

use crate::{
    directory, error_log,
    loops::Handles,
    shard::{
        dispatch::Dispatch,
        job::{Job, Origin},
    },
    store,
};

/// Pause after a failure, and between two checks for new partitions.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Traces whose seals are read in one request.
const LOOKUP_BATCH: usize = 500;
/// Traces signed at once, and the pause after them: other traces have to be served too.
const SIGNED_AT_ONCE: usize = 64;
const PAUSE: Duration = Duration::from_millis(100);
/// More traces than a partition has.
const ALL: usize = 10_000_000;

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("a log can't be signed again")]
    Bus(#[from] bus::Error),
    #[error("the store can't be read")]
    Store(#[from] store::Error),
    #[error(transparent)]
    Directory(#[from] directory::Error),
}

pub(crate) async fn run(
    handles: Arc<Handles>,
    dispatch: Dispatch,
    owned: watch::Receiver<Arc<Vec<Partition>>>,
) {
    let Some(keys) = handles.config.keys.clone() else { return };
    let mut interval = tokio::time::interval(LOOK_EVERY);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut are_logs_done, mut done) = (false, BTreeSet::new());
    loop {
        interval.tick().await;
        if !are_logs_done {
            match logs(&handles).await {
                Ok(count) => {
                    are_logs_done = true;
                    tell(count, "profiles, schedules and graphs were signed again, with the first key");
                }
                Err(error) => warn(&error),
            }
        }
        let partitions = owned.borrow().clone();
        done.retain(|partition| partitions.contains(partition));
        for partition in partitions.iter() {
            if done.contains(partition) {
                continue;
            }
            match live(&handles, &dispatch, &keys, *partition).await {
                Ok(count) => {
                    done.insert(*partition);
                    tell(count, "live runs are signed again, with the first key");
                }
                Err(error) => warn(&error),
            }
        }
    }
}

fn tell(count: usize, what: &str) {
    if count > 0 {
        tracing::debug!(count, "{what}");
    }
}

fn warn(error: &Error) {
    error_log::tell(error, None, "data signed with an earlier key could not be signed again; trying again");
}

/// Signs the logs of the registries, and the profiles in the store. Returns how many messages and
/// profiles were signed.
async fn logs(handles: &Handles) -> Result<usize, Error> {
    let mut count = 0;
    for filter in [Filter::Profiles, Filter::Schedules, Filter::AllTicks, Filter::AllKept] {
        count += log(&handles.bus, &filter).await?;
    }
    Ok(count + handles.directory.sign_again().await?)
}

async fn log(bus: &Bus, filter: &Filter) -> Result<usize, bus::Error> {
    let mut count = 0;
    for subject in bus.subjects(filter).await? {
        // Every version of a graph can be used; of other records only the last version is valid.
        let all = matches!(subject, Subject::Kept(_));
        count += bus.sign_again(&subject, all).await?;
    }
    Ok(count)
}

/// Copies each live run into its log; the commit of the copy seals the whole run.
async fn live(
    handles: &Handles,
    dispatch: &Dispatch,
    keys: &Keys,
    partition: Partition,
) -> Result<usize, Error> {
    let mut count = 0;
    let live = handles.store.due(&[partition], Timestamp::from_millis(u64::MAX), ALL).await?;
    for some in live.chunks(LOOKUP_BATCH) {
        let signers = handles.store.signers(some).await?;
        let is_old = |signer: &Option<String>| match signer {
            Some(signer) => signer != keys.signing().id() && keys.find(signer).is_some(),
            None => keys.accepts_unsigned(),
        };
        let old = some.iter().zip(&signers).filter(|(_, signer)| is_old(signer));
        for old in old.map(|(id, _)| *id).collect::<Vec<TraceId>>().chunks(SIGNED_AT_ONCE) {
            for id in old {
                dispatch.give(Job::order(*id, Command::Copy { after_ms: 0 }, Origin::Timer)).await;
            }
            count += old.len();
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(count)
}
