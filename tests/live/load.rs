//! What there is to be done: snapshots, flows and requests in the numbers that a fault needs.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::stage::Stage;

/// The result that is known beforehand, as every reader knows it.
pub(crate) const GOLDEN: &str =
    "sha256:9e906a09a1c594964c16291a77cb38b0ffb021e69c230d71d1dd77ebbd6a7877";

/// A file of the project.
pub(crate) fn project(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name);
    path.to_str().expect("a UTF-8 path").to_owned()
}

impl Stage {
    /// Imports the fixture under its name; the flow to run over it.
    #[track_caller]
    pub(crate) fn fixture(&self) -> String {
        let events = project("fixtures/fixture.snapshot.01.jsonl");
        let name = "fixture.snapshot.01";
        self.finaz(&["snapshot", "import", &events, "--name", name]).exits(0);
        project("manifests/fixture.01_A_feature.yaml")
    }

    /// A snapshot of two instruments: a flow over `thin`, which has eight events, must read past all `events` of
    /// `bulk`. So a run takes time, and its result is small.
    #[track_caller]
    pub(crate) fn snapshot(&self, name: &str, events: usize) {
        let mut lines = String::new();
        let mut line = |instrument: &str, at: usize| {
            let close = (at * 7919) % 1000;
            writeln!(
                lines,
                r#"{{"event_id":"{instrument}.{at}","instrument":"{instrument}","event_time":{},"close":{close}.25}}"#,
                at * 1_000_000_000
            )
            .expect("a string takes all");
        };
        for at in 0..events {
            line("bulk", at);
            if at < 8 {
                line("thin", at);
            }
        }
        let file = self.file(&format!("{name}.jsonl"), lines);
        self.finaz(&["snapshot", "import", &file, "--name", name]).exits(0);
    }

    /// A flow of its own name over `thin` of a snapshot; so its results are its own too.
    pub(crate) fn flow(&self, name: &str, snapshot: &str) -> String {
        let period = 2 + name.len() % 3;
        let text = format!(
            "kind: Flow\nname: {name}\nsource: {{snapshot: {snapshot}}}\ninstruments: [thin]\n\
             clock: {{allowed_lateness: 0s}}\n\
             nodes:\n  - {{id: n, type: ema, period: {period}, input: close}}\n\
             sink: {{dataset: features}}\n"
        );
        self.file(&format!("{name}.yaml"), text)
    }

    /// Admits so many runs, each with a flow of its own, in one set; their ids in the order of admission. That
    /// they were acknowledged is what the rest of a test holds the system to.
    #[track_caller]
    pub(crate) fn admit(&self, prefix: &str, runs: usize, snapshot: &str) -> Vec<String> {
        let mut lines = String::new();
        for run in 0..runs {
            let name = format!("{prefix}.{run:04}");
            let flow = self.flow(&name, snapshot);
            writeln!(lines, r#"{{"flow":"{flow}","key":"{name}"}}"#).expect("a string takes all");
        }
        let file = self.file(&format!("{prefix}.requests"), lines);
        let done = self.json(&["admit", "--from", &file]);
        assert_eq!(done["created"], runs, "{done}");
        let ids = format!(
            "SELECT r.run_id FROM finaz.admission AS a JOIN finaz.api_runs AS r USING (run_no)
             WHERE starts_with(a.key, '{prefix}.') ORDER BY a.key"
        );
        let ids = self.column(&ids);
        assert_eq!(ids.len(), runs);
        ids
    }

    /// How many runs are in this state.
    #[track_caller]
    pub(crate) fn runs(&self, state: &str) -> usize {
        self.count(&format!("SELECT count(*) FROM finaz.api_runs WHERE state = '{state}'"))
    }
}
