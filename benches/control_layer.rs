//! The control layer alone: claim committed, then fenced publish; two durable transactions a batch.

use std::time::{Duration, Instant};

use finaz::ids::{Hash, Owner};
use finaz::rules::admission::Request;
use finaz::store::{Connect, Limits, RunResult, Store};

const TTL: Duration = Duration::from_secs(30);

pub async fn run() {
    let url = std::env::var("FINAZ_PG_URL").expect("FINAZ_PG_URL");
    let number = |name: &str, default: i64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (runs, batch) = (number("BENCH_RUNS", 100_000), number("BENCH_BATCH", 500));
    let store =
        Store::new(Connect::new(&url, Limits { ttl: TTL }, false).expect("url")).expect("pool");
    store.migrate().await.expect("schema");
    let salt = Owner::of_process("b").token().to_owned();
    let requests: Vec<Request> = (0..runs)
        .map(|n| {
            Request::new(
                "bench",
                "flow.run",
                Some(&format!("{salt}/{n}")),
                Hash::of(b"f"),
                Hash::of(b"s"),
            )
            .expect("a request")
        })
        .collect();
    let started = Instant::now();
    for set in requests.chunks(2000) {
        store.admit(set).await.expect("admitted");
    }
    let admitted = started.elapsed();
    println!("admit {runs} in {admitted:.2?}: {:.0}/s", rate(runs, admitted));
    let owner = Owner::of_process("bench");
    let started = Instant::now();
    let (sender, mut claims) = tokio::sync::mpsc::channel::<finaz::store::Claim>(2);
    let claimer = store.clone();
    let claiming_owner = owner.clone();
    let claiming = tokio::spawn(async move {
        let mut floor = 0;
        while let Some(claim) =
            claimer.claim(&claiming_owner, TTL, batch, floor).await.expect("claim")
        {
            floor = claim.runs.iter().map(|run| run.event_id).min().unwrap_or(floor);
            sender.send(claim).await.expect("open");
        }
    });
    let mut done = 0;
    while let Some(claim) = claims.recv().await {
        let results: Vec<RunResult> = claim
            .runs
            .iter()
            .map(|run| RunResult {
                run_no: run.run_no,
                run_id: run.run_id.clone(),
                fence: run.fence,
                blob: Hash::of(run.run_id.as_bytes()),
                values_hash: Hash::of(run.run_id.as_bytes()),
                rows: 6,
            })
            .collect();
        let published = store.publish(&claim, &results, 0.0, true).await.expect("published");
        assert!(published.left.is_empty(), "all were ours");
        done += published.published.len();
    }
    claiming.await.expect("claimer");
    let took = started.elapsed();
    println!(
        "control layer: {done} in {took:.2?}: {:.0}/s",
        rate(i64::try_from(done).expect("fits"), took)
    );
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn rate(count: i64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}
