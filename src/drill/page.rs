//! The evidence as one page: no script, nothing from elsewhere, readable in print.

use std::fmt::Write as _;

use super::picture::picture;
use super::words::{escaped, seconds};
use super::{Check, Evidence, Moment, Verdict};

const STYLE: &str = "
:root { color-scheme: light; --ink: #1b1f24; --soft: #5a6370; --line: #d5dae0; --pass: #14713a; --fail: #b3261e; --open: #8a5a00 }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 72rem; padding: 2rem 1.5rem; color: var(--ink); background: #fff;
       font: 15px/1.45 system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif }
h1 { font-size: 1.5rem; margin: 0 0 .25rem } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
p { margin: .25rem 0; max-width: 60rem } .soft { color: var(--soft) }
.verdict { display: inline-block; padding: .1rem .7rem; border-radius: .3rem; color: #fff; font-weight: 700; letter-spacing: .03em }
.PASS { background: var(--pass) } .FAIL { background: var(--fail) } .INCOMPLETE, .NOTRUN { background: var(--open) }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 } th, td { text-align: left; vertical-align: top; padding: .3rem .5rem;
        border-bottom: 1px solid var(--line); overflow-wrap: anywhere } th { color: var(--soft); font-weight: 600; font-size: .85rem }
table.checks { table-layout: fixed } .checks th:nth-child(1) { width: 3.2rem } .checks th:nth-child(2) { width: 5.2rem } .checks th:nth-child(3) { width: 32% }
td.id { white-space: nowrap; font-variant-numeric: tabular-nums } td.n { text-align: right; font-variant-numeric: tabular-nums }
td .mark { font-size: .75rem; padding: 0 .4rem; border-radius: .2rem; color: #fff; white-space: nowrap }
.small td { font-size: .85rem } code { font: .85em/1.4 ui-monospace, 'DejaVu Sans Mono', monospace; overflow-wrap: anywhere }
figure { margin: .5rem 0 1.5rem; overflow-x: auto } figcaption { color: var(--soft); font-size: .85rem } svg { max-width: 100%; height: auto }
@media print { body { max-width: none; padding: 0; font-size: 10pt } h2 { break-after: avoid } tr, figure { break-inside: avoid }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact } }
";

/// One self-contained page.
#[must_use]
pub fn page(evidence: &Evidence) -> String {
    let mut out = begun(&format!("finaz drill {}: {}", evidence.drill, evidence.verdict.word()));
    head(&mut out, evidence);
    pictures(&mut out, &evidence.timeline);
    numbers(&mut out, evidence);
    checks(&mut out, &evidence.checks);
    moments(&mut out, &evidence.timeline);
    about(&mut out, evidence);
    out.push_str("</body></html>\n");
    out
}

/// The beginning of a page, up to its body.
pub(super) fn begun(title: &str) -> String {
    let mut out = String::new();
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>{}</title><style>{STYLE}</style></head><body>\n",
        escaped(title)
    )
    .expect("a String takes all");
    out
}

pub(super) fn add(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn head(out: &mut String, evidence: &Evidence) {
    let verdict = evidence.verdict.word();
    add(out, &format!("<h1>Drill {}</h1>", escaped(evidence.drill)));
    let counts = format!(
        "{} of {} checks passed, {} failed, {} did not run",
        evidence.passed,
        evidence.checks.len(),
        evidence.failed,
        evidence.not_run
    );
    add(out, &format!("<p><span class=\"verdict {verdict}\">{verdict}</span> {counts}</p>"));
    add(
        out,
        &format!(
            "<p class=\"soft\">{} to {}, {:.1} s, seed {}, lease of {} s{}</p>",
            escaped(&evidence.started_at),
            escaped(&evidence.ended_at),
            evidence.seconds,
            evidence.seed,
            evidence.ttl_sec,
            if evidence.fast { " (fast)" } else { "" }
        ),
    );
    if evidence.verdict != Verdict::Pass {
        let open = evidence.checks.iter().filter(|check| !check.pass);
        let named: Vec<String> = open
            .map(|check| format!("{} ({})", escaped(check.id), check.word().to_lowercase()))
            .collect();
        add(out, &format!("<p>{}</p>", named.join(", ")));
    }
}

pub(super) fn pictures(out: &mut String, timeline: &[Moment]) {
    add(out, "<h2>Who owned what, when</h2>");
    let mut leases: Vec<&str> = Vec::new();
    for lease in timeline.iter().filter_map(|moment| moment.lease.as_deref()) {
        if !leases.contains(&lease) {
            leases.push(lease);
        }
    }
    for lease in leases {
        let moments = timeline.iter().filter(|moment| moment.is_of(lease));
        let moments: Vec<_> = moments.collect();
        add(
            out,
            &format!(
                "<figure>{}<figcaption>Lease <code>{}</code>. Times by PostgreSQL.</figcaption></figure>",
                picture(lease, &moments),
                escaped(lease)
            ),
        );
    }
}

fn numbers(out: &mut String, evidence: &Evidence) {
    add(out, "<h2>Queue numbers</h2>");
    let ledger = evidence.ledger;
    let rows = [
        ("attempted", ledger.attempted, "records that the topics of both phases hold"),
        ("acked", ledger.acked, "of those, decided in a committed journal"),
        ("lost", ledger.lost, "held by a topic and decided nowhere"),
        ("unexpected", ledger.unexpected, "decided, and in no topic"),
        ("duplicated", ledger.duplicated, "decided twice"),
        (
            "recovered",
            ledger.recovered,
            "decided by the one who took over, behind the last commit of the one who was stopped or killed",
        ),
    ];
    add(out, "<table class=\"small\">");
    for (name, number, what) in rows {
        add(out, &format!("<tr><th>{name}</th><td class=\"n\">{number}</td><td>{what}</td></tr>"));
    }
    add(out, "</table>");
}

pub(super) fn checks(out: &mut String, checks: &[Check]) {
    add(out, "<h2>Checks</h2>");
    add(
        out,
        "<table class=\"small checks\"><thead><tr><th></th><th></th><th>what it demonstrates</th><th>expected</th><th>seen</th></tr></thead><tbody>",
    );
    for check in checks {
        add(out, &row(check));
    }
    add(out, "</tbody></table>");
}

fn row(check: &Check) -> String {
    let word = check.word();
    let class = word.replace(' ', "");
    format!(
        "<tr><td class=\"id\">{}</td><td><span class=\"mark {class}\">{word}</span></td><td>{}</td><td>{}</td><td>{}</td></tr>",
        escaped(check.id),
        escaped(check.what),
        escaped(&check.expected),
        escaped(&check.seen)
    )
}

pub(super) fn moments(out: &mut String, timeline: &[Moment]) {
    let Some(first) = timeline.iter().map(|moment| moment.at_us).min() else { return };
    add(
        out,
        "<h2>The same in words</h2><p class=\"soft\">Renewals are left out here; the history file has them.</p>",
    );
    add(
        out,
        "<table class=\"small\"><thead><tr><th>second</th><th>lease</th><th>what</th><th>owner or process</th><th>fence</th><th>commit</th><th></th></tr></thead><tbody>",
    );
    for moment in timeline.iter().filter(|moment| moment.what != "renewed") {
        let number = |number: Option<i64>| number.map_or(String::new(), |n| n.to_string());
        add(
            out,
            &format!(
                "<tr><td class=\"n\">{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
                seconds(moment.at_us - first),
                escaped(moment.lease.as_deref().unwrap_or_default()),
                escaped(&moment.what),
                escaped(moment.owner.as_deref().unwrap_or_default()),
                number(moment.fence),
                number(moment.seq),
                escaped(moment.detail.as_deref().unwrap_or_default())
            ),
        );
    }
    add(out, "</tbody></table>");
}

fn about(out: &mut String, evidence: &Evidence) {
    add(out, "<h2>What it ran on</h2>");
    let environment = &evidence.environment;
    let rows = [
        ("finaz", evidence.versions.finaz.clone()),
        ("PostgreSQL", evidence.versions.postgresql.clone()),
        ("broker", evidence.versions.broker.clone()),
        ("system", format!("{} {}", environment.os, environment.arch)),
        ("database", environment.database.clone()),
        ("brokers", environment.brokers.clone()),
        ("topics", environment.topics.join(", ")),
        ("folder", environment.folder.clone()),
        ("nonce", evidence.nonce.clone()),
        (
            "history",
            format!(
                "{}, {} lines, {}",
                evidence.history, evidence.history_lines, evidence.history_hash
            ),
        ),
    ];
    facts(out, &rows);
    add(out, "<p class=\"soft\">What the drill made there is gone.</p>");
}

/// Names and values in a table.
pub(super) fn facts(out: &mut String, rows: &[(&str, String)]) {
    add(out, "<table class=\"small\">");
    for (name, value) in rows {
        add(out, &format!("<tr><th>{name}</th><td><code>{}</code></td></tr>", escaped(value)));
    }
    add(out, "</table>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drill::{Environment, QueueNumbers, Versions};

    const HOSTILE: &str = "</td><script src=x></script>\"'&\u{202e}";

    fn evidence() -> Evidence {
        let check = Check {
            id: "Z1",
            pass: true,
            ran: true,
            scenario: "z",
            what: "one",
            expected: HOSTILE.to_owned(),
            seen: HOSTILE.to_owned(),
        };
        let moment = |at_us: i64, what: &str| Moment {
            no: at_us,
            at_us,
            what: what.to_owned(),
            lease: Some(format!("stream/{HOSTILE}")),
            owner: Some(HOSTILE.to_owned()),
            fence: Some(1),
            until_us: Some(at_us + 6_000_000),
            detail: Some(HOSTILE.to_owned()),
            ..Moment::default()
        };
        Evidence {
            kind: "DrillEvidence",
            version: 1,
            drill: "2owners",
            verdict: Verdict::Pass,
            passed: 1,
            failed: 0,
            not_run: 0,
            seed: 1,
            nonce: HOSTILE.to_owned(),
            started_at: HOSTILE.to_owned(),
            ended_at: HOSTILE.to_owned(),
            seconds: 1.0,
            ttl_sec: 6.0,
            fast: false,
            versions: Versions { finaz: HOSTILE.to_owned(), ..Versions::default() },
            environment: Environment { folder: HOSTILE.to_owned(), ..Environment::default() },
            ledger: QueueNumbers::default(),
            checks: vec![check],
            timeline: ["granted", "paused", "refused", "resumed", "committed", HOSTILE]
                .iter()
                .zip(1..)
                .map(|(what, at)| moment(at * 1_000_000, what))
                .collect(),
            history: HOSTILE.to_owned(),
            history_hash: HOSTILE.to_owned(),
            history_lines: 6,
        }
    }

    #[test]
    fn a_hostile_name_is_text_and_nothing_comes_from_elsewhere() {
        let page = page(&evidence());
        assert!(!page.contains("<script") && !page.contains('\u{202e}'), "{page}");
        for outside in ["http://", "https://", "src=x>", "url(", "@import", "<link", "onload"] {
            let allowed = page.replace("http://www.w3.org/2000/svg", "").replace("url(#", "");
            assert!(!allowed.contains(outside), "{outside}");
        }
        assert!(page.contains("PASS") && page.contains("<svg"), "{page}");
    }

    #[test]
    fn the_fields_of_the_document_keep_their_order() {
        let text = serde_json::to_string(&evidence()).expect("JSON");
        let at = |field: &str| {
            text.find(&format!("\"{field}\":")).unwrap_or_else(|| panic!("no {field}"))
        };
        let order = [
            "kind", "drill", "verdict", "passed", "failed", "seed", "versions", "ledger", "checks",
            "timeline", "history",
        ];
        assert!(order.windows(2).all(|pair| at(pair[0]) < at(pair[1])), "{text}");
    }
}
