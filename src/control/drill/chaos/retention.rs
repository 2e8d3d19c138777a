//! Retention takes what a stream still needs: it must say so, and say so again.

use std::time::Duration;

use super::team::{Role, Team};
use crate::control::drill::crew::Run;
use crate::control::drill::wait::unable;
use crate::drill::Broke;
use crate::drill::chaos::Fault;

/// Of one process of it.
const END: Duration = Duration::from_secs(30);
/// Services may be away in between.
const TRIES: u32 = 8;
/// The partition that gets most of a replay.
const PARTITION: i32 = 3;

/// Makes a stream of its own, and takes its records away; gives its name.
pub(super) async fn deal(team: &Team<'_>, fault: Fault) -> Result<String, Broke> {
    let stage = team.ground.stage;
    let run = format!("taken{}", fault.at_ms);
    let topic = stage.topic(&run);
    stage.replay(&topic, 1).await?;
    let begun = once(team, &run, &["--once-n", "10"], |run| run.exit == Some(0)).await?;
    if begun.exit != Some(0) {
        return Err(Broke::Unable(format!("a stream to take records from: {}", begun.ending())));
    }
    stage.replay(&topic, 1).await?;
    let found = stage.broker.find_topic(&topic).await?;
    let found = found.ok_or_else(|| unable(&topic, &"there is no such topic"))?;
    let edges = stage.broker.edges(&found, &[PARTITION]).await?;
    let end = edges.first().map_or(0, |edge| edge.high_water);
    stage.broker.delete_before(&topic, PARTITION, end).await?;
    // Restarts do not make it look well.
    for _ in 0..2 {
        let blocked = once(team, &run, &[], |run| run.code() == "RECOVERY_BLOCKED").await?;
        if blocked.code() != "RECOVERY_BLOCKED" {
            return Err(Broke::Failed(format!(
                "a stream without its records: {}",
                blocked.ending()
            )));
        }
        team.log.deed("blocked", Some(format!("stream/{run}")), &run, None);
    }
    Ok(run)
}

/// Runs an owner until it ends as it must; gives the last end.
async fn once(
    team: &Team<'_>,
    run: &str,
    more: &[&str],
    is_so: impl Fn(&Run) -> bool,
) -> Result<Run, Broke> {
    let stage = team.ground.stage;
    let topic = stage.topic(run);
    let straight = team.ground.straight();
    let mut last = None;
    for at in 1..=TRIES {
        let name = format!("{run}-{}-{at}", team.log.now_us());
        let mut args = vec!["stream", "--topic", &topic, "--group", run, "--run-id", run];
        args.extend(["--flow", &stage.files.flow]);
        args.extend(more);
        let mut environment: Vec<(&str, &str)> =
            straight.iter().map(|(name, value)| (*name, value.as_str())).collect();
        environment.push(("FINAZ_OWNER", &name));
        let actor = stage.crew.start(&name, &args, &environment)?;
        let mut member = team.adopt(actor, Role::Worker);
        let Ok(ended) = member.actor.end(END).await else {
            team.log.stays(&member, "reads on without the records that it needs");
            return Err(unable(&run, &"it does not end"));
        };
        team.log.ended(&member, &ended);
        if more.is_empty() && ended.exit == Some(0) {
            team.log.stays(&member, "took it for its end that records were gone");
        }
        if is_so(&ended) {
            return Ok(ended);
        }
        last = Some(ended);
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    last.ok_or_else(|| Broke::Unable("nothing was tried".to_owned()))
}
