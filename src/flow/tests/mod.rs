//! Flows from manifest to batch.

mod batch;
mod begun;
mod bombs;
mod manifest;
mod project;

use super::*;

const FIXTURE: &str = include_str!("../../../manifests/fixture.01_A_feature.yaml");

/// A flow of these nodes, in YAML of one line a node, over `instruments` (a YAML list, or nothing).
fn flow_of(instruments: &str, nodes: &[&str]) -> Flow {
    let instruments = if instruments.is_empty() {
        String::new()
    } else {
        format!("instruments: {instruments}\n")
    };
    let nodes: String = nodes.iter().map(|node| format!("  - {{{node}}}\n")).collect();
    let text = format!(
        "kind: Flow\nname: test\n{instruments}nodes:\n{nodes}sink: {{dataset: features}}\n"
    );
    Flow::parse(text.as_bytes(), "test.yaml").expect("a good flow")
}

/// The body of a snapshot, from events `(time, instrument, seq, the rest of the object's fields)`.
fn body(events: &[(i64, &str, u64, &str)]) -> Vec<u8> {
    let line = |&(time, instrument, seq, rest): &(i64, &str, u64, &str)| {
        let comma = if rest.is_empty() { "" } else { "," };
        let text = format!(
            r#"{{"event_id":"{instrument}@{time}#{seq}","event_time":{time},"instrument":"{instrument}","seq":{seq}{comma}{rest}}}"#
        );
        let mut line = crate::canonical::parse(text.as_bytes(), "event")
            .and_then(|v| v.to_bytes())
            .expect("JSON");
        line.push(b'\n');
        line
    };
    events.iter().flat_map(line).collect()
}

/// What `project` says of a body.
fn projected(flow: &Flow, body: &[u8]) -> Result<Projection, Invalid> {
    project(flow, &mut &*body, "snap").map_err(|error| {
        if let Error::Invalid(error) = error {
            error
        } else {
            Invalid::new("IO", "", error.to_string(), "reading from memory does not fail")
        }
    })
}
