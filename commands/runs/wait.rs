//! `finaz runs wait`

use std::time::Duration;

use finaz::config;
use finaz::control::runs;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::Exit;

/// Wait until runs are over; fail if one failed or was cancelled
#[derive(Debug, clap::Args)]
pub(crate) struct WaitArgs {
    /// Ids of the runs
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<String>,
    /// Give up after this long [default: never]
    #[arg(long, value_name = "SEC")]
    timeout_sec: Option<String>,
}

/// A year: whoever waits longer means forever, which is the default.
const TIMEOUT_SEC_MAX: f64 = 31_536_000.0;

pub(crate) async fn run(cx: &mut Context<'_>, args: WaitArgs) -> Result<Exit, Failure> {
    let timeout = args.timeout_sec.as_deref();
    let timeout: Option<Duration> = timeout
        .map(|text| config::seconds("--timeout-sec", text, 0.0, TIMEOUT_SEC_MAX))
        .transpose()?;
    let report =
        cx.awaiting(async |control| runs::wait(control, &args.runs, timeout).await).await?;
    cx.ui.report(&report, |page| super::page(page, &report));
    Ok(Exit::Done)
}
