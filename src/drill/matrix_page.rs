//! The kill matrix as one page: a row a point, a column a fault.

use super::page::{add, begun, checks, facts, pictures};
use super::words::escaped;
use super::{CellRun, Fault, Fell, MatrixEvidence, PLACES};

/// One self-contained page.
#[must_use]
pub fn matrix_page(evidence: &MatrixEvidence) -> String {
    let verdict = evidence.verdict.word();
    let mut out = begun(&format!("finaz drill {}: {verdict}", evidence.drill));
    add(&mut out, "<h1>Drill kill-matrix</h1>");
    let counts = format!(
        "{} of {} runs passed, {} failed, {} never came to their point, {} were not carried out",
        evidence.passed, evidence.total, evidence.failed, evidence.missed, evidence.not_run
    );
    add(&mut out, &format!("<p><span class=\"verdict {verdict}\">{verdict}</span> {counts}</p>"));
    add(
        &mut out,
        &format!(
            "<p class=\"soft\">{} to {}, {:.1} s, seed {}, lease of {} s{}</p>",
            escaped(&evidence.started_at),
            escaped(&evidence.ended_at),
            evidence.seconds,
            evidence.seed,
            evidence.ttl_sec,
            if evidence.whole { "" } else { ", a part of the matrix" }
        ),
    );
    matrix(&mut out, evidence);
    checks(&mut out, &evidence.checks);
    pictures(&mut out, &evidence.timeline);
    about(&mut out, evidence);
    out.push_str("</body></html>\n");
    out
}

fn matrix(out: &mut String, evidence: &MatrixEvidence) {
    add(out, "<h2>Points and faults</h2><table class=\"small\"><thead><tr><th></th><th>point</th>");
    for fault in Fault::ALL {
        add(out, &format!("<th title=\"{}\">{}</th>", escaped(fault.what()), fault.word()));
    }
    add(out, "<th>what has just happened there</th></tr></thead><tbody>");
    for place in PLACES {
        let of = |run: &&CellRun| run.work == place.work() && run.point == place.point.name();
        let runs: Vec<&CellRun> = evidence.runs.iter().filter(of).collect();
        if runs.is_empty() {
            continue;
        }
        let (work, point) = (place.work().word(), escaped(place.point.name()));
        add(out, &format!("<tr><td>{work}</td><td class=\"id\"><code>{point}</code></td>"));
        for fault in Fault::ALL {
            let cell =
                runs.iter().find(|run| run.fault == fault).map_or(String::new(), |run| cell(run));
            add(out, &format!("<td>{cell}</td>"));
        }
        let mut said = vec![escaped(place.point.what())];
        let open = runs.iter().filter(|run| run.verdict != Fell::Pass);
        said.extend(
            open.map(|run| {
                format!("<b>{}</b>: {}", run.fault.word(), escaped(&run.why.join("; ")))
            }),
        );
        add(out, &format!("<td>{}</td></tr>", said.join("<br>")));
    }
    add(out, "</tbody></table>");
    for fault in Fault::ALL {
        add(
            out,
            &format!("<p class=\"soft\"><b>{}</b>: {}</p>", fault.word(), escaped(fault.what())),
        );
    }
}

fn cell(run: &CellRun) -> String {
    let word = run.verdict.word();
    let class = match run.verdict {
        Fell::Pass => "PASS",
        Fell::Fail | Fell::Miss => "FAIL",
        Fell::NotRun => "NOTRUN",
    };
    let title = format!("{}; successor {}; {:.1} s", run.ended, run.successor, run.seconds);
    format!("<span class=\"mark {class}\" title=\"{}\">{word}</span>", escaped(&title))
}

fn about(out: &mut String, evidence: &MatrixEvidence) {
    add(out, "<h2>What it ran on</h2>");
    let environment = &evidence.environment;
    let ledger = evidence.ledger;
    let rows = [
        ("finaz", evidence.versions.finaz.clone()),
        ("PostgreSQL", evidence.versions.postgresql.clone()),
        ("broker", evidence.versions.broker.clone()),
        ("system", format!("{} {}", environment.os, environment.arch)),
        ("database", environment.database.clone()),
        ("brokers", environment.brokers.clone()),
        ("topics", environment.topics.join(", ")),
        ("nonces", evidence.nonces.join(", ")),
        (
            "records of the streams",
            format!(
                "{} attempted, {} acked, {} lost, {} unexpected, {} duplicated",
                ledger.attempted, ledger.acked, ledger.lost, ledger.unexpected, ledger.duplicated
            ),
        ),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drill::{Environment, QueueNumbers, Verdict, Versions, Work};

    #[test]
    fn a_hostile_reason_is_text_and_each_run_has_its_place() {
        const HOSTILE: &str = "</td><script src=x></script>\"'&\u{202e}";
        let run = |fault, verdict| CellRun {
            work: Work::Stream,
            point: "commit.sent",
            fault,
            verdict,
            tries: 1,
            ended: HOSTILE.to_owned(),
            successor: HOSTILE.to_owned(),
            why: vec![HOSTILE.to_owned()],
            seconds: 1.0,
            lease: Some(HOSTILE.to_owned()),
        };
        let evidence = MatrixEvidence {
            kind: "DrillEvidence",
            version: 1,
            drill: "kill-matrix",
            verdict: Verdict::Fail,
            total: 2,
            passed: 1,
            failed: 0,
            missed: 1,
            not_run: 0,
            whole: false,
            seed: 1,
            nonces: vec![HOSTILE.to_owned()],
            started_at: HOSTILE.to_owned(),
            ended_at: HOSTILE.to_owned(),
            seconds: 1.0,
            ttl_sec: 0.8,
            versions: Versions::default(),
            environment: Environment { folder: HOSTILE.to_owned(), ..Environment::default() },
            ledger: QueueNumbers::default(),
            checks: Vec::new(),
            runs: vec![run(Fault::Kill, Fell::Pass), run(Fault::Cut, Fell::Miss)],
            timeline: Vec::new(),
            history: HOSTILE.to_owned(),
            history_hash: HOSTILE.to_owned(),
            history_lines: 0,
        };
        let page = matrix_page(&evidence);
        assert!(!page.contains("<script") && !page.contains('\u{202e}'), "{page}");
        assert!(page.contains(">PASS</span>") && page.contains(">MISS</span>"), "{page}");
        assert!(page.contains("a part of the matrix"), "{page}");
    }
}
