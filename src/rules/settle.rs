//! What follows a try of a commit: an unknown outcome is settled by reading back, and never by guessing.

/// Times that an unknown outcome of COMMIT is settled by reading back before we give up.
pub const TRIES_MAX: u32 = 5;

/// What is known of a try.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Told {
    /// It was answered: that is what became of it.
    Answered,
    /// Rolled back, since the key is there already.
    There,
    /// No answer: it may or may not have been committed.
    Unknown,
    /// It will not do, now or later.
    Impossible,
}

/// What to do next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Next {
    /// Go with what was answered, an error included.
    Take,
    /// Hold what is there against what was offered, then try once more without that.
    Compare,
    /// Read what is there: ours is success, its absence is tried again.
    ReadBack,
}

/// Decides after try number `tries`, from 1; `in_time` is whether another one may follow.
#[must_use]
pub fn after(tries: u32, told: Told, in_time: bool) -> Next {
    match told {
        Told::Answered | Told::Impossible => Next::Take,
        Told::There | Told::Unknown if tries >= TRIES_MAX || !in_time => Next::Take,
        Told::There => Next::Compare,
        Told::Unknown => Next::ReadBack,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_is_read_back_until_tries_or_time_are_used_up() {
        assert_eq!(after(1, Told::Unknown, true), Next::ReadBack);
        assert_eq!(after(TRIES_MAX - 1, Told::There, true), Next::Compare);
        for told in [Told::Unknown, Told::There] {
            assert_eq!(after(TRIES_MAX, told, true), Next::Take);
            assert_eq!(after(1, told, false), Next::Take);
        }
        assert_eq!(after(1, Told::Answered, true), Next::Take);
        assert_eq!(after(1, Told::Impossible, true), Next::Take);
    }
}
