//! Figures, never verdicts: `make bench`. Each is meant to be read as a ratio to a peer of the same run.

mod control_layer;

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let chosen = |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    if chosen("control") {
        runtime.block_on(control_layer::run());
    }
}
