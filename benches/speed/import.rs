//! `finaz snapshot import` of a CSV, its rows in order and in none: rows a second, and the most memory.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::cpu;
use crate::figures::{Table, float, per_second};
use crate::nodes::walk;
use crate::number;
use crate::servers::Servers;
use crate::stage::{finaz, folder};

const SYMBOLS: [&str; 5] = ["AAPL", "AMZN", "GOOG", "IBM", "MSFT"];
const FIRST_MS: usize = 1_700_000_000_000;

pub(crate) fn run(servers: &Servers, table: &mut Table) {
    let rows = number("BENCH_ROWS", 1_000_000);
    println!("import: {rows} rows of CSV");
    for shuffled in [false, true] {
        let folder = folder(servers);
        let file = folder.path().join("prices.csv");
        write(&file, rows, shuffled);
        let path = file.to_str().expect("a UTF-8 path");
        let mut args = vec!["snapshot", "import", path, "--name", "bench", "--time-column", "time"];
        args.extend(["--time-format", "epoch-ms", "--close-column", "price"]);
        args.extend(["--instrument-column", "symbol", "--json"]);
        if shuffled {
            args.push("--sort");
        }
        let before = cpu::waited();
        let started = Instant::now();
        let mut process = finaz(&args)
            .env("FINAZ_ARTIFACTS", folder.path().join("artifacts"))
            .stdout(Stdio::null())
            .spawn()
            .expect("finaz can be started");
        let mut peak = 0;
        let ended = loop {
            peak = peak.max(cpu::peak_memory(process.id()).unwrap_or(0));
            if let Some(ended) = process.try_wait().expect("a child") {
                break ended;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let seconds = started.elapsed().as_secs_f64();
        assert!(ended.success(), "snapshot import: {ended}");
        let core = cpu::waited() - before;
        let what = if shuffled { "import, shuffled, rows" } else { "import, in order, rows" };
        let ours = format!(
            "{} in {seconds:.2} s, {} a core; {} MB at most",
            per_second(float(rows) / seconds),
            per_second(float(rows) / core),
            peak >> 20
        );
        table.alone(what, ours);
    }
}

/// Writes a CSV; all symbols have a row each millisecond.
fn write(file: &Path, rows: usize, shuffled: bool) {
    let mut order: Vec<usize> = (0..rows).collect();
    if shuffled {
        let mut state: u64 = 0x2545_f491_4f6c_dd1d;
        for at in (1..rows).rev() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            order.swap(at, usize::try_from(state).expect("64 bits") % (at + 1));
        }
    }
    let prices = walk(rows);
    let mut out = BufWriter::new(File::create(file).expect("a new file"));
    writeln!(out, "time,symbol,price,volume").expect("room");
    for row in order {
        let (time, symbol) = (FIRST_MS + row / SYMBOLS.len(), SYMBOLS[row % SYMBOLS.len()]);
        writeln!(out, "{time},{symbol},{:.2},{}", prices[row], row % 977).expect("room");
    }
    out.flush().expect("room");
}
