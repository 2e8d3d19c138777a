//! `finaz cas verify`

use finaz::control::cas;

use crate::context::Context;
use crate::failure::Failure;
use crate::ui::{Exit, Unit};

/// Read every artifact and check it against its hash
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {}

pub(crate) async fn run(cx: &mut Context<'_>, _args: VerifyArgs) -> Result<Exit, Failure> {
    let bar = cx.ui.progress("verifying", Unit::Items);
    let report = cx
        .blocking(move |control, brake| {
            cas::verify(control, &|done, total| {
                brake.check();
                bar.at(done, total);
            })
        })
        .await?;
    Ok(Exit::Done)
}
