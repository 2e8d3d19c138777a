//! Numbered migrations, compiled in. Only `db migrate` applies them; everybody else checks the number.

use super::{Error, Store};

/// Each migration's name and statements; its number is its place, from 1.
const MIGRATIONS: &[(&str, &str)] = &[
    ("control", include_str!("schema/0001_control.sql")),
    ("streams", include_str!("schema/0002_streams.sql")),
    ("handoffs", include_str!("schema/0003_handoffs.sql")),
    ("checkpoints", include_str!("schema/0004_checkpoints.sql")),
];

/// The schema version that this binary was made for.
pub(super) const NEEDED: i32 = 4;

/// What the database has and what this binary needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SchemaState {
    pub found: i32,
    pub needed: i32,
}

impl Store {
    /// Reads the schema's version; 0 when there is none.
    pub async fn schema_state(&self) -> Result<SchemaState, Error> {
        let client = self.client().await?;
        let there: bool = client
            .query_one("SELECT to_regclass('finaz.schema_version') IS NOT NULL", &[])
            .await
            .map_err(|error| self.error(&error))?
            .get(0);
        let found = if there {
            client
                .query_one("SELECT coalesce(max(version), 0) FROM finaz.schema_version", &[])
                .await
                .map_err(|error| self.error(&error))?
                .get(0)
        } else {
            0
        };
        Ok(SchemaState { found, needed: NEEDED })
    }

    /// When this database was made, which tells it from any other and stays with it when it is moved.
    pub async fn birth(&self) -> Result<String, Error> {
        let client = self.client().await?;
        let born = "SELECT to_char(min(applied_at) AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')
            FROM finaz.schema_version";
        let row = client.query_one(born, &[]).await.map_err(|error| self.error(&error))?;
        Ok(row.get(0))
    }

    /// Refuses an older or newer schema, naming both versions.
    pub async fn require_schema(&self) -> Result<(), Error> {
        let SchemaState { found, needed } = self.schema_state().await?;
        if found == needed { Ok(()) } else { Err(Error::Schema { found, needed }) }
    }

    /// Applies what is missing, each migration with its number in one transaction; gives the versions
    /// before and after. Two at once are serialised; a newer schema is refused.
    pub async fn migrate(&self) -> Result<(i32, i32), Error> {
        let mut client = self.client().await?;
        let transaction = client.transaction().await.map_err(|error| self.error(&error))?;
        // Held to the end of the transaction: the second of two migrators finds the work done.
        transaction
            .batch_execute(
                "SELECT pg_advisory_xact_lock(hashtext('finaz.schema_version'));
                 CREATE SCHEMA IF NOT EXISTS finaz;
                 CREATE TABLE IF NOT EXISTS finaz.schema_version (
                     version integer PRIMARY KEY,
                     name text NOT NULL,
                     applied_at timestamptz NOT NULL DEFAULT clock_timestamp())",
            )
            .await
            .map_err(|error| self.error(&error))?;
        let found: i32 = transaction
            .query_one("SELECT coalesce(max(version), 0) FROM finaz.schema_version", &[])
            .await
            .map_err(|error| self.error(&error))?
            .get(0);
        if found > NEEDED {
            return Err(Error::Schema { found, needed: NEEDED });
        }
        for (version, (name, statements)) in (1..).zip(MIGRATIONS) {
            if version <= found {
                continue;
            }
            transaction.batch_execute(statements).await.map_err(|error| self.error(&error))?;
            transaction
                .execute(
                    "INSERT INTO finaz.schema_version (version, name) VALUES ($1, $2)",
                    &[&version, name],
                )
                .await
                .map_err(|error| self.error(&error))?;
        }
        transaction.commit().await.map_err(|error| self.commit_error(&error))?;
        Ok((found, NEEDED))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_needed_version_is_the_last_migration() {
        assert_eq!(usize::try_from(super::NEEDED), Ok(super::MIGRATIONS.len()));
    }
}
