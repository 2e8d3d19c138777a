//! What happened to a lease or to who wants it, when, by the clock of the database.

use serde::Serialize;

/// One entry of a drill's history. A line of the history file is one of them.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Moment {
    /// In the order in which the database took note of them.
    pub no: i64,
    /// Microseconds since 1970 UTC.
    pub at_us: i64,
    /// `granted`, `renewed`, `released`, `lease deleted`, `committed`, `refused` by the database; `started`, `paused`,
    /// `resumed`, `told to end`, `killed`, `ended` by the drill.
    pub what: String,
    pub lease: Option<String>,
    /// The owner's token, or the name of a process.
    pub owner: Option<String>,
    pub epoch: Option<i64>,
    pub fence: Option<i64>,
    pub seq: Option<i64>,
    /// Of a grant or a renewal: when the lease ends.
    pub until_us: Option<i64>,
    pub detail: Option<String>,
}

impl Moment {
    /// The name before the slash of an owner's token.
    #[must_use]
    pub fn who(&self) -> &str {
        let owner = self.owner.as_deref().unwrap_or_default();
        owner.split('/').next().unwrap_or(owner)
    }

    /// Whether it happened to this lease.
    #[must_use]
    pub fn is_of(&self, lease: &str) -> bool {
        self.lease.as_deref() == Some(lease)
    }
}
