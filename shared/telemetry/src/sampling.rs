//! Decides which traces are exported. The coordinator that admits a trace decides once, and the
//! decision is stored with the trace: it is exported as a whole or not at all.

use domain::{id::TraceId, span::Caller};

use super::environment::Environment;

/// The number of bits of a trace id that are random for every creator of ids. The bits before them
/// may be the fixed part of a UUID.
const RANDOM_BITS: u32 = 56;

/// The setting of OpenTelemetry's `OTEL_TRACES_SAMPLER`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sampler {
    /// True if the caller of a submission decides, where there is one.
    follows_callers: bool,
    /// A trace is exported if its random bits are below this number.
    below: u64,
}

impl Sampler {
    const ALL: u64 = 1 << RANDOM_BITS;

    /// The sampler of the environment. An unknown value is logged, and then all traces are
    /// exported.
    pub(super) fn from(environment: &Environment) -> Self {
        let given = environment.sampler.as_deref().unwrap_or("parentbased_always_on");
        let (follows_callers, name) = match given.strip_prefix("parentbased_") {
            Some(name) => (true, name),
            None => (false, given),
        };
        let below = match name {
            "always_on" => Self::ALL,
            "always_off" => 0,
            "traceidratio" => ratio(environment.sampler_argument.as_deref()),
            _ => {
                tracing::warn!(
                    sampler = given,
                    "unknown OTEL_TRACES_SAMPLER; every trace is exported (known: always_on, always_off, traceidratio, and parentbased_ before each)"
                );
                Self::ALL
            }
        };
        Sampler { follows_callers, below }
    }

    pub(super) fn exports(self, trace: TraceId, caller: Option<Caller>) -> bool {
        match caller.filter(|_| self.follows_callers) {
            Some(caller) => caller.sampled,
            None => trace.as_u128() & u128::from(Self::ALL - 1) < u128::from(self.below),
        }
    }
}

/// Converts the share to a bound of the random bits.
#[expect(clippy::float_arithmetic, reason = "a share of traces is not money")]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share from 0 to 1 of 2^56, to 53 bits"
)]
fn ratio(argument: Option<&str>) -> u64 {
    let Some(text) = argument else { return Sampler::ALL };
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => (share * Sampler::ALL as f64) as u64,
        Ok(_) | Err(_) => {
            tracing::warn!("OTEL_TRACES_SAMPLER_ARG is not a share from 0 to 1; every trace is exported");
            Sampler::ALL
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(name: Option<&str>, argument: Option<&str>) -> Sampler {
        Sampler::from(&Environment {
            sampler: name.map(str::to_owned),
            sampler_argument: argument.map(str::to_owned),
            ..Environment::default()
        })
    }

    fn traces() -> Vec<TraceId> {
        let id = |n: u128| uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, &n.to_be_bytes()).as_u128();
        (0..1_000).map(|n| TraceId::from_u128(id(n)).unwrap()).collect()
    }

    #[test]
    fn x5_a_ratio_exports_its_share_of_traces_and_the_same_ones_everywhere() {
        for (share, least, most) in [("0", 0, 0), ("0.1", 70, 130), ("0.5", 450, 550), ("1", 1_000, 1_000)] {
            let sampler = sampler(Some("traceidratio"), Some(share));
            let exported = traces().into_iter().filter(|trace| sampler.exports(*trace, None)).count();
            assert!((least..=most).contains(&exported), "{share}: {exported} of 1000");
        }
        // A process that exports a tenth exports only traces that a process with a half exports
        // too.
        let (tenth, half) =
            (sampler(Some("traceidratio"), Some("0.1")), sampler(Some("traceidratio"), Some("0.5")));
        assert!(traces().into_iter().filter(|t| tenth.exports(*t, None)).all(|t| half.exports(t, None)));
    }

    #[test]
    fn x5_a_caller_is_followed_unless_the_setting_says_otherwise() {
        let trace = traces()[0];
        let caller =
            |sampled| Some(Caller { trace_id: trace, span: domain::span::SpanId::of(trace, "x"), sampled });
        for (name, without, with_on, with_off) in [
            (None, true, true, false),
            (Some("parentbased_always_on"), true, true, false),
            (Some("parentbased_always_off"), false, true, false),
            (Some("always_on"), true, true, true),
            (Some("always_off"), false, false, false),
            (Some("no such thing"), true, true, true),
        ] {
            let sampler = sampler(name, None);
            assert_eq!(sampler.exports(trace, None), without, "{name:?}");
            assert_eq!(sampler.exports(trace, caller(true)), with_on, "{name:?}");
            assert_eq!(sampler.exports(trace, caller(false)), with_off, "{name:?}");
        }
        assert!(!sampler(Some("parentbased_traceidratio"), Some("0")).exports(trace, None));
        assert!(sampler(Some("parentbased_traceidratio"), Some("0")).exports(trace, caller(true)));
        assert!(sampler(Some("traceidratio"), Some("many")).exports(trace, None), "and it is logged");
    }
}
