//! From where on a worker looks for work. Events below the last one it took are behind it, but for those whose
//! transaction committed late: so it looks from the very beginning whenever it finds nothing, and from time to time.

/// Claims after which the queue is looked at from its very beginning.
const CLAIMS_MAX: u32 = 64;

/// The lowest event that the next claim looks at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Floor {
    event: i64,
    claims: u32,
}

impl Floor {
    /// Where the next claim begins.
    pub fn begin(&mut self) -> i64 {
        self.claims = (self.claims + 1) % CLAIMS_MAX;
        if self.claims == 0 { 0 } else { self.event }
    }

    /// That claim, from `from`, found something; `first` is its first run's event.
    pub fn found(&mut self, from: i64, first: Option<i64>) {
        self.event = first.unwrap_or(from);
    }

    /// That claim, from `from`, found nothing; whether another one shall look again at once, from the beginning.
    pub fn missed(&mut self, from: i64) -> bool {
        if from > 0 {
            self.event = 0;
        }
        from > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_below_the_floor_is_found_before_the_queue_is_called_empty_and_under_load() {
        let mut floor = Floor::default();
        assert_eq!(floor.begin(), 0);
        floor.found(0, Some(70));
        assert_eq!(floor.begin(), 70);
        assert!(floor.missed(70), "not from the beginning, so not empty");
        assert_eq!(floor.begin(), 0);
        assert!(!floor.missed(0));
        floor.found(0, Some(90));
        let from: Vec<i64> = (0..CLAIMS_MAX).map(|_| floor.begin()).collect();
        assert_eq!(from.iter().filter(|from| **from == 0).count(), 1, "{from:?}");
    }
}
