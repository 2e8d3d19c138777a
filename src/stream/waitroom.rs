//! Accepted events that wait for the watermark, given out in the order in which they are applied.
//!
//! Most of a partition comes in order: a queue for each, and a heap for what comes out of order. The next event is the
//! least of their heads, which costs less than a heap of all while partitions run far ahead of each other.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

/// With more partitions than this, all go to the heap: the heads are looked at one by one.
const QUEUES_MAX: usize = 64;

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) event_time: i64,
    /// The engine's number for it.
    pub(super) instrument: usize,
    pub(super) seq: u64,
    pub(super) id: [u8; 16],
    pub(super) fields: Arc<[f64]>,
}

impl Waiting {
    fn order(&self) -> (i64, usize, u64, [u8; 16]) {
        (self.event_time, self.instrument, self.seq, self.id)
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Waiting {}

#[derive(Debug, Default)]
pub(super) struct Waitroom {
    queues: Vec<(i32, VecDeque<Waiting>)>,
    heap: BinaryHeap<Reverse<Waiting>>,
}

impl Waitroom {
    pub(super) fn push(&mut self, partition: i32, event: Waiting) {
        let at = self.queues.iter().position(|(of, _)| *of == partition);
        let at = match at {
            Some(at) => at,
            None if self.queues.len() < QUEUES_MAX => {
                self.queues.push((partition, VecDeque::new()));
                self.queues.len() - 1
            }
            None => return self.heap.push(Reverse(event)),
        };
        let queue = &mut self.queues[at].1;
        if queue.back().is_none_or(|last| *last < event) {
            queue.push_back(event);
        } else {
            self.heap.push(Reverse(event));
        }
    }

    /// The first event, if it is before this time.
    pub(super) fn pop_before(&mut self, time: i64) -> Option<Waiting> {
        let mut first: Option<(usize, &Waiting)> = None;
        for (at, (_, queue)) in self.queues.iter().enumerate() {
            if let Some(head) = queue.front().filter(|head| head.event_time < time)
                && first.is_none_or(|(_, first)| head < first)
            {
                first = Some((at, head));
            }
        }
        let heap = self.heap.peek().filter(|head| head.0.event_time < time);
        match (first, heap) {
            (Some((_, first)), Some(Reverse(head))) if head < first => {
                self.heap.pop().map(|head| head.0)
            }
            (Some((at, _)), _) => self.queues[at].1.pop_front(),
            (None, Some(_)) => self.heap.pop().map(|head| head.0),
            (None, None) => None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len() + self.queues.iter().map(|(_, queue)| queue.len()).sum::<usize>()
    }

    /// All of them, in the order in which they will be applied.
    pub(super) fn sorted(&self) -> Vec<&Waiting> {
        let queued = self.queues.iter().flat_map(|(_, queue)| queue);
        let mut all: Vec<&Waiting> = queued.chain(self.heap.iter().map(|event| &event.0)).collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn events_leave_in_their_order_wherever_they_came_from(
            events in prop::collection::vec((0_i32..70, 0_i64..50, 0_usize..3, 0_u64..9), 0..200),
            until in prop::collection::vec(0_i64..55, 0..6),
        ) {
            let (mut room, mut all) = (Waitroom::default(), Vec::new());
            for (partition, event_time, instrument, seq) in events {
                let fields = Arc::from([0.0]);
                let event = Waiting { event_time, instrument, seq, id: [0; 16], fields };
                all.push(event.clone());
                room.push(partition, event);
            }
            all.sort();
            let mut left = all.into_iter().peekable();
            for time in until.into_iter().chain([i64::MAX]) {
                while let Some(event) = room.pop_before(time) {
                    prop_assert_eq!(Some(event), left.next());
                }
                prop_assert!(left.peek().is_none_or(|next| next.event_time >= time));
            }
            prop_assert_eq!((room.len(), left.count()), (0, 0));
        }
    }
}
