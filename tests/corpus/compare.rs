//! The figures of one recording against its truth. Each difference is one sentence.

use serde_json::Value;
use tachograph::core::Nanos;
use tachograph::core::fact::Fact;

/// Scheduling delay that the recordings' READMEs allow, ms.
const LATENCY_MS: std::ops::RangeInclusive<f64> = -2.0..=45.0;

pub struct Comparison {
    pub figures: u32,
    pub differences: Vec<String>,
    ids: Option<Vec<String>>,
    pub is_native: bool,
    /// Native events whose times the configuration calls arrivals.
    pub is_arrival: bool,
}

impl Comparison {
    pub fn of(truth: &Value, facts: &[Fact], stream: &str) -> Comparison {
        let lookup = &truth["from_the_recording_for_lookup"];
        let ids = lookup["invocation_ids_in_order_of_appearance"].as_array();
        let text = |id: &Value| id.as_str().unwrap().to_owned();
        let mut this = Comparison {
            figures: 0,
            differences: Vec::new(),
            ids: ids.map(|ids| ids.iter().map(text).collect()),
            is_native: matches!(stream, "native" | "arrival"),
            is_arrival: stream == "arrival",
        };
        this.tool_calls(truth, facts);
        if this.is_arrival {
            // The same events otherwise: only the times of tools can differ.
            return this;
        }
        this.model_calls(truth, facts);
        this.branches(truth, facts);
        this.transfers(truth, facts);
        this.invocations(truth, facts);
        this.verdicts(truth, facts);
        this
    }

    pub fn equal<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, got: T, want: T) {
        self.figures += 1;
        if got != want {
            self.differences
                .push(format!("{what}: {got:?}, truly {want:?}"));
        }
    }

    /// Counts a figure; where it is wrong, says how.
    pub fn holds(&mut self, is_right: bool, otherwise: impl FnOnce() -> String) {
        self.figures += 1;
        if !is_right {
            self.differences.push(otherwise());
        }
    }

    /// The id of an invocation by its number in the truth.
    pub fn invocation_id(&self, number: &Value) -> Option<&str> {
        let number = number.as_u64()? as usize;
        self.ids.as_ref()?.get(number - 1).map(String::as_str)
    }

    /// True where the truth's `invocation` is this fact's, or where the truth names no invocations.
    pub fn is_of(&self, fact: &Fact, number: &Value) -> bool {
        self.ids.is_none() || self.invocation_id(number) == Some(&*fact.invocation_id)
    }

    /// Ids of all invocations, where the truth names them.
    pub fn ids(&self) -> Option<&[String]> {
        self.ids.as_deref()
    }

    /// A latency, where the script says it.
    pub fn near(&mut self, what: &str, got: Option<Nanos>, want_ms: Option<f64>) {
        let Some(want) = want_ms else {
            return;
        };
        let got = got.map(|nanos| nanos.0 as f64 / 1e6);
        let is_near = got.is_some_and(|got| LATENCY_MS.contains(&(got - want)));
        self.holds(is_near, || {
            let got = got.map_or("unknown".to_owned(), |ms| format!("{ms:.0} ms"));
            format!("{what}: {got}, truly {want} ms")
        });
    }
}

/// A key of the truth that may be absent: then everything fits.
pub fn fits(want: &Value, got: &str) -> bool {
    want.is_null() || want.as_str() == Some(got)
}
