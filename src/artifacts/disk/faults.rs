//! What a test does to the calls of one thread: note them, fail one, or stop everything at one.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};

use super::Op;

#[derive(Default)]
struct Plan {
    calls: Vec<(Op, PathBuf)>,
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
