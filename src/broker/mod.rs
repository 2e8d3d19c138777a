//! The broker, Kafka or Redpanda: the only room that names a Kafka client, and it names two.
//!
//! `rskafka` writes (`write`); `krafka` reads and administers (`read`, `topic`; `follow` by its protocol layer). So a byte that one of them
//! gets wrong cannot hide from the other. Both are given their connections by `connect`; every call has
//! an end, and what ends it keeps its cause (`error`).

mod address;
mod connect;
mod edges;
mod error;
mod fetch;
mod follow;
mod frames;
mod inplace;
mod lane;
mod opened;
mod probe;
mod read;
mod reread;
mod search;
mod topic;
mod write;

pub use connect::{Broker, Login, Options, Tls};
pub use edges::Edge;
pub use error::Error;
pub use follow::{Event, FollowLimits, Follower, Position};
pub use read::{Got, Reader};
pub use reread::reread;
pub use topic::{Topic, check_topic_name};
pub use write::{Batch, Lane};
