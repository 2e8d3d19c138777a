//! A campaign as a picture: who had each stream, and below it every fault, by what it met.

use std::fmt::Write as _;

use super::{Dealt, FaultKind, name_of};
use crate::drill::Moment;
use crate::drill::picture::bars;
use crate::drill::words::{escaped, seconds};

const WIDTH: i64 = 1_000;
const LEFT: i64 = 110;
const RIGHT: i64 = 24;
const TOP: i64 = 24;
const ROW: i64 = 44;
const LANE: i64 = 13;
/// Two of a group that overlap are drawn in two lanes, at most so many.
const LANES: usize = 4;
/// Between faults of one lane, microseconds.
const APART: i64 = 400_000;
/// Owners of a stream in turn.
const COLOURS: [&str; 2] = ["#2f6fb5", "#6aa3d8"];

const GROUPS: [(&str, &str); 6] = [
    ("workers", "#8a5a00"),
    ("streams", "#2f6fb5"),
    ("clients", "#5a6370"),
    ("PostgreSQL", "#14713a"),
    ("broker", "#7a3e9d"),
    ("ClickHouse", "#b3591e"),
];

fn group(kind: FaultKind) -> usize {
    match kind {
        FaultKind::WorkerKilled
        | FaultKind::WorkerStopped
        | FaultKind::WorkerDrained
        | FaultKind::WorkerDiskFull => 0,
        FaultKind::StreamKilled
        | FaultKind::StreamStopped
        | FaultKind::StreamDrained
        | FaultKind::StreamDiskFull => 1,
        FaultKind::ClientKilled => 2,
        FaultKind::PostgresCut
        | FaultKind::PostgresReset
        | FaultKind::PostgresHeld
        | FaultKind::PostgresDelayed
        | FaultKind::PostgresUnheard
        | FaultKind::PostgresSessionsEnded
        | FaultKind::PostgresRestarted => 3,
        FaultKind::BrokerCut
        | FaultKind::BrokerReset
        | FaultKind::BrokerHeld
        | FaultKind::BrokerDelayed
        | FaultKind::BrokerUnheard
        | FaultKind::BrokerRestarted
        | FaultKind::Retention => 4,
        FaultKind::WarehouseReset
        | FaultKind::WarehouseHeld
        | FaultKind::WarehouseDelayed
        | FaultKind::WarehouseUnheard
        | FaultKind::WarehouseStopped => 5,
    }
}

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

/// An SVG element; nothing for a campaign in which nothing happened.
pub(super) fn picture(timeline: &[Moment], faults: &[Dealt]) -> String {
    let times = timeline.iter().map(|moment| moment.at_us);
    let times = times.chain(faults.iter().flat_map(|dealt| [dealt.from_us, dealt.to_us]));
    let times: Vec<i64> = times.collect();
    let (Some(first), Some(last)) = (times.iter().min(), times.iter().max()) else {
        return String::new();
    };
    let scale = Scale { first: *first, span: (last - first).max(1) * 101 / 100 + 1 };
    let mut leases: Vec<&str> = Vec::new();
    for lease in timeline.iter().filter_map(|moment| moment.lease.as_deref()) {
        if !leases.contains(&lease) {
            leases.push(lease);
        }
    }
    let mut body = String::new();
    let mut y = TOP;
    for lease in leases {
        let moments: Vec<&Moment> = timeline.iter().filter(|moment| moment.is_of(lease)).collect();
        draw_lease(&mut body, &scale, y, (lease, &moments));
        y += ROW;
    }
    for (at, (name, colour)) in GROUPS.into_iter().enumerate() {
        let mut of: Vec<&Dealt> =
            faults.iter().filter(|dealt| group(dealt.kind) == at && dealt.whom.is_some()).collect();
        of.sort_by_key(|dealt| dealt.from_us);
        y += draw_faults(&mut body, &scale, y, (name, colour, &of));
    }
    let height = y + 30;
    let mut out = String::new();
    write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" \
         font-family=\"system-ui, 'DejaVu Sans', sans-serif\" font-size=\"12\"><title>Owners and faults</title>"
    )
    .expect("a String takes all");
    axis(&mut out, &scale, y);
    out.push_str(&body);
    out.push_str("</svg>");
    out
}

fn axis(out: &mut String, scale: &Scale, bottom: i64) {
    let steps = [1_000_000, 2_000_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000, 300_000_000];
    let step = steps.into_iter().find(|step| scale.span / step <= 14).unwrap_or(1_800_000_000);
    for tick in (0..=scale.span / step).map(|tick| tick * step) {
        let x = scale.x(scale.first + tick);
        let label = seconds(tick);
        let label = label.trim_end_matches('0').trim_end_matches('.');
        write!(
            out,
            "<line x1=\"{x}\" y1=\"{}\" x2=\"{x}\" y2=\"{bottom}\" stroke=\"#e6e9ed\"/>\
             <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\" fill=\"#5a6370\">{} s</text>",
            TOP - 10,
            bottom + 16,
            if label.is_empty() { "0" } else { label }
        )
        .expect("a String takes all");
    }
}

fn label(out: &mut String, y: i64, text: &str) {
    write!(
        out,
        "<text x=\"{}\" y=\"{y}\" text-anchor=\"end\" font-weight=\"600\">{}</text>",
        LEFT - 10,
        escaped(text)
    )
    .expect("a String takes all");
}

fn draw_lease(out: &mut String, scale: &Scale, y: i64, (lease, moments): (&str, &[&Moment])) {
    label(out, y + 17, lease.trim_start_matches("stream/"));
    for (at, bar) in bars(moments).iter().enumerate() {
        let (x, to) = (scale.x(bar.from), scale.x(bar.to));
        let fence = bar.fence.unwrap_or_default();
        write!(
            out,
            "<rect x=\"{x}\" y=\"{}\" width=\"{}\" height=\"18\" fill=\"{}\"><title>{} under fence {fence}</title></rect>",
            y + 3,
            (to - x).max(1),
            COLOURS[at % COLOURS.len()],
            escaped(bar.who)
        )
        .expect("a String takes all");
        if to - x > 14 {
            write!(
                out,
                "<text x=\"{}\" y=\"{}\" fill=\"#fff\" font-size=\"10\">{fence}</text>",
                x + 3,
                y + 16
            )
            .expect("a String takes all");
        }
    }
    for moment in moments {
        let (colour, sign) = match moment.what.as_str() {
            "refused" => ("#b3261e", "refused by its fence"),
            "killed" => ("#1b1f24", "kill -9"),
            "paused" => ("#8a5a00", "stopped"),
            _ => continue,
        };
        let x = scale.x(moment.at_us);
        write!(
            out,
            "<path d=\"M{} {} l8 8 m-8 0 l8 -8\" stroke=\"{colour}\" stroke-width=\"2\" fill=\"none\"><title>{} {sign}</title></path>",
            x - 4,
            y + 24,
            escaped(moment.who())
        )
        .expect("a String takes all");
    }
}

/// The faults of a group, in as many lanes as they need; gives the height.
fn draw_faults(
    out: &mut String,
    scale: &Scale,
    y: i64,
    (name, colour, of): (&str, &str, &[&Dealt]),
) -> i64 {
    let mut free: Vec<i64> = Vec::new();
    for dealt in of {
        let found = free.iter().position(|until| *until <= dealt.from_us);
        let lane = found.unwrap_or_else(|| {
            if free.len() < LANES {
                free.push(0);
            }
            free.len() - 1
        });
        free[lane] = dealt.to_us + APART;
        let (x, to) = (scale.x(dealt.from_us), scale.x(dealt.to_us));
        write!(
            out,
            "<rect x=\"{x}\" y=\"{}\" width=\"{}\" height=\"9\" rx=\"2\" fill=\"{colour}\"><title>{} at {} s: {}</title></rect>",
            y + 4 + i64::try_from(lane).unwrap_or(0) * LANE,
            (to - x).max(3),
            escaped(&name_of(&dealt.kind)),
            seconds(dealt.from_us - scale.first),
            escaped(dealt.whom.as_deref().unwrap_or_default())
        )
        .expect("a String takes all");
    }
    label(out, y + 13, name);
    let lanes = i64::try_from(free.len().max(1)).unwrap_or(1);
    lanes * LANE + 8
}
