//! `finaz drill chaos`

use std::path::PathBuf;
use std::time::Duration;

use finaz::control::drill::chaos::{self, CampaignReport, ChaosRequest, Plan, name_of};

use crate::context::Context;
use crate::failure::Failure;
use crate::page::{Page, second};
use crate::ui::{Exit, Unit};

/// Shortest and longest campaign, seconds.
const LEAST: u64 = 5;
const MOST: u64 = 24 * 3_600;

/// Kill, stop and cut off workers and streams at random, and judge the history
///
/// Real processes work off runs and arrivals while faults are dealt that the seed draws; then the faults stop, and all that
/// was admitted must come to its end. PostgreSQL is one of the drill's own where its programs are found, the other servers
/// are those of the settings, in a database and topics of the drill's own, which are removed. Ends 0 when every invariant
/// held, 1 when one did not, 3 when one could not be judged, or when a campaign of five minutes or more did not come to
/// every kind of fault and every situation.
#[derive(Debug, clap::Args)]
pub(crate) struct ChaosArgs {
    /// Draw the campaign from this number
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Deal faults for this long: 90s, 5m, 1h; what comes to its end afterwards takes longer
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    duration: Duration,
    /// Print what the campaign would do, and do nothing
    #[arg(long)]
    plan: bool,
    /// Write the evidence into this folder [default: evidence/ of the artifact store]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Use this database, which its comment must say is a drill's; it is emptied, and never restarted. Here without a password,
    /// in the variable with one
    #[arg(long, value_name = "URL")]
    database: Option<String>,
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time: write 90s, 5m or 1h");
    let (number, unit) = match text.char_indices().find(|(_, c)| !c.is_ascii_digit()) {
        Some((at, _)) => text.split_at(at),
        None => (text, "s"),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => return Err(wrong()),
    };
    let seconds = number.saturating_mul(factor);
    if (LEAST..=MOST).contains(&seconds) {
        Ok(Duration::from_secs(seconds))
    } else {
        Err(format!("{seconds} s are outside {LEAST} s to 24 h"))
    }
}

pub(crate) async fn run(cx: &mut Context<'_>, args: ChaosArgs) -> Result<Exit, Failure> {
    let ChaosArgs { seed, duration, plan, out, database } = args;
    let database = super::database(cx, database)?;
    let binary = std::env::current_exe().map_err(|error| Failure::internal(&error))?;
    let temporary = std::env::temp_dir();
    let request = ChaosRequest { binary, temporary, out, database, seed, duration };
    if plan {
        let plan = request.plan();
        cx.ui.report(&plan, |page| show_plan(page, &plan));
        return Ok(Exit::Done);
    }
    cx.ui.warn(&drawn(&request.plan()));
    let bar = cx.ui.progress("seconds", Unit::Checks);
    let report = cx
        .draining(async |control, stop| {
            let progress = |done, total| bar.at(done, total);
            chaos::chaos(control, &request, &progress, stop).await
        })
        .await?;
    cx.ui.report(&report, |page| show(page, &report));
    Ok(super::exit(report.campaign.verdict))
}

/// What the seed drew, in a line.
fn drawn(plan: &Plan) -> String {
    let rates: Vec<String> = plan
        .rates
        .iter()
        .filter(|rate| rate.weight > 0)
        .map(|rate| format!("{} {}", name_of(&rate.kind), rate.weight))
        .collect();
    let load = plan.load;
    format!(
        "seed {}: {} faults in {} s{}, {} workers, {} runs a claim, about {} runs each {} ms, a replay each {} ms; once all kinds \
         were dealt, by these weights: {}",
        plan.seed,
        plan.faults.len(),
        plan.duration().as_secs(),
        if plan.calm { " (calm)" } else { "" },
        load.workers,
        load.batch,
        load.admit_runs,
        load.admit_every_ms,
        load.replay_every_ms,
        rates.join(", ")
    )
}

fn show_plan(page: &mut Page, plan: &Plan) {
    let rows = plan.faults.iter().map(|fault| {
        vec![
            format!("{:.1}", fault.at_ms as f64 / 1e3),
            name_of(&fault.kind),
            format!("{:.1}", fault.lasts_ms as f64 / 1e3),
            fault.kind.what().to_owned(),
        ]
    });
    page.table(&["second", "fault", "lasts", "what"], rows.collect(), "no faults");
    page.line("");
    page.line(&drawn(plan));
}

fn show(page: &mut Page, report: &CampaignReport) {
    let campaign = &report.campaign;
    let rows = campaign.checks.iter().map(|check| {
        vec![
            check.word().to_owned(),
            check.id.to_owned(),
            check.what.to_owned(),
            check.seen.clone(),
        ]
    });
    page.table(&["", "check", "invariant", "seen"], rows.collect(), "no checks");
    page.line("");
    let (ledger, done) = (campaign.ledger, campaign.done);
    let kinds: Vec<String> = campaign
        .kinds
        .iter()
        .filter(|count| count.dealt > 0)
        .map(|count| format!("{} {}", name_of(&count.kind), count.dealt))
        .collect();
    let situations: Vec<String> = campaign
        .situations
        .iter()
        .map(|count| format!("{} {}", name_of(&count.situation), count.seen))
        .collect();
    page.pairs(&[
        ("since", second(&campaign.started_at)),
        (
            "queues",
            format!(
                "{} attempted, {} acked, {} lost, {} unexpected, {} duplicated, {} recovered",
                ledger.attempted,
                ledger.acked,
                ledger.lost,
                ledger.unexpected,
                ledger.duplicated,
                ledger.recovered
            ),
        ),
        (
            "done",
            format!(
                "{} processes, {} admissions, {} replays, {} of them unknown, {} runs, {} given up, {} records, {} commits",
                done.processes,
                done.admissions,
                done.replays,
                done.unknown,
                done.runs,
                done.poisoned,
                done.records,
                done.commits
            ),
        ),
        ("faults", kinds.join(", ")),
        ("came", situations.join(", ")),
        ("did not", campaign.missing.join(", ")),
        ("not so", campaign.lacks.join("; ")),
        ("document", report.files.document.clone()),
        ("page", report.files.page.clone()),
        ("history", report.files.history.clone()),
    ]);
    page.line(&verdict(report));
}

fn verdict(report: &CampaignReport) -> String {
    let campaign = &report.campaign;
    let named = |word: &str, label: &str| {
        let ids = campaign.checks.iter().filter(|check| check.word() == word).map(|check| check.id);
        let ids: Vec<&str> = ids.collect();
        if ids.is_empty() { String::new() } else { format!("; {label} {}", ids.join(", ")) }
    };
    let faults = campaign.faults.iter().filter(|dealt| dealt.whom.is_some()).count();
    format!(
        "{}: {} of {} checks passed under {faults} faults, seed {}, {:.1} s{}{}",
        campaign.verdict.word(),
        campaign.passed,
        campaign.checks.len(),
        campaign.seed,
        campaign.seconds,
        named("FAIL", "failed:"),
        named("NOT RUN", "not run:")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_and_bounds() {
        let seconds = |text| duration(text).map(|time| time.as_secs());
        assert_eq!(
            [seconds("90s"), seconds("5m"), seconds("1h"), seconds("60")],
            [Ok(90), Ok(300), Ok(3_600), Ok(60)]
        );
        for wrong in ["", "s", "5 m", "-5s", "1.5m", "4s", "25h", "99999999999999999999s", "6d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
