//! Fusion keeps every value that something reads from memory.

use plimsoll_graph::Graph;
use plimsoll_plan::{Options, StateLayout, plan};
use plimsoll_tensor::{DType, TensorType};

/// The key of random numbers may itself be computed element by element, as when a seed is counted up.
#[test]
fn a_computed_key_is_stored() {
    let mut graph = Graph::new();
    let seed = graph.input("seed", TensorType::new(DType::I64, [2]));
    let one = graph.constant(1.0, DType::I64).unwrap();
    let key = graph.add(seed, one).unwrap();
    let noise = graph.random(key, "uniform", TensorType::new(DType::F32, [8])).unwrap();
    let twice = graph.add(noise, noise).unwrap();
    graph.output("y", twice);
    let planned = plan(&graph, &StateLayout::new([]), &Options::default());
    assert!(planned.is_ok(), "{:?}", planned.err());
}
