//! The loop: what the source says becomes inputs, what the pipeline says is performed.
//!
//! Deliberately no decisions about data: those are the core's. One thread owns the consumer and
//! the pipeline; everything slow runs elsewhere and comes back as settled work.

use crate::clickhouse_sink::SinkHandle;
use crate::clock::Clock;
use crate::core::invariant::Invariant;
use crate::core::ledger::{Watermark, WorkId};
use crate::core::pipeline::{Action, CountedMarks, Input, Pipeline, Record, Save};
use crate::core::{LogTime, Now, PartitionId};
use crate::http_server::{Liveness, Readiness};
use crate::kafka_source::{
    Change, DeadLetters, News, Place, Source, SourceError, SourceEvent, SourceRecord,
};
use crate::prometheus_exporter::{CommitResult, Exporter, Rebalance};
use crate::shutdown::{Shutdown, State};
use crate::state_file::Saver;
use crate::warn_rarely;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Longest wait for Kafka while an edge owes something, and while none does.
const WAIT_BUSY: Duration = Duration::from_millis(10);
const WAIT_IDLE: Duration = Duration::from_millis(100);
/// Between looks at the pipeline from outside.
const SNAPSHOT_EVERY: Duration = Duration::from_millis(250);
/// What draining may take at the end; orchestrators kill after 30 s.
const LEAVE_MAX: Duration = Duration::from_secs(10);
/// And what leaving the group may take after that.
const CLOSE_MAX: Duration = Duration::from_secs(10);

/// The parts of `/healthz/ready` that the driver answers for.
pub const READY_PARTS: [&str; 2] = ["kafka", "clickhouse"];

/// What the loop moves.
pub struct Edges {
    pub source: Source,
    pub sink: SinkHandle,
    pub dead_letters: DeadLetters,
    /// Settled work from all that owe it.
    pub settled: Receiver<WorkId>,
    /// Where a state file is kept.
    pub state_file: Option<Saver>,
    pub exporter: Arc<Exporter>,
    pub readiness: Arc<Readiness>,
    pub liveness: Arc<Liveness>,
}

/// Why the loop ended.
#[derive(Debug)]
pub enum Ended {
    /// A signal came, and the group is left.
    Left,
    /// Going on could falsify rows.
    Halted(Invariant),
    /// The source is of no use any more.
    Source(SourceError),
}

/// The loop and everything it owns.
pub struct Driver {
    edges: Edges,
    pipeline: Pipeline,
    clock: Clock,
    shutdown: Shutdown,
    work_in_flight: usize,
    commits: Vec<(PartitionId, Watermark)>,
    is_leaving: bool,
    halted: Option<Invariant>,
    snapshot_due: Now,
    /// Seconds behind, by partition, where known.
    behind: BTreeMap<Place, Option<f64>>,
    limits_seen: BTreeMap<&'static str, u64>,
}

impl Driver {
    pub fn new(edges: Edges, mut pipeline: Pipeline, clock: Clock, shutdown: Shutdown) -> Driver {
        if let Some(saver) = &edges.state_file {
            let counted = saver.restored();
            pipeline.handle(Input::Restored { counted }, clock.now());
        }
        Driver {
            edges,
            pipeline,
            clock,
            shutdown,
            work_in_flight: 0,
            commits: Vec::new(),
            is_leaving: false,
            halted: None,
            snapshot_due: Now::default(),
            behind: BTreeMap::new(),
            limits_seen: BTreeMap::new(),
        }
    }

    /// Turns until a signal comes or something ends it.
    pub fn run(mut self) -> Ended {
        match self.turn_until_told().and_then(|()| self.leave()) {
            Ok(()) => Ended::Left,
            Err(ended) => ended,
        }
    }

    fn turn_until_told(&mut self) -> Result<(), Ended> {
        while self.shutdown.state() == State::Running {
            self.turn()?;
        }
        Ok(())
    }

    /// One turn: one event, what was settled, what is to be done.
    fn turn(&mut self) -> Result<(), Ended> {
        let wait = self.wait();
        let news = match self.edges.source.next(wait) {
            SourceEvent::Record(record) => {
                read(&mut self.pipeline, &record, self.clock.now());
                None
            }
            SourceEvent::News(news) => Some(news),
        };
        if let Some(news) = news {
            self.hear(news)?;
            self.tell(Input::Tick);
        }
        while let Ok(work) = self.edges.settled.try_recv() {
            self.settle(work);
        }
        if self.edges.state_file.as_ref().is_some_and(Saver::is_wanted) {
            self.tell(Input::Save);
        }
        self.perform();
        self.look();
        self.halted
            .map_or(Ok(()), |invariant| Err(Ended::Halted(invariant)))
    }

    fn wait(&self) -> Duration {
        let most = match self.work_in_flight {
            0 => WAIT_IDLE,
            _ => WAIT_BUSY,
        };
        let deadline = self.pipeline.poll_deadline();
        deadline.map_or(most, |at| at.0.saturating_sub(self.clock.now().0).min(most))
    }

    fn tell(&mut self, input: Input<'_>) {
        self.pipeline.handle(input, self.clock.now());
    }

    fn settle(&mut self, work: WorkId) {
        self.work_in_flight = self.work_in_flight.saturating_sub(1);
        self.tell(Input::Settled { work });
    }

    /// Performs what the pipeline says.
    fn perform(&mut self) {
        let wall = self.clock.wall();
        while let Some(action) = self.pipeline.poll_action() {
            match action {
                Action::Insert(batch) => {
                    self.work_in_flight += 1;
                    if let Err(batch) = self.edges.sink.send(batch) {
                        // Its place is kept in the ledger: nothing is committed past it.
                        tracing::error!(work = batch.work.0, "the sink takes no batch");
                        self.halted = Some(Invariant::WorkInFlightBounded);
                    }
                }
                Action::Observe(sample) => self.edges.exporter.observe(&sample, wall),
                Action::SaveState(save) => self.save(save),
                Action::DeadLetter(letter) => {
                    self.work_in_flight += 1;
                    self.edges.dead_letters.send(letter);
                }
                Action::Commit {
                    partition,
                    watermark,
                } => self.commits.push((partition, watermark)),
                Action::Pause => {
                    self.edges.exporter.limit_reached("work_in_flight_max");
                    self.edges.source.pause(true);
                }
                Action::Resume if self.is_leaving => {}
                Action::Resume => self.edges.source.pause(false),
                Action::Halt(invariant) => self.halted = Some(invariant),
            }
        }
        if !self.commits.is_empty() && self.halted.is_none() {
            let commits = std::mem::take(&mut self.commits);
            self.edges.source.commit(&commits);
        }
    }

    /// Has the counters written as the actions so far have moved them.
    fn save(&mut self, save: Save) {
        match &self.edges.state_file {
            Some(saver) => {
                self.work_in_flight += 1;
                saver.save(save);
            }
            None => self.tell(Input::Settled { work: save.work }),
        }
    }

    fn hear(&mut self, news: News) -> Result<(), Ended> {
        match news {
            News::Idle => {}
            News::Changed(Change::Assigned(places)) => self.assigned(&places),
            News::Changed(Change::Revoked(places)) => self.hand_over(&places),
            News::Changed(Change::Lost(places)) => self.lost(&places),
            News::CaughtUp {
                partition,
                next,
                log_time,
            } => self.tell(Input::CaughtUp {
                partition,
                next,
                log_time,
            }),
            News::Lag {
                place,
                records,
                newest,
            } => self.measured(place, records, newest),
            News::Committed { is_ok } => self.edges.exporter.commit(match is_ok {
                true => CommitResult::Ok,
                false => CommitResult::Failed,
            }),
            // The source has said so in the log.
            News::RecordsLost { place, records } => {
                let exporter = &self.edges.exporter;
                exporter.records_lost(&place.topic, place.partition, records);
            }
            News::Fatal(error) => return Err(Ended::Source(error)),
        }
        Ok(())
    }

    fn assigned(&mut self, places: &[Place]) {
        self.edges.exporter.rebalance(Rebalance::Assigned);
        self.meet_cluster();
        for place in places {
            let exporter = &self.edges.exporter;
            exporter.records_lost(&place.topic, place.partition, 0);
        }
        let pipeline = &self.pipeline;
        let counted = |place: &Place| pipeline.counted(&place.topic, place.partition);
        for assignment in self.edges.source.assign(places, &counted) {
            if assignment.is_made_anew {
                self.tell(Input::MadeAnew {
                    topic: assignment.source.topic.clone(),
                    partition: assignment.source.partition,
                });
            }
            self.tell(Input::Assigned {
                partition: assignment.partition,
                source: assignment.source,
                committed: assignment.committed,
                log: assignment.log,
            });
        }
    }

    /// What a state file of another cluster says is of no use.
    fn meet_cluster(&mut self) {
        let Some(saver) = &mut self.edges.state_file else {
            return;
        };
        if !saver.meet(self.edges.source.cluster()) {
            let counted = CountedMarks::new();
            self.tell(Input::Restored { counted });
        }
    }

    /// Hands partitions over in order: finishes what is in hand, commits, lets go. Until then no
    /// partition delivers anything, so it takes `drain_max` at most.
    fn hand_over(&mut self, places: &[Place]) {
        self.edges.exporter.rebalance(Rebalance::Revoked);
        let partitions = self.edges.source.partitions(places);
        if !partitions.is_empty() {
            self.drain(self.pipeline.settings().limits.drain_max);
        }
        self.commits.retain(|(id, _)| !partitions.contains(id));
        let pipeline = &mut self.pipeline;
        let marks = partitions
            .iter()
            .filter_map(|id| Some((*id, pipeline.hand_over(*id)?)));
        let marks: Vec<(PartitionId, Watermark)> = marks.collect();
        if !marks.is_empty() && self.halted.is_none() {
            let committed = self.edges.source.commit_now(&marks);
            if let Err(error) = &committed {
                tracing::warn!(%error, "the marks of partitions let go were not committed: \
                    their next owner reads more again");
            }
            self.edges.exporter.commit(match committed {
                Ok(()) => CommitResult::Ok,
                Err(_) => CommitResult::Failed,
            });
        }
        for partition in partitions {
            self.tell(Input::Revoked { partition });
        }
        self.let_go(places);
    }

    /// Waits until nothing waits and nothing is in flight.
    fn drain(&mut self, most: Duration) {
        let until = self.clock.now().0 + most;
        self.tell(Input::Drain);
        self.perform();
        while !self.pipeline.is_drained() && self.halted.is_none() {
            let left = until.saturating_sub(self.clock.now().0);
            if left.is_zero() {
                self.edges.exporter.limit_reached("drain_max");
                warn_rarely!(
                    "drain",
                    ?most,
                    "out of time while draining: what is not settled is \
                    done again by the next owner"
                );
                return;
            }
            self.edges.liveness.beat();
            if let Ok(work) = self.edges.settled.recv_timeout(left.min(WAIT_IDLE)) {
                self.settle(work);
            }
            self.tell(Input::Tick);
            self.perform();
        }
    }

    fn lost(&mut self, places: &[Place]) {
        self.edges.exporter.rebalance(Rebalance::Lost);
        tracing::warn!(partitions = places.len(), "partitions were taken away");
        for partition in self.edges.source.partitions(places) {
            self.commits.retain(|(id, _)| *id != partition);
            self.tell(Input::Lost { partition });
        }
        self.let_go(places);
    }

    fn let_go(&mut self, places: &[Place]) {
        self.edges.source.unassign(places);
        // Before the series go, or the next scrape would show them again.
        self.edges.exporter.set_snapshot(self.pipeline.snapshot());
        for place in places {
            self.behind.remove(place);
            self.edges
                .exporter
                .forget_partition(&place.topic, place.partition);
        }
    }

    fn measured(&mut self, place: Place, records: Option<u64>, newest: Option<LogTime>) {
        // News of a partition that is gone meanwhile.
        if self
            .edges
            .source
            .partitions(std::slice::from_ref(&place))
            .is_empty()
        {
            return;
        }
        self.edges
            .exporter
            .lag(&place.topic, place.partition, records);
        let wall = self.clock.wall();
        let age = |at: LogTime| Duration::from_millis(u64::try_from(wall.0 - at.0).unwrap_or(0));
        let seconds = match records {
            Some(0) => Some(0.0),
            Some(_) => newest.map(|at| age(at).as_secs_f64()),
            None => None,
        };
        self.behind.insert(place, seconds);
    }

    /// Shows how things stand, a few times a second.
    fn look(&mut self) {
        self.edges.liveness.beat();
        let now = self.clock.now();
        if now < self.snapshot_due {
            return;
        }
        self.snapshot_due = Now(now.0 + SNAPSHOT_EVERY);
        let snapshot = self.pipeline.snapshot();
        for (limit, count) in &snapshot.totals.limits_reached {
            let seen = self.limits_seen.insert(limit, *count).unwrap_or(0);
            if *count > seen {
                warn_rarely!(limit, limit, count, "a limit was reached");
            }
        }
        let worst = self.behind.values().copied();
        let worst = worst.reduce(|a, b| Some(a?.max(b?))).flatten();
        self.edges.exporter.lag_seconds(worst);
        let replaying = snapshot
            .partitions
            .iter()
            .filter(|status| status.is_replaying);
        let replaying = match replaying.count() {
            0 => None,
            n => Some(format!(
                "{n} partitions read again what a predecessor had read"
            )),
        };
        let leaving = self.is_leaving.then(|| "leaving".to_owned());
        let readiness = &self.edges.readiness;
        readiness.set_reason("kafka", self.edges.source.reason());
        readiness.set_reason("clickhouse", self.edges.sink.health().snapshot().reason());
        readiness.set_reason("dead_letters", self.edges.dead_letters.reason());
        readiness.set_reason("replaying", replaying);
        readiness.set_reason("shutdown", leaving);
        self.edges.exporter.set_snapshot(snapshot);
    }

    /// Finishes what is in hand, hands everything over and leaves the group.
    fn leave(&mut self) -> Result<(), Ended> {
        self.is_leaving = true;
        self.snapshot_due = Now::default();
        self.look();
        self.edges.source.pause(true);
        self.tell(Input::Drain);
        let until = self.clock.now().0 + LEAVE_MAX;
        while !self.pipeline.is_drained() && self.clock.now().0 < until {
            self.turn()?;
        }
        if !self.edges.source.begin_close() {
            return Ok(());
        }
        let until = self.clock.now().0 + CLOSE_MAX;
        while !self.edges.source.is_closed() {
            if self.clock.now().0 >= until {
                tracing::warn!("the group did not let us go in time");
                break;
            }
            self.turn()?;
        }
        Ok(())
    }
}

fn read(pipeline: &mut Pipeline, record: &SourceRecord<'_>, now: Now) {
    let headers = record.headers();
    let input = Input::Record {
        partition: record.partition,
        record: Record {
            offset: record.offset,
            logged_at: record.logged_at,
            key: record.key(),
            headers: &headers,
            payload: record.payload(),
        },
    };
    pipeline.handle(input, now);
}
