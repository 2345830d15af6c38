//! What outlives a process on its host: the state file, and what Prometheus has seen of it.
//!
//! A host without a file begins at zero with every process, and is scraped after every move. One
//! with a file shows what the file has, and is scraped whenever it happens.

use super::compare::is_monotone;
use super::faults::{Dice, Fault, Faults};
use super::tables::Series;
use super::world::{Daemon, PROCESSES, World};
use std::collections::BTreeMap;
use tachograph::core::pipeline::{CountedMarks, Input};
use tachograph::core::sample::{Move, Sample};

/// Counters by series.
pub type Cells = BTreeMap<Series, u64>;

/// A state file.
#[derive(Clone, Debug, Default)]
pub struct File {
    pub cells: Cells,
    pub counted: CountedMarks,
}

#[derive(Debug, Default)]
pub struct Host {
    pub keeps_file: bool,
    file: Option<File>,
    /// The counters in the memory of the process that runs.
    pub cells: Cells,
    /// What a scrape of it shows.
    shown: Cells,
    /// What the last scrape showed, over all lives.
    seen: Cells,
    /// As Prometheus' `increase()` has it, over all lives.
    increase: Cells,
}

impl Host {
    /// Every host, with a file or without.
    pub fn all(faults: &Faults, dice: &mut Dice) -> Vec<Host> {
        let mut host = || Host {
            keeps_file: faults.has(Fault::StateFiles)
                || faults.has(Fault::SomeStateFiles) && dice.percent(60),
            ..Host::default()
        };
        (0..PROCESSES).map(|_| host()).collect()
    }

    /// A process begins: with what the file has, or with nothing.
    pub fn begin(&mut self) -> Option<CountedMarks> {
        let file = self.file.clone().unwrap_or_default();
        self.cells = file.cells;
        self.shown = self.cells.clone();
        self.keeps_file.then_some(file.counted)
    }

    pub fn observe(&mut self, sample: &Sample) {
        let Move::Add(by) = sample.change else { return };
        let labels = sample.labels.iter().map(|label| label.to_string());
        let series = (sample.family, labels.collect());
        if !self.keeps_file {
            *self.increase.entry(series.clone()).or_insert(0) += by;
        }
        *self.cells.entry(series).or_insert(0) += by;
    }

    /// The file is renamed to its place, and may be shown.
    pub fn write(&mut self, file: File) {
        self.shown = file.cells.clone();
        self.file = Some(file);
    }

    /// Prometheus scrapes. A counter that fell would be a reset to it, and its whole value an
    /// increase.
    fn scrape(&mut self) -> Result<(), String> {
        if !self.keeps_file {
            return Ok(());
        }
        for (series, value) in &self.shown {
            let seen = self.seen.get(series).copied().unwrap_or(0);
            if *value < seen {
                return Err(format!("{series:?} fell from {seen} to {value}"));
            }
            *self.increase.entry(series.clone()).or_insert(0) += value - seen;
        }
        let is_there = |series: &&Series| self.shown.contains_key(*series);
        if let Some(series) = self.seen.keys().find(|series| !is_there(series)) {
            return Err(format!("{series:?} has vanished"));
        }
        self.seen = self.shown.clone();
        Ok(())
    }
}

impl World {
    pub fn scrape_now_and_then(&mut self, daemon: &mut Daemon) {
        if !self.hosts[daemon.host].keeps_file || !self.dice.percent(15) {
            return;
        }
        if self.dice.percent(50) {
            self.tell(daemon, Input::Save);
        }
        self.tally.scrapes += 1;
        if let Err(error) = self.hosts[daemon.host].scrape() {
            self.fail(error);
        }
    }

    /// The last scrape, when everything has come to rest.
    pub fn scrape_all(&mut self) -> Result<(), String> {
        self.hosts.iter_mut().try_for_each(Host::scrape)
    }
}

/// Counters as Prometheus sees them, summed over hosts. A host with a file never counts a thing
/// twice. Where every process comes back to its file and its partitions, the sums are exact,
/// whatever crashed; elsewhere nothing is missing.
pub fn verdict(world: &World, right: &Cells) -> Result<(), String> {
    let tally = &world.tally;
    let has_all = world.faults.has(Fault::StateFiles) && world.faults.has(Fault::StaticMembers);
    let is_exact = has_all && tally.losses + tally.unsaved == 0;
    let of = |cells: &Cells, series: &Series| cells.get(series).copied().unwrap_or(0);
    for host in &world.hosts {
        let ahead = |(series, got): &(&Series, &u64)| **got > of(right, series);
        if let Some((series, got)) = host.increase.iter().find(ahead).filter(|_| host.keeps_file) {
            let right = of(right, series);
            return Err(format!(
                "counted twice by one host: {series:?}: {got} of {right}"
            ));
        }
    }
    for (series, least) in right.iter().filter(|((family, _), _)| is_monotone(*family)) {
        let got: u64 = world
            .hosts
            .iter()
            .map(|host| of(&host.increase, series))
            .sum();
        if got < *least {
            return Err(format!("counted too little: {series:?}: {got} of {least}"));
        }
        if is_exact && got > *least {
            return Err(format!("counted twice: {series:?}: {got} of {least}"));
        }
    }
    Ok(())
}
