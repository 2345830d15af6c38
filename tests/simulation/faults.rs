//! What goes wrong in a run, chosen by a seed: the dice, the faults, the mixes, the moments at
//! which faults strike.
//!
//! It knows neither records nor daemons; the world acts on what is written here.

use std::collections::BTreeSet;
use std::time::Duration;

/// The only source of chance: splitmix64 from one seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64, purpose: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ purpose.wrapping_mul(0xD1B5_4A32_D192_ED03))
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from `from` to below `below`.
    pub fn range(&mut self, from: i64, below: i64) -> i64 {
        let width = u64::try_from(below - from).expect("a range is not empty");
        from + i64::try_from(self.roll() % width).expect("narrower than its range")
    }

    /// An index below `len`.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.range(0, i64::try_from(len).expect("short"))).expect("below len")
    }

    /// True in `percent` of a hundred throws.
    pub fn percent(&mut self, percent: i64) -> bool {
        self.range(0, 100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }
}

/// One kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A process dies: its state is gone, what is on the wire may still land.
    Crash,
    /// A partition is drained, committed and given to another process.
    Handover,
    /// A process drains everything, leaves and comes back with empty counters.
    OrderlyRestart,
    /// Drains run out of time.
    OutOfTime,
    /// The group moves on without a process, which goes on for a while: a zombie.
    Lost,
    /// Inserts fail now and then.
    FailingInserts,
    /// The sink is away for a while.
    SinkDown,
    /// Inserts land and are not acknowledged.
    LostAcks,
    /// Inserts take seconds.
    SlowInserts,
    /// Work is settled in any order.
    AnyOrder,
    /// The dead-letter topic takes seconds, or fails.
    SlowDeadLetters,
    /// Commits of the steady state do not arrive.
    LostCommits,
    /// Records that cannot be read.
    Poison,
    /// Null values.
    Tombstones,
    /// Ends without starts, late records, records of unknown invocations.
    Strays,
    /// The producer sends a record twice.
    Duplicates,
    /// Runs that yield, are silent for longer than anything is held, and resume.
    Pauses,
    /// Few records, long silences, and time passing on quiet partitions.
    Quiet,
    /// Batches of three, two in flight.
    TinyLimits,
    /// Runs that say nothing for longer than `silence_max` and go on.
    Stalls,
    /// Tools that run for longer than `silence_max`.
    LongTools,
    /// Every host keeps a state file.
    StateFiles,
    /// Some hosts do, others do not.
    SomeStateFiles,
    /// Saving takes seconds, and its end is heard of later.
    SlowSaves,
    /// The partitions of a process that died wait for its return.
    StaticMembers,
    /// Once all is settled, the topic is deleted and made anew; the group's marks stay.
    MadeAnew,
    /// The log loses its oldest records, read or not.
    Retention,
    /// Producers say the time of their records, by clocks that differ.
    CreateTime,
}

use Fault::{
    AnyOrder, Crash, CreateTime, Duplicates, FailingInserts, Handover, LongTools, Lost, LostAcks,
    LostCommits, MadeAnew, OrderlyRestart, OutOfTime, Pauses, Poison, Quiet, Retention, SinkDown,
    SlowDeadLetters, SlowInserts, SlowSaves, SomeStateFiles, Stalls, StateFiles, StaticMembers,
    Strays, TinyLimits, Tombstones,
};

/// A named choice of faults: some in every seed, of the others a random half.
#[derive(Debug)]
pub struct Mix {
    pub name: &'static str,
    pub always: &'static [Fault],
    pub may: &'static [Fault],
}

/// Every mix, from calm to everything.
pub const MIXES: [Mix; 17] = [
    Mix {
        name: "calm",
        always: &[],
        may: &[AnyOrder, LongTools, Stalls, TinyLimits],
    },
    Mix {
        name: "crashes",
        always: &[Crash],
        may: &[
            SlowInserts,
            AnyOrder,
            TinyLimits,
            LongTools,
            Stalls,
            LostCommits,
            Strays,
        ],
    },
    Mix {
        name: "graceful",
        always: &[Handover],
        may: &[
            OrderlyRestart,
            SlowInserts,
            AnyOrder,
            TinyLimits,
            Strays,
            Poison,
        ],
    },
    Mix {
        name: "out_of_time",
        always: &[OutOfTime, SlowInserts],
        may: &[
            Handover,
            OrderlyRestart,
            AnyOrder,
            TinyLimits,
            SinkDown,
            Poison,
        ],
    },
    Mix {
        name: "zombies",
        always: &[Lost],
        may: &[
            SlowInserts,
            AnyOrder,
            LostAcks,
            TinyLimits,
            Strays,
            LostCommits,
        ],
    },
    Mix {
        name: "flaky_sink",
        always: &[FailingInserts],
        may: &[SinkDown, SlowInserts, AnyOrder, TinyLimits, Handover, Crash],
    },
    Mix {
        name: "lost_acks",
        always: &[LostAcks],
        may: &[AnyOrder, Crash, Handover, TinyLimits, SlowInserts],
    },
    Mix {
        name: "backpressure",
        always: &[TinyLimits, SlowInserts],
        may: &[SinkDown, AnyOrder, Crash, Handover, Poison, SlowDeadLetters],
    },
    Mix {
        name: "poison_strays",
        always: &[Poison, Strays],
        may: &[
            Tombstones,
            Duplicates,
            SlowDeadLetters,
            Crash,
            Handover,
            AnyOrder,
        ],
    },
    Mix {
        name: "pauses",
        always: &[Pauses],
        may: &[
            Crash,
            Handover,
            OrderlyRestart,
            Strays,
            Stalls,
            LongTools,
            AnyOrder,
            Duplicates,
        ],
    },
    Mix {
        name: "quiet",
        always: &[Quiet],
        may: &[
            Crash,
            Handover,
            OrderlyRestart,
            Strays,
            Stalls,
            LongTools,
            SlowInserts,
        ],
    },
    Mix {
        name: "state_files",
        always: &[StateFiles, StaticMembers, Crash],
        may: &[
            Handover,
            OrderlyRestart,
            SlowSaves,
            LostCommits,
            SlowInserts,
            AnyOrder,
            TinyLimits,
            Strays,
            Pauses,
            Quiet,
        ],
    },
    Mix {
        name: "state_take_over",
        always: &[SomeStateFiles, Crash],
        may: &[
            Lost,
            Handover,
            OrderlyRestart,
            OutOfTime,
            SlowSaves,
            LostCommits,
            SlowInserts,
            LongTools,
            Stalls,
            Quiet,
        ],
    },
    Mix {
        name: "made_anew",
        always: &[MadeAnew],
        may: &[
            Crash,
            Handover,
            OrderlyRestart,
            LostCommits,
            SlowInserts,
            AnyOrder,
            TinyLimits,
            LongTools,
            Poison,
        ],
    },
    Mix {
        name: "retention",
        always: &[Retention],
        may: &[
            Crash,
            Handover,
            OrderlyRestart,
            SlowInserts,
            SinkDown,
            AnyOrder,
            TinyLimits,
            LongTools,
        ],
    },
    Mix {
        name: "create_time",
        always: &[CreateTime],
        may: &[
            Crash,
            Handover,
            OrderlyRestart,
            SlowInserts,
            Strays,
            LongTools,
            AnyOrder,
            TinyLimits,
        ],
    },
    Mix {
        name: "everything",
        always: &[],
        may: &[
            Crash,
            Handover,
            OrderlyRestart,
            OutOfTime,
            Lost,
            FailingInserts,
            SinkDown,
            LostAcks,
            SlowInserts,
            AnyOrder,
            SlowDeadLetters,
            LostCommits,
            Poison,
            Tombstones,
            Strays,
            Duplicates,
            Pauses,
            Quiet,
            TinyLimits,
            LongTools,
            Stalls,
        ],
    },
];

/// The faults of one seed.
#[derive(Clone, Debug)]
pub struct Faults(BTreeSet<Fault>);

impl Faults {
    /// Every fault that is always there, and a random half of those that may be.
    pub fn choose(mix: &Mix, dice: &mut Dice) -> Faults {
        let may = mix.may.iter().filter(|_| dice.percent(50));
        Faults(mix.always.iter().chain(may).copied().collect())
    }

    pub fn has(&self, fault: Fault) -> bool {
        self.0.contains(&fault)
    }

    /// True where at least some hosts keep a state file.
    pub fn has_state_files(&self) -> bool {
        self.has(StateFiles) || self.has(SomeStateFiles)
    }
}

/// The silences that the workload must keep within or go beyond.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    pub max_ms: i64,
    pub tool_max_ms: i64,
}

impl Silence {
    pub fn new(max: Duration, tool_max: Duration) -> Silence {
        let ms = |span: Duration| i64::try_from(span.as_millis()).expect("short");
        Silence {
            max_ms: ms(max),
            tool_max_ms: ms(tool_max),
        }
    }

    /// Nothing is held for longer than this after its last record.
    pub fn longest(self) -> i64 {
        self.max_ms + self.tool_max_ms + 2_000
    }
}

/// A fault that strikes at one moment of the world's clock, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strike {
    pub at_ms: i64,
    pub fault: Fault,
}

/// The moments of crashes, handovers and losses, in order. With a gap between pause and resume,
/// each kind also strikes
/// within its first half, so that the state in memory is another's when the run goes on.
pub fn strikes(
    faults: &Faults,
    dice: &mut Dice,
    (from_ms, end_ms): (i64, i64),
    gap: Option<(i64, i64)>,
) -> Vec<Strike> {
    let mut strikes = Vec::new();
    for fault in [Crash, Handover, OrderlyRestart, Lost, Retention] {
        if !faults.has(fault) {
            continue;
        }
        for _ in 0..dice.range(1, 6) {
            let at_ms = dice.range(from_ms + 500, end_ms);
            strikes.push(Strike { at_ms, fault });
            if dice.percent(40) {
                // And again, before the successor has rebuilt what it took over.
                let at_ms = at_ms + dice.range(300, 2_500);
                strikes.push(Strike { at_ms, fault });
            }
        }
        if let Some((from, below)) = gap {
            let at_ms = dice.range(from, from + (below - from) / 2);
            strikes.push(Strike { at_ms, fault });
        }
    }
    if let Some((from, below)) = gap {
        // The second half of the gap is left alone: there the marks must pass what was paused.
        let half = from + (below - from) / 2;
        strikes.retain(|strike| strike.at_ms < half || strike.at_ms >= below);
    }
    strikes.sort_by_key(|strike| strike.at_ms);
    strikes
}
