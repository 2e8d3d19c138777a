//! Figures, never verdicts: `make bench`. Each is measured beside its peer in the same run and printed as a ratio.
//!
//! `scripts/bench.sh NAME…` measures what is named; `docs/benchmarks.md` says how and why.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a harness: it prints, reads its own settings, and measures time"
)]

mod admit;
mod control;
mod cpu;
mod figures;
mod filled_topic;
mod full;
mod graphile;
mod import;
mod known;
mod latency;
mod nodes;
mod peers;
mod recovery;
mod replay;
mod servers;
mod stage;
mod start;
mod stream;
mod successor;
mod throughput;

use figures::Table;
use servers::Servers;

/// What can be asked for, in the order in which it is measured.
const NAMES: &[&str] = &[
    "start",
    "nodes",
    "import",
    "replay",
    "admit",
    "control",
    "full",
    "latency",
    "recovery",
    "stream",
    "peers",
    "successor",
    "known",
];

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    for word in &wanted {
        assert!(NAMES.contains(&word.as_str()), "{word}: none of {}", NAMES.join(", "));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let mut table = Table::default();
    runtime.block_on(measure(
        &|name| wanted.is_empty() || wanted.iter().any(|w| w == name),
        &mut table,
    ));
    println!("\n{table}");
}

async fn measure(chosen: &dyn Fn(&str) -> bool, table: &mut Table) {
    let servers = Servers::find().await;
    if chosen("start") {
        start::run(table);
    }
    if chosen("nodes") {
        nodes::run(&servers, table);
    }
    if chosen("import") {
        import::run(&servers, table);
    }
    if chosen("replay") {
        replay::run(&servers, table).await;
    }
    if chosen("admit") {
        admit::run(&servers, table).await;
    }
    // Before the others fill and drop tables: it is about an idle system.
    if chosen("latency") {
        latency::run(&servers, table).await;
    }
    if chosen("control") || chosen("full") {
        throughput::run(&servers, chosen("control"), chosen("full"), table).await;
    }
    if chosen("stream") {
        stream::run(&servers, table).await;
    }
    if chosen("peers") {
        peers::run(&servers, table).await;
    }
    if chosen("successor") {
        successor::run(&servers, table).await;
    }
    if chosen("known") {
        known::run(&servers, table).await;
    }
    if chosen("recovery") {
        recovery::run(&servers, table).await;
    }
}

/// A setting of the harness: a whole number, `default` when it is not set.
fn number(name: &str, default: usize) -> usize {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text}: a whole number")),
        Err(_) => default,
    }
}
