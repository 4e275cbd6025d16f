//! The loop of a worker: takes as many deliveries as it has free slots, handles stop messages and admin requests,
//! and shuts down in order. Every attempt is its own task, awaited before the worker ends.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex},
};

use bus::{Bus, Consumer, Consumption, Delivery, Message, Stream, Subscription};
use domain::{
    ChildId, TraceId, decode,
    subject::{Filter, Subject},
    wire::{Offer, Refusal, Stop},
};
use futures_util::future::BoxFuture;
use telemetry::{
    Outage,
    metrics::{self, GaugeHandle},
    span_of,
};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    task::{Id, JoinSet},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{
    admin,
    readiness::{self, Pulse},
};
use crate::{
    agent::Resources,
    config::Config,
    delivery::{dead_letter, handle::Handler, skew::Skew},
    error::Error,
    retry::Backoff,
};

/// Takes and runs work until `shutdown` or a request to drain; then finishes or hands back the running attempts.
pub async fn run(config: Config, bus: Bus, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
    boxed(config, bus, Box::pin(shutdown)).await
}

/// Gives the future one type. A generic function is compiled again, with everything it awaits, in
/// each crate that calls it.
fn boxed(config: Config, bus: Bus, shutdown: BoxFuture<'_, ()>) -> BoxFuture<'_, Result<(), Error>> {
    let span = tracing::error_span!("worker", worker_id = %config.id);
    Box::pin(run_until(config, bus, shutdown).instrument(span))
}

async fn run_until(config: Config, bus: Bus, mut shutdown: BoxFuture<'_, ()>) -> Result<(), Error> {
    metrics::begin();
    // A health check waits in this queue only while the loop handles another event, so a few places are enough.
    let (checks, mut checks_received) = mpsc::channel(8);
    let ended = CancellationToken::new();
    let _cancel_on_return = ended.clone().drop_guard();
    let health = readiness::serve(config.health, bus.clone(), checks, ended);
    let worker = tokio::select! {
        biased;
        worker = Worker::start(config, bus) => worker?,
        () = &mut shutdown => return Ok(()),
    };
    let work = worker.work(shutdown, &mut checks_received);
    let (mut health, mut work) = (std::pin::pin!(health), std::pin::pin!(work));
    tokio::select! {
        biased;
        ended = &mut work => ended,
        failed = &mut health => match failed {
            Ok(()) => work.await,
            Err(error) => Err(error),
        },
    }
}

struct Worker {
    config: Arc<Config>,
    resources: Arc<Resources>,
    bus: Bus,
    stops: Subscription,
    admin_requests: Subscription,
    drains: Subscription,
    consumption: Consumption,
    attempts: JoinSet<()>,
    running: HashMap<Id, Running>,
    hand_back: CancellationToken,
    description: admin::Description,
    skew: Arc<Skew>,
    coordinators: Arc<Mutex<Outage>>,
    /// The numbers of busy and free slots, for metrics.
    slots: GaugeHandle<(u64, u64)>,
}

/// A running attempt, to which stop messages are matched.
struct Running {
    trace_id: TraceId,
    child_id: ChildId,
    /// Notified when the attempt must tick at once.
    stop_told: Arc<Notify>,
}

/// The reason why the loop ends.
enum LoopEnd {
    Drain,
    Closed,
}

impl Worker {
    async fn start(config: Config, bus: Bus) -> Result<Self, Error> {
        let resources = Resources::new(&config).await.map_err(Error::Settings)?;
        let failed = |doing| {
            let worker = config.id.clone();
            move |source| Error::Bus { worker, doing, source }
        };
        // Subscribe before taking work, so that a stop for the first delivery is received.
        let stops = bus.subscribe(&Filter::Stops).await.map_err(failed("listen for stops"))?;
        let admin_requests = bus
            .subscribe(&Filter::One(Subject::Worker))
            .await
            .map_err(failed("listen for admin requests"))?;
        let drains = bus
            .subscribe(&Filter::One(Subject::Drain))
            .await
            .map_err(failed("listen for requests to drain"))?;
        let consumer = Consumer::Execute(config.pool.clone());
        let consumption = consume(&bus, &consumer).await.map_err(failed("take work"))?;
        let skew = Arc::new(Skew::default());
        let description = admin::Description::new(&config, skew.clone());
        tracing::info!(pool = %config.pool, slots = config.slots, "the worker takes work");
        Ok(Worker {
            config: Arc::new(config),
            resources: Arc::new(resources),
            bus,
            stops,
            admin_requests,
            drains,
            consumption,
            attempts: JoinSet::new(),
            running: HashMap::new(),
            hand_back: CancellationToken::new(),
            description,
            skew,
            coordinators: Arc::new(Mutex::new(Outage::new("the coordinators"))),
            slots: metrics::tell_slots(),
        })
    }

    async fn work(
        mut self,
        shutdown: impl Future<Output = ()> + Send,
        checks: &mut mpsc::Receiver<oneshot::Sender<Pulse>>,
    ) -> Result<(), Error> {
        let mut shutdown = std::pin::pin!(shutdown);
        self.consumption.want(self.config.slots);
        let reason = loop {
            let busy = self.attempts.len();
            self.slots.tell((busy as u64, self.config.slots.saturating_sub(busy) as u64));
            tokio::select! {
                biased;
                () = &mut shutdown => break LoopEnd::Drain,
                Some(ended) = self.attempts.join_next_with_id() => {
                    self.forget(ended);
                    self.consumption.want(1);
                }
                message = self.stops.next() => match message {
                    Some(message) => stop(self.running.values(), &message),
                    None => break LoopEnd::Closed,
                },
                message = self.admin_requests.next() => match message {
                    Some(message) => {
                        if self.answer(&message).await {
                            break LoopEnd::Drain;
                        }
                    }
                    None => break LoopEnd::Closed,
                },
                message = self.drains.next() => match message {
                    Some(message) => {
                        if self.answer(&message).await {
                            break LoopEnd::Drain;
                        }
                    }
                    None => break LoopEnd::Closed,
                },
                Some(reply) = checks.recv() => {
                    let _ = reply.send(Pulse { silent_for: self.consumption.silent_for() });
                }
                delivery = self.consumption.next() => self.begin(delivery),
            }
        };
        checks.close();
        self.end().await;
        match reason {
            LoopEnd::Drain => Ok(()),
            LoopEnd::Closed => Err(Error::Closed),
        }
    }

    /// Takes no more work. Running attempts may finish within the drain time; after that they are
    /// handed back.
    async fn end(self) {
        let Worker {
            config,
            resources,
            bus,
            mut stops,
            mut admin_requests,
            mut drains,
            consumption,
            mut attempts,
            ..
        } = self;
        let (running, hand_back, description) = (self.running, self.hand_back, self.description);
        drop(consumption);
        tracing::info!(running = attempts.len(), "the worker takes no more work");
        let drain_time = tokio::time::sleep(config.drain);
        let mut drain_time = std::pin::pin!(drain_time);
        while !attempts.is_empty() {
            tokio::select! {
                biased;
                _ = attempts.join_next() => {}
                () = &mut drain_time, if !hand_back.is_cancelled() => {
                    tracing::info!(running = attempts.len(), "the running attempts are handed back");
                    hand_back.cancel();
                }
                Some(message) = stops.next() => stop(running.values(), &message),
                Some(message) = admin_requests.next() => {
                    description.answer(&bus, &config, &message, attempts.len(), true).await;
                }
                Some(message) = drains.next() => {
                    description.answer(&bus, &config, &message, attempts.len(), true).await;
                }
            }
        }
        if let Some(sandbox) = &resources.sandbox {
            sandbox.ended().await;
        }
        resources.toolbox.stop().await;
    }

    fn begin(&mut self, delivery: Delivery) {
        metrics::delivered(Stream::Execute.name(), delivery.delivered);
        let offer = delivery.genuine().and_then(|()| decode::from_peer::<Offer>(&delivery.payload));
        let stop_told = Arc::new(Notify::new());
        let task = match offer {
            Ok(offer) => {
                let (trace_id, child_id) = (offer.trace_id, offer.child_id.clone());
                let span = tracing::error_span!(
                    "attempt",
                    %trace_id,
                    span_id = tracing::field::Empty,
                    %child_id,
                    attempt = tracing::field::Empty,
                    worker_id = %self.config.id,
                );
                span.record("span_id", span_of(trace_id, &child_id, None));
                let handler = Handler {
                    config: self.config.clone(),
                    resources: self.resources.clone(),
                    bus: self.bus.clone(),
                    skew: self.skew.clone(),
                    coordinators: self.coordinators.clone(),
                    stop_told: stop_told.clone(),
                    hand_back: self.hand_back.clone(),
                };
                let task = self.attempts.spawn(handler.run(offer, delivery).instrument(span));
                self.running.insert(task.id(), Running { trace_id, child_id, stop_told });
                return;
            }
            Err(problems) => {
                let bus = self.bus.clone();
                async move {
                    let message = format!("the execute message is invalid:\n{problems}");
                    let refusal = Refusal { message, ..Refusal::invalid(&problems) };
                    dead_letter::store(&bus, &delivery, refusal, None).await;
                }
            }
        };
        self.attempts.spawn(task.in_current_span());
    }

    fn forget(&mut self, ended: Result<(Id, ()), tokio::task::JoinError>) {
        let id = match ended {
            Ok((id, ())) => id,
            Err(error) => {
                // Panics of agents are caught elsewhere, so this is a bug of the worker. The delivery comes again.
                tracing::error!(%error, "the task of an attempt panicked or was cancelled");
                error.id()
            }
        };
        self.running.remove(&id);
    }

    /// Answers an admin request. Returns true if the worker must drain.
    async fn answer(&self, message: &Message) -> bool {
        self.description.answer(&self.bus, &self.config, message, self.attempts.len(), false).await
    }
}

/// Opens the queue. Coordinators create the streams, so a worker that starts before the first
/// coordinator waits for them, until its shutdown.
async fn consume(bus: &Bus, consumer: &Consumer) -> Result<Consumption, bus::Error> {
    let mut backoff = Backoff::default();
    let mut outage = Outage::new("the queue of the pool, which a coordinator makes");
    loop {
        match bus.consume(consumer).await {
            Err(error @ bus::Error::Failed { .. }) => {
                outage.failed(&error.to_string());
                backoff.wait().await;
            }
            ended => {
                outage.ended();
                return ended;
            }
        }
    }
}

/// Makes the attempt that a stop message names tick at once. The message may be forged, so only the
/// coordinator's answer to that tick ends the attempt. If the message is lost, the next regular
/// tick ends it.
fn stop<'a>(running: impl Iterator<Item = &'a Running>, message: &Message) {
    match message.genuine().and_then(|()| decode::from_peer::<Stop>(&message.payload)) {
        Ok(stop) => running
            .filter(|running| running.trace_id == stop.trace_id && running.child_id == stop.child_id)
            .for_each(|running| running.stop_told.notify_one()),
        Err(problems) => {
            // Any client may send such a message, so it is logged only at DEBUG.
            tracing::debug!(%problems, "received an invalid stop message");
        }
    }
}
