//! Time that only passes when nothing is left to do at this instant, and processes whose tasks take turns in it. One
//! thread, no clock, no order but that of time and of the calls: the same calls give the same run.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

type Work = Pin<Box<dyn Future<Output = ()>>>;

enum What {
    Wake(u64),
    Do(Box<dyn FnOnce()>),
}

struct Task {
    process: u32,
    /// Not here while it is at work.
    work: Option<Work>,
}

#[derive(Debug, Default)]
struct Process {
    tasks: BTreeSet<u64>,
    paused: bool,
    /// Tasks that would have been woken.
    missed: BTreeSet<u64>,
    /// Thousandths of a second that pass for it in a millisecond.
    rate: u64,
}

/// Time, tasks and processes.
#[derive(Default)]
pub(super) struct Kernel {
    now: Cell<u64>,
    order: Cell<u64>,
    queue: RefCell<BTreeMap<(u64, u64), What>>,
    tasks: RefCell<BTreeMap<u64, Task>>,
    processes: RefCell<BTreeMap<u32, Process>>,
    current: Cell<u64>,
}

impl Kernel {
    /// Microseconds since the beginning.
    pub(super) fn now(&self) -> u64 {
        self.now.get()
    }

    fn next(&self) -> u64 {
        self.order.set(self.order.get() + 1);
        self.order.get()
    }

    /// A process whose clock goes at `rate` thousandths of the true speed.
    pub(super) fn process(&self, rate: u64) -> u32 {
        let id = u32::try_from(self.next()).expect("a run is short");
        self.processes.borrow_mut().insert(id, Process { rate, ..Process::default() });
        id
    }

    /// Gives a process something more to do.
    pub(super) fn spawn(&self, process: u32, work: impl Future<Output = ()> + 'static) {
        let id = self.next();
        if let Some(owner) = self.processes.borrow_mut().get_mut(&process) {
            owner.tasks.insert(id);
            self.tasks.borrow_mut().insert(id, Task { process, work: Some(Box::pin(work)) });
            self.wake_after(0, id);
        }
    }

    /// Ends a process wherever it is. What it has sent is on its way.
    pub(super) fn kill(&self, process: u32) {
        let Some(gone) = self.processes.borrow_mut().remove(&process) else { return };
        let tasks: Vec<Option<Task>> =
            gone.tasks.iter().map(|id| self.tasks.borrow_mut().remove(id)).collect();
        drop(tasks);
    }

    pub(super) fn is_alive(&self, process: u32) -> bool {
        self.processes.borrow().contains_key(&process)
    }

    /// Stops a process; what happens to it meanwhile it learns when it goes on.
    pub(super) fn pause(&self, process: u32) {
        if let Some(process) = self.processes.borrow_mut().get_mut(&process) {
            process.paused = true;
        }
    }

    pub(super) fn resume(&self, process: u32) {
        let missed = match self.processes.borrow_mut().get_mut(&process) {
            Some(process) => {
                process.paused = false;
                std::mem::take(&mut process.missed)
            }
            None => return,
        };
        missed.into_iter().for_each(|task| self.wake_after(0, task));
    }

    pub(super) fn after(&self, micros: u64, work: impl FnOnce() + 'static) {
        let at = (self.now() + micros, self.next());
        self.queue.borrow_mut().insert(at, What::Do(Box::new(work)));
    }

    fn wake_after(&self, micros: u64, task: u64) {
        let at = (self.now() + micros, self.next());
        self.queue.borrow_mut().insert(at, What::Wake(task));
    }

    /// Does what is to be done until `done` says so or the time is over; says whether it was done.
    pub(super) fn run(&self, until: u64, done: impl Fn() -> bool) -> bool {
        loop {
            if done() {
                return true;
            }
            let due = self.queue.borrow().first_key_value().map(|((at, _), _)| *at);
            let Some(at) = due.filter(|at| *at <= until) else { return false };
            let Some((_, what)) = self.queue.borrow_mut().pop_first() else { return false };
            self.now.set(at);
            match what {
                What::Do(work) => work(),
                What::Wake(task) => self.poll(task),
            }
        }
    }

    fn poll(&self, id: u64) {
        let work = {
            let mut tasks = self.tasks.borrow_mut();
            let Some(task) = tasks.get_mut(&id) else { return };
            if let Some(process) = self.processes.borrow_mut().get_mut(&task.process)
                && process.paused
            {
                process.missed.insert(id);
                return;
            }
            task.work.take()
        };
        let Some(mut work) = work else { return };
        self.current.set(id);
        let polled = work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let mut tasks = self.tasks.borrow_mut();
        match (polled, tasks.get_mut(&id)) {
            (Poll::Pending, Some(task)) => task.work = Some(work),
            (Poll::Ready(()), Some(task)) => {
                if let Some(process) = self.processes.borrow_mut().get_mut(&task.process) {
                    process.tasks.remove(&id);
                }
                tasks.remove(&id);
            }
            // Its process was ended by what it did.
            (_, None) => {
                drop(tasks);
                drop(work);
            }
        }
    }

    /// Forgets everything, so that nothing that refers to this keeps it.
    pub(super) fn clear(&self) {
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        let queue = std::mem::take(&mut *self.queue.borrow_mut());
        drop((tasks, queue));
    }

    fn rate(&self) -> u64 {
        let tasks = self.tasks.borrow();
        let process = tasks.get(&self.current.get()).map(|task| task.process);
        let processes = self.processes.borrow();
        process.and_then(|id| processes.get(&id)).map_or(1_000, |process| process.rate)
    }
}

/// Gives what somebody else will leave, or nothing if that has not come in time.
#[derive(Debug)]
pub(super) struct Slot<T>(Rc<RefCell<(Option<T>, Option<u64>)>>);

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self(Rc::new(RefCell::new((None, None))))
    }
}

impl<T> Slot<T> {
    /// Leaves it, and wakes who waits.
    pub(super) fn put(&self, kernel: &Kernel, value: T) {
        let mut slot = self.0.borrow_mut();
        slot.0 = Some(value);
        if let Some(task) = slot.1.take() {
            kernel.wake_after(0, task);
        }
    }

    /// Waits for it, so many microseconds by the clock of the process.
    pub(super) async fn within(&self, kernel: &Kernel, micros: u64) -> Option<T> {
        let until = kernel.now() + scaled(micros, kernel.rate());
        let mut armed = false;
        std::future::poll_fn(|_cx| {
            let mut slot = self.0.borrow_mut();
            if let Some(value) = slot.0.take() {
                return Poll::Ready(Some(value));
            }
            if kernel.now() >= until {
                return Poll::Ready(None);
            }
            slot.1 = Some(kernel.current.get());
            if !std::mem::replace(&mut armed, true) {
                kernel.wake_after(until - kernel.now(), kernel.current.get());
            }
            Poll::Pending
        })
        .await
    }
}

fn scaled(micros: u64, rate: u64) -> u64 {
    micros.saturating_mul(1_000) / rate.max(1)
}

/// Waits for so many microseconds by the clock of the process.
pub(super) async fn sleep(kernel: &Kernel, micros: u64) {
    let until = kernel.now() + scaled(micros, kernel.rate());
    let mut armed = false;
    std::future::poll_fn(|_cx| {
        if kernel.now() >= until {
            return Poll::Ready(());
        }
        if !std::mem::replace(&mut armed, true) {
            kernel.wake_after(until - kernel.now(), kernel.current.get());
        }
        Poll::Pending
    })
    .await;
}

/// One at a time, in the order asked.
#[derive(Debug, Default)]
pub(super) struct Turn {
    busy: Cell<bool>,
    waiting: RefCell<VecDeque<u64>>,
}

/// Somebody's turn, until it is dropped.
pub(super) struct Taken<'a>(&'a Turn, &'a Kernel);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.busy.set(false);
        if let Some(task) = self.0.waiting.borrow_mut().pop_front() {
            self.1.wake_after(0, task);
        }
    }
}

impl Turn {
    pub(super) async fn take<'a>(&'a self, kernel: &'a Kernel) -> Taken<'a> {
        std::future::poll_fn(|_cx| {
            if self.busy.replace(true) {
                let mut waiting = self.waiting.borrow_mut();
                if !waiting.contains(&kernel.current.get()) {
                    waiting.push_back(kernel.current.get());
                }
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        Taken(self, kernel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a process noted when, under this kernel.
    fn noting(kernel: &Rc<Kernel>, process: u32, every: u64) -> Rc<RefCell<Vec<u64>>> {
        let noted: Rc<RefCell<Vec<u64>>> = Rc::default();
        let (own, into) = (Rc::clone(kernel), Rc::clone(&noted));
        kernel.spawn(process, async move {
            loop {
                sleep(&own, every).await;
                into.borrow_mut().push(own.now());
            }
        });
        noted
    }

    #[test]
    fn a_paused_process_takes_no_step_and_goes_on_late_and_a_killed_one_never() {
        let kernel = Rc::new(Kernel::default());
        let (a, b, fast) = (kernel.process(1_000), kernel.process(1_000), kernel.process(2_000));
        let (of_a, of_b, of_fast) =
            (noting(&kernel, a, 10), noting(&kernel, b, 10), noting(&kernel, fast, 10));
        kernel.run(20, || false);
        kernel.pause(a);
        kernel.kill(b);
        kernel.run(45, || false);
        kernel.resume(a);
        kernel.run(60, || false);
        assert_eq!(*of_a.borrow(), [10, 20, 45, 55]);
        assert_eq!(*of_b.borrow(), [10, 20]);
        assert_eq!(of_fast.borrow()[..4], [5, 10, 15, 20]);
        kernel.clear();
    }

    #[test]
    fn a_turn_is_one_process_task_s_at_a_time_and_goes_on_when_it_is_dropped() {
        let kernel = Rc::new(Kernel::default());
        let turn = Rc::new(Turn::default());
        let log: Rc<RefCell<Vec<(u64, u64)>>> = Rc::default();
        let process = kernel.process(1_000);
        for n in 0..3 {
            let (own, turn, log) = (Rc::clone(&kernel), Rc::clone(&turn), Rc::clone(&log));
            kernel.spawn(process, async move {
                let taken = turn.take(&own).await;
                sleep(&own, 10).await;
                log.borrow_mut().push((n, own.now()));
                drop(taken);
            });
        }
        kernel.run(100, || false);
        assert_eq!(*log.borrow(), [(0, 10), (1, 20), (2, 30)]);
        kernel.clear();
    }
}
