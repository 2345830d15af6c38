//! The faults, each against parts that run, with records written before, while and after.

use std::fs;
use std::time::Duration;

use rand::Rng as _;
use rand::rngs::StdRng;

use crate::stage::{HOSTS, LONG, PARTITIONS, Stage, partitions_of, until_metric};
use crate::support::kafka::{self, PATIENCE, Record};
use crate::support::proxy::Mischief;
use crate::support::{unique, wait};
use crate::workload::{Round, Workload, chance};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// kill -9 of a daemon that is in the middle of something.
    KilledDaemon,
    /// kill -9 of ClickHouse.
    KilledEngine,
    /// kill -9 of the broker that leads a partition.
    KilledLeader,
    /// A daemon stands still until others have its partitions, and goes on.
    Zombie,
    /// One is killed, one is added, one leaves, one comes back.
    Storm,
    SlowInserts,
    FailingInserts,
    /// Inserts reach ClickHouse, and nobody hears of it.
    LostAnswers,
    UnwritableState,
    /// A transaction that stays open for longer than runs may be silent.
    OpenTransaction,
    /// Records are gone before they were read.
    Retention,
}

impl Fault {
    pub const ALL: [Fault; 11] = [
        Fault::KilledDaemon,
        Fault::KilledEngine,
        Fault::KilledLeader,
        Fault::Zombie,
        Fault::Storm,
        Fault::SlowInserts,
        Fault::FailingInserts,
        Fault::LostAnswers,
        Fault::UnwritableState,
        Fault::OpenTransaction,
        Fault::Retention,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Fault::KilledDaemon => "killed daemon",
            Fault::KilledEngine => "killed engine",
            Fault::KilledLeader => "killed leader",
            Fault::Zombie => "zombie",
            Fault::Storm => "rebalance storm",
            Fault::SlowInserts => "slow inserts",
            Fault::FailingInserts => "failing inserts",
            Fault::LostAnswers => "lost answers",
            Fault::UnwritableState => "unwritable state",
            Fault::OpenTransaction => "open transaction",
            Fault::Retention => "retention",
        }
    }
}

impl Stage {
    /// Lets the fault happen, and waits until every partition has an owner again.
    pub fn strike(
        &mut self,
        fault: Fault,
        round: &mut Round,
        workload: &mut Workload,
        dice: &mut StdRng,
    ) {
        let victim = dice.random_range(0..HOSTS);
        match fault {
            Fault::KilledDaemon => self.killed_daemon(victim, round, dice),
            Fault::KilledEngine => self.killed_engine(round, dice),
            Fault::KilledLeader => self.killed_leader(round, dice),
            Fault::Zombie => self.zombie(victim, round, dice),
            Fault::Storm => self.storm(victim, round, dice),
            Fault::SlowInserts => {
                let by = Duration::from_millis(dice.random_range(1_000..3_000));
                self.bad_wire(Mischief::Delay(by), round, dice);
            }
            Fault::FailingInserts => self.bad_wire(Mischief::Refuse, round, dice),
            Fault::LostAnswers => self.bad_wire(Mischief::Cut, round, dice),
            Fault::UnwritableState => self.unwritable_state(victim, round, dice),
            Fault::OpenTransaction => self.open_transaction(round, dice),
            Fault::Retention => self.retention(workload, dice),
        }
        self.until_ready();
    }

    fn killed_daemon(&mut self, victim: usize, round: &mut Round, dice: &mut StdRng) {
        let read = self.sum("tachograph_records_read_total");
        round.write(self, dice);
        // It is in the middle of it then.
        wait::until("some are read", PATIENCE, || {
            (self.sum("tachograph_records_read_total") > read).then_some(())
        });
        self.hosts[victim].kill();
        round.write(self, dice);
        if chance(dice, 50) {
            // Others take over before it comes back.
            self.until_ready();
            round.write(self, dice);
        }
        self.hosts[victim].start();
    }

    fn killed_engine(&mut self, round: &mut Round, dice: &mut StdRng) {
        round.write(self, dice);
        self.database.kill_server();
        round.write(self, dice);
    }

    fn killed_leader(&mut self, round: &mut Round, dice: &mut StdRng) {
        kafka::until_whole(self.brokers());
        let partition = dice.random_range(0..PARTITIONS);
        round.write(self, dice);
        let leader = || kafka::leader_of(self.brokers(), &self.topic, partition);
        let killed = wait::until("it has a leader", PATIENCE, leader);
        self.cluster().kill(killed);
        round.write(self, dice);
        wait::until("another one leads", LONG, || {
            leader().filter(|one| *one != killed)
        });
        round.write(self, dice);
        self.cluster().revive(killed);
        kafka::until_whole(self.brokers());
    }

    fn zombie(&mut self, victim: usize, round: &mut Round, dice: &mut StdRng) {
        round.write(self, dice);
        self.hosts[victim].running().signal(libc::SIGSTOP);
        round.write(self, dice);
        wait::until("others have its partitions", LONG, || {
            let others = self.running().filter(|(number, _)| *number != victim);
            let owned = others.map(|(_, host)| Some(partitions_of(host.running())?.len()));
            let owned: usize = owned.sum::<Option<usize>>()?;
            (owned == PARTITIONS as usize).then_some(())
        });
        if chance(dice, 50) {
            round.write(self, dice);
        }
        self.hosts[victim].running().signal(libc::SIGCONT);
    }

    fn storm(&mut self, victim: usize, round: &mut Round, dice: &mut StdRng) {
        let (leaver, added) = ((victim + 1) % HOSTS, HOSTS);
        if self.hosts[added].daemon.is_some() {
            self.hosts[added].stop();
        }
        round.write(self, dice);
        self.hosts[victim].kill();
        self.hosts[added].start();
        round.write(self, dice);
        self.hosts[leaver].stop();
        self.hosts[victim].start();
        round.write(self, dice);
        self.hosts[leaver].start();
        self.until_ready();
        self.hosts[added].stop();
    }

    fn bad_wire(&mut self, mischief: Mischief, round: &mut Round, dice: &mut StdRng) {
        let count = dice.random_range(2..6);
        let struck = self.proxy.struck();
        self.proxy.strike(mischief, count);
        for _ in 0..3 {
            round.write(self, dice);
        }
        wait::until("the wire did its worst", LONG, || {
            (self.proxy.struck() > struck).then_some(())
        });
    }

    fn unwritable_state(&mut self, victim: usize, round: &mut Round, dice: &mut StdRng) {
        let host = &self.hosts[victim];
        let (folder, aside) = (host.state_folder(), host.folder.join(unique("aside")));
        fs::rename(&folder, &aside).expect("it can be moved");
        // What is no folder takes no file, not even one of root's.
        fs::write(&folder, "").expect("it is written");
        round.write(self, dice);
        until_metric(host.running(), "tachograph_state_file_up", 0);
        round.write(self, dice);
        fs::remove_file(&folder).expect("it is there");
        fs::rename(&aside, &folder).expect("it can be moved back");
        round.write(self, dice);
        until_metric(host.running(), "tachograph_state_file_up", 1);
    }

    fn open_transaction(&mut self, round: &mut Round, dice: &mut StdRng) {
        let is_committed = chance(dice, 60);
        // What is aborted was never said: those runs lack some of their records.
        let inside: Vec<Record> = round.take(10);
        let mut open = kafka::OpenTransaction::begin(self.brokers());
        open.write(&self.topic, &inside);
        round.write(self, dice);
        let read = self.sum("tachograph_records_read_total");
        wait::until("log time passes elsewhere", PATIENCE, || {
            round.write(self, dice);
            let is_long = open.since() > Duration::from_secs(4);
            let moves = self.sum("tachograph_records_read_total") > read;
            (is_long && moves || open.since() > Duration::from_secs(20)).then_some(())
        });
        open.end(is_committed);
    }

    fn retention(&mut self, workload: &mut Workload, dice: &mut StdRng) {
        for host in &mut self.hosts {
            if host.daemon.is_some() {
                host.stop();
            }
        }
        let mut victims: Vec<Record> = Vec::new();
        for _ in 0..4 {
            victims.extend(workload.pass(dice));
        }
        let places = kafka::produce_at(self.brokers(), &self.topic, &victims);
        for partition in 0..PARTITIONS {
            let own = places.iter().filter(|(number, _)| *number == partition);
            if let Some(last) = own.map(|(_, offset)| *offset).max() {
                kafka::delete_records(self.brokers(), &self.topic, partition, last + 1);
            }
        }
        for host in &mut self.hosts[..HOSTS] {
            host.start();
        }
        let eaten = victims.len() as u64;
        wait::until_eq("eaten records, counted", LONG, eaten, || {
            self.sum("tachograph_retention_lost_records_total")
        });
        let said = |(_, host): (usize, &crate::stage::Host)| {
            let text = fs::read_to_string(&host.running().log).unwrap_or_default();
            text.matches("retention removed records before they were")
                .count()
        };
        let said: usize = self.running().map(said).sum();
        assert!(said > 0, "the log says nothing of it");
        self.eaten += eaten;
    }
}
