//! Formats times and durations for people.

use domain::Timestamp;

/// Formats the time since `at`.
pub fn ago(now: Timestamp, at: Timestamp) -> String {
    let seconds = now.millis_since(at) / 1000;
    match seconds {
        0..=4 => "just now".into(),
        5..=59 => format!("{seconds} s ago"),
        60..=3_599 => format!("{} min ago", seconds / 60),
        3_600..=86_399 => format!("{} h ago", seconds / 3_600),
        86_400.. => format!("{} d ago", seconds / 86_400),
    }
}

/// Formats a duration: below ten seconds in tenths of a second, else in the two largest units.
pub fn lasts(millis: u64) -> String {
    match millis {
        0..=999 => format!("{millis} ms"),
        1_000..=9_999 => format!("{}.{} s", millis / 1000, millis % 1000 / 100),
        10_000.. => age(millis),
    }
}

/// Formats a duration in its two largest units.
pub fn age(millis: u64) -> String {
    let seconds = millis / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g17_an_age_has_its_two_largest_units() {
        for (millis, shown) in
            [(900, "0 s"), (61_000, "1 min 1 s"), (7_260_000, "2 h 1 min"), (176_400_000, "2 d 1 h")]
        {
            assert_eq!(age(millis), shown);
        }
    }

    #[test]
    fn g17_times_are_words() {
        let now = Timestamp::from_millis(1_000_000_000);
        for (millis, shown) in [
            (0, "just now"),
            (59_999, "59 s ago"),
            (185_000, "3 min ago"),
            (7_300_000, "2 h ago"),
            (90_000_000, "1 d ago"),
        ] {
            assert_eq!(ago(now, now.minus_millis(millis)), shown);
        }
        assert_eq!(ago(now, Timestamp::from_millis(now.millis() + 5_000)), "just now", "clocks differ");
        for (millis, shown) in [(12, "12 ms"), (1_940, "1.9 s"), (12_000, "12 s"), (200_000, "3 min 20 s")] {
            assert_eq!(lasts(millis), shown);
        }
    }
}
