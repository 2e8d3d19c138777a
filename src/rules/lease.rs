//! One owner at a time: what becomes of a request for a lease, and whose effects count.
//!
//! The statements in `store` ask these functions with what the locked row says; time is always the
//! database's, read after the lock was granted (SPEC part 4).

use crate::ids::Owner;

/// A lease as its locked row says, `live` by the database's clock.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Held {
    pub owner: Owner,
    pub epoch: i64,
    pub fence: i64,
    pub live: bool,
}

/// The highest (epoch, fence) known to have been handed out, kept outside of the database.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct HighWater {
    pub epoch: i64,
    pub fence: i64,
}

/// What to do about a request for a lease.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Grant {
    /// No lease yet, or an expired one: it changes hands under this fence.
    Claim { epoch: i64, fence: i64 },
    /// Live and the asker's own: more time, same fence.
    Renew,
    /// Live and somebody else's.
    Held,
    /// The next fence was handed out before: the database went back in time.
    Regression { next: HighWater, known: HighWater },
    /// The fence has reached the end of its type; it must never wrap.
    Exhausted,
}

/// Decides a request by `asker` for the lease on record.
#[must_use]
pub fn acquire(held: Option<&Held>, asker: &Owner, known: Option<HighWater>) -> Grant {
    let next = match held {
        None => HighWater { epoch: 1, fence: 1 },
        Some(held) if held.live && held.owner == *asker => return Grant::Renew,
        Some(held) if held.live => return Grant::Held,
        Some(held) => match held.fence.checked_add(1) {
            Some(fence) => HighWater { epoch: held.epoch, fence },
            None => return Grant::Exhausted,
        },
    };
    match known {
        Some(known) if next <= known => Grant::Regression { next, known },
        _ => Grant::Claim { epoch: next.epoch, fence: next.fence },
    }
}

/// Why an effect or a renewal is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// There is no such lease any more.
    Missing,
    /// Another owner or a higher fence has it.
    Stale,
    /// Still on record as the asker's own, but its time is over, claimed or not.
    Expired,
}

/// Whether an effect of `owner` under `fence` may happen now.
pub fn admit_effect(held: Option<&Held>, owner: &Owner, fence: i64) -> Result<(), Refusal> {
    match held {
        None => Err(Refusal::Missing),
        Some(held) if held.owner != *owner || held.fence != fence => Err(Refusal::Stale),
        Some(held) if !held.live => Err(Refusal::Expired),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn owner(n: u8) -> Owner {
        Owner::from_token(&format!("o/{n}"))
    }

    #[test]
    fn the_four_branches_of_the_seed() {
        let asker = owner(1);
        let held = |n: u8, live| Held { owner: owner(n), epoch: 1, fence: 4, live };
        assert_eq!(acquire(None, &asker, None), Grant::Claim { epoch: 1, fence: 1 });
        assert_eq!(acquire(Some(&held(2, true)), &asker, None), Grant::Held);
        assert_eq!(acquire(Some(&held(1, true)), &asker, None), Grant::Renew);
        for n in [1, 2] {
            let grant = acquire(Some(&held(n, false)), &asker, None);
            assert_eq!(grant, Grant::Claim { epoch: 1, fence: 5 }, "an expired one, owner {n}");
        }
    }

    #[test]
    fn a_fence_that_was_handed_out_before_is_a_regression() {
        let known = Some(HighWater { epoch: 1, fence: 9 });
        let held = Held { owner: owner(2), epoch: 1, fence: 6, live: false };
        assert!(matches!(acquire(Some(&held), &owner(1), known), Grant::Regression { .. }));
        assert!(matches!(acquire(None, &owner(1), known), Grant::Regression { .. }));
        let new_epoch = Held { epoch: 2, ..held };
        assert_eq!(
            acquire(Some(&new_epoch), &owner(1), known),
            Grant::Claim { epoch: 2, fence: 7 }
        );
    }

    #[test]
    fn a_fence_never_wraps() {
        let held = Held { owner: owner(2), epoch: 1, fence: i64::MAX, live: false };
        assert_eq!(acquire(Some(&held), &owner(1), None), Grant::Exhausted);
    }

    proptest! {
        /// However requests interleave with the clock, fences only rise and one owner's effects count.
        #[test]
        fn one_owner_at_a_time(steps in prop::collection::vec((0u8..4, 0i64..9, 1i64..6), 1..80)) {
            let (mut now, mut expires) = (0i64, 0i64);
            let mut row: Option<Held> = None;
            for (who, wait, ttl) in steps {
                now += wait;
                if let Some(held) = &mut row { held.live = now < expires; }
                let before = row.clone();
                match acquire(row.as_ref(), &owner(who), None) {
                    Grant::Claim { epoch, fence } => {
                        prop_assert!(before.is_none_or(|held| !held.live && fence > held.fence));
                        row = Some(Held { owner: owner(who), epoch, fence, live: true });
                        expires = now + ttl;
                    }
                    Grant::Renew => {
                        prop_assert_eq!(before.map(|held| held.owner), Some(owner(who)));
                        expires = now + ttl;
                    }
                    Grant::Held => prop_assert!(before.is_some_and(|held| held.live)),
                    Grant::Regression { .. } | Grant::Exhausted => prop_assert!(false),
                }
                let fence = row.as_ref().map_or(0, |held| held.fence);
                let allowed = (0..4).filter(|n| admit_effect(row.as_ref(), &owner(*n), fence).is_ok());
                prop_assert!(allowed.count() <= 1);
            }
        }
    }
}
