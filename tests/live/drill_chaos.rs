//! `finaz drill chaos`: a short campaign breaks no invariant and leaves only its evidence; a mistake that is planted in its
//! database is found; what is not a drill's is refused.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tokio_postgres::{NoTls, SimpleQueryMessage};
use uuid::Uuid;

use crate::drill::{SOON, databases, folders, nonce, processes, stage};
use crate::process::until;
use crate::setting;
use crate::stage::{Stage, with_path};

/// Of a short campaign, on a machine that is busy with other tests.
const CAMPAIGN: Duration = Duration::from_secs(200);

/// An empty database that is marked as a drill's; gone with the value.
struct Marked<'a> {
    stage: &'a Stage,
    name: String,
    url: String,
}

impl<'a> Marked<'a> {
    fn new(stage: &'a Stage) -> Self {
        let name = format!("finaz_test_{}", Uuid::new_v4().simple());
        stage.sql(&format!("CREATE DATABASE {name}"));
        stage.sql(&format!("COMMENT ON DATABASE {name} IS 'finaz drill'"));
        let url = with_path(stage.pg_url(), &name);
        Self { stage, name, url }
    }

    /// How many rows a statement gives; `None` where it could not be made. In a session of its own: others may be ended.
    fn rows(&self, statement: &str) -> Option<usize> {
        self.stage.runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.ok()?;
            let carried = tokio::spawn(connection);
            let answer = client.simple_query(statement).await.ok();
            drop(client);
            let _closed = carried.await;
            let is_row =
                |message: &&SimpleQueryMessage| matches!(message, SimpleQueryMessage::Row(_));
            Some(answer?.iter().filter(is_row).count())
        })
    }
}

impl Drop for Marked<'_> {
    fn drop(&mut self) {
        self.stage.sql(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
    }
}

fn check<'a>(report: &'a Value, id: &str) -> &'a Value {
    let checks = report["checks"].as_array().expect("checks");
    checks.iter().find(|check| check["id"] == id).unwrap_or_else(|| panic!("no {id}: {report}"))
}

#[test]
fn a_short_campaign_of_random_faults_breaks_no_invariant_and_leaves_only_its_evidence() {
    let Some((mut stage, temporary)) = stage() else { return };
    stage.set("FINAZ_WAREHOUSE", "auto");
    let clickhouse = setting("FINAZ_CLICKHOUSE_URL").expect("ClickHouse beside the others");
    stage.set("FINAZ_CLICKHOUSE_URL", &clickhouse);
    // The user that a PostgreSQL of the drill's own runs as, where the drill is root's, has to go through it.
    let passable = fs::Permissions::from_mode(0o711);
    fs::set_permissions(stage.path(""), passable).expect("ours");
    let out = stage.path("evidence");
    let out = out.to_str().expect("a path");
    let args = ["drill", "chaos", "--seed", "11", "--duration", "20s", "--out", out];
    let run = stage.start(&args).wait(CAMPAIGN);
    let report = run.json();
    let open: Vec<&Value> = report["checks"].as_array().expect("checks").iter().collect();
    let open: Vec<&&Value> = open.iter().filter(|check| check["pass"] != true).collect();
    let lacks = &report["lacks"];
    assert_eq!((run.exit, &report["verdict"]), (Some(0), &"PASS".into()), "{open:#?} {lacks}");
    let ledger = &report["ledger"];
    for none in ["lost", "unexpected", "duplicated"] {
        assert_eq!(ledger[none], 0, "{ledger}");
    }
    assert!(ledger["acked"].as_u64() > Some(200), "{ledger}");
    let dealt = report["faults"].as_array().expect("faults");
    assert!(dealt.iter().filter(|fault| fault["whom"].is_string()).count() >= 5, "{dealt:#?}");
    let nonce = report["nonce"].as_str().expect("a nonce");
    assert_eq!((databases(&stage, nonce), folders(&temporary)), (0, Vec::new()));
    assert!(processes(nonce).is_empty());
    let history = fs::read(stage.path("evidence/chaos.history.jsonl")).expect("the history");
    assert_eq!(report["history_hash"], finaz::ids::Hash::of(&history).to_string());
    let page = fs::read_to_string(stage.path("evidence/chaos.html")).expect("the page");
    assert!(page.contains("<svg") && page.contains("PASS") && !page.contains("<script"), "{page}");
}

#[test]
fn a_publication_that_vanishes_during_a_campaign_is_found_by_the_judges() {
    let Some((stage, temporary)) = stage() else { return };
    let database = Marked::new(&stage);
    let with = [("FINAZ_DATABASE", database.url.as_str())];
    let args = ["drill", "chaos", "--seed", "3", "--duration", "8s"];
    let campaign = stage.start_with(&with, &args);
    // The mistake of a program that publishes and does not keep it.
    until("a publication is there, and gone", SOON, || {
        let first = "(SELECT min(run_no) FROM finaz.publications)";
        let rows = database.rows(&format!(
            "DELETE FROM finaz.publications WHERE run_no = {first} RETURNING run_id"
        ));
        (rows == Some(1)).then_some(())
    });
    let run = campaign.wait(CAMPAIGN);
    let report = run.json();
    assert_eq!((run.exit, &report["verdict"]), (Some(1), &"FAIL".into()), "{report}");
    assert_eq!(check(&report, "I5")["pass"], false, "{report}");
    assert_eq!(report["ledger"]["lost"], 1, "{report}");
    let others = report["checks"].as_array().expect("checks").iter();
    let failed = others.filter(|check| check["ran"] == true && check["pass"] == false).count();
    assert_eq!(failed, 1, "{report}");
    // A database that was given stays, empty.
    let tables = "SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
                  WHERE n.nspname LIKE 'finaz%'";
    assert_eq!((database.rows(tables), folders(&temporary)), (Some(0), Vec::new()));
}

#[test]
fn a_campaign_in_a_database_that_is_not_a_drill_s_is_refused_and_one_told_to_end_leaves_nothing() {
    let Some((stage, temporary)) = stage() else { return };
    let with = [("FINAZ_DATABASE", stage.pg_url())];
    let args = ["drill", "chaos", "--duration", "8s"];
    stage.start_with(&with, &args).wait(SOON).refuses(2, "DRILL_UNMARKED");
    let mut campaign = stage.start(&["drill", "chaos", "--duration", "5m"]);
    let nonce = until("its folder is there", SOON, || nonce(&temporary));
    until("its processes are at work", SOON, || (processes(&nonce).len() > 3).then_some(()));
    campaign.signal(Signal::INT);
    campaign.wait(SOON).refuses(130, "INTERRUPTED");
    assert_eq!((databases(&stage, &nonce), folders(&temporary)), (0, Vec::new()));
    until("its processes are gone", SOON, || processes(&nonce).is_empty().then_some(()));
}
