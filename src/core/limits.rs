//! Every bound of the core, by name. The numbers and their reasons come from the configuration
//! (config.md).
//!
//! There is no `Default`: whoever builds a pipeline says what its bounds are, if only "those of the
//! contract".

use std::time::Duration;

/// The bounds of the core; what happens at each stands in config.md.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest record value in bytes; larger ones are dead-lettered.
    pub payload_bytes_max: usize,
    /// Facts in a batch before it is sealed.
    pub batch_facts_max: usize,
    /// Approximate bytes of facts in a batch before it is sealed.
    pub batch_bytes_max: usize,
    /// Age of the oldest fact in a batch before it is sealed.
    pub batch_age_max: Duration,
    /// Batches and dead letters an edge may owe; consumption pauses there and resumes at half.
    pub work_in_flight_max: usize,
    /// Silence in log time after which a segment is released.
    pub silence_max: Duration,
    /// The same while a tool execution is open.
    pub tool_silence_max: Duration,
    /// How far, in offsets, the oldest held record of a partition may lie behind the newest.
    pub held_records_max: i64,
    /// Segments held by the process.
    pub segments_open_max: usize,
    /// Branches of one segment; further ones fold into one row.
    pub branches_per_run_max: usize,
    /// Model calls, and tool calls, of one segment; further ones fold into one row.
    pub calls_per_run_max: usize,
    /// Records of one segment that may add state.
    pub records_per_run_max: u32,
    /// Bytes of an id or name; longer ones are cut.
    pub id_bytes_max: usize,
    /// Attributes of a record.
    pub attributes_max: usize,
    /// Bytes of an attribute's key or value.
    pub attribute_bytes_max: usize,
    /// Tokens in one count; larger ones are held back.
    pub plausible_tokens_max: u64,
    /// Distinct names kept shared.
    pub names_interned_max: usize,
    /// Time between commits of one partition.
    pub commit_interval: Duration,
    /// Time that draining may take before a partition is let go.
    pub drain_max: Duration,
    /// How far a quiet partition's log time stays behind the clock.
    pub quiet_margin: Duration,
    /// Whether `reason` texts of verdicts may be kept (config.md `[privacy]`).
    pub store_reasons: bool,
}

impl Limits {
    /// The numbers of config.md, from which every configuration starts.
    pub const OF_THE_CONTRACT: Limits = Limits {
        payload_bytes_max: 8 << 20,
        batch_facts_max: 50_000,
        batch_bytes_max: 32 << 20,
        batch_age_max: Duration::from_secs(1),
        work_in_flight_max: 4,
        silence_max: Duration::from_secs(30 * 60),
        tool_silence_max: Duration::from_secs(2 * 3_600),
        held_records_max: 5_000_000,
        segments_open_max: 1_000_000,
        branches_per_run_max: 1_000,
        calls_per_run_max: 10_000,
        records_per_run_max: 100_000,
        id_bytes_max: 256,
        attributes_max: 16,
        attribute_bytes_max: 128,
        plausible_tokens_max: 100_000_000,
        names_interned_max: 100_000,
        commit_interval: Duration::from_secs(5),
        drain_max: Duration::from_secs(2),
        quiet_margin: Duration::from_secs(30),
        store_reasons: false,
    };
}
