//! The row of a stream: who may move it, from where, and what a lost reply to its COMMIT means.

use std::time::{Duration, Instant};

use finaz::ids::{Hash, Owner, StreamIdentity};
use finaz::store::{
    Connect, Limits, Store, StreamBarred, StreamLease, StreamMove, StreamRefusal, StreamStatus,
    StreamVerdict,
};

use crate::process::until;
use crate::proxy::{Loss, Proxy};
use crate::stage::Stage;

const NAME: &str = "stream/run-1";
const TTL: Duration = Duration::from_secs(30);
/// Words by which a trap knows a commit of the journal.
const MOVE: &str = "UPDATE finaz.streams AS s SET epoch";

fn store(url: &str) -> Store {
    let connect = Connect::new(url, Limits { ttl: TTL }, false).expect("a URL");
    Store::new(connect).expect("a store")
}

fn identity() -> StreamIdentity {
    StreamIdentity {
        run_id: "run-1".to_owned(),
        cluster: "c".to_owned(),
        topic_id: "i".to_owned(),
        topic: "t".to_owned(),
        group: "g".to_owned(),
        flow: Hash::of(b"flow"),
        flow_name: "f".to_owned(),
        partitions: Some(vec![0, 3]),
    }
}

fn status(state: &str) -> StreamStatus {
    let report = Some(r#"{"read": 1}"#.to_owned());
    StreamStatus { state: state.to_owned(), reason: Some("why".to_owned()), report }
}

fn step(from: (i64, i64), seq: i64) -> StreamMove {
    let head = Hash::of(&seq.to_le_bytes());
    StreamMove {
        from_fence: from.0,
        from_seq: from.1,
        seq,
        head,
        blobs: vec![Hash::of(b"segment"), head],
        status: status("FLOWING"),
        restored: None,
    }
}

/// A lease taken by a new owner.
async fn take(store: &Store) -> StreamLease {
    let owner = Owner::of_process("test");
    let (_, row) = store.acquire(NAME, &owner, TTL, None).await.expect("a lease");
    assert_eq!(row.owner, owner);
    StreamLease { name: NAME.to_owned(), owner, epoch: row.epoch, fence: row.fence }
}

#[test]
fn the_pointer_moves_from_where_it_stands_and_from_nowhere_else() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let store = store(stage.pg_url());
    stage.runtime.block_on(async {
        let lease = take(&store).await;
        let opened = store.open_stream(&lease, &identity(), "OPENED").await.expect("an answer");
        let row = opened.expect("our lease").row;
        assert_eq!((row.fence, row.seq, row.head), (0, 0, None));
        assert_eq!((row.identity, row.committed_at), (identity(), None));
        let commit = async |from, seq| {
            store.commit_stream(&lease, "run-1", &step(from, seq)).await.expect("an answer")
        };
        assert_eq!(commit((0, 0), 1).await, StreamVerdict::Committed);
        assert_eq!(commit((1, 1), 2).await, StreamVerdict::Committed);
        for (from, seq) in [((0, 0), 1), ((1, 1), 3), ((0, 2), 3), ((1, 3), 4)] {
            let StreamVerdict::Moved(Some(row)) = commit(from, seq).await else {
                panic!("{from:?} moved it")
            };
            assert_eq!((row.fence, row.seq), (1, 2));
        }
        // One that finds its own commit there has made it.
        assert_eq!(commit((1, 1), 2).await, StreamVerdict::Committed);
        let again = store.open_stream(&lease, &identity(), "OPENED").await.expect("an answer");
        let view = again.expect("our lease");
        assert_eq!(view.row.status, status("FLOWING"), "opening changed what was said");
        assert_eq!((view.live, view.owner, view.lease_fence), (true, Some(lease.owner), Some(1)));
        let named = store.named_blobs().await.expect("blobs");
        for blob in [Hash::of(b"segment"), Hash::of(&2_i64.to_le_bytes()), identity().flow] {
            assert!(named.contains(&blob), "gc would take it");
        }
        assert!(!named.contains(&Hash::of(&1_i64.to_le_bytes())), "gc would keep all heads");
    });
    assert_eq!(stage.count("SELECT count(*) FROM finaz.refused_effects"), 0);
}

#[test]
fn an_owner_whose_lease_is_over_commits_nothing_and_is_on_record() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let store = store(stage.pg_url());
    stage.runtime.block_on(async {
        let first = take(&store).await;
        store.open_stream(&first, &identity(), "OPENED").await.expect("an answer").expect("ours");
        let commit = async |lease: &StreamLease, from, seq| {
            store.commit_stream(lease, "run-1", &step(from, seq)).await.expect("an answer")
        };
        assert_eq!(commit(&first, (0, 0), 1).await, StreamVerdict::Committed);
        store.release(NAME, &first.owner).await.expect("an answer").expect("released");
        // Expired, and claimed by nobody.
        let own = StreamRefusal { owner: Some(first.owner.clone()), fence: Some(1) };
        assert_eq!(commit(&first, (1, 1), 2).await, StreamVerdict::Refused(own));
        let second = take(&store).await;
        let theirs = StreamRefusal { owner: Some(second.owner.clone()), fence: Some(2) };
        assert_eq!(commit(&first, (1, 1), 2).await, StreamVerdict::Refused(theirs.clone()));
        let marked = store.mark_stream(&first, "run-1", &status("ENDED")).await;
        assert_eq!(marked.expect("an answer"), Err(theirs.clone()));
        let opened = store.open_stream(&first, &identity(), "OPENED").await;
        assert_eq!(opened.expect("an answer"), Err(StreamBarred::Lease(theirs)));
        // The owner's name with another fence or epoch is not the owner.
        for (epoch, fence) in [(1, 1), (1, 3), (2, 2)] {
            let forged = StreamLease { epoch, fence, ..second.clone() };
            let verdict = commit(&forged, (1, 1), 2).await;
            assert!(matches!(verdict, StreamVerdict::Refused(_)), "{epoch} {fence}: {verdict:?}");
        }
        assert_eq!(commit(&second, (1, 1), 2).await, StreamVerdict::Committed);
        let nobody = StreamLease { name: "stream/none".to_owned(), ..second };
        let none = StreamRefusal { owner: None, fence: None };
        assert_eq!(commit(&nobody, (0, 0), 1).await, StreamVerdict::Refused(none));
    });
    let refused = "SELECT effect, run_id, lease, fence, coalesce(current_fence, 0), count(*)
                   FROM finaz.refused_effects GROUP BY 1, 2, 3, 4, 5 ORDER BY 3, 4, 5";
    let expected = [
        ["journal", "run-1", "stream/none", "2", "0", "1"],
        ["journal", "run-1", NAME, "1", "1", "1"],
        ["journal", "run-1", NAME, "1", "2", "4"],
        ["journal", "run-1", NAME, "2", "2", "1"],
        ["journal", "run-1", NAME, "3", "2", "1"],
    ];
    assert_eq!(stage.sql(refused), expected);
    assert_eq!(stage.sql("SELECT fence, seq FROM finaz.streams"), [["2", "2"]]);
}

#[test]
fn a_lost_message_of_a_commit_is_settled_by_reading_back_and_the_commit_made_once() {
    for loss in [Loss::Reply, Loss::Request] {
        let Some(stage) = Stage::without_warehouse() else { return };
        let proxy = Proxy::to(&stage, stage.pg_url());
        let store = store(&proxy.url(stage.pg_url()));
        stage.runtime.block_on(async {
            let lease = take(&store).await;
            let opened = store.open_stream(&lease, &identity(), "OPENED").await;
            opened.expect("an answer").expect("our lease");
            proxy.trap(MOVE, loss);
            let verdict = store.commit_stream(&lease, "run-1", &step((0, 0), 1)).await;
            assert_eq!(verdict.expect("an answer"), StreamVerdict::Committed, "{loss:?}");
        });
        assert!(proxy.is_sprung(), "{loss:?}: nothing was lost");
        assert_eq!(stage.sql("SELECT fence, seq FROM finaz.streams"), [["1", "1"]]);
        assert_eq!(stage.count("SELECT count(*) FROM finaz.refused_effects"), 0, "{loss:?}");
    }
}

#[test]
fn what_is_said_of_a_stream_stays_said_and_moves_nothing() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let store = store(stage.pg_url());
    stage.runtime.block_on(async {
        let lease = take(&store).await;
        store.open_stream(&lease, &identity(), "OPENED").await.expect("an answer").expect("ours");
        let marked = store.mark_stream(&lease, "run-1", &status("RECOVERY_BLOCKED")).await;
        marked.expect("an answer").expect("our lease");
        store.release(NAME, &lease.owner).await.expect("an answer").expect("released");
        let next = take(&store).await;
        let opened = store.open_stream(&next, &identity(), "OPENED").await.expect("an answer");
        let row = opened.expect("our lease").row;
        assert_eq!((row.status.state.as_str(), row.seq), ("RECOVERY_BLOCKED", 0));
        for (run, group, found) in
            [(Some("run-1"), None, 1), (Some("x"), None, 0), (None, Some("g"), 1), (None, None, 1)]
        {
            assert_eq!(store.streams(run, group).await.expect("rows").len(), found, "{run:?}");
        }
    });
}

#[test]
fn a_session_that_the_server_ended_while_it_was_idle_is_replaced_and_not_used() {
    let Some(stage) = Stage::without_warehouse() else { return };
    let store = store(stage.pg_url());
    // Of one thread: while nobody waits on it, nothing reads what the server says, as in a process that is stopped.
    let asleep = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let asleep = asleep.expect("a runtime");
    let look = || asleep.block_on(store.stream(NAME));
    assert_eq!(look().expect("an answer"), None);
    let others = "datname = current_database() AND pid <> pg_backend_pid()";
    for _ in 0..5 {
        let since = Instant::now();
        let ended =
            format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}");
        assert_eq!(stage.column(&ended).len(), 1, "not the one session of the store");
        until("the session is gone", Duration::from_secs(20), || {
            let left =
                stage.count(&format!("SELECT count(*) FROM pg_stat_activity WHERE {others}"));
            (left == 0 && since.elapsed() > Duration::from_millis(20)).then_some(())
        });
        assert_eq!(look().expect("a new session"), None);
    }
}
