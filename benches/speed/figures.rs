//! Medians, and the table at the end.

use std::fmt;
use std::time::Duration;

/// One line of the table.
#[derive(Debug)]
struct Row {
    what: String,
    ours: String,
    peer: String,
    ratio: String,
}

/// All figures of this run.
#[derive(Debug, Default)]
pub(crate) struct Table(Vec<Row>);

impl Table {
    pub(crate) fn add(&mut self, what: &str, ours: String, peer: String, ratio: Option<f64>) {
        let ratio = ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2} x"));
        println!("  => {what}: {ours} | {peer} | {ratio}");
        self.0.push(Row { what: what.to_owned(), ours, peer, ratio });
    }

    /// A figure without a peer.
    pub(crate) fn alone(&mut self, what: &str, ours: String) {
        self.add(what, ours, "-".to_owned(), None);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |get: fn(&Row) -> &str, least: &str| {
            self.0
                .iter()
                .map(|row| get(row).chars().count())
                .chain([least.len()])
                .max()
                .unwrap_or(0)
        };
        let what = width(|row| &row.what, "what");
        let ours = width(|row| &row.ours, "finaz");
        let peer = width(|row| &row.peer, "peer");
        writeln!(f, "{:what$}  {:ours$}  {:peer$}  ratio", "what", "finaz", "peer")?;
        for row in &self.0 {
            writeln!(
                f,
                "{:what$}  {:ours$}  {:peer$}  {}",
                row.what, row.ours, row.peer, row.ratio
            )?;
        }
        Ok(())
    }
}

/// Samples of one quantity.
#[derive(Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn add(&mut self, value: f64) {
        let at = self.0.partition_point(|held| *held < value);
        self.0.insert(at, value);
    }

    pub(crate) fn add_ms(&mut self, time: Duration) {
        self.add(time.as_secs_f64() * 1e3);
    }

    /// The value below which `percent` of the samples lie.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let at = (self.0.len() * percent / 100).min(self.0.len().saturating_sub(1));
        self.0.get(at).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn median(&self) -> f64 {
        self.percentile(50)
    }

    pub(crate) fn least(&self) -> f64 {
        self.0.first().copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn most(&self) -> f64 {
        self.0.last().copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `p50 1.23 p99 4.56 ms`.
    pub(crate) fn milliseconds(&self) -> String {
        format!("p50 {:.2} p99 {:.2} ms", self.median(), self.percentile(99))
    }
}

/// A count as a float.
#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub(crate) fn float(count: usize) -> f64 {
    count as f64
}

/// `12,345/s`.
pub(crate) fn rate(count: usize, seconds: f64) -> String {
    per_second(float(count) / seconds)
}

/// `12,345/s`.
pub(crate) fn per_second(rate: f64) -> String {
    format!("{}/s", thousands(&format!("{rate:.0}")))
}

/// `12345` as `12,345`.
fn thousands(digits: &str) -> String {
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
