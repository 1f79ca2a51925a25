//! Optimizer steps: a parameter and its optimizer state changed in place.

use super::{Backward, Cost, Io, OpAttrs, OpDef, Reference, Types, find_attr};
use crate::attr::{Attr, AttrValue, Attrs};
use crate::error::{GraphError, RunError};
use crate::graph::{Graph, Value};
use crate::match_float;
use plimsoll_kernels::optimizer::{
    self, Adadelta, Adagrad, Adam, Adamax, EpsilonForm, Lion, Nadam, RmsProp, Rule, Sgd, Step,
};
use plimsoll_tensor::{DType, TensorType};

/// One step of an optimizer on one parameter.
///
/// Inputs: the parameter, its state arrays ([`Rule::state`]), the gradient, and as f32 scalars the learning rate and the
/// number of the step (from 1); if `scaled`, a third scalar that the gradient is multiplied with first. Outputs: the
/// parameter and the state arrays, changed in place.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimize {
    /// The optimizer with its constants.
    pub rule: Rule,
    /// Whether a factor for the gradient is given.
    pub scaled: bool,
}

impl AttrValue for EpsilonForm {
    fn to_attr(&self) -> Attr {
        Attr::Text(if *self == EpsilonForm::Keras { "keras" } else { "pytorch" }.into())
    }
    fn from_attr(attr: &Attr) -> Option<EpsilonForm> {
        match attr {
            Attr::Text(text) if text == "keras" => Some(EpsilonForm::Keras),
            Attr::Text(text) if text == "pytorch" => Some(EpsilonForm::PyTorch),
            _ => None,
        }
    }
}

/// Name and fields of every rule.
macro_rules! rules {
    ($($rule:ident = $name:literal { $($field:ident),* };)*) => {
        fn name_of(rule: &Rule) -> &'static str {
            match rule { $(Rule::$rule(_) => $name),* }
        }

        fn attrs_of(rule: &Rule) -> Attrs {
            match rule { $(Rule::$rule(r) => vec![$((stringify!($field), r.$field.to_attr())),*]),* }
        }

        /// The rule with this name; `None` when the name is another's.
        fn parse_rule(name: &str, attrs: &[(String, Attr)]) -> Result<Option<Rule>, String> {
            Ok(Some(match name {
                $($name => Rule::$rule($rule { $($field: find_attr(attrs, stringify!($field))?),* }),)*
                _ => return Ok(None),
            }))
        }
    };
}

rules! {
    Sgd = "sgd" { momentum, nesterov, weight_decay };
    Adam = "adam" { beta_1, beta_2, epsilon, epsilon_form, amsgrad, weight_decay };
    RmsProp = "rmsprop" { rho, momentum, centered, epsilon, epsilon_form, weight_decay };
    Adagrad = "adagrad" { initial_accumulator, epsilon, epsilon_form, weight_decay };
    Adadelta = "adadelta" { rho, epsilon, weight_decay };
    Adamax = "adamax" { beta_1, beta_2, epsilon, epsilon_form, weight_decay };
    Nadam = "nadam" { beta_1, beta_2, epsilon, momentum_decay, weight_decay };
    Lion = "lion" { beta_1, beta_2, weight_decay };
}

impl OpAttrs for Optimize {
    fn attrs(&self) -> Attrs {
        let mut attrs = attrs_of(&self.rule);
        attrs.push(("scaled", self.scaled.to_attr()));
        attrs
    }

    fn parse(name: &str, attrs: &[(String, Attr)]) -> Option<Result<Optimize, String>> {
        let rule = parse_rule(name, attrs).transpose()?;
        Some(rule.and_then(|rule| Ok(Optimize { rule, scaled: find_attr(attrs, "scaled")? })))
    }
}

impl Optimize {
    /// Which input the gradient is: it comes after the parameter and its state. The scalars follow.
    fn gradient_input(&self) -> usize {
        1 + self.rule.state().len()
    }

    fn step(&self, scalar: impl Fn(usize) -> f64) -> Step {
        let first = self.gradient_input() + 1;
        let gradient_scale = if self.scaled { scalar(first + 2) } else { 1.0 };
        Step { learning_rate: scalar(first), number: scalar(first + 1), gradient_scale }
    }
}

impl OpDef for Optimize {
    fn name(&self) -> &'static str {
        name_of(&self.rule)
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        let gradient = self.gradient_input();
        super::expect_inputs(inputs, gradient + 3 + self.scaled as usize)?;
        let parameter = inputs[0];
        if !matches!(parameter.dtype, DType::F32 | DType::F64) {
            return Err(format!("changes f32 or f64, got {}", parameter.dtype));
        }
        let names = self.rule.state().iter().copied().chain(["gradient"]);
        for (name, ty) in names.zip(&inputs[1..]) {
            if *ty != parameter {
                return Err(format!("the parameter is {parameter}, the {name} {ty}"));
            }
        }
        let scalar = TensorType::new(DType::F32, []);
        for (name, ty) in ["learning rate", "step", "gradient's scale"].into_iter().zip(&inputs[gradient + 1..]) {
            if *ty != scalar {
                return Err(format!("the {name} is an f32 scalar, got {ty}"));
            }
        }
        Ok(vec![parameter; gradient])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let layer = b.graph.layer().to_owned();
        let message = "a step of an optimizer ends the computation".into();
        Err(GraphError::NoGradient { layer, op: self.name(), message })
    }

    fn mutates(&self) -> &[(usize, usize)] {
        &[(0, 0), (1, 1), (2, 2), (3, 3)][..self.gradient_input()]
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        let (elements, bytes) = (types.inputs[0].elements() as u64, types.inputs[0].bytes() as u64);
        // Parameter and state are read and written, the gradient is read.
        let arrays = 2 * self.gradient_input() as u64 + 1;
        Cost { flops: elements * self.rule.operations() as u64, bytes: bytes * arrays }
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let step = self.step(|i| io.input::<f32>(i)[0] as f64);
        let gradient = self.gradient_input();
        match_float!(io.out_ty(0).dtype, T => {
            let mut state: [&mut [T]; 3] = [&mut [], &mut [], &mut []];
            for (i, state) in state.iter_mut().take(gradient - 1).enumerate() {
                *state = io.output::<T>(1 + i);
            }
            let (parameter, state) = (io.output::<T>(0), &mut state[..gradient - 1]);
            optimizer::update(io.pool(), &self.rule, step, parameter, io.input::<T>(gradient), state);
        }, else unreachable!("checked by `infer`"));
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], _: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let gradient = self.gradient_input();
        let mut out: Vec<Reference> = inputs[..gradient].iter().map(|&r| r.clone()).collect();
        let step = self.step(|i| inputs[i].data[0]);
        let (parameter, state) = out.split_at_mut(1);
        let mut state: Vec<&mut [f64]> = state.iter_mut().map(|s| &mut s.data[..]).collect();
        optimizer::update_naive(&self.rule, step, &mut parameter[0].data, &inputs[gradient].data, &mut state);
        Ok(out)
    }
}

/// What changes from step to step: f32 scalars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepValues {
    /// The learning rate.
    pub learning_rate: Value,
    /// The number of the step, from 1.
    pub number: Value,
    /// What every gradient is multiplied with first, if anything.
    pub gradient_scale: Option<Value>,
}

impl Graph {
    /// One step of an optimizer: changes a parameter and its state arrays in place, and gives back their new values, the
    /// parameter's first.
    ///
    /// # Errors
    /// When there are not as many state arrays as the rule has, or types differ.
    pub fn optimize(
        &mut self,
        rule: Rule,
        parameter: Value,
        state: &[Value],
        gradient: Value,
        step: StepValues,
    ) -> Result<Vec<Value>, GraphError> {
        let mut inputs = vec![parameter];
        inputs.extend_from_slice(state);
        inputs.extend([gradient, step.learning_rate, step.number]);
        inputs.extend(step.gradient_scale);
        self.push(Optimize { rule, scaled: step.gradient_scale.is_some() }, &inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::check::{check_on, random};
    use plimsoll_tensor::{Shape, Tensor};

    fn rules() -> Vec<Rule> {
        let (epsilon, epsilon_form, weight_decay) = (1e-3, EpsilonForm::PyTorch, 0.01);
        let (beta_1, beta_2) = (0.9, 0.99);
        let adam = Adam { beta_1, beta_2, epsilon, epsilon_form, amsgrad: false, weight_decay };
        let rms = RmsProp { rho: 0.9, momentum: 0.0, centered: false, epsilon, epsilon_form, weight_decay };
        vec![
            Rule::Sgd(Sgd { momentum: 0.0, nesterov: false, weight_decay }),
            Rule::Sgd(Sgd { momentum: 0.9, nesterov: true, weight_decay }),
            Rule::Adam(adam),
            Rule::Adam(Adam { amsgrad: true, epsilon_form: EpsilonForm::Keras, ..adam }),
            Rule::RmsProp(rms),
            Rule::RmsProp(RmsProp { momentum: 0.9, centered: true, ..rms }),
            Rule::Adagrad(Adagrad { initial_accumulator: 0.1, epsilon, epsilon_form, weight_decay }),
            Rule::Adadelta(Adadelta { rho: 0.9, epsilon, weight_decay }),
            Rule::Adamax(Adamax { beta_1, beta_2, epsilon, epsilon_form, weight_decay }),
            Rule::Nadam(Nadam { beta_1, beta_2, epsilon, momentum_decay: 1.0, weight_decay }),
            Rule::Lion(Lion { beta_1, beta_2, weight_decay }),
        ]
    }

    #[test]
    fn every_rule() {
        for rule in rules() {
            for (dtype, scaled) in [(DType::F32, false), (DType::F64, true)] {
                let array = |salt: u64| random(dtype, &[4, 5], salt);
                // State is positive where a mean square is, and large enough for a centered one.
                let positive = |salt: u64| {
                    let data: Vec<f64> = array(salt).to_f64().iter().map(|x| 1.5 + x).collect();
                    Tensor::from_f64(dtype, Shape::new(&[4, 5]), &data).unwrap()
                };
                let mut inputs = vec![array(1)];
                inputs.extend((0..rule.state().len()).map(|i| positive(2 + i as u64)));
                inputs.push(array(9));
                let scalars = [0.01f32, 7.0, 0.5];
                inputs.extend(scalars[..2 + scaled as usize].iter().map(|&x| Tensor::from_slice([], &[x]).unwrap()));
                check_on(Optimize { rule, scaled }, &inputs, false);
            }
        }
    }

    #[test]
    fn changes_its_state_in_place() {
        let mut g = Graph::new();
        let ty = TensorType::new(DType::F32, [3]);
        let scalar = TensorType::new(DType::F32, []);
        let (p, m, grad) = (g.state("p", ty), g.state("m", ty), g.input("grad", ty));
        let (learning_rate, number) = (g.input("lr", scalar), g.input("step", scalar));
        let rule = Rule::Sgd(Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0 });
        let step = StepValues { learning_rate, number, gradient_scale: None };
        let new = g.optimize(rule, p, &[m], grad, step).unwrap();
        assert_eq!(g.state_of(new[0]), Some(p));
        assert_eq!(g.state_of(new[1]), Some(m));
        g.verify().unwrap();
        let text = g.to_string();
        assert_eq!(Graph::parse(&text).unwrap().to_string(), text);
        let error = g.optimize(rule, p, &[], grad, step).unwrap_err();
        assert!(error.to_string().contains("takes 5 inputs, got 4"), "{error}");
    }
}
