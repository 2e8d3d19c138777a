//! A lease as a picture: a line for each owner or process, a bar for each time that the lease was its own.

use std::fmt::Write as _;

use super::Moment;
use super::words::{escaped, seconds};

const WIDTH: i64 = 1_000;
const LEFT: i64 = 110;
const RIGHT: i64 = 24;
const TOP: i64 = 30;
const ROW: i64 = 52;

/// One bar.
pub(super) struct Bar<'a> {
    pub(super) who: &'a str,
    pub(super) fence: Option<i64>,
    pub(super) from: i64,
    pub(super) to: i64,
}

/// Where on the page a time is.
struct Scale {
    first: i64,
    span: i64,
}

impl Scale {
    fn x(&self, at: i64) -> i64 {
        let at = (at - self.first).clamp(0, self.span);
        LEFT + at * (WIDTH - LEFT - RIGHT) / self.span
    }
}

/// An SVG element for the moments of one lease, in the order of their time.
pub(super) fn picture(lease: &str, moments: &[&Moment]) -> String {
    let (Some(first), Some(last)) = (moments.first(), moments.last()) else { return String::new() };
    let scale =
        Scale { first: first.at_us, span: (last.at_us - first.at_us).max(1) * 102 / 100 + 1 };
    let mut who: Vec<&str> = Vec::new();
    for moment in moments {
        if !moment.who().is_empty() && !who.contains(&moment.who()) {
            who.push(moment.who());
        }
    }
    let rows = i64::try_from(who.len()).unwrap_or(0);
    let height = TOP + rows * ROW + 34;
    let mut out = String::new();
    write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" \
         font-family=\"system-ui, 'DejaVu Sans', sans-serif\" font-size=\"12\"><title>Owners of {}</title>\
         <defs><pattern id=\"stopped\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
         <rect width=\"6\" height=\"6\" fill=\"#fff\" fill-opacity=\"0.55\"/><line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\" stroke=\"#5a6370\" stroke-width=\"2\"/></pattern></defs>",
        escaped(lease)
    )
    .expect("a String takes all");
    axis(&mut out, &scale, height);
    for (row, name) in (0..).zip(&who) {
        let y = TOP + row * ROW;
        draw_row(&mut out, &scale, y, name, moments);
    }
    out.push_str("</svg>");
    out
}

fn axis(out: &mut String, scale: &Scale, height: i64) {
    let steps =
        [100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000, 10_000_000, 30_000_000];
    let step = steps.into_iter().find(|step| scale.span / step <= 14).unwrap_or(60_000_000);
    let bottom = height - 28;
    for tick in (0..=scale.span / step).map(|tick| tick * step) {
        let x = scale.x(scale.first + tick);
        let label = seconds(tick);
        let label = label.trim_end_matches('0').trim_end_matches('.');
        write!(
            out,
            "<line x1=\"{x}\" y1=\"{TOP}\" x2=\"{x}\" y2=\"{bottom}\" stroke=\"#e6e9ed\"/>\
             <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" fill=\"#5a6370\">{} s</text>",
            bottom + 16,
            if label.is_empty() { "0" } else { label }
        )
        .expect("a String takes all");
    }
}

fn draw_row(out: &mut String, scale: &Scale, y: i64, who: &str, moments: &[&Moment]) {
    let middle = y + 20;
    write!(
        out,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" font-weight=\"600\">{}</text>",
        LEFT - 10,
        middle + 5,
        escaped(who)
    )
    .expect("a String takes all");
    for bar in bars(moments).iter().filter(|bar| bar.who == who) {
        let (x, to) = (scale.x(bar.from), scale.x(bar.to));
        let label = bar.fence.map_or(String::new(), |fence| format!("fence {fence}"));
        write!(
            out,
            "<rect x=\"{x}\" y=\"{}\" width=\"{}\" height=\"22\" rx=\"3\" fill=\"#2f6fb5\"/>\
             <text x=\"{x}\" y=\"{}\" fill=\"#2f6fb5\" font-size=\"10\" font-weight=\"600\">{label}</text>",
            middle - 11,
            (to - x).max(2),
            middle - 18
        )
        .expect("a String takes all");
    }
    for (from, to) in pauses(moments, who) {
        let (x, to) = (scale.x(from), scale.x(to));
        write!(
            out,
            "<rect x=\"{x}\" y=\"{}\" width=\"{}\" height=\"30\" fill=\"url(#stopped)\" stroke=\"#5a6370\" stroke-dasharray=\"3 2\"/>\
             <text x=\"{}\" y=\"{}\" fill=\"#5a6370\" font-size=\"10\">stopped</text>",
            middle - 15,
            (to - x).max(2),
            x + 3,
            middle + 26
        )
        .expect("a String takes all");
    }
    for moment in moments.iter().filter(|moment| moment.who() == who) {
        mark(out, scale.x(moment.at_us), middle, moment);
    }
}

/// A sign for what is a point in time.
fn mark(out: &mut String, x: i64, y: i64, moment: &Moment) {
    let (colour, label) = match moment.what.as_str() {
        "committed" => {
            write!(out, "<line x1=\"{x}\" y1=\"{}\" x2=\"{x}\" y2=\"{}\" stroke=\"#0b2f57\" stroke-width=\"1\"/>", y - 11, y + 11)
                .expect("a String takes all");
            return;
        }
        "refused" => ("#b3261e", "refused"),
        "turned away" => ("#b3261e", "turned away"),
        "killed" => ("#1b1f24", "kill -9"),
        _ => return,
    };
    write!(
        out,
        "<path d=\"M{} {} l12 12 m-12 0 l12 -12\" stroke=\"{colour}\" stroke-width=\"3\" fill=\"none\"/>\
         <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" fill=\"{colour}\" font-size=\"10\">{label}</text>",
        x - 6,
        y - 6,
        y + 26
    )
    .expect("a String takes all");
}

/// The times that each owner had the lease: from its grant until it ran out, was released, or was another's.
pub(super) fn bars<'a>(moments: &[&'a Moment]) -> Vec<Bar<'a>> {
    let mut bars: Vec<Bar<'a>> = Vec::new();
    for moment in moments {
        let until = moment.until_us.unwrap_or(moment.at_us);
        match moment.what.as_str() {
            "granted" => {
                if let Some(open) = bars.last_mut() {
                    open.to = open.to.min(moment.at_us);
                }
                bars.push(Bar {
                    who: moment.who(),
                    fence: moment.fence,
                    from: moment.at_us,
                    to: until,
                });
            }
            "renewed" => {
                if let Some(open) = bars.last_mut() {
                    open.to = until;
                }
            }
            "released" | "lease deleted" => {
                if let Some(open) = bars.last_mut() {
                    open.to = open.to.min(moment.at_us);
                }
            }
            _ => {}
        }
    }
    bars
}

fn pauses(moments: &[&Moment], who: &str) -> Vec<(i64, i64)> {
    let mut pauses = Vec::new();
    let mut since = None;
    for moment in moments.iter().filter(|moment| moment.who() == who) {
        match (moment.what.as_str(), since) {
            ("paused", None) => since = Some(moment.at_us),
            ("resumed" | "killed", Some(from)) => {
                pauses.push((from, moment.at_us));
                since = None;
            }
            _ => {}
        }
    }
    pauses
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(at_us: i64, what: &str, who: &str, fence: i64, until_us: i64) -> Moment {
        Moment {
            at_us,
            what: what.to_owned(),
            owner: Some(format!("{who}/1")),
            fence: Some(fence),
            until_us: Some(until_us),
            ..Moment::default()
        }
    }

    #[test]
    fn a_bar_ends_where_the_lease_runs_out_is_released_or_is_anothers() {
        let all = [
            moment(0, "granted", "a", 1, 6),
            moment(2, "renewed", "a", 1, 8),
            moment(9, "granted", "b", 2, 15),
            moment(12, "released", "b", 2, 12),
            moment(13, "granted", "c", 3, 19),
            moment(14, "granted", "d", 4, 20),
        ];
        let bars: Vec<_> = bars(&all.iter().collect::<Vec<_>>())
            .iter()
            .map(|bar| (bar.who.to_owned(), bar.from, bar.to))
            .collect();
        let expected = [("a", 0, 8), ("b", 9, 12), ("c", 13, 14), ("d", 14, 20)];
        assert_eq!(bars, expected.map(|(who, from, to)| (who.to_owned(), from, to)));
    }
}
