//! The evidence of a campaign, written.

use std::fs;
use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use super::Played;
use crate::control::drill::Files;
use crate::control::drill::stage::Stage;
use crate::control::{Control, Error};
use crate::drill::chaos::{Campaign, History, Plan, Shown, page, show};
use crate::drill::{Check, Moment, Versions};
use crate::ids::Hash;

/// The evidence, and where it lies.
#[derive(Clone, Debug, Serialize)]
pub struct CampaignReport {
    #[serde(flatten)]
    pub campaign: Campaign,
    /// The files of it.
    pub files: Files,
}

/// Judges what was played.
pub(super) async fn gather(
    stage: &Stage,
    plan: Plan,
    played: Played,
    began: Instant,
) -> Result<(Campaign, History), Error> {
    let Played { started_at, history, faults, mut lacks, broke_off } = played;
    let (postgresql, ended_at) = stage.store.drill_server().await?;
    let topics = stage.broker.topic_names().await?;
    let topics: Vec<String> =
        topics.into_iter().filter(|topic| topic.starts_with(&stage.mark.topics)).collect();
    let cluster = match topics.first() {
        Some(topic) => stage.broker.find_topic(topic).await?.map(|topic| topic.cluster),
        None => None,
    };
    let mut shown = show(&plan, &history, &faults);
    if let Some(why) = broke_off {
        shown.broke_off(&why);
        lacks.push(format!("the campaign broke off: {why}"));
    }
    let Shown { verdict, checks, ledger, done, kinds, situations, missing } = shown;
    let count = |word: &str| checks.iter().filter(|check: &&Check| check.word() == word).count();
    let campaign = Campaign {
        kind: "DrillEvidence",
        version: 1,
        drill: "chaos",
        verdict,
        passed: count("PASS"),
        failed: count("FAIL"),
        not_run: count("NOT RUN"),
        seed: plan.seed,
        nonce: stage.mark.nonce.clone(),
        started_at,
        ended_at,
        seconds: began.elapsed().as_secs_f64(),
        ttl_sec: stage.ttl.as_secs_f64(),
        duration_sec: plan.duration().as_secs_f64(),
        recovery_sec: history.end.rest.took_ms.map(|ms| ms as f64 / 1e3),
        versions: Versions::of(postgresql, cluster.as_deref()),
        environment: stage.environment(topics),
        lacks,
        ledger,
        done,
        checks,
        kinds,
        situations,
        missing,
        plan,
        faults,
        timeline: timeline(&history),
        history: "chaos.history.jsonl".to_owned(),
        history_hash: String::new(),
        history_lines: 0,
    };
    Ok((campaign, history))
}

/// What happened to the leases of the streams, in the order of time; of renewals that follow each other the last.
fn timeline(history: &History) -> Vec<Moment> {
    let mut all = Vec::new();
    for run in super::STREAMS {
        let lease = format!("stream/{run}");
        let is_its = |moment: &&Moment| moment.is_of(&lease) && moment.what != "committed";
        let mut moments: Vec<&Moment> = history.moments.iter().filter(is_its).collect();
        moments.sort_by_key(|moment| moment.at_us);
        for (at, moment) in moments.iter().enumerate() {
            let is_last = moments.get(at + 1).is_none_or(|next| next.what != "renewed");
            if moment.what != "renewed" || is_last {
                all.push((*moment).clone());
            }
        }
    }
    all.sort_by_key(|moment| moment.at_us);
    all
}

/// Writes document, page and history.
pub(super) fn write(
    control: &Control,
    out: Option<&Path>,
    mut campaign: Campaign,
    history: &History,
) -> Result<CampaignReport, Error> {
    let beside = || control.settings.artifacts.join("evidence").join(&campaign.nonce);
    let out = out.map_or_else(beside, Path::to_owned);
    let place = |path: &Path| path.display().to_string();
    let keep = |name: &str, bytes: &[u8]| -> Result<String, Error> {
        let path = out.join(name);
        fs::write(&path, bytes)
            .map_err(|source| Error::NotWritten { place: place(&path), source })?;
        Ok(place(&path))
    };
    fs::create_dir_all(&out).map_err(|source| Error::NotWritten { place: place(&out), source })?;
    let lines = history.lines();
    campaign.history_hash = Hash::of(&lines).to_string();
    campaign.history_lines = lines.iter().filter(|byte| **byte == b'\n').count();
    let history = keep(&campaign.history, &lines)?;
    let mut document = serde_json::to_vec_pretty(&campaign).expect("evidence is JSON");
    document.push(b'\n');
    let document = keep("chaos.json", &document)?;
    let page = keep("chaos.html", page(&campaign).as_bytes())?;
    Ok(CampaignReport { campaign, files: Files { document, page, history } })
}
