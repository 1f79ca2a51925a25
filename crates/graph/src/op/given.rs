//! Gradients that a caller gives: a value with a rule of its own in place of its derivative.

use super::{Backward, Io, OpDef, Reference, expect_inputs};
use crate::error::{GraphError, RunError};
use crate::graph::{Graph, NodeId, Value};
use crate::op_attrs;
use crate::split::Split;
use plimsoll_tensor::TensorType;
use std::collections::HashMap;

/// Results whose gradient was written down: with respect to each argument it is the value `leaving`, computed from the gradients of the results in
/// place of the values `arriving`.
///
/// Inputs: the results, the arguments, as many arriving values as results and as many leaving ones as arguments. The outputs are the results. The rule
/// may be anything that can be written as graph, not linear in what arrives and not a derivative of anything.
#[derive(Clone, Debug, PartialEq)]
pub struct WithGradient {
    /// How many results there are.
    pub results: usize,
    /// How many arguments.
    pub arguments: usize,
}

op_attrs!(WithGradient = "with_gradient" { results, arguments });

impl OpDef for WithGradient {
    fn name(&self) -> &'static str {
        "with_gradient"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        let half = self.results + self.arguments;
        expect_inputs(inputs, 2 * half)?;
        for (i, (of, gradient)) in inputs[..half].iter().zip(&inputs[half..]).enumerate() {
            if of != gradient {
                let (what, i) = if i < self.results { ("result", i) } else { ("argument", i - self.results) };
                return Err(format!("{what} {i} is {of}, and its gradient {gradient}"));
            }
        }
        Ok(inputs[..self.results].to_vec())
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let half = self.results + self.arguments;
        let mut instead = HashMap::new();
        for (&arriving, dy) in b.inputs[half..].iter().zip(b.grads) {
            let dy = match dy {
                Some(dy) => *dy,
                None => {
                    let ty = *b.graph.ty(arriving);
                    let zero = b.graph.constant(0.0, ty.dtype)?;
                    b.graph.broadcast(zero, ty.shape)?
                }
            };
            instead.insert(arriving, dy);
        }
        let wanted: Vec<usize> = (self.results..half).filter(|i| b.wanted[*i]).collect();
        let leaving: Vec<Value> = wanted.iter().map(|i| b.inputs[half + i]).collect();
        let mut gradients = vec![None; b.inputs.len()];
        for (i, gradient) in wanted.into_iter().zip(computed_from(b.graph, &leaving, instead)?) {
            gradients[i] = Some(gradient);
        }
        Ok(gradients)
    }

    fn passes_on(&self) -> bool {
        true
    }

    fn split(&self, inputs: &[Split], _: &super::Types<'_>) -> Vec<Split> {
        inputs[..self.results].to_vec()
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        io.pass_on();
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], _: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        Ok(inputs[..self.results].iter().map(|r| (*r).clone()).collect())
    }
}

/// The values as they would be with other values instead of some: what depends on those stands in the graph once more.
fn computed_from(
    graph: &mut Graph,
    values: &[Value],
    mut instead: HashMap<Value, Value>,
) -> Result<Vec<Value>, GraphError> {
    let mut needed = vec![false; graph.nodes().len()];
    let mark = |needed: &mut [bool], graph: &Graph, v: Value| {
        if let Some(NodeId(id)) = graph.producer(v) {
            needed[id as usize] = true;
        }
    };
    values.iter().for_each(|&v| mark(&mut needed, graph, v));
    for id in (0..needed.len()).rev() {
        if needed[id] {
            graph.node(NodeId(id as u32)).inputs.iter().for_each(|&v| mark(&mut needed, graph, v));
        }
    }
    for id in (0..needed.len()).filter(|id| needed[*id]) {
        let node = graph.node(NodeId(id as u32));
        if node.outputs.iter().any(|v| instead.contains_key(v)) || !node.inputs.iter().any(|v| instead.contains_key(v))
        {
            continue;
        }
        let (op, outputs) = (node.op.clone(), node.outputs.clone());
        let inputs: Vec<Value> = node.inputs.iter().map(|v| *instead.get(v).unwrap_or(v)).collect();
        let again = graph.push_shared(op, &inputs)?;
        instead.extend(outputs.into_iter().zip(again));
    }
    Ok(values.iter().map(|v| *instead.get(v).unwrap_or(v)).collect())
}

impl Graph {
    /// The `results` with a gradient of the caller's: `leaving` as it was computed from `arriving`, with the gradients of the results in its place.
    ///
    /// ```
    /// use plimsoll_graph::{Graph, gradients};
    /// use plimsoll_tensor::{DType, TensorType};
    /// # fn main() -> Result<(), plimsoll_graph::GraphError> {
    /// let mut g = Graph::new();
    /// let x = g.input("x", TensorType::new(DType::F32, [3]));
    /// // The identity, whose gradient is cut off at 1.
    /// let one = g.constant(1.0, DType::F32)?;
    /// let arriving = g.broadcast(one, [3])?;
    /// let leaving = g.minimum(arriving, one)?;
    /// let y = g.with_gradient(&[x], &[x], &[arriving], &[leaving])?[0];
    /// let square = g.square(y)?;
    /// let total = g.sum(square, &[0], false)?;
    /// let dx = gradients(&mut g, total, &[x])?[0];
    /// assert!(dx.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When a gradient is of another type than what it is of.
    pub fn with_gradient(
        &mut self,
        results: &[Value],
        arguments: &[Value],
        arriving: &[Value],
        leaving: &[Value],
    ) -> Result<Vec<Value>, GraphError> {
        let inputs: Vec<Value> = [results, arguments, arriving, leaving].concat();
        self.push(WithGradient { results: results.len(), arguments: arguments.len() }, &inputs)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Graph, gradients, interpret};
    use plimsoll_tensor::{DType, Tensor, TensorType};

    /// `x * y` whose gradients are said to be `dy * dy` and 7, whatever arrives.
    #[test]
    fn the_rule_is_taken_as_it_is_written() {
        let mut g = Graph::new();
        let ty = TensorType::new(DType::F64, [3]);
        let (x, z) = (g.input("x", ty), g.input("z", ty));
        let product = g.mul(x, z).unwrap();
        let zero = g.constant(0.0, DType::F64).unwrap();
        let arriving = g.broadcast(zero, ty.shape).unwrap();
        let square = g.square(arriving).unwrap();
        let seven = g.constant(7.0, DType::F64).unwrap();
        let seven = g.broadcast(seven, ty.shape).unwrap();
        let y = g.with_gradient(&[product], &[x, z], &[arriving], &[square, seven]).unwrap()[0];
        let tripled = g.scale(y, 3.0).unwrap();
        let total = g.sum(tripled, &[0], false).unwrap();
        let grads = gradients(&mut g, total, &[x, z]).unwrap();
        for (name, value) in [("y", y), ("dx", grads[0].unwrap()), ("dz", grads[1].unwrap())] {
            g.output(name, value);
        }
        let given = |v: [f64; 3]| Tensor::from_f64(DType::F64, [3], &v).unwrap();
        let out = interpret(&g, &[("x", given([1.0, 2.0, 3.0])), ("z", given([4.0, 5.0, 6.0]))]).unwrap();
        assert_eq!(out["y"].to_f64(), [4.0, 10.0, 18.0]);
        assert_eq!(out["dx"].to_f64(), [9.0; 3]);
        assert_eq!(out["dz"].to_f64(), [7.0; 3]);
    }

    #[test]
    fn gradients_are_of_the_type_of_what_they_are_of() {
        let mut g = Graph::new();
        let x = g.input("x", TensorType::new(DType::F32, [3]));
        let one = g.constant(1.0, DType::F32).unwrap();
        let error = g.with_gradient(&[x], &[x], &[x], &[one]).unwrap_err().to_string();
        assert!(error.contains("argument 0 is f32[3], and its gradient f32"), "{error}");
    }
}
