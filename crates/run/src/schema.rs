//! The formats as JSON schemas, made from the types themselves.

use crate::lines::Line;
use crate::plan::{PlanPicture, Sweep, Times};
use schemars::{Schema, schema_for};

/// The schemas by file name, as published in `docs/schemas/`.
pub fn schemas() -> Vec<(&'static str, Schema)> {
    vec![
        ("log-line.schema.json", schema_for!(Line)),
        ("plan.schema.json", schema_for!(PlanPicture)),
        ("times.schema.json", schema_for!(Times)),
        ("sweep.schema.json", schema_for!(Sweep)),
    ]
}
