//! The evidence of a campaign as one page: no script, nothing from elsewhere, readable in print.

use super::picture::picture;
use super::{Campaign, name_of};
use crate::drill::Verdict;
use crate::drill::page::{add, begun, checks, moments};
use crate::drill::words::{escaped, seconds};

/// One self-contained page.
#[must_use]
pub fn page(campaign: &Campaign) -> String {
    let mut out = begun(&format!("finaz drill chaos: {}", campaign.verdict.word()));
    head(&mut out, campaign);
    add(&mut out, "<h2>Who owned what, and what was done to whom</h2>");
    add(
        &mut out,
        &format!(
            "<figure>{}<figcaption>Above, each stream and its owners in turn, with their fences; below them kills (black), \
             stops (brown) and refusals (red). Then the faults.</figcaption></figure>",
            picture(&campaign.timeline, &campaign.faults)
        ),
    );
    numbers(&mut out, campaign);
    checks(&mut out, &campaign.checks);
    kinds(&mut out, campaign);
    faults(&mut out, campaign);
    moments(&mut out, &campaign.timeline);
    about(&mut out, campaign);
    out.push_str("</body></html>\n");
    out
}

fn head(out: &mut String, campaign: &Campaign) {
    let verdict = campaign.verdict.word();
    add(out, "<h1>Drill chaos</h1>");
    let counts = format!(
        "{} of {} checks passed, {} failed, {} did not run",
        campaign.passed,
        campaign.checks.len(),
        campaign.failed,
        campaign.not_run
    );
    add(out, &format!("<p><span class=\"verdict {verdict}\">{verdict}</span> {counts}</p>"));
    let recovered = campaign.recovery_sec.map_or("never".to_owned(), |s| format!("{s:.1} s later"));
    add(
        out,
        &format!(
            "<p class=\"soft\">{} to {}, {:.1} s, seed {}, {} faults in {:.0} s; all had come to its end {recovered}</p>",
            escaped(&campaign.started_at),
            escaped(&campaign.ended_at),
            campaign.seconds,
            campaign.seed,
            campaign.faults.iter().filter(|dealt| dealt.whom.is_some()).count(),
            campaign.duration_sec,
        ),
    );
    if campaign.verdict != Verdict::Pass {
        let open = campaign.checks.iter().filter(|check| !check.pass);
        let named: Vec<String> = open
            .map(|check| format!("{} ({})", escaped(check.id), check.word().to_lowercase()))
            .collect();
        add(out, &format!("<p>{}</p>", named.join(", ")));
    }
    if !campaign.missing.is_empty() {
        add(out, &format!("<p>Did not come: {}.</p>", escaped(&campaign.missing.join(", "))));
    }
}

fn rows(out: &mut String, rows: &[(&str, u64, &str)]) {
    add(out, "<table class=\"small\">");
    for (name, number, what) in rows {
        add(out, &format!("<tr><th>{name}</th><td class=\"n\">{number}</td><td>{what}</td></tr>"));
    }
    add(out, "</table>");
}

fn numbers(out: &mut String, campaign: &Campaign) {
    let (ledger, done) = (campaign.ledger, campaign.done);
    add(out, "<h2>Queue numbers</h2>");
    rows(
        out,
        &[
            (
                "attempted",
                ledger.attempted,
                "runs that clients asked for, and records that the topic holds for each stream",
            ),
            (
                "acked",
                ledger.acked,
                "runs that were acknowledged, and records decided in a committed journal",
            ),
            (
                "lost",
                ledger.lost,
                "acknowledged and without a result; held by the topic and decided nowhere",
            ),
            ("unexpected", ledger.unexpected, "there, and nobody asked for it"),
            ("duplicated", ledger.duplicated, "published or decided twice"),
            (
                "recovered",
                ledger.recovered,
                "runs whose client never heard of them, records decided by one who took over",
            ),
        ],
    );
    add(out, "<h2>What was done</h2>");
    rows(
        out,
        &[
            ("processes", done.processes, "of this binary, started and ended"),
            ("admissions", done.admissions, "by as many clients"),
            ("replays", done.replays, "of 23 records each"),
            ("unknown", done.unknown, "of these, without an answer to rely on"),
            ("runs", done.runs, "admitted"),
            ("given up", done.poisoned, "after three owners had died with them"),
            ("records", done.records, "decided by both streams"),
            ("commits", done.commits, "of their journals"),
            ("refusals", done.refusals, "by a fence"),
        ],
    );
}

fn kinds(out: &mut String, campaign: &Campaign) {
    add(out, "<h2>Faults by kind</h2><table class=\"small\">");
    for count in &campaign.kinds {
        let instead = match count.instead {
            0 => String::new(),
            n => format!("{n} by a cut of the proxy in its place"),
        };
        add(
            out,
            &format!(
                "<tr><td>{}</td><td class=\"n\">{}</td><td>{}</td><td>{instead}</td></tr>",
                name_of(&count.kind),
                count.dealt,
                escaped(count.kind.what())
            ),
        );
    }
    for count in &campaign.situations {
        add(
            out,
            &format!(
                "<tr><td>{}</td><td class=\"n\">{}</td><td>{}</td><td></td></tr>",
                name_of(&count.situation),
                count.seen,
                escaped(count.situation.what())
            ),
        );
    }
    add(out, "</table>");
}

fn faults(out: &mut String, campaign: &Campaign) {
    let Some(first) = campaign.faults.iter().map(|dealt| dealt.from_us).min() else { return };
    add(
        out,
        "<h2>Faults in their order</h2><table class=\"small\"><thead><tr><th>second</th><th>to</th><th>kind</th><th>met</th></tr></thead><tbody>",
    );
    let mut all: Vec<_> = campaign.faults.iter().collect();
    all.sort_by_key(|dealt| dealt.from_us);
    for dealt in all {
        let met = match (&dealt.whom, &dealt.why) {
            (Some(whom), _) => whom.clone(),
            (None, why) => format!("nobody: {}", why.as_deref().unwrap_or_default()),
        };
        add(
            out,
            &format!(
                "<tr><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td><td>{}</td></tr>",
                seconds(dealt.from_us - first),
                seconds(dealt.to_us - first),
                name_of(&dealt.kind),
                escaped(&met)
            ),
        );
    }
    add(out, "</tbody></table>");
}

fn about(out: &mut String, campaign: &Campaign) {
    add(out, "<h2>What it ran on</h2><table class=\"small\">");
    let environment = &campaign.environment;
    let load = campaign.plan.load;
    let text = [
        ("finaz", campaign.versions.finaz.clone()),
        ("PostgreSQL", campaign.versions.postgresql.clone()),
        ("broker", campaign.versions.broker.clone()),
        ("system", format!("{} {}", environment.os, environment.arch)),
        ("database", environment.database.clone()),
        ("brokers", environment.brokers.clone()),
        ("topics", environment.topics.join(", ")),
        ("folder", environment.folder.clone()),
        ("nonce", campaign.nonce.clone()),
        ("not so", campaign.lacks.join("; ")),
        (
            "load",
            format!(
                "{} workers, {} runs a claim; about {} runs each {} ms; a replay each {} ms; two streams; a lease lives {} s",
                load.workers,
                load.batch,
                load.admit_runs,
                load.admit_every_ms,
                load.replay_every_ms,
                campaign.ttl_sec
            ),
        ),
        (
            "history",
            format!(
                "{}, {} lines, {}",
                campaign.history, campaign.history_lines, campaign.history_hash
            ),
        ),
    ];
    for (name, value) in text {
        add(out, &format!("<tr><th>{name}</th><td><code>{}</code></td></tr>", escaped(&value)));
    }
    add(out, "</table><p class=\"soft\">What the drill made there is gone.</p>");
}
