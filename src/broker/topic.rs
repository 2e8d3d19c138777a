//! Topics: found, or made with their settings; never by a slip of the pen.

use std::fmt::Write as _;

use krafka::KrafkaError;
use krafka::admin::{
    CreateTopicsOptions, DeleteRecordsOptions, DeleteTopicsOptions, DescribeClusterOptions,
    DescribeTopicsOptions, ListTopicsOptions, NewTopic, TopicDescription, TopicPartition,
};
use krafka::error::ErrorCode;
use tokio::time::{Instant, sleep};

use super::{Broker, Error};
use crate::invalid::Invalid;

/// Kafka's own limit.
const NAME_MAX: usize = 249;
/// How long the broker keeps a record, by the record's own timestamp: a week.
const RETENTION_MS: &str = "604800000";
const LOOK: std::time::Duration = std::time::Duration::from_millis(50);

/// A topic that is there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Topic {
    pub name: String,
    /// 32 hex digits; a topic that was deleted and made anew has another.
    pub id: String,
    /// The cluster's own id.
    pub cluster: String,
    pub partitions: u32,
}

/// Refuses what cannot be the name of a topic of ours.
///
/// # Errors
/// `TOPIC_INVALID`.
pub fn check_topic_name(name: &str) -> Result<(), Invalid> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let message = if name.is_empty() || name.len() > NAME_MAX {
        format!("a topic's name has 1 to {NAME_MAX} bytes, not {}", name.len())
    } else if !name.chars().all(legal) || name == "." || name == ".." {
        let shown: String = name.chars().take(60).collect();
        format!("`{}` cannot be the name of a topic", shown.escape_debug())
    } else if name.starts_with("__") {
        "names that begin with `__` are the broker's own".to_owned()
    } else {
        return Ok(());
    };
    let hint = "letters, digits, `.`, `_` and `-`";
    Err(Invalid::new("TOPIC_INVALID", "--topic", message, hint))
}

impl Broker {
    /// The topic of this name, if there is one.
    ///
    /// # Errors
    /// The broker's.
    pub async fn find_topic(&self, name: &str) -> Result<Option<Topic>, Error> {
        let options = DescribeTopicsOptions::default().timeout(self.patience);
        let mut found = self.admin(self.kafka.admin().describe_topics([name], options).await)?;
        match found.remove(name) {
            Some(Ok(found)) => self.topic(found).await.map(Some),
            Some(Err(KrafkaError::Broker { code: ErrorCode::UnknownTopicOrPartition, .. }))
            | None => Ok(None),
            Some(Err(error)) => Err(Error::of(&error, &self.place)),
        }
    }

    /// The names of all topics.
    ///
    /// # Errors
    /// The broker's.
    pub async fn topic_names(&self) -> Result<Vec<String>, Error> {
        let options = ListTopicsOptions::default().timeout(self.patience);
        self.admin(self.kafka.admin().list_topics(options).await)
    }

    /// Makes a topic, or finds that another made it just now; it can be written to when this returns.
    ///
    /// # Errors
    /// The broker's.
    pub async fn create_topic(&self, name: &str, partitions: u32) -> Result<Topic, Error> {
        let count = i32::try_from(partitions).expect("a handful");
        // The broker's own default for replicas: it knows how many brokers there are.
        let topic =
            NewTopic::new(name, count, -1).map_err(|error| Error::of(&error, &self.place))?;
        let topic = topic
            .with_config("cleanup.policy", "delete")
            .with_config("retention.ms", RETENTION_MS)
            .with_config("message.timestamp.type", "CreateTime");
        let options = CreateTopicsOptions::default().timeout(self.patience);
        let made = self.admin(self.kafka.admin().create_topics([topic], options).await)?;
        for (_, made) in made {
            match made {
                Ok(()) | Err(KrafkaError::Broker { code: ErrorCode::TopicAlreadyExists, .. }) => {}
                Err(error) => return Err(Error::of(&error, &self.place)),
            }
        }
        let end = Instant::now() + self.patience;
        loop {
            if let Some(topic) = self.find_topic(name).await? {
                return Ok(topic);
            }
            if Instant::now() >= end {
                let why = format!("the new topic {name} has no leaders");
                return Err(Error::Away { place: self.place.clone(), why });
            }
            sleep(LOOK).await;
        }
    }

    /// Deletes a topic; one that is gone already is no error.
    ///
    /// # Errors
    /// The broker's.
    pub async fn delete_topic(&self, name: &str) -> Result<(), Error> {
        let options = DeleteTopicsOptions::default().timeout(self.patience);
        let gone = self.admin(self.kafka.admin().delete_topics([name], options).await)?;
        for (_, gone) in gone {
            match gone {
                Ok(())
                | Err(KrafkaError::Broker { code: ErrorCode::UnknownTopicOrPartition, .. }) => {}
                Err(error) => return Err(Error::of(&error, &self.place)),
            }
        }
        Ok(())
    }

    /// Removes the records of a partition before this offset, as retention does.
    ///
    /// # Errors
    /// The broker's.
    pub async fn delete_before(
        &self,
        topic: &str,
        partition: i32,
        offset: i64,
    ) -> Result<(), Error> {
        let before = [(TopicPartition::new(topic, partition), offset)];
        let options = DeleteRecordsOptions::default().timeout(self.patience);
        let gone = self.admin(self.kafka.admin().delete_records(before, options).await)?;
        for (_, gone) in gone {
            gone.map_err(|error| Error::of(&error, &self.place))?;
        }
        Ok(())
    }

    /// The description in our terms, once every partition has a leader.
    async fn topic(&self, found: TopicDescription) -> Result<Topic, Error> {
        let end = Instant::now() + self.patience;
        let mut found = found;
        while found.partitions.iter().any(|partition| partition.leader.is_none()) {
            if Instant::now() >= end {
                let why = format!("a partition of {} has no leader", found.name);
                return Err(Error::Away { place: self.place.clone(), why });
            }
            sleep(LOOK).await;
            let options = DescribeTopicsOptions::default().timeout(self.patience);
            let again = self.kafka.admin().describe_topics([&found.name], options).await;
            match self.admin(again)?.remove(&found.name) {
                Some(Ok(again)) => found = again,
                Some(Err(error)) => return Err(Error::of(&error, &self.place)),
                None => {}
            }
        }
        let options = DescribeClusterOptions::default().timeout(self.patience);
        let cluster = self.admin(self.kafka.admin().describe_cluster(options).await)?.cluster_id;
        let mut id = String::with_capacity(32);
        for byte in found.topic_id {
            write!(id, "{byte:02x}").expect("a String takes all");
        }
        let partitions = u32::try_from(found.partitions.len()).unwrap_or(u32::MAX);
        Ok(Topic { name: found.name, id, cluster, partitions })
    }

    pub(super) fn admin<T>(&self, answer: krafka::Result<T>) -> Result<T, Error> {
        answer.map_err(|error| Error::of(&error, &self.place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_cannot_be_a_topic_is_refused() {
        for bad in ["", ".", "..", "a/b", "../x", "a b", "é", "__consumer_offsets", "a\u{1b}[2J"] {
            let refused = check_topic_name(bad).expect_err(bad);
            assert_eq!(refused.code, "TOPIC_INVALID");
            assert!(!refused.to_string().contains('\u{1b}'));
        }
        assert!(check_topic_name(&"x".repeat(250)).is_err());
        for good in
            ["a", "finaz-te-sim.fixture.replay.faults.normalized.v1", "_x", &"x".repeat(249)]
        {
            assert_eq!(check_topic_name(good), Ok(()), "{good}");
        }
    }
}
