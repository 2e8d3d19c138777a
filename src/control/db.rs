//! The schema: apply migrations, or say where it stands.

use serde::Serialize;

use super::{Control, Error};

/// Versions of the schema, of what there is and of what this binary needs.
#[derive(Clone, Debug, Serialize)]
pub struct SchemaReport {
    /// The version that the database has; 0: none.
    pub schema: i32,
    /// The version that this binary was made for.
    pub binary: i32,
    /// The version before `migrate`; equal when there was nothing to do.
    pub before: i32,
    pub checks: Vec<super::doctor::Check>,
}

/// Applies the missing migrations, here and in the warehouse if there is one.
pub async fn migrate(control: &Control) -> Result<SchemaReport, Error> {
    let (before, schema) = control.store()?.migrate().await?;
    if let Some(warehouse) = control.warehouse()? {
        warehouse.migrate().await?;
    }
    Ok(SchemaReport { schema, binary: schema, before, checks: vec![schema_check(schema, schema)] })
}

/// Says where the schema stands.
pub async fn status(control: &Control) -> Result<SchemaReport, Error> {
    let state = control.store()?.schema_state().await?;
    Ok(SchemaReport {
        schema: state.found,
        binary: state.needed,
        before: state.found,
        checks: vec![schema_check(state.found, state.needed)],
    })
}

pub(super) fn schema_check(found: i32, needed: i32) -> super::doctor::Check {
    super::doctor::Check {
        id: "schema",
        ok: found == needed,
        expected: format!("version {needed}"),
        seen: if found == 0 { "none".to_owned() } else { format!("version {found}") },
        hint: if found < needed {
            "run `finaz db migrate`".to_owned()
        } else if found > needed {
            "the schema is newer than this binary: install the newer finaz".to_owned()
        } else {
            String::new()
        },
    }
}
