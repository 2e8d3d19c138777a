//! `finaz snapshot import`

use std::path::PathBuf;

use finaz::control::snapshots::{self, Format, ImportOptions};

use crate::context::Context;
use crate::failure::Failure;
use crate::page::or_dash;
use crate::ui::{Exit, Unit};

/// Import a file of market data as an immutable snapshot
///
/// Reads CSV (also gzip), JSON lines and Parquet. JSON lines with the standard names need no flags.
/// A time without a zone needs --tz; nothing is guessed, and a file that is refused leaves nothing behind.
#[derive(Debug, clap::Args)]
pub(crate) struct ImportArgs {
    /// File to read
    file: PathBuf,
    /// Name for the snapshot
    #[arg(long, value_name = "NAME")]
    name: String,
    /// Format of the file: csv, jsonl or parquet [default: by the end of its name]
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,
    /// Column of the time of an event
    #[arg(long, value_name = "COL")]
    time_column: Option<String>,
    /// Column of the price; an empty cell is a gap
    #[arg(long, value_name = "COL")]
    close_column: Option<String>,
    /// Instrument of all events
    #[arg(long, value_name = "NAME")]
    instrument: Option<String>,
    /// Column of the instrument of an event
    #[arg(long, value_name = "COL")]
    instrument_column: Option<String>,
    /// Column of the identity of an event [default: made from instrument and time]
    #[arg(long, value_name = "COL")]
    event_id_column: Option<String>,
    /// How times are written: rfc3339, epoch-s, epoch-ms, epoch-us, epoch-ns or a strftime
    #[arg(long, value_name = "FORMAT")]
    time_format: Option<String>,
    /// Zone of times that name none: UTC, America/New_York
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
    /// Read a file without a header; its columns are numbers from 1
    #[arg(long)]
    no_header: bool,
    /// Sort events by time instead of refusing a file that is not in order
    #[arg(long)]
    sort: bool,
    /// Keep this column as a field of the event (can be repeated)
    #[arg(long = "field", value_name = "COL")]
    fields: Vec<String>,
    /// Let the name mean this snapshot from now on, even if it meant another
    #[arg(long)]
    replace: bool,
}

pub(crate) async fn run(cx: &mut Context<'_>, args: ImportArgs) -> Result<Exit, Failure> {
    let bar = cx.ui.progress("importing", Unit::Bytes);
    let file = args.file.clone();
    let options = options(args)?;
    let report = cx
        .blocking(move |control, brake| {
            snapshots::import(control, &file, &options, &|done, total| {
                brake.check();
                bar.at(done, total);
            })
        })
        .await?;
    cx.ui.report(&report, |page| {
        page.pairs(&[
            ("snapshot", report.snapshot.to_string()),
            ("name", or_dash(report.name.as_ref())),
            ("events", report.events.to_string()),
            ("instruments", report.instruments.to_string()),
        ]);
        if report.already_present {
            page.line("already present");
        }
    });
    Ok(Exit::Done)
}

fn options(args: ImportArgs) -> Result<ImportOptions, Failure> {
    let format = args.format.as_deref().map(format).transpose()?;
    Ok(ImportOptions {
        name: Some(args.name),
        format,
        time_column: args.time_column,
        close_column: args.close_column,
        instrument: args.instrument,
        instrument_column: args.instrument_column,
        event_id_column: args.event_id_column,
        time_format: args.time_format,
        tz: args.tz,
        no_header: args.no_header,
        sort: args.sort,
        fields: args.fields,
        replace: args.replace,
    })
}

fn format(name: &str) -> Result<Format, Failure> {
    match name {
        "csv" => Ok(Format::Csv),
        "jsonl" => Ok(Format::JsonLines),
        "parquet" => Ok(Format::Parquet),
        _ => Err(Failure::usage(
            format!("--format: `{name}` is no format"),
            "one of csv, jsonl, parquet",
        )),
    }
}
