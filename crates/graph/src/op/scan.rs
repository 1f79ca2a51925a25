//! Cumulative sums and products along an axis.

use super::{Backward, Cost, Exact, Io, OpDef, Reference, Types, expect_axis, expect_inputs, two_or_more};
use crate::error::{GraphError, RunError};
use crate::graph::{Graph, Value};
use crate::split::Split;
use crate::{match_float, op_attrs};
use plimsoll_kernels::axis::Axis;
use plimsoll_kernels::scan::{self, Scan};
use plimsoll_tensor::{DType, TensorType};

/// Cumulative sum: every element with those before it along the axis.
#[derive(Clone, Debug, PartialEq)]
pub struct CumSum {
    /// The axis.
    pub axis: usize,
    /// The element itself is left out.
    pub exclusive: bool,
    /// From the end to the beginning.
    pub reverse: bool,
}

/// Cumulative product.
#[derive(Clone, Debug, PartialEq)]
pub struct CumProd {
    /// The axis.
    pub axis: usize,
    /// The element itself is left out.
    pub exclusive: bool,
    /// From the end to the beginning.
    pub reverse: bool,
}

/// The gradient of [`CumProd`]: from `x` and `dy` to `dx`, right at zeros too.
#[derive(Clone, Debug, PartialEq)]
pub struct CumProdGrad {
    /// The axis.
    pub axis: usize,
    /// The element itself was left out.
    pub exclusive: bool,
    /// It ran from the end to the beginning.
    pub reverse: bool,
}

op_attrs!(CumSum = "cumsum" { axis, exclusive, reverse });
op_attrs!(CumProd = "cumprod" { axis, exclusive, reverse });
op_attrs!(CumProdGrad = "cumprod_grad" { axis, exclusive, reverse });

fn expect_values(ty: &TensorType, axis: usize) -> Result<(), String> {
    expect_axis(ty, axis)?;
    match ty.dtype {
        DType::F32 | DType::F64 => Ok(()),
        other => Err(format!("takes f32 or f64, got {other}")),
    }
}

/// The answer of all three: the kernels have another way for one column than for several.
fn exact_scan(axis: usize, inputs: &[Split], types: &Types<'_>, batch: usize) -> Exact {
    match inputs[0] {
        Split::Axis(a) if a > axis => two_or_more(Axis::new(types.inputs[0].dims(), axis).inner / batch),
        _ => Exact::ANY,
    }
}

/// What both scans answer alike; `$kernel` runs them and `$product` names them to the naive twin.
macro_rules! scan_answers {
    ($kernel:ident, $product:literal) => {
        fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
            expect_inputs(inputs, 1)?;
            expect_values(&inputs[0], self.axis)?;
            Ok(vec![inputs[0]])
        }

        fn exact_part(&self, inputs: &[Split], types: &Types<'_>, batch: usize) -> Exact {
            exact_scan(self.axis, inputs, types, batch)
        }

        fn workspace(&self, types: &Types<'_>, _: usize) -> usize {
            let ty = types.inputs[0];
            scan::scratch(Axis::new(ty.dims(), self.axis)) * ty.dtype.size()
        }

        fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
            let (axis, scan) = (Axis::new(io.in_ty(0).dims(), self.axis), self.scan());
            match_float!(io.in_ty(0).dtype, T => {
                scan::$kernel(io.pool(), io.input::<T>(0), axis, scan, io.output::<T>(0), io.workspace::<T>());
            }, else unreachable!("checked by `infer`"));
            Ok(())
        }

        fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
            let mut y = Reference::zeros(outputs[0]);
            let axis = Axis::new(inputs[0].dims(), self.axis);
            scan::cumulate_naive(&inputs[0].data, axis, self.scan(), $product, &mut y.data);
            Ok(vec![y])
        }
    };
}

impl OpDef for CumSum {
    fn name(&self) -> &'static str {
        "cumsum"
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let dy = b.dy();
        Ok(vec![Some(b.graph.push1(CumSum { reverse: !self.reverse, ..self.clone() }, &[dy])?)])
    }

    fn split(&self, inputs: &[Split], _: &Types<'_>) -> Vec<Split> {
        vec![if inputs[0] == Split::Axis(self.axis) { Split::Mixed } else { inputs[0] }]
    }

    scan_answers!(cumsum, false);
}

impl CumSum {
    fn scan(&self) -> Scan {
        Scan { exclusive: self.exclusive, reverse: self.reverse }
    }
}

impl OpDef for CumProd {
    fn name(&self) -> &'static str {
        "cumprod"
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (x, dy) = (b.inputs[0], b.dy());
        let back = CumProdGrad { axis: self.axis, exclusive: self.exclusive, reverse: self.reverse };
        Ok(vec![Some(b.graph.push1(back, &[x, dy])?)])
    }

    fn split(&self, inputs: &[Split], _: &Types<'_>) -> Vec<Split> {
        vec![match inputs[0] {
            Split::Axis(a) if a == self.axis => Split::Mixed,
            Split::Partial => Split::Mixed,
            other => other,
        }]
    }

    scan_answers!(cumprod, true);
}

impl CumProd {
    fn scan(&self) -> Scan {
        Scan { exclusive: self.exclusive, reverse: self.reverse }
    }
}

impl OpDef for CumProdGrad {
    fn name(&self) -> &'static str {
        "cumprod_grad"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 2)?;
        expect_values(&inputs[0], self.axis)?;
        if inputs[0] != inputs[1] {
            return Err(format!("x is {}, dy is {}", inputs[0], inputs[1]));
        }
        Ok(vec![inputs[0]])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let layer = b.graph.layer().to_owned();
        Err(GraphError::NoGradient { layer, op: self.name(), message: "it is a gradient itself".into() })
    }

    fn split(&self, inputs: &[Split], _: &Types<'_>) -> Vec<Split> {
        vec![match (inputs[0], inputs[1]) {
            (Split::Whole, Split::Whole) => Split::Whole,
            (Split::Whole, Split::Partial) => Split::Partial,
            (Split::Axis(a), Split::Axis(b)) if a == b && a != self.axis => Split::Axis(a),
            _ => Split::Mixed,
        }]
    }

    fn exact_part(&self, inputs: &[Split], types: &Types<'_>, batch: usize) -> Exact {
        exact_scan(self.axis, inputs, types, batch)
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: 5 * types.inputs[0].elements() as u64, bytes: types.bytes() }
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let axis = Axis::new(io.in_ty(0).dims(), self.axis);
        let scan = Scan { exclusive: self.exclusive, reverse: self.reverse };
        match_float!(io.in_ty(0).dtype, T => {
            scan::cumprod_grad(io.pool(), io.input::<T>(0), io.input::<T>(1), axis, scan, io.output::<T>(0));
        }, else unreachable!("checked by `infer`"));
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let mut dx = Reference::zeros(outputs[0]);
        let axis = Axis::new(inputs[0].dims(), self.axis);
        let scan = Scan { exclusive: self.exclusive, reverse: self.reverse };
        scan::cumprod_grad_naive(&inputs[0].data, &inputs[1].data, axis, scan, &mut dx.data);
        Ok(vec![dx])
    }
}

impl Graph {
    /// The cumulative sum along an axis.
    ///
    /// # Errors
    /// When the axis does not exist or the value is not f32 or f64.
    pub fn cumsum(&mut self, x: Value, axis: usize, exclusive: bool, reverse: bool) -> Result<Value, GraphError> {
        self.push1(CumSum { axis, exclusive, reverse }, &[x])
    }

    /// The cumulative product along an axis.
    ///
    /// # Errors
    /// As [`Graph::cumsum`].
    pub fn cumprod(&mut self, x: Value, axis: usize, exclusive: bool, reverse: bool) -> Result<Value, GraphError> {
        self.push1(CumProd { axis, exclusive, reverse }, &[x])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::check::{check_on, check_op, check_rejects, check_slices, random};

    #[test]
    fn slices_give_the_same_bits() {
        let op = CumSum { axis: 0, exclusive: false, reverse: false };
        check_slices(&op, &[&[9000, 5]], &[Split::Axis(1)]);
        check_slices(&CumSum { axis: 1, ..op }, &[&[5, 9000]], &[Split::Axis(0)]);
    }

    #[test]
    fn along_every_axis_in_every_way() {
        for (exclusive, reverse) in [(false, false), (true, false), (false, true), (true, true)] {
            for axis in 0..3 {
                check_op(CumSum { axis, exclusive, reverse }, &[&[2, 4, 5]]);
                check_op(CumProd { axis, exclusive, reverse }, &[&[2, 4, 5]]);
                let back = CumProdGrad { axis, exclusive, reverse };
                check_on(back, &[random(DType::F32, &[2, 4, 5], 1), random(DType::F32, &[2, 4, 5], 2)], false);
            }
        }
        check_on(CumSum { axis: 0, exclusive: false, reverse: true }, &[random(DType::F64, &[9000], 1)], false);
    }

    #[test]
    fn bad_axes() {
        let op = CumSum { axis: 1, exclusive: false, reverse: false };
        check_rejects(op, &[&[3]], "axis 1 of a value with 1 axes");
    }
}
