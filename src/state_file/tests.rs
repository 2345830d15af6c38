//! Saves to real files, and what scrapes show meanwhile.

use super::*;
use crate::core::ledger::Counted;
use crate::core::sample::{Family, Move, Sample};
use crate::core::{LogTime, Name, Offset};
use crate::prometheus_exporter::ExporterSettings;
use std::fs;
use std::path::{Path, PathBuf};

const BEGAN: LogTime = LogTime(1_772_445_600_000);
const LATER: LogTime = LogTime(1_772_445_660_000);

/// A folder that vanishes with the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let name = format!("tachograph-state-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process: what it counts, and its hold on the file.
struct Process {
    exporter: Arc<Exporter>,
    saver: Saver,
    settled: Receiver<WorkId>,
    work: u64,
}

impl Process {
    fn start(file: &Path) -> Process {
        let exporter = Arc::new(Exporter::new(&ExporterSettings::default()));
        let (file, stored) = StateFile::open(file, "g").unwrap();
        let (settle, settled) = sync_channel(4);
        let clock = Clock::new();
        let saver = Saver::start(file, stored, "g", &exporter, settle, clock).unwrap();
        Process {
            exporter,
            saver,
            settled,
            work: 0,
        }
    }

    fn count(&self, by: u64, now: LogTime) {
        let labels = ["shop", "", "m", "desk", "answer"].map(Name::from);
        let sample = Sample {
            family: Family::Tokens,
            labels: labels.into(),
            change: Move::Add(by),
            logged_at: now,
            is_replayed: false,
        };
        self.exporter.observe(&sample, now);
    }

    /// Orders a save.
    fn order(&mut self, below: i64) {
        self.work += 1;
        let mark = Counted {
            below: Offset(below),
            before: BEGAN,
        };
        self.saver.save(Save {
            work: WorkId(self.work),
            counted: [(("t".into(), 3), mark)].into(),
        });
    }

    fn save(&mut self, below: i64) {
        self.order(below);
        assert_eq!(self.settled.recv(), Ok(WorkId(self.work)));
    }

    /// The value of a metric in a scrape, the first series; `None` where there is none.
    fn shows(&self, metric: &str) -> Option<f64> {
        let text = self.exporter.render(LATER);
        let is_of = |line: &&str| line.split(['{', ' ']).next() == Some(metric);
        let line = text.lines().find(is_of)?;
        line.rsplit_once(' ')?.1.parse().ok()
    }

    fn tokens(&self) -> Option<f64> {
        self.shows("tachograph_tokens_total")
    }
}

const UP: &str = "tachograph_state_file_up";
const CREATED: &str = "tachograph_counters_created_timestamp_seconds";

#[test]
fn a_scrape_shows_what_the_file_has_and_a_restart_goes_on_from_it() {
    let folder = Folder::new("restart");
    let path = folder.0.join("state");
    let mut first = Process::start(&path);
    assert_eq!((first.tokens(), first.shows(UP)), (None, Some(1.0)));
    first.count(5, BEGAN);
    assert_eq!(first.tokens(), None, "no file has it");
    first.save(7);
    assert_eq!(first.tokens(), Some(5.0));
    first.count(2, BEGAN);
    assert_eq!(first.tokens(), Some(5.0), "a crash would lose the rest");
    assert!(!first.exporter.is_all_shown());
    drop(first);
    let mut second = Process::start(&path);
    let key = ("t".into(), 3);
    assert_eq!(second.saver.restored()[&key].below, Offset(7));
    assert_eq!(second.tokens(), Some(5.0));
    second.count(2, LATER);
    second.save(9);
    assert_eq!(second.tokens(), Some(7.0));
    assert_eq!(second.shows(CREATED), Some(BEGAN.0 as f64 / 1e3));
}

#[test]
fn where_nothing_can_be_written_scrapes_go_on_and_no_old_file_stays() {
    let folder = Folder::new("unwritable");
    let path = folder.0.join("state");
    let mut process = Process::start(&path);
    process.count(5, BEGAN);
    process.save(7);
    // What is in the way of the new file is a folder.
    let obstacle = folder.0.join("state.new");
    fs::create_dir(&obstacle).unwrap();
    process.count(1, BEGAN);
    process.save(8);
    assert_eq!(
        (process.tokens(), process.shows(UP)),
        (Some(6.0), Some(0.0))
    );
    assert!(!path.exists(), "it would be behind what was scraped");
    process.count(1, BEGAN);
    assert_eq!(process.tokens(), Some(7.0));
    fs::remove_dir(&obstacle).unwrap();
    process.save(9);
    assert_eq!(
        (process.tokens(), process.shows(UP)),
        (Some(7.0), Some(1.0))
    );
    process.count(1, BEGAN);
    assert_eq!(process.tokens(), Some(7.0));
    assert!(path.exists());
}

#[test]
fn a_counter_never_falls_when_files_can_be_written_again() {
    let folder = Folder::new("again");
    let path = folder.0.join("state");
    let mut process = Process::start(&path);
    let obstacle = folder.0.join("state.new");
    fs::create_dir(&obstacle).unwrap();
    process.count(5, BEGAN);
    process.save(7);
    // Taken now, and written after a scrape that shows more.
    let counters = process.exporter.counters();
    process.count(1, BEGAN);
    assert_eq!(process.tokens(), Some(6.0));
    process.exporter.saved(counters);
    assert_eq!(process.tokens(), Some(6.0));
    fs::remove_dir(&obstacle).unwrap();
    process.save(8);
    assert_eq!(process.tokens(), Some(6.0));
    assert!(process.exporter.is_all_shown());
}

#[test]
fn a_file_of_another_cluster_says_nothing() {
    let folder = Folder::new("cluster");
    let path = folder.0.join("state");
    let mut first = Process::start(&path);
    assert!(first.saver.meet(None), "no broker has told");
    assert!(first.saver.meet(Some("one".to_owned())));
    first.count(5, BEGAN);
    first.save(7);
    drop(first);
    let mut same = Process::start(&path);
    assert!(same.saver.meet(Some("one".to_owned())));
    assert_eq!(same.tokens(), Some(5.0));
    drop(same);
    let mut other = Process::start(&path);
    assert!(!other.saver.meet(Some("two".to_owned())));
    assert!(other.saver.meet(Some("two".to_owned())), "said once");
    assert_eq!(other.tokens(), None);
    assert!(folder.0.join("state.set-aside").exists());
    other.count(1, LATER);
    other.save(1);
    assert_eq!(other.tokens(), Some(1.0));
}

#[tokio::test]
async fn a_scrape_waits_for_a_file_that_is_young() {
    let folder = Folder::new("gate");
    let mut process = Process::start(&folder.0.join("state"));
    let gate = process.saver.gate();
    gate.pass().await;
    assert!(!process.saver.is_wanted(), "nothing has moved");
    process.count(5, BEGAN);
    let waiting = tokio::spawn(async move { gate.pass().await });
    while !process.saver.is_wanted() {
        tokio::task::yield_now().await;
    }
    assert!(!waiting.is_finished());
    process.order(7);
    waiting.await.unwrap();
    assert_eq!(process.tokens(), Some(5.0));
    // What moves within the second is shown in the next one.
    process.count(1, BEGAN);
    process.saver.gate().pass().await;
    assert!(!process.saver.is_wanted());
}
