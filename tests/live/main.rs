//! Against real servers and real processes. `cargo test` without FINAZ_LIVE skips them with a line; `make test` brings the
//! servers up and sets it to `required`. One test binary, one module per concern.

mod instance;
mod stack;
