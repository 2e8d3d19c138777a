//! Accepted events that wait for the watermark, given out in the order in which they are applied.
//!
//! Most of a partition comes in order: a queue for each, and a heap for what comes out of order. The next event is the
//! least of their heads, which costs less than a heap of all while partitions run far ahead of each other.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use crate::flow::Numbers;

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
    pub(super) fields: Numbers,
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
    queues: Vec<Queue>,
    heap: BinaryHeap<Reverse<Waiting>>,
    /// What went to the heap and is not kept yet; some of it may have left.
    strays: Vec<(i32, Waiting)>,
}

/// What came in order in one partition.
#[derive(Debug)]
struct Queue {
    partition: i32,
    events: VecDeque<Waiting>,
    /// How many of the last are not kept yet, those that left included.
    new: usize,
}

impl Waitroom {
    pub(super) fn push(&mut self, partition: i32, event: Waiting) {
        let at = self.queues.iter().position(|queue| queue.partition == partition);
        let at = at.or_else(|| {
            (self.queues.len() < QUEUES_MAX).then(|| {
                self.queues.push(Queue { partition, events: VecDeque::new(), new: 0 });
                self.queues.len() - 1
            })
        });
        let queue = at.map(|at| &mut self.queues[at]);
        match queue.filter(|queue| queue.events.back().is_none_or(|last| *last < event)) {
            Some(queue) => {
                queue.events.push_back(event);
                queue.new += 1;
            }
            None => {
                self.strays.push((partition, event.clone()));
                self.heap.push(Reverse(event));
            }
        }
    }

    /// Those that came since the last call and still wait, of events that leave at `watermark`, each with its partition.
    pub(super) fn take_new(&mut self, watermark: i64) -> Vec<(i32, Waiting)> {
        let mut new = std::mem::take(&mut self.strays);
        new.retain(|(_, event)| event.event_time >= watermark);
        for Queue { partition, events, new: came } in &mut self.queues {
            let left = events.len().min(std::mem::take(came));
            let first = events.len() - left;
            new.extend(events.range(first..).map(|event| (*partition, event.clone())));
        }
        new
    }

    /// None of what waits is new.
    pub(super) fn are_kept(&mut self) {
        self.strays.clear();
        self.queues.iter_mut().for_each(|queue| queue.new = 0);
    }

    /// The first event, if it is before this time.
    pub(super) fn pop_before(&mut self, time: i64) -> Option<Waiting> {
        let mut first: Option<(usize, &Waiting)> = None;
        for (at, queue) in self.queues.iter().enumerate() {
            if let Some(head) = queue.events.front().filter(|head| head.event_time < time)
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
            (Some((at, _)), _) => self.queues[at].events.pop_front(),
            (None, Some(_)) => self.heap.pop().map(|head| head.0),
            (None, None) => None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len() + self.queues.iter().map(|queue| queue.events.len()).sum::<usize>()
    }

    /// All of them, in the order in which they will be applied.
    pub(super) fn sorted(&self) -> Vec<&Waiting> {
        let queued = self.queues.iter().flat_map(|queue| &queue.events);
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
                let fields = Numbers::from_slice(&[0.0]);
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

        #[test]
        fn what_waits_is_given_to_be_kept_once_and_what_has_left_is_not(
            rounds in prop::collection::vec(
                (prop::collection::vec((0_i32..70, 0_i64..50), 0..40), 0_i64..60), 0..6,
            ),
        ) {
            let (mut room, mut kept, mut waits) = (Waitroom::default(), Vec::new(), Vec::new());
            let (mut watermark, mut seq) = (i64::MIN, 0);
            for (events, until) in rounds {
                for (partition, event_time) in events {
                    if event_time < watermark {
                        continue;
                    }
                    seq += 1;
                    waits.push((event_time, partition, seq));
                    let fields = Numbers::from_slice(&[0.0]);
                    let event = Waiting { event_time, instrument: 0, seq, id: [0; 16], fields };
                    room.push(partition, event);
                }
                watermark = watermark.max(until);
                while room.pop_before(watermark).is_some() {}
                let new = room.take_new(watermark);
                kept.extend(new.iter().map(|(partition, e)| (e.event_time, *partition, e.seq)));
                // As whoever keeps them does: what has left meanwhile is dropped.
                kept.retain(|event| event.0 >= watermark);
                waits.retain(|event| event.0 >= watermark);
                kept.sort_unstable();
                waits.sort_unstable();
                prop_assert_eq!(&kept, &waits);
            }
        }
    }
}
