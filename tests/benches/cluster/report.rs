//! The figures of a run: as a table, and as JSON.

use std::{fmt, time::Duration};

use serde_json::{Value, json};

use crate::measure::meter::UsedPerJob;

/// The measurements of one program. A field is `None` if the program has no such feature.
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) jobs_a_second: Option<f64>,
    pub(crate) one_p50: Option<Duration>,
    pub(crate) one_p99: Option<Duration>,
    pub(crate) wide: Option<Duration>,
    pub(crate) chain: Option<Duration>,
    pub(crate) pair_p50: Option<Duration>,
    pub(crate) pairs_a_second: Option<f64>,
    /// Resources used by the measured processes, with 256 jobs in flight.
    pub(crate) used: Option<UsedPerJob>,
}

impl Figures {
    /// Each figure with its key and label. Times are in milliseconds.
    fn named(&self) -> [(&'static str, &'static str, Option<f64>); 7] {
        let millis = |time: Option<Duration>| time.map(|time| time.as_secs_f64() * 1e3);
        [
            ("jobs_a_second", "jobs a second, 256 in flight", self.jobs_a_second),
            ("one_p50_ms", "one at a time, p50, ms", millis(self.one_p50)),
            ("one_p99_ms", "one at a time, p99, ms", millis(self.one_p99)),
            ("wide_ms", "1,000 wide, ms", millis(self.wide)),
            ("chain_ms", "a chain of 100, ms", millis(self.chain)),
            ("pair_p50_ms", "hold and settle at depth 8, p50, ms", millis(self.pair_p50)),
            ("pairs_a_second", "hold and settle pairs a second, 64 at once", self.pairs_a_second),
        ]
    }

    fn json(&self) -> Value {
        let named =
            self.named().into_iter().filter_map(|(name, _, figure)| Some((name.to_owned(), json!(figure?))));
        let used = self.used.as_ref().map(|used| ("cpu_us_a_job".to_owned(), used.json()));
        Value::Object(named.chain(used).collect())
    }
}

pub(crate) struct Report {
    pub(crate) bare: Figures,
    pub(crate) duties: Figures,
    pub(crate) bullmq: Option<Figures>,
    pub(crate) restate: Option<Figures>,
    pub(crate) trellis: Figures,
}

impl Report {
    /// Writes the figures to the file that `TRELLIS_BENCH_JSON` names.
    pub(crate) fn write_json(&self) {
        let Some(path) = std::env::var_os("TRELLIS_BENCH_JSON") else { return };
        let all = json!({
            "floor": self.bare.json(),
            "same_duties": self.duties.json(),
            "bullmq": self.bullmq.as_ref().map(Figures::json),
            "restate": self.restate.as_ref().map(Figures::json),
            "trellis": self.trellis.json(),
        });
        std::fs::write(path, format!("{all:#}\n")).unwrap();
    }
}

/// Prints each figure, followed by Trellis's figure as a multiple of it.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peers = [Some(&self.bare), Some(&self.duties), self.bullmq.as_ref(), self.restate.as_ref()];
        write!(f, "{:44}{:>10}", "", "Trellis")?;
        for name in ["floor", "same duties", "BullMQ", "Restate"] {
            write!(f, "{name:>13} {:>6}", "ratio")?;
        }
        writeln!(f)?;
        for (place, (_, what, ours)) in self.trellis.named().into_iter().enumerate() {
            let Some(ours) = ours else { continue };
            write!(f, "{what:44}{}", Shown(ours, 10))?;
            for theirs in peers.map(|peer| peer.and_then(|peer| peer.named()[place].2)) {
                match theirs {
                    Some(theirs) => write!(f, "{} {:>6.2}", Shown(theirs, 13), ours / theirs)?,
                    None => write!(f, "{:>13} {:>6}", "", "")?,
                }
            }
            writeln!(f)?;
        }
        writeln!(f, "\nCPU a job, and memory, with 256 in flight:")?;
        for (whose, figures) in
            [("the floor", &self.bare), ("same duties", &self.duties), ("Trellis", &self.trellis)]
        {
            if let Some(used) = &figures.used {
                writeln!(f, "{whose}:\n{used}")?;
            }
        }
        Ok(())
    }
}

/// A figure, and the width of its column.
struct Shown(f64, usize);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shown(figure, width) = *self;
        if figure >= 1_000.0 { write!(f, "{figure:width$.0}") } else { write!(f, "{figure:width$.2}") }
    }
}
