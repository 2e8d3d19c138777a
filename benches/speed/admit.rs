//! `finaz admit --from FILE`: a file of requests, each with a key of its own.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::time::Instant;

use crate::figures::{Table, rate};
use crate::number;
use crate::servers::Servers;
use crate::stage::{Stage, project};

pub(crate) async fn run(servers: &Servers, table: &mut Table) {
    let requests = number("BENCH_REQUESTS", 100_000);
    println!("admit: a file of {requests} requests");
    let stage = Stage::open(servers, "admit").await;
    let fixture = project("fixtures/fixture.snapshot.01.jsonl");
    let fixture = fixture.to_str().expect("a UTF-8 path");
    stage.finaz(&["snapshot", "import", fixture, "--name", "fixture.snapshot.01"]);
    let flow = project("manifests/fixture.01_A_feature.yaml");
    let file = stage.path("requests.jsonl");
    let mut out = BufWriter::new(File::create(&file).expect("a new file"));
    for n in 0..requests {
        writeln!(out, "{{\"flow\":\"{}\",\"key\":\"request/{n}\"}}", flow.display()).expect("room");
    }
    out.flush().expect("room");
    drop(out);
    let started = Instant::now();
    let report = stage.finaz(&["admit", "--from", file.to_str().expect("a UTF-8 path")]);
    let seconds = started.elapsed().as_secs_f64();
    assert_eq!(report["created"].as_u64(), u64::try_from(requests).ok(), "{report}");
    table.alone(
        &format!("admit --from, {requests} requests"),
        format!("{seconds:.2} s, {}", rate(requests, seconds)),
    );
    stage.close(servers).await;
}
