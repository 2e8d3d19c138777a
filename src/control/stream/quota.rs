//! `--once-n` over all that a process reads: how many records are left.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::ids::StreamIdentity;

/// Records of the run that the sessions of this process may still read, together.
///
/// A session that fails and starts anew from its last commit has read less than before, so each says anew what it has
/// read; what is left is of no use before all have said it once.
#[derive(Debug)]
pub(super) struct Quota {
    most: Option<u64>,
    members: usize,
    /// By the partitions of a session.
    read: Mutex<BTreeMap<Option<Vec<i32>>, u64>>,
}

/// What may still be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Left {
    /// No bound.
    All,
    /// Not known: somebody has not yet said what was read before.
    Later,
    Records(u64),
}

impl Quota {
    /// At most so many, over so many sessions.
    pub(super) fn new(most: Option<u64>, members: usize) -> Self {
        Self { most, members, read: Mutex::default() }
    }

    /// What is left, now that this session has read so many.
    pub(super) fn left(&self, session: &StreamIdentity, read: u64) -> Left {
        let Some(most) = self.most else { return Left::All };
        let mut known = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(session.partitions.clone(), read);
        if known.len() < self.members {
            return Left::Later;
        }
        Left::Records(most.saturating_sub(known.values().sum()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Hash;

    fn session(partition: i32) -> StreamIdentity {
        let none = String::new;
        StreamIdentity {
            run_id: none(),
            cluster: none(),
            topic_id: none(),
            topic: none(),
            group: none(),
            flow: Hash::of(b""),
            flow_name: none(),
            partitions: Some(vec![partition]),
        }
    }

    #[test]
    fn nobody_reads_before_it_is_known_what_all_have_read() {
        let quota = Quota::new(Some(20), 2);
        assert_eq!(quota.left(&session(0), 12), Left::Later);
        assert_eq!(quota.left(&session(3), 5), Left::Records(3));
        assert_eq!(quota.left(&session(0), 15), Left::Records(0));
        // It starts anew from its last commit.
        assert_eq!(quota.left(&session(3), 1), Left::Records(4));
        assert_eq!(quota.left(&session(3), 9), Left::Records(0));
        assert_eq!(Quota::new(None, 2).left(&session(0), 12), Left::All);
    }
}
