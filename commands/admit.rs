//! `finaz admit`

use std::path::PathBuf;

use finaz::control::admit::{self, AdmitRequest};

use crate::context::Context;
use crate::failure::Failure;
use crate::page::short;
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
    #[arg(long, value_name = "NAME", default_value = "local")]
    principal: String,
    /// What for
    #[arg(long, value_name = "NAME", default_value = "flow.run")]
    operation: String,
    /// Idempotency key [default: the hash of flow and snapshot]
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

impl RequestArgs {
    /// The request, which needs a flow at least.
    pub(crate) fn request(self) -> Result<AdmitRequest, Failure> {
        let Some(flow) = self.flow else {
            return Err(Failure::usage("a flow is missing", "name it with --flow"));
        };
        Ok(AdmitRequest {
            flow,
            snapshot: self.snapshot,
            principal: self.principal,
            operation: self.operation,
            key: self.key,
        })
    }
}

pub(crate) async fn run(cx: &mut Context<'_>, args: AdmitArgs) -> Result<Exit, Failure> {
    match args.from {
        Some(file) => run_set(cx, file).await,
        None => run_one(cx, args.request).await,
    }
}

async fn run_one(cx: &mut Context<'_>, args: RequestArgs) -> Result<Exit, Failure> {
    let request = args.request()?;
    let report = cx.awaiting(async |control| admit::admit(control, request).await).await?;
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

async fn run_set(cx: &mut Context<'_>, file: PathBuf) -> Result<Exit, Failure> {
    for flag in ["flow", "snapshot", "principal", "operation", "key"] {
        if cx.typed(flag) {
            return Err(Failure::usage(
                format!("--{flag} cannot be used with --from"),
                "each line of the file names its own",
            ));
        }
    }
    let bar = cx.ui.progress("admitting", Unit::Bytes);
    let report = cx
        .awaiting(async |control| {
            admit::admit_file(control, &file, &|done, total| bar.at(done, total)).await
        })
        .await?;
    cx.ui.report(&report, |page| {
        page.pairs(&[
            ("created", report.created.to_string()),
            ("existing", report.existing.to_string()),
            ("conflicts", report.conflicts.len().to_string()),
        ]);
        if !report.conflicts.is_empty() {
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
    });
    Ok(if report.conflicts.is_empty() { Exit::Done } else { Exit::Refused })
}
