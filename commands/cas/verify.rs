//! `finaz cas verify`

use finaz::control::cas;

use crate::context::Context;
use crate::failure::Failure;
use crate::page::or_dash;
use crate::ui::{Exit, Unit};

/// Read every artifact and hold it against its hash
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {}

pub(crate) async fn run(cx: &mut Context<'_>, _args: VerifyArgs) -> Result<Exit, Failure> {
    let bar = cx.ui.progress("verifying", Unit::Count);
    let report = cx
        .blocking(move |control, brake| {
            cas::verify(control, &|blobs| {
                brake.check();
                bar.at(blobs, 0);
            })
        })
        .await?;
    cx.ui.report(&report, |page| {
        page.pairs(&[
            ("blobs", (report.loose + report.packed).to_string()),
            ("packs", report.packs.to_string()),
            ("labels", report.labels.to_string()),
            ("bytes", report.bytes.to_string()),
            ("damages", report.damages.to_string()),
        ]);
        if report.damages > 0 {
            let rows = report.damaged.iter().map(|damage| {
                vec![or_dash(damage.hash), damage.place.clone(), damage.seen.clone()]
            });
            page.line("");
            page.table(&["blob", "place", "seen"], rows.collect(), "");
        }
    });
    Ok(if report.damages == 0 { Exit::Done } else { Exit::Refused })
}
