//! Against real servers and real processes. `cargo test` without FINAZ_LIVE skips them with a line; `make test` brings the
//! servers up and sets it to `required`. One test binary, one module per concern.

mod admission;
mod commits;
mod dice;
mod disk;
mod documents;
mod ends;
mod instance;
mod kills;
mod leases;
mod load;
mod outages;
mod poison;
mod process;
mod proxy;
mod queue;
mod reconcile;
mod servers;
mod stack;
mod stage;
mod stops;
mod storm;
mod warehouse;
mod wire;

/// The value of an environment variable, such as a server's URL. `None`, with a line, where it is not set; a failure
/// where live tests are required.
#[expect(clippy::disallowed_methods, reason = "a test has no config.rs")]
#[expect(clippy::print_stdout, reason = "the line that says a test was skipped")]
fn setting(name: &str) -> Option<String> {
    if let Ok(value) = std::env::var(name) {
        return Some(value);
    }
    let required = std::env::var("FINAZ_LIVE").is_ok_and(|live| live == "required");
    assert!(!required, "FINAZ_LIVE=required, but {name} is not set");
    println!("skipped: {name} is not set, see `make test`");
    None
}
