//! `finaz --version` and `finaz --help`: from spawn to end.

use std::process::Stdio;
use std::time::Instant;

use crate::figures::{Samples, Table};
use crate::stage::finaz;

const SPAWNS: usize = 50;

pub(crate) fn run(table: &mut Table) {
    println!("start: {SPAWNS} spawns each");
    for flag in ["--version", "--help"] {
        let mut times = Samples::default();
        for _ in 0..SPAWNS {
            let started = Instant::now();
            let ended =
                finaz(&[flag]).stdout(Stdio::null()).status().expect("finaz can be started");
            times.add_ms(started.elapsed());
            assert!(ended.success(), "finaz {flag}");
        }
        table.alone(&format!("finaz {flag}"), times.milliseconds());
    }
}
