//! `finaz drill 2owners`

use std::path::PathBuf;

use finaz::control::drill::{self, DrillReport, TwoOwnersRequest};

use crate::context::Context;
use crate::failure::Failure;
use crate::page::{Page, second};
use crate::ui::{Exit, Unit};

/// Stop one owner of a stream, kill another, show that nothing is lost or doubled
///
/// Makes a database, topics and a folder of its own on the servers of the settings, and removes them. Ends 0 when every
/// check passed, 1 when one failed, 3 when one could not be carried out. The evidence is a JSON document, one page of HTML,
/// and the history that the database wrote down.
#[derive(Debug, clap::Args)]
pub(crate) struct TwoOwnersArgs {
    /// Give leases 1.5 seconds instead of 6
    #[arg(long)]
    fast: bool,
    /// Write the evidence into this folder [default: evidence/ of the artifact store]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Use this database, which its comment must say is a drill's; it is emptied. Here without a password, in the variable with
    /// one
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// Draw where owners are stopped and what is damaged from this number
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: TwoOwnersArgs) -> Result<Exit, Failure> {
    let TwoOwnersArgs { fast, out, database, seed } = args;
    let database = super::database(cx, database)?;
    let binary = std::env::current_exe().map_err(|error| Failure::internal(&error))?;
    let temporary = std::env::temp_dir();
    let request = TwoOwnersRequest { binary, temporary, fast, out, database, seed };
    let bar = cx.ui.progress("checks", Unit::Checks);
    let report = cx
        .draining(async |control, stop| {
            let progress = |done, total| bar.at(done, total);
            drill::two_owners(control, &request, &progress, stop).await
        })
        .await?;
    cx.ui.report(&report, |page| show(page, &report));
    Ok(super::exit(report.evidence.verdict))
}

fn show(page: &mut Page, report: &DrillReport) {
    let evidence = &report.evidence;
    let rows = evidence.checks.iter().map(|check| {
        let seen = if check.pass {
            String::new()
        } else {
            format!("{} (expected {})", check.seen, check.expected)
        };
        vec![check.word().to_owned(), check.id.to_owned(), check.what.to_owned(), seen]
    });
    page.table(&["", "check", "demonstrates", "seen"], rows.collect(), "no checks");
    page.line("");
    let ledger = evidence.ledger;
    page.pairs(&[
        ("database", evidence.environment.database.clone()),
        ("since", second(&evidence.started_at)),
        (
            "records",
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
        ("document", report.files.document.clone()),
        ("page", report.files.page.clone()),
        ("history", report.files.history.clone()),
    ]);
    let named = |word: &str, label: &str| {
        let ids = evidence.checks.iter().filter(|check| check.word() == word).map(|check| check.id);
        let ids: Vec<&str> = ids.collect();
        if ids.is_empty() { String::new() } else { format!("; {label} {}", ids.join(", ")) }
    };
    let named = [named("FAIL", "failed:"), named("NOT RUN", "not run:")].concat();
    page.line(&format!(
        "{}: {} of {} checks passed, seed {}, {:.1} s{named}",
        evidence.verdict.word(),
        evidence.passed,
        evidence.checks.len(),
        evidence.seed,
        evidence.seconds
    ));
}
