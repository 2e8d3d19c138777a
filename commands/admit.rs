//! `finaz admit`

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use finaz::control::Error;
use finaz::control::admit::{self, AdmitRequest, AdmittedSet};

use crate::context::Context;
use crate::failure::Failure;
use crate::page::{Page, short};
use crate::ui::{Exit, Unit};

/// Ask for a run, or for many, without waiting for it
///
/// The same key with the same flow and snapshot is the same run, however often it is asked for; with
/// another body it is a conflict.
#[derive(Debug, clap::Args)]
pub(crate) struct AdmitArgs {
    #[command(flatten)]
    request: RequestArgs,
    /// Read requests from JSON lines of {flow, snapshot, principal, operation, key}; `-` is stdin
    ///
    /// The other flags say what a line leaves out. Lines are admitted in sets, each wholly or not at all.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

/// What a run is asked for with.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RequestArgs {
    /// Flow: a hash, a file or a name
    #[arg(long, value_name = "FLOW")]
    flow: Option<String>,
    /// Snapshot: a hash, a file or a name [default: the flow's own]
    #[arg(long, value_name = "SNAPSHOT")]
    snapshot: Option<String>,
    /// Who asks
    #[arg(long, value_name = "NAME", default_value = admit::PRINCIPAL)]
    principal: String,
    /// What for
    #[arg(long, value_name = "NAME", default_value = admit::OPERATION)]
    operation: String,
    /// Idempotency key [default: the hash of flow and snapshot]
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

impl RequestArgs {
    /// The request, which needs a flow at least.
    pub(crate) fn request(self) -> Result<AdmitRequest, Failure> {
        match self.flow.clone() {
            Some(flow) => Ok(self.with_flow(flow)),
            None => Err(Failure::usage("a flow is missing", "name it with --flow")),
        }
    }

    fn with_flow(self, flow: String) -> AdmitRequest {
        AdmitRequest {
            flow,
            snapshot: self.snapshot,
            principal: self.principal,
            operation: self.operation,
            key: self.key,
        }
    }
}

pub(crate) async fn run(cx: &mut Context<'_>, args: AdmitArgs) -> Result<Exit, Failure> {
    match args.from {
        Some(file) => run_set(cx, &file, args.request).await,
        None => run_one(cx, args.request).await,
    }
}

async fn run_one(cx: &mut Context<'_>, args: RequestArgs) -> Result<Exit, Failure> {
    let request = args.request()?;
    let report = cx.awaiting(async |control| admit::admit(control, &request).await).await?;
    cx.ui.report(&report, |page| {
        page.pairs(&[
            ("run", report.run_id.clone()),
            ("body", report.body_hash.to_string()),
            ("state", report.state.clone()),
        ]);
        page.line(if report.created { "admitted" } else { "admitted before" });
    });
    Ok(Exit::Done)
}

async fn run_set(cx: &mut Context<'_>, file: &Path, args: RequestArgs) -> Result<Exit, Failure> {
    for flag in ["flow", "key"] {
        if cx.typed(flag) {
            let message = format!("--{flag} cannot be used with --from");
            return Err(Failure::usage(message, "each line of the file has its own"));
        }
    }
    let (mut source, place) = open(file)?;
    let defaults = AdmitRequest { key: None, ..args.with_flow(String::new()) };
    let bar = cx.ui.progress("admitting", Unit::Count);
    let report = cx
        .awaiting(async |control| {
            let progress = |done| bar.at(done, 0);
            admit::admit_set(control, &mut *source, &place, &defaults, &progress).await
        })
        .await?;
    cx.ui.report(&report, |page| set_page(page, &report));
    Ok(if report.conflicts.is_empty() { Exit::Done } else { Exit::Refused })
}

fn open(file: &Path) -> Result<(Box<dyn BufRead + Send>, String), Failure> {
    if file == Path::new("-") {
        return Ok((Box::new(BufReader::new(io::stdin())), "stdin".to_owned()));
    }
    let place = file.display().to_string();
    match File::open(file) {
        Ok(opened) => Ok((Box::new(BufReader::with_capacity(1 << 16, opened)), place)),
        Err(source) => Err(Error::Io { place, source }.into()),
    }
}

fn set_page(page: &mut Page, report: &AdmittedSet) {
    page.pairs(&[
        ("created", report.created.to_string()),
        ("existing", report.existing.to_string()),
        ("conflicts", report.conflicts.len().to_string()),
    ]);
    if report.conflicts.is_empty() {
        return;
    }
    let rows = report.conflicts.iter().map(|conflict| {
        vec![
            conflict.line.to_string(),
            conflict.key.clone(),
            short(&conflict.body_hash.to_string()),
            short(&conflict.other_hash.to_string()),
        ]
    });
    page.line("");
    page.table(&["line", "key", "body", "held"], rows.collect(), "");
}
