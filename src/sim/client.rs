//! Clients: ask for runs, again where no answer came, with keys that others use as well; and change their minds.

use std::rc::Rc;

use super::seen::Seen;
use super::world::Proc;
use crate::ids::Hash;
use crate::rules::admission::Request;
use crate::rules::run::State;
use crate::store::{Error, Verdict};

/// What there is to ask for.
#[derive(Clone, Debug)]
pub(super) struct Catalogue {
    /// Each a flow and a snapshot.
    pub(super) bodies: Vec<(Hash, Hash)>,
}

/// Asks for so many runs, in sets, over the time of the faults.
pub(super) async fn ask(me: Proc, catalogue: Rc<Catalogue>, runs: u64, done: impl FnOnce()) {
    let sim = Rc::clone(&me.sim);
    let mut left = runs;
    while left > 0 {
        me.sleep(sim.between(0, sim.options.seconds * 1_000_000 / runs.max(1))).await;
        let count = sim.between(1, 4.min(left));
        left -= count;
        let set: Vec<Request> = (0..count).map(|_| draw(&me, &catalogue, runs)).collect();
        admit(&me, &set).await;
        if sim.between(1, 8) == 1 {
            let run_id = set[0].run_id.clone();
            sim.judge.borrow_mut().cancels.insert(run_id.clone());
            me.sleep(sim.between(0, 3_000_000)).await;
            let was = me.store("cancels", move |s, _| s.request_cancel(&run_id)).await;
            if let Ok(Some(State::Running)) = was {
                me.note("asked to cancel a run that runs");
            }
        }
    }
    done();
}

/// One key in three is used by others too, now and then with another body.
fn draw(me: &Proc, catalogue: &Catalogue, runs: u64) -> Request {
    let sim = &me.sim;
    let key = format!("k{}", sim.between(0, runs * 3));
    let at = sim.between(0, catalogue.bodies.len() as u64 * 4 - 1);
    // The last body is one that cannot succeed: rarer than the others.
    let last = catalogue.bodies.len() - 1;
    let at = if at == 0 { last } else { usize::try_from(at).unwrap_or(0) % last.max(1) };
    let (mut flow, mut snapshot) = catalogue.bodies[at];
    if sim.killer.get() == Some(flow) && sim.between(0, 3) > 0 {
        (flow, snapshot) = catalogue.bodies[0];
    }
    let request = Request::new("sim", "flow.run", Some(&key), flow, snapshot).expect("legal parts");
    sim.judge.borrow_mut().attempted.insert(request.run_id.clone());
    request
}

/// Admits a set; goes on until it is answered.
async fn admit(me: &Proc, requests: &[Request]) {
    let mut lost = false;
    loop {
        // A call of its own, with its tries; a client that gave up begins another one.
        let call = me.sim.between(1, u64::MAX - 1);
        for _ in 0..3 {
            match admit_once(me, call, requests).await {
                Ok(verdicts) => return answered(me, requests, &verdicts, lost),
                Err(_away) => lost = true,
            }
        }
        me.sleep(me.sim.between(10_000, 2_000_000)).await;
    }
}

async fn admit_once(me: &Proc, call: u64, requests: &[Request]) -> Result<Vec<Verdict>, Error> {
    // By scope, each once: as the store sends them.
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by_key(|&at| (requests[at].scope, at));
    let count = requests.len();
    let numbers = me.store("begins to admit", move |s, _| s.draw_numbers(count)).await?;
    let set: Vec<Request> = order.iter().map(|at| requests[*at].clone()).collect();
    let admits = move |s: &mut super::SimStore, _| s.admit(call, &set, &numbers);
    let sorted = me.store("admits", admits).await?;
    let mut verdicts = sorted.clone();
    for (verdict, at) in sorted.into_iter().zip(order) {
        verdicts[at] = verdict;
    }
    Ok(verdicts)
}

fn answered(me: &Proc, requests: &[Request], verdicts: &[Verdict], lost: bool) {
    for (request, verdict) in requests.iter().zip(verdicts) {
        match verdict {
            Verdict::Admitted(admitted) => {
                let mut judge = me.sim.judge.borrow_mut();
                judge.acked.insert(admitted.run_id.clone());
                if admitted.run_id != request.run_id {
                    judge.breaks("I6", format!("{} is answered with another run", request.run_id));
                }
                if lost && admitted.created {
                    me.sim.saw(Seen::LostAdmission);
                }
            }
            Verdict::Conflict { held } => {
                me.sim.saw(Seen::Conflict);
                if *held == request.body_hash {
                    let what = format!("{} conflicts with itself", request.run_id);
                    me.sim.judge.borrow_mut().breaks("I6", what);
                }
            }
        }
    }
}
