//! Against real servers and real processes. `cargo test` without FINAZ_LIVE skips them with a line; `make test` brings the
//! servers up and sets it to `required`. One test binary, one module per concern.

mod admission;
mod batch_checkpoints;
mod checkpoints;
mod commits;
mod conformance;
mod dice;
mod disk;
mod documents;
mod drill;
mod drill_chaos;
mod drill_matrix;
mod ends;
mod follow;
mod instance;
mod journal;
mod kills;
mod leases;
mod load;
mod outages;
mod parity;
mod poison;
mod process;
mod proxy;
mod queue;
mod reconcile;
mod replay;
mod servers;
mod split;
mod stack;
mod stage;
mod stops;
#[path = "../store_model/mod.rs"]
mod store_model;
mod storm;
mod stream_fixture;
mod stream_foreign;
mod stream_handoff;
mod stream_hostile;
mod stream_journal;
mod stream_kills;
mod stream_outages;
mod stream_owners;
mod stream_pressure;
mod stream_property;
mod stream_records;
mod stream_retry;
mod stream_rows;
mod topics;
mod warehouse;
mod wire;

/// The value of an environment variable, such as a server's URL. `None`, with a line, where live tests were not asked
/// for: a URL in somebody's shell may be that of production. Asked for and not set is a failure.
#[expect(clippy::disallowed_methods, reason = "a test has no config.rs")]
#[expect(clippy::print_stdout, reason = "the line that says a test was skipped")]
fn setting(name: &str) -> Option<String> {
    if std::env::var_os("FINAZ_LIVE").is_none() {
        println!("skipped: needs real servers, see `make test`");
        return None;
    }
    let value = std::env::var(name);
    Some(value.unwrap_or_else(|_| panic!("FINAZ_LIVE is set, but {name} is not, see `make test`")))
}
