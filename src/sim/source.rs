//! Producers: the arrivals of a snapshot under drawn faults into the partitions, with what a broker and its clients add:
//! batches written twice, transactions that are aborted or stay open, offsets that hold nothing, rubbish, late events.

use std::cell::Cell;
use std::rc::Rc;

use super::seen::Seen;
use super::world::Proc;
use crate::stream::Marker;

/// A record that is to be written; of an event that the flow reads, its time.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) key: Vec<u8>,
    pub(super) value: Option<Vec<u8>>,
    pub(super) time: Option<i64>,
}

/// Writes one partition in the order of arrival, then says that it has ended.
pub(super) async fn write(
    me: Proc,
    partition: i32,
    arrivals: Vec<Arrival>,
    lateness: i64,
    held: Rc<Cell<bool>>,
) {
    let sim = Rc::clone(&me.sim);
    let pace = sim.options.seconds * 700_000 / (arrivals.len() as u64 + 1);
    let mut highest: Option<i64> = None;
    let mut rest = arrivals.as_slice();
    while !rest.is_empty() {
        me.sleep(sim.between(0, pace * 3)).await;
        released(&me, &held).await;
        let count = usize::try_from(sim.between(1, 3)).unwrap_or(1).min(rest.len());
        let (batch, more) = rest.split_at(count);
        rest = more;
        write_batch(&me, partition, batch, &held).await;
        highest = batch.iter().filter_map(|arrival| arrival.time).chain(highest).max();
        add(&me, partition, highest, (&batch[0].key, lateness));
    }
    me.sleep(pace).await;
    released(&me, &held).await;
    sim.broker.borrow_mut().mark(partition, Marker::EndOfBoundedSource);
    me.note(&format!("partition {partition} has ended"));
}

/// Nothing is written while the end of a log is gone: readers shall see where it ends.
async fn released(me: &Proc, held: &Cell<bool>) {
    while held.get() {
        me.sleep(100_000).await;
    }
}

async fn write_batch(me: &Proc, partition: i32, batch: &[Arrival], held: &Cell<bool>) {
    let sim = &me.sim;
    let append = |transaction| {
        for Arrival { key, value, .. } in batch {
            let record = (key.clone(), value.clone());
            sim.broker.borrow_mut().append(partition, record, transaction);
        }
    };
    if sim.hits(sim.options.aborted) {
        sim.saw(Seen::Aborted);
        let number = sim.between(1, u64::MAX - 1);
        sim.broker.borrow_mut().begin(number);
        append(Some(number));
        me.sleep(sim.between(0, 500_000)).await;
        released(me, held).await;
        sim.broker.borrow_mut().end(partition, number, false);
    }
    if sim.hits(sim.options.transactions) {
        let number = sim.between(1, u64::MAX - 1);
        sim.broker.borrow_mut().begin(number);
        append(Some(number));
        me.note(&format!("partition {partition} has an open transaction"));
        me.sleep(sim.between(0, 4_000_000)).await;
        released(me, held).await;
        sim.broker.borrow_mut().end(partition, number, true);
        return;
    }
    append(None);
    if sim.hits(sim.options.repeated) {
        // The acknowledgement was lost, and the batch is written again.
        append(None);
    }
}

/// What changes no value: rubbish, offsets that hold nothing, events that come too late.
fn add(me: &Proc, partition: i32, highest: Option<i64>, (key, lateness): (&[u8], i64)) {
    let sim = &me.sim;
    let mut broker = sim.broker.borrow_mut();
    if sim.hits(sim.options.rubbish) {
        let rubbish = [None, Some(b"{\"close\":NaN}".to_vec()), Some(Vec::new())];
        let at = usize::try_from(sim.between(0, 2)).unwrap_or(0);
        broker.append(partition, (key.to_vec(), rubbish[at].clone()), None);
    }
    if sim.hits(sim.options.rubbish) {
        broker.compacted(partition);
    }
    let late = highest.map(|highest| highest - lateness - 1);
    if let Some(time) = late.filter(|time| *time > 0 && sim.hits(sim.options.late)) {
        let (key, id) = (String::from_utf8_lossy(key).into_owned(), sim.between(1, u64::MAX - 1));
        let value = format!(
            r#"{{"close":1.5,"event_id":"late{id}","event_time":{time},"instrument":"{key}","seq":0}}"#
        );
        broker.append(partition, (key.into_bytes(), Some(value.into_bytes())), None);
    }
}
