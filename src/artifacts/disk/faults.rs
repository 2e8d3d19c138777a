//! What a test does to the calls of one thread: note them, fail one, or stop everything at one.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use super::Op;

#[derive(Default)]
struct Plan {
    calls: Vec<(Op, PathBuf)>,
    /// Where the file of a rename was before, by the number of the call.
    from: HashMap<usize, PathBuf>,
    fail_at: Option<usize>,
    errno: i32,
    crash: bool,
}

thread_local! {
    static PLAN: RefCell<Plan> = RefCell::default();
}

pub(super) fn step(op: Op, path: &Path) -> io::Result<()> {
    PLAN.with_borrow_mut(|plan| {
        let at = plan.calls.len();
        plan.calls.push((op, path.to_owned()));
        let hit = plan.fail_at.is_some_and(|fail| at == fail || (plan.crash && at > fail));
        if hit { Err(io::Error::from_raw_os_error(plan.errno)) } else { Ok(()) }
    })
}

/// The call that comes next is the rename of this file.
pub(super) fn renamed(from: &Path) {
    PLAN.with_borrow_mut(|plan| drop(plan.from.insert(plan.calls.len(), from.to_owned())));
}

/// A call, for who wants to make it again.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// The name of its [`Op`].
    pub(crate) what: &'static str,
    pub(crate) path: PathBuf,
    /// Of a rename: where the file was before.
    pub(crate) from: Option<PathBuf>,
}

/// Runs `work` and gives back the calls it made, each with all that it takes to make it again.
pub(crate) fn traced<T>(work: impl FnOnce() -> T) -> (T, Vec<Call>) {
    PLAN.set(Plan::default());
    let result = work();
    let mut plan = PLAN.take();
    let call = |(at, (op, path))| Call { what: word(op), path, from: plan.from.remove(&at) };
    (result, plan.calls.into_iter().enumerate().map(call).collect())
}

fn word(op: Op) -> &'static str {
    match op {
        Op::Create => "Create",
        Op::Write => "Write",
        Op::SyncFile => "SyncFile",
        Op::SyncAll => "SyncAll",
        Op::Rename => "Rename",
        Op::Link => "Link",
        Op::SyncFolder => "SyncFolder",
        Op::Unlink => "Unlink",
        Op::Folder => "Folder",
    }
}

/// Runs `work` and gives back the calls it made.
pub(in crate::artifacts) fn watch<T>(work: impl FnOnce() -> T) -> (T, Vec<(Op, PathBuf)>) {
    PLAN.set(Plan::default());
    let result = work();
    (result, PLAN.take().calls)
}

/// Runs `work` with its call number `at` failing; gives back which call that was, if it came so far.
pub(in crate::artifacts) fn fail<T>(
    at: usize,
    errno: rustix::io::Errno,
    work: impl FnOnce() -> T,
) -> (T, Option<Op>) {
    run(Plan { fail_at: Some(at), errno: errno.raw_os_error(), ..Plan::default() }, work)
}

/// Runs `work` as if the process had died at call number `at`: nothing happens from there on.
pub(in crate::artifacts) fn crash<T>(at: usize, work: impl FnOnce() -> T) -> (T, Option<Op>) {
    let errno = rustix::io::Errno::IO.raw_os_error();
    run(Plan { fail_at: Some(at), errno, crash: true, ..Plan::default() }, work)
}

/// The same for who has no use for the call; says whether it came so far.
pub(crate) fn dead<T>(at: usize, work: impl FnOnce() -> T) -> (T, bool) {
    let (result, hit) = crash(at, work);
    (result, hit.is_some())
}

fn run<T>(plan: Plan, work: impl FnOnce() -> T) -> (T, Option<Op>) {
    let at = plan.fail_at.unwrap_or(usize::MAX);
    PLAN.set(plan);
    let result = work();
    (result, PLAN.take().calls.get(at).map(|(op, _)| *op))
}

/// Runs `work` with the disk full at call number `at`; says whether it came so far.
pub(crate) fn full<T>(at: usize, work: impl FnOnce() -> T) -> (T, bool) {
    let errno = rustix::io::Errno::NOSPC.raw_os_error();
    let (result, hit) =
        run(Plan { fail_at: Some(at), errno, crash: false, ..Plan::default() }, work);
    (result, hit.is_some())
}
