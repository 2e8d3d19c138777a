//! A drill's wish to hold one of its processes at a point in the code.

use std::str::FromStr;

use crate::points::Point;

/// Where, at which time that it comes there, and for which drill.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HoldAt {
    pub point: Point,
    /// From 1.
    pub nth: u32,
    /// Of the drill: it must stand in the database that the process works on.
    pub nonce: String,
}

impl FromStr for HoldAt {
    type Err = ();

    /// `POINT:NTH:NONCE`.
    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.splitn(3, ':');
        let mut next = || parts.next().ok_or(());
        let (point, nth, nonce) = (next()?.parse()?, next()?.parse().map_err(drop)?, next()?);
        if nth == 0 || nonce.is_empty() {
            return Err(());
        }
        Ok(Self { point, nth, nonce: nonce.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_names_a_point_a_time_and_a_drill() {
        let wish = HoldAt { point: Point::CommitSent, nth: 2, nonce: "ab12".to_owned() };
        assert_eq!("commit.sent:2:ab12".parse(), Ok(wish));
        for wrong in
            ["", "commit.sent", "commit.sent:1", "commit.sent:1:", "commit.sent:0:a", "x:1:a"]
        {
            assert_eq!(wrong.parse::<HoldAt>(), Err(()), "{wrong}");
        }
    }
}
