//! `finaz drill chaos`: random faults on real processes, and a history that is judged.

mod deal;
mod ground;
mod load;
mod report;
mod rest;
mod retention;
mod team;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::sync::watch;

pub use report::CampaignReport;

pub use crate::drill::chaos::{Plan, name_of};

use super::stage::{Means, Stage};
use super::{Progress, told};
use crate::config::Secret;
use crate::control::worker::Stop;
use crate::control::{Control, Error};
use crate::drill::Broke;
use crate::drill::chaos::{Dealt, History};
use ground::Ground;
use load::Counter;
use team::{Log, Team};

/// Of every lease of a campaign.
const TTL: Duration = Duration::from_secs(2);
/// The runs of the streams: two groups over one topic.
const STREAMS: [&str; 2] = ["alpha", "beta"];

/// What to carry out.
#[derive(Clone, Debug)]
pub struct ChaosRequest {
    /// The program whose processes play.
    pub binary: PathBuf,
    /// Where the drill's folder is made.
    pub temporary: PathBuf,
    /// Where the evidence goes; absent: beside the artifacts.
    pub out: Option<PathBuf>,
    /// A marked database; absent: one is made, on a PostgreSQL of the drill's own where there can be one.
    pub database: Option<Secret>,
    pub seed: u64,
    /// Of the phase with faults.
    pub duration: Duration,
}

impl ChaosRequest {
    /// What the campaign will do.
    #[must_use]
    pub fn plan(&self) -> Plan {
        Plan::draw(self.seed, self.duration)
    }
}

/// What was played.
#[derive(Debug, Default)]
struct Played {
    started_at: String,
    history: History,
    faults: Vec<Dealt>,
    lacks: Vec<String>,
    /// Why it did not come to its end.
    broke_off: Option<String>,
}

/// Carries out a campaign, and writes its evidence. What it made on the servers is gone when this returns.
///
/// # Errors
/// As `two_owners`.
pub async fn chaos(
    control: &Control,
    request: &ChaosRequest,
    progress: Progress<'_>,
    mut stop: watch::Receiver<Stop>,
) -> Result<CampaignReport, Error> {
    super::check_database(request.database.as_ref())?;
    let began = Instant::now();
    let plan = request.plan();
    let means = Means {
        binary: &request.binary,
        temporary: &request.temporary,
        database: request.database.as_ref(),
        seed: request.seed,
        warehouse: true,
        ttl: TTL,
    };
    let stage = Stage::set(control, &means).await?;
    let is_given = request.database.is_some();
    let played = tokio::select! {
        played = carry_out(control, &stage, (&plan, is_given), progress) => Ok(played),
        signal = told(&mut stop) => Err(Error::Interrupted { signal }),
    };
    let gathered = match played {
        Ok(played) => report::gather(&stage, plan, played, began).await,
        Err(error) => Err(error),
    };
    let struck = stage.strike().await;
    let (campaign, history) = gathered?;
    let report = report::write(control, request.out.as_deref(), campaign, &history)?;
    // After it: what was shown was shown.
    struck?;
    Ok(report)
}

/// A campaign that breaks off has a history all the same, and says why.
async fn carry_out(
    control: &Control,
    stage: &Stage,
    (plan, is_given): (&Plan, bool),
    progress: Progress<'_>,
) -> Played {
    let mut played = Played::default();
    if let Ok((_, at)) = stage.store.drill_server().await {
        played.started_at = at;
    }
    let ended = async {
        let ground = Ground::set(control, stage, is_given).await?;
        played.lacks.clone_from(&ground.lacks);
        Box::pin(campaign(&ground, plan, &mut played, progress)).await
    };
    if let Err(Broke::Unable(why) | Broke::Failed(why)) = ended.await {
        played.broke_off = Some(why);
    }
    played
}

async fn campaign(
    ground: &Ground<'_>,
    plan: &Plan,
    played: &mut Played,
    progress: Progress<'_>,
) -> Result<(), Broke> {
    ground.furnish().await?;
    let log = Log::by(ground.store.note_drill("begun", None, "drill", None).await?);
    let team = Team::new(ground, &log, plan);
    let counter = Counter::default();
    rest::first_replay(&team, &counter).await?;
    let total = plan.duration().as_secs();
    let play = async {
        let loads = async {
            tokio::try_join!(load::admissions(&team, &counter), load::arrivals(&team, &counter))
        };
        let faults = async {
            let dealt = deal::all(&team, |seconds| progress(seconds.min(total), total)).await;
            *team::locked(&team.quiet) = true;
            dealt
        };
        let (_, dealt) = tokio::try_join!(loads, faults)?;
        played.faults = dealt;
        let rest = rest::comes(&team).await?;
        rest::all_end(&team).await?;
        let end = rest::found(&team, rest).await?;
        Ok::<_, Broke>(end)
    };
    let ended = tokio::select! {
        ended = play => ended,
        broke = team.keep() => Err(broke),
    };
    let moments = rest::patiently(async || ground.store.drill_history().await).await;
    let told = std::mem::take(&mut *log.told());
    played.history.ops = told.ops;
    played.history.moments = moments.unwrap_or_default();
    played.history.moments.extend(told.deeds);
    let mut end = ended?;
    end.endings = told.endings;
    played.history.end = end;
    let lines = played.history.lines();
    let secrets = &mut played.history.end.secrets;
    secrets.looked += 1;
    if ground.has_secret(&lines) {
        secrets.found.push("the history".to_owned());
    }
    Ok(())
}
