//! How fast a replay goes by the wall clock.

use std::str::FromStr;
use std::time::Duration;

use crate::invalid::Invalid;

/// Slower, and an hour of data takes four days; faster is `max`.
const TIMES_MIN: f64 = 0.01;
const TIMES_MAX: f64 = 1e9;

/// The ratio of domain time to wall-clock time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// Nothing is waited for but what a fault demands.
    Max,
    /// 1 is as it was.
    Times(f64),
}

impl Speed {
    /// How long after the first arrival one is due that comes so much later in domain time.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a wall clock is not exact to the nanosecond")]
    pub fn due(self, after_first_ns: i128) -> Duration {
        match self {
            Self::Max => Duration::ZERO,
            Self::Times(times) => {
                // Within the domain time of 64 bits, and so within what a Duration holds.
                Duration::from_secs_f64(after_first_ns.max(0) as f64 / 1e9 / times)
            }
        }
    }
}

impl FromStr for Speed {
    type Err = Invalid;

    /// `max`, `realtime` or `xN`.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let times = match text {
            "max" => return Ok(Self::Max),
            "realtime" => "1",
            _ => text.strip_prefix('x').unwrap_or_default(),
        };
        // `parse` takes words such as `inf` too.
        let plain = times.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let times = if plain { times.parse::<f64>().ok() } else { None };
        let times = times.filter(|times| (TIMES_MIN..=TIMES_MAX).contains(times));
        times.map(Self::Times).ok_or_else(|| {
            let message = format!("`{}` is no speed", text.escape_debug());
            let hint = "max, realtime, or x and a number from 0.01 to 1000000000: x10";
            Invalid::new("SPEED_INVALID", "--speed", message, hint)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_max_realtime_or_a_factor() {
        assert_eq!("max".parse(), Ok(Speed::Max));
        assert_eq!("realtime".parse(), Ok(Speed::Times(1.0)));
        assert_eq!("x2.5".parse(), Ok(Speed::Times(2.5)));
        for text in
            ["", "x", "x0", "x-1", "xinf", "xNaN", "x1e3", "10", "MAX", "x 2", "x9999999999"]
        {
            assert_eq!(text.parse::<Speed>().map_err(|e| e.code), Err("SPEED_INVALID"), "{text}");
        }
    }

    #[test]
    fn a_factor_divides_domain_time() {
        assert_eq!(Speed::Times(100.0).due(120_000_000_000), Duration::from_millis(1200));
        assert_eq!(Speed::Max.due(120_000_000_000), Duration::ZERO);
        assert_eq!(Speed::Times(1.0).due(-5), Duration::ZERO);
        // From the first to the last nanosecond of 64 bits, at the least speed.
        assert!(Speed::Times(TIMES_MIN).due(i128::from(u64::MAX)) > Duration::from_secs(1 << 40));
    }
}
