//! Latencies, processor time and memory of processes.

use std::{fmt, time::Duration};

#[derive(Default)]
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    pub(crate) fn add(&mut self, latency: Duration) {
        self.0.push(latency);
    }

    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted[(sorted.len() - 1) * percent / 100]
    }
}

/// The processor time so far and the current memory of named processes.
pub(crate) struct Usage(Vec<(String, Duration, u64)>);

impl Usage {
    pub(crate) fn of(processes: &[(String, u32)]) -> Self {
        Usage(processes.iter().map(|(name, pid)| (name.clone(), cpu(*pid), rss(*pid))).collect())
    }

    pub(crate) fn since(self, earlier: &Usage, jobs: usize) -> UsedPerJob {
        let spent = self.0.into_iter().zip(&earlier.0);
        UsedPerJob(
            spent
                .map(|((name, cpu, rss), (_, before, _))| {
                    (name, (cpu - *before).as_secs_f64() * 1e6 / jobs as f64, rss)
                })
                .collect(),
        )
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, _, rss) in &self.0 {
            writeln!(f, "  {name:20} {:>8.1} MB", *rss as f64 / 1e6)?;
        }
        Ok(())
    }
}

pub(crate) struct UsedPerJob(Vec<(String, f64, u64)>);

impl UsedPerJob {
    #[allow(dead_code, reason = "not every benchmark writes JSON")]
    pub(crate) fn json(&self) -> serde_json::Value {
        let micros = self.0.iter().map(|(name, micros, _)| (name.clone(), (*micros).into()));
        serde_json::Value::Object(micros.collect())
    }
}

impl fmt::Display for UsedPerJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sum = 0.0;
        for (name, micros, rss) in &self.0 {
            sum += micros;
            writeln!(f, "  {name:20} {micros:>8.1} µs {:>8.1} MB", *rss as f64 / 1e6)?;
        }
        write!(f, "  {:20} {sum:>8.1} µs", "together")
    }
}

/// User and system time, from clock ticks of 10 ms.
pub(crate) fn cpu(pid: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 10)
}

pub(crate) fn rss(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// The bytes that a process has read so far, from sockets and files.
#[allow(dead_code, reason = "not every benchmark counts bytes")]
pub(crate) fn read_bytes(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    let line = text.lines().find(|line| line.starts_with("rchar:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
