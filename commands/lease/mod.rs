//! `finaz lease`: who holds what, and until when.

mod acquire;
mod list;
mod new_epoch;
mod release;
mod renew;
mod show;

use std::time::Duration;

use finaz::config;
use finaz::control::leases::LeaseView;

use crate::context::Context;
use crate::failure::Failure;
use crate::page::{Page, second, short};
use crate::ui::Exit;

/// Look at leases and take, renew or end one by hand
#[derive(Debug, clap::Subcommand)]
pub(crate) enum LeaseCommand {
    List(list::ListArgs),
    Show(show::ShowArgs),
    Acquire(acquire::AcquireArgs),
    Renew(renew::RenewArgs),
    Release(release::ReleaseArgs),
    NewEpoch(new_epoch::NewEpochArgs),
}

pub(crate) async fn run(cx: &mut Context<'_>, command: LeaseCommand) -> Result<Exit, Failure> {
    match command {
        LeaseCommand::List(args) => list::run(cx, args).await,
        LeaseCommand::Show(args) => show::run(cx, args).await,
        LeaseCommand::Acquire(args) => acquire::run(cx, args).await,
        LeaseCommand::Renew(args) => renew::run(cx, args).await,
        LeaseCommand::Release(args) => release::run(cx, args).await,
        LeaseCommand::NewEpoch(args) => new_epoch::run(cx, args).await,
    }
}

/// How long a lease is to live.
#[derive(Debug, clap::Args)]
struct TtlArgs {
    /// Let the lease live this long [default: --lease-ttl-sec]
    #[arg(long, value_name = "SEC", allow_negative_numbers = true)]
    ttl: Option<String>,
}

impl TtlArgs {
    fn ttl(&self, cx: &Context<'_>) -> Result<Duration, Failure> {
        match &self.ttl {
            Some(text) => Ok(config::lease_ttl("--ttl", text)?),
            None => Ok(cx.control.settings.lease_ttl),
        }
    }
}

/// The owner token of `--owner`, if it is one and not just a name.
fn token(cx: &Context<'_>) -> Option<String> {
    let owner = &cx.control.settings.owner;
    owner.contains('/').then(|| owner.clone())
}

/// The owner token that an existing lease needs.
fn required_token(cx: &Context<'_>) -> Result<String, Failure> {
    token(cx).ok_or_else(|| {
        Failure::usage(
            "--owner must be the token of the lease's owner",
            "give the token that `finaz lease acquire` printed: name/uuid",
        )
    })
}

/// Leases for people: one in full, several as a table.
fn page(page: &mut Page, leases: &[LeaseView]) {
    let live = |lease: &LeaseView| if lease.live { "live" } else { "expired" }.to_owned();
    if let [lease] = leases {
        return page.pairs(&[
            ("lease", lease.name.clone()),
            ("owner", lease.owner.to_string()),
            ("fence", lease.fence.to_string()),
            ("epoch", lease.epoch.to_string()),
            ("expires", lease.expires_at.clone()),
            ("state", live(lease)),
        ]);
    }
    let rows = leases.iter().map(|lease| {
        vec![
            short(&lease.name),
            live(lease),
            lease.fence.to_string(),
            lease.epoch.to_string(),
            second(&lease.expires_at),
            short(lease.owner.token()),
        ]
    });
    let header = ["lease", "state", "fence", "epoch", "expires", "owner"];
    page.table(&header, rows.collect(), "no leases");
}
