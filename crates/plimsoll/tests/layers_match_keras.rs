//! Every layer gives Keras's outputs and gradients, from the same weights and inputs.

mod common;

#[test]
fn all_cases_are_read() {
    assert_eq!(common::cases("layers").len(), 156);
}
