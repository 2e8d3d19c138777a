//! `finaz runs export`

use std::path::PathBuf;

use finaz::control::Error;
use finaz::control::export::{self, Format, Target};

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::{self, Exit};

/// Write the result of a published run as Parquet, CSV or JSON lines
///
/// One row a value: instrument, node, number of the row, event time in nanoseconds since 1970 UTC, value. Floats read
/// back to the same bits. A run that is not published has no result.
#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// Id of the run, or the beginning of it
    run: String,
    /// Format [default: by the ending of --out, else csv]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<FormatName>,
    /// File to write; without it the rows go to stdout
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write over a file that exists
    #[arg(long)]
    replace: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum FormatName {
    Parquet,
    Csv,
    Jsonl,
}

impl ExportArgs {
    fn format(&self) -> Result<Format, Failure> {
        if let Some(named) = self.format {
            return Ok(match named {
                FormatName::Parquet => Format::Parquet,
                FormatName::Csv => Format::Csv,
                FormatName::Jsonl => Format::JsonLines,
            });
        }
        let Some(out) = &self.out else { return Ok(Format::Csv) };
        match out.extension().and_then(|ending| ending.to_str()) {
            Some("parquet") => Ok(Format::Parquet),
            Some("csv") => Ok(Format::Csv),
            Some("jsonl" | "json") => Ok(Format::JsonLines),
            Some(_) | None => Err(Failure::usage(
                format!("--out {}: the ending tells no format", out.display()),
                "give --format parquet, csv or jsonl",
            )),
        }
    }
}

pub(crate) async fn run(cx: &mut Context<'_>, args: ExportArgs) -> Result<Exit, Failure> {
    let format = args.format()?;
    let Some(path) = &args.out else {
        return to_stdout(cx, &args.run, format).await;
    };
    let target = Target::File { path, replace: args.replace };
    let report = cx
        .awaiting(async |control| export::export(control, &args.run, format, target).await)
        .await?;
    cx.ui.report(&report, |page| {
        page.pairs(&[
            ("run", report.run_id.clone()),
            ("file", path.display().to_string()),
            ("rows", report.rows.to_string()),
            ("values", report.values_hash.to_string()),
        ]);
    });
    Ok(Exit::Done)
}

async fn to_stdout(cx: &mut Context<'_>, run: &str, format: Format) -> Result<Exit, Failure> {
    if cx.control.settings.json {
        let hint = "give --out FILE: under --json stdout holds one document";
        return Err(Failure::usage("--json and an export to stdout exclude each other", hint));
    }
    if matches!(format, Format::Parquet) && ui::stdout_is_terminal() {
        let hint = "give --out FILE, or pipe it";
        return Err(Failure::usage("Parquet is nothing to read on a terminal", hint));
    }
    let mut stdout = cx.ui.stdout();
    let target = Target::Stream(&mut *stdout);
    let done = cx.awaiting(async |control| {
        match export::export(control, run, format, target).await {
            // The door to the terminal has noted it, and gives the exit code for it.
            Err(Error::Io { place, .. }) if place == "stdout" => Ok(()),
            other => other.map(drop),
        }
    });
    done.await?;
    Ok(Exit::Done)
}
