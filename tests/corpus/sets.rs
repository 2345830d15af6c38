//! The sets of recordings: one line each, and nothing else in these tests names a runtime.

/// Recordings of one version of one runtime.
pub struct Set {
    /// The folder below `tests/corpus`, and `corpus` in `exceptions.json`.
    pub name: &'static str,
    /// What the configuration of a topic would call the producer of the native events.
    pub runtime: &'static str,
    pub recordings: usize,
    /// Figures compared in each stream: a change is a change of what these tests see.
    pub figures: &'static [(&'static str, u32)],
}

pub const SETS: &[Set] = &[
    Set {
        name: "adk-python",
        runtime: "adk-python",
        recordings: 47,
        figures: &[
            ("lifecycle", 1_853),
            ("native", 1_578),
            ("both", 1_856),
            ("later", 1_856),
        ],
    },
    Set {
        name: "adk-python-2.8.0",
        runtime: "adk-python",
        recordings: 9,
        figures: &[
            ("lifecycle", 360),
            ("native", 302),
            ("both", 360),
            ("later", 360),
        ],
    },
    Set {
        name: "adk-python-1.34.0",
        runtime: "adk-python",
        recordings: 9,
        figures: &[
            ("lifecycle", 360),
            ("native", 302),
            ("both", 360),
            ("later", 360),
        ],
    },
    Set {
        name: "adk-go",
        runtime: "adk-go",
        recordings: 50,
        figures: &[
            ("lifecycle", 1_833),
            ("native", 1_475),
            ("arrival", 76),
            ("both", 1_833),
            ("later", 1_833),
        ],
    },
    Set {
        name: "adk-go-1.4.0",
        runtime: "adk-go",
        recordings: 22,
        figures: &[
            ("lifecycle", 890),
            ("native", 716),
            ("arrival", 51),
            ("both", 890),
            ("later", 890),
        ],
    },
    Set {
        name: "adk-java",
        runtime: "adk-java",
        recordings: 60,
        figures: &[
            ("lifecycle", 2_355),
            ("native", 1_901),
            ("arrival", 114),
            ("both", 2_361),
            ("later", 2_361),
        ],
    },
    Set {
        name: "adk-ts",
        runtime: "adk-ts",
        recordings: 26,
        figures: &[
            ("lifecycle", 583),
            ("native", 565),
            ("both", 584),
            ("later", 584),
        ],
    },
    Set {
        name: "adk-ts-progressive",
        runtime: "adk-ts",
        recordings: 4,
        figures: &[
            ("lifecycle", 102),
            ("native", 102),
            ("both", 102),
            ("later", 102),
        ],
    },
];
