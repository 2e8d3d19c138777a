//! An owner of a stream: takes the lease, takes up the journal, reads, decides, commits. The steps and their order are those
//! of `control/stream` and `control/journal.rs`; engine, head, segments and what follows a lost answer are the same code.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::Mistake;
use super::broker::{Got, Reach};
use super::seen::Seen;
use super::world::{Fault, Proc};
use crate::canonical::Value;
use crate::flow::{FeatureBatch, Flow};
use crate::ids::{Hash, Owner, StreamIdentity};
use crate::journal::{Draft, Drafted, Head, Kind, Segment};
use crate::rules::lease::{Grant, HighWater};
use crate::rules::settle::{self, Next, Told};
use crate::store::{Error, StreamLease, StreamMove, StreamStatus, StreamVerdict};
use crate::stream::{Anchor, Astray, Delta, Engine, Kept, Plan, Record, Treatment};

/// Offsets in one fetch of a partition.
const FETCH: usize = 20;

/// A lease, what is read under it, and what came of it.
pub(super) struct Lane {
    pub(super) identity: StreamIdentity,
    pub(super) plan: Plan,
    pub(super) flow: Arc<Flow>,
    /// Its values, once its source has ended and its lease was given back.
    pub(super) ended: RefCell<Option<FeatureBatch>>,
    /// It cannot go on, and says why.
    pub(super) halted: RefCell<Option<String>>,
    /// Where an owner began that found nothing committed: by its fence, partition and offset.
    pub(super) begun: RefCell<BTreeMap<i64, BTreeMap<i32, i64>>>,
    /// A partition has lost records that may have been read: then a halt is right.
    pub(super) cut: Rc<Cell<bool>>,
}

impl Lane {
    pub(super) fn is_over(&self) -> bool {
        self.ended.borrow().is_some() || self.halted.borrow().is_some()
    }
}

/// Why a life of an owner ends before its source does.
#[derive(Debug)]
enum End {
    /// The lease is another's, or its time is over.
    Fenced,
    /// Somebody moved the pointer under our own lease.
    Moved,
    /// It may go better next time.
    Away,
    Fatal(Fault),
    /// The log is not what was read of it.
    Astray(String),
    Drained,
    Source,
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        if error.is_away() { Self::Away } else { Self::Fatal(Fault::Store(error)) }
    }
}

impl From<Fault> for End {
    fn from(fault: Fault) -> Self {
        if fault.is_away() { Self::Away } else { Self::Fatal(fault) }
    }
}

struct Session {
    me: Proc,
    lane: Rc<Lane>,
    lease: StreamLease,
    engine: Engine,
    /// Where the pointer stands.
    from: (i64, i64),
    head: Option<(Hash, Head)>,
    lost: Rc<Cell<bool>>,
    last_commit: u64,
}

/// One life of an owner: of the first lane that is free, from its own number on.
pub(super) async fn own(me: Proc, token: String, drains: Rc<Cell<bool>>, lanes: Rc<Vec<Rc<Lane>>>) {
    let first = token.bytes().map(usize::from).sum::<usize>();
    for n in 0..lanes.len() {
        let lane = &lanes[(first + n) % lanes.len()];
        if !lane.is_over() {
            live(&me, &token, &drains, lane).await;
        }
    }
    if lanes.iter().all(|lane| lane.is_over()) {
        std::future::pending::<()>().await;
    }
    me.exit();
}

async fn live(me: &Proc, token: &str, drains: &Rc<Cell<bool>>, lane: &Rc<Lane>) {
    let lease = match acquire(me, token, lane).await {
        Ok(Some(lease)) => lease,
        Ok(None) => return,
        Err(end) => return me.note(&format!("has no lease: {end:?}")),
    };
    let lost = Rc::new(Cell::new(false));
    let stops = Rc::new(Cell::new(false));
    me.spawn(beat(me.clone(), lease.clone(), (Rc::clone(&lost), Rc::clone(&stops))));
    let ended = match Session::open(me, lane, lease.clone(), Rc::clone(&lost)).await {
        Ok(mut session) => {
            let end = session.run(drains).await;
            session.close(end).await
        }
        Err(end) => end,
    };
    stops.set(true);
    me.note(&format!("ends: {ended:?}"));
    if let End::Astray(why) = &ended {
        *lane.halted.borrow_mut() = Some(why.clone());
    }
    match ended {
        End::Fenced => me.sim.saw(Seen::StreamFenced),
        End::Moved => {
            let what = format!("{} was moved under its own lease", lease.name);
            me.sim.judge.borrow_mut().breaks("I9", what);
        }
        End::Fatal(Fault::Fsync) => me.exit(),
        End::Fatal(fault) => {
            let what = format!("{} cannot be taken up: {fault}", lease.name);
            me.sim.judge.borrow_mut().breaks("I11", what);
        }
        End::Away | End::Astray(_) | End::Drained | End::Source => release(me, &lease).await,
    }
}

async fn release(me: &Proc, lease: &StreamLease) {
    let (name, owner) = (lease.name.clone(), lease.owner.clone());
    let released = me.store("releases", move |s, now| s.release(now, &name, &owner)).await;
    if released.is_err() {
        me.note("its lease runs out by itself");
    }
}

/// Takes the lease; its fence is noted outside of the store before anything is done under it.
async fn acquire(me: &Proc, token: &str, lane: &Lane) -> Result<Option<StreamLease>, End> {
    let name = lane.identity.lease_name();
    let known = me.sim.disk.borrow().mark(&name);
    let owner = Owner::from_token(token);
    let ttl = Duration::from_millis(me.sim.options.ttl_ms);
    let (of, asker) = (name.clone(), owner.clone());
    let asked = me
        .store("asks for the lease", move |s, now| s.acquire(now, &of, (&asker, ttl), known))
        .await?;
    let (epoch, fence) = match asked.0 {
        Grant::Claim { epoch, fence } => (epoch, fence),
        Grant::Renew => match asked.1 {
            Some(held) => (held.epoch, held.fence),
            None => return Ok(None),
        },
        Grant::Held | Grant::Exhausted => return Ok(None),
        Grant::Regression { .. } => return Err(End::Fatal(Fault::Missing(Hash::of(b"fence")))),
    };
    let lease = StreamLease { name: name.clone(), owner, epoch, fence };
    if let Err(fault) = me.raise_mark(&name, HighWater { epoch, fence }).await {
        // Nothing was done under it: nobody shall wait for it to run out.
        release(me, &lease).await;
        return Err(fault.into());
    }
    Ok(Some(lease))
}

async fn beat(me: Proc, lease: StreamLease, (lost, stops): (Rc<Cell<bool>>, Rc<Cell<bool>>)) {
    let ttl = Duration::from_millis(me.sim.options.ttl_ms);
    let third = me.sim.options.ttl_ms * 1_000 / 3;
    loop {
        me.sleep(third).await;
        if stops.get() {
            return;
        }
        let (name, owner) = (lease.name.clone(), lease.owner.clone());
        let renews = move |s: &mut super::SimStore, now| s.renew(now, &name, &owner, ttl);
        if let Ok(Err(_refusal)) = me.store_within("renews", third, renews).await {
            lost.set(true);
            return;
        }
    }
}

fn status(state: &str) -> StreamStatus {
    StreamStatus { state: state.to_owned(), reason: None, report: None }
}

impl Session {
    /// Takes up what the journal holds, once it is known to belong to this log and to have all that it needs.
    async fn open(
        me: &Proc,
        lane: &Rc<Lane>,
        lease: StreamLease,
        lost: Rc<Cell<bool>>,
    ) -> Result<Self, End> {
        let (asker, identity) = (lease.clone(), lane.identity.clone());
        let opens =
            move |s: &mut super::SimStore, now| s.open_stream(now, &asker, &identity, "OPENED");
        let view = me.store("opens", opens).await?.map_err(|_barred| End::Fenced)?;
        let row = view.row;
        if (row.epoch, row.fence) > (lease.epoch, lease.fence) {
            return Err(End::Moved);
        }
        let disk = &me.sim.disk;
        let get = |hash: &Hash| disk.borrow().get(hash);
        let (head, engine) = match row.head {
            None => (None, Engine::new(lane.plan.clone())),
            Some(hash) => {
                let head = Head::parse(&get(&hash)?, "head").map_err(|_| Fault::Corrupt(hash))?;
                if (head.epoch, head.fence, head.seq) != (row.epoch, row.fence, row.seq) {
                    return Err(End::Fatal(Fault::Corrupt(hash)));
                }
                let loaded = head.load::<Fault>(&get)?;
                let kept = Kept { identities: loaded.identities, accepted: loaded.accepted };
                let engine = Engine::restore(lane.plan.clone(), &loaded.state, kept);
                (Some((hash, head)), engine.map_err(|_| Fault::Corrupt(hash))?)
            }
        };
        if row.fence > 0 && row.fence < lease.fence {
            me.sim.saw(Seen::StreamHandoff);
        }
        let from = (row.fence, row.seq);
        let last_commit = me.sim.kernel.now();
        let mut session = Self {
            me: me.clone(),
            lane: Rc::clone(lane),
            lease,
            engine,
            from,
            head,
            lost,
            last_commit,
        };
        session.check_log().await?;
        Ok(session)
    }

    /// Whether the log still has what the stream needs, and is the one that it read.
    async fn check_log(&mut self) -> Result<(), End> {
        self.me.sleep(self.me.sim.between(500, 20_000)).await;
        let sim = Rc::clone(&self.me.sim);
        if !sim.broker_up.get() {
            return Err(End::Away);
        }
        for standing in self.engine.standings() {
            let partition = standing.partition;
            let Reach { earliest, end } = sim.broker.borrow().reach(partition);
            if self.head.is_none() {
                self.engine.begin(partition, earliest);
                let mut begun = self.lane.begun.borrow_mut();
                begun.entry(self.lease.fence).or_default().insert(partition, earliest);
                continue;
            }
            let anchor = match standing.check(earliest, end) {
                Ok(anchor) => anchor,
                Err(astray) => return Err(self.strayed(&astray).await),
            };
            let Some(anchor) = anchor else { continue };
            let Some((key, value)) = sim.broker.borrow().record_at(partition, anchor.offset) else {
                continue;
            };
            if Anchor::of(anchor.offset, Some(&key), value.as_deref()) != *anchor {
                sim.saw(Seen::Foreign);
                return Err(End::Astray("JOURNAL_FOREIGN".to_owned()));
            }
        }
        Ok(())
    }

    /// Says why it cannot go on, and keeps what was decided before.
    async fn strayed(&mut self, astray: &Astray) -> End {
        let state = match astray {
            Astray::Blocked { .. } => "RECOVERY_BLOCKED",
            Astray::Ahead { .. } => "OFFSET_AHEAD",
        };
        self.me.sim.saw(if state == "OFFSET_AHEAD" { Seen::Ahead } else { Seen::Blocked });
        match self.commit(state).await {
            Ok(()) => End::Astray(state.to_owned()),
            Err(end) => end,
        }
    }

    async fn run(&mut self, drains: &Cell<bool>) -> End {
        loop {
            if self.lost.get() {
                return self.fenced().await;
            }
            if drains.get() {
                return End::Drained;
            }
            if self.engine.has_ended() {
                return End::Source;
            }
            let wait = self.me.sim.between(2_000, 60_000);
            self.me.sleep(wait).await;
            if self.me.sim.broker_up.get()
                && let Err(astray) = self.fetch()
            {
                return self.strayed(&astray).await;
            }
            let since = self.me.sim.kernel.now() - self.last_commit;
            let due = since >= self.me.sim.options.commit_ms * 1_000;
            if due
                && self.engine.uncommitted() > 0
                && let Err(end) = self.commit("FLOWING").await
            {
                return end;
            }
        }
    }

    fn fetch(&mut self) -> Result<(), Astray> {
        let sim = Rc::clone(&self.me.sim);
        let broker = sim.broker.borrow();
        for standing in self.engine.standings() {
            let (partition, from) = (standing.partition, standing.next_offset);
            let Reach { earliest, end } = broker.reach(partition);
            standing.check(earliest, end)?;
            if broker.waits(partition, from) {
                sim.saw(Seen::OpenTransaction);
            }
            for got in broker.read(partition, from, FETCH) {
                self.take(partition, got);
            }
        }
        Ok(())
    }

    fn take(&mut self, partition: i32, got: Got) {
        let seen = match feed(&mut self.engine, partition, got) {
            Some(Treatment::Duplicate) => Seen::Duplicate,
            Some(Treatment::Late) => Seen::Late,
            Some(Treatment::Omitted) => Seen::Omitted,
            Some(Treatment::Consumed | Treatment::Filtered) | None => return,
        };
        self.me.sim.saw(seen);
    }

    async fn commit(&mut self, state: &str) -> Result<(), End> {
        if !self.engine.ledger().holds() {
            let what = format!("the ledger of {} does not hold", self.lease.name);
            self.me.sim.judge.borrow_mut().breaks("I5", what);
        }
        let (delta, kept, watermark) = self.engine.cut();
        let (hash, head, delta) = self.keep(delta, kept, watermark).await?;
        self.engine.reuse(delta);
        let mut blobs = head.needs();
        blobs.push(hash);
        let next = StreamMove {
            from_fence: self.from.0,
            from_seq: self.from.1,
            seq: head.seq,
            head: hash,
            blobs,
            status: status(state),
            restored: None,
        };
        match self.point_at(&next).await? {
            StreamVerdict::Committed => {}
            StreamVerdict::Refused(_) => return Err(End::Fenced),
            StreamVerdict::Moved(_) => return Err(End::Moved),
        }
        self.from = (head.fence, head.seq);
        self.head = Some((hash, head));
        self.last_commit = self.me.sim.kernel.now();
        Ok(())
    }

    /// What is new as segments, and the head, in the artifact store.
    async fn keep(
        &self,
        mut delta: Delta,
        state: Value,
        drained_before: i64,
    ) -> Result<(Hash, Head, Delta), End> {
        let sim = &self.me.sim;
        if sim.makes(Mistake::HighWaterBeforeDrain) {
            delta.accepted.clear();
        }
        if sim.makes(Mistake::IdentitiesForgotten) {
            delta.identities.clear();
        }
        let before = self.head.as_ref();
        let head = Head {
            identity: self.lane.identity.clone(),
            epoch: self.lease.epoch,
            fence: self.lease.fence,
            seq: self.from.1 + 1,
            previous: before.map(|(hash, _)| *hash),
            drained_before,
            state,
            segments: before.map(|(_, head)| head.segments.clone()).unwrap_or_default(),
        };
        let draft = Draft { head, busy: HashSet::new(), at_us: sim.now() };
        let get = |hash: &Hash| sim.disk.borrow().get(hash);
        let Drafted { hash, head, blobs, delta, .. } = draft.write::<Fault>(delta, &get)?;
        if Kind::ALL.iter().any(|kind| head.segments.of(*kind).iter().any(|s| s.level > 0)) {
            sim.saw(Seen::Compacted);
        }
        let blobs = blobs.iter().map(|blob| blob.bytes().to_vec()).collect();
        self.me.put_many(blobs).await?;
        Ok((hash, head, delta))
    }

    /// Moves the pointer; what is not known to have been made is settled by reading back.
    async fn point_at(&self, next: &StreamMove) -> Result<StreamVerdict, Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            let (lease, to) = (self.lease.clone(), next.clone());
            let moves = move |s: &mut super::SimStore, now| s.move_stream(now, &lease, &to);
            let tried = self.me.store("commits", moves).await;
            let told = match &tried {
                Ok(StreamVerdict::Moved(None)) => {
                    return Ok(next.placed(&self.lease, self.row().await?));
                }
                Ok(_verdict) => Told::Answered,
                Err(error) if error.is_away() => Told::Unknown,
                Err(_) => Told::Impossible,
            };
            if tries > 1 && tried.is_ok() {
                self.me.sim.saw(Seen::CommitAgain);
            }
            match settle::after(tries, told, true) {
                Next::Take | Next::Compare => return tried,
                Next::ReadBack => {}
            }
            match self.row().await {
                Ok(row) => {
                    if let Some(verdict) = next.read_back(&self.lease, row) {
                        self.me.sim.saw(Seen::CommitDone);
                        return Ok(verdict);
                    }
                }
                Err(_away) => self.me.sleep(50_000 << tries.min(6)).await,
            }
        }
    }

    async fn row(&self) -> Result<Option<crate::store::StreamRow>, Error> {
        let name = self.lease.name.clone();
        let view = self.me.store("reads the pointer", move |s, now| s.stream(now, &name)).await?;
        Ok(view.map(|view| view.row))
    }

    /// The lease was lost: the store says so itself, and has it on record.
    async fn fenced(&self) -> End {
        let lease = self.lease.clone();
        let marks = move |s: &mut super::SimStore, now| {
            s.mark_stream(now, &lease, &status("FLOWING")).is_err()
        };
        drop(self.me.store("marks", marks).await);
        End::Fenced
    }

    /// Commits what was decided, unless it cannot.
    async fn close(&mut self, end: End) -> End {
        let state = match &end {
            End::Drained => "DRAINED",
            End::Source => "ENDED",
            End::Astray(_) | End::Fenced | End::Moved | End::Away | End::Fatal(_) => return end,
        };
        if let Err(failed) = self.commit(state).await {
            return failed;
        }
        if matches!(end, End::Source) {
            match self.values() {
                Ok(batch) => *self.lane.ended.borrow_mut() = Some(batch),
                Err(fault) => return End::Fatal(fault),
            }
        } else {
            self.me.sim.saw(Seen::StreamDrained);
        }
        end
    }

    fn values(&self) -> Result<FeatureBatch, Fault> {
        let mut gathering = self.engine.gather();
        let disk = self.me.sim.disk.borrow();
        if let Some((_, head)) = &self.head {
            for named in head.segments.of(Kind::Applied) {
                let bytes = disk.get(&named.hash)?;
                let segment = Segment::named(&bytes, Kind::Applied, named);
                let segment = segment.map_err(|_| Fault::Corrupt(named.hash))?;
                segment.applied().for_each(|event| gathering.add(&event));
            }
        }
        Ok(gathering.finish(self.lane.flow.hash))
    }
}

/// Hands on what was read.
pub(super) fn feed(engine: &mut Engine, partition: i32, got: Got) -> Option<Treatment> {
    match got {
        Got::Record { offset, key, value } => {
            let (key, value) = (Some(key.as_slice()), value.as_deref());
            return engine.take(Record { partition, offset, key, value });
        }
        Got::Marker { offset, marker } => engine.mark(partition, offset, marker),
        Got::Hole { next } => engine.skip_to(partition, next),
    }
    None
}

/// How often each offset of each partition was decided, by the journal of a head.
pub(super) fn decided(
    head: &Head,
    get: &dyn Fn(&Hash) -> Result<Vec<u8>, Fault>,
) -> Result<BTreeMap<(i32, i64), u64>, Fault> {
    let mut decided = BTreeMap::new();
    for named in head.segments.of(Kind::Fates) {
        let bytes = get(&named.hash)?;
        let segment = Segment::named(&bytes, Kind::Fates, named);
        let segment = segment.map_err(|_| Fault::Corrupt(named.hash))?;
        for (_, fate) in segment.fates() {
            *decided.entry((fate.partition, fate.offset)).or_default() += 1;
        }
    }
    Ok(decided)
}
