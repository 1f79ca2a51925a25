//! Einstein sums, lowered to transpositions, reshapes, sums and one matrix product. No op of its own.

use crate::error::GraphError;
use crate::graph::{Graph, Value};
use plimsoll_tensor::Shape;

impl Graph {
    /// The Einstein sum of one or two values: `"bij,bjk->bik"`.
    ///
    /// Every letter names an axis; letters that do not stand after the arrow are summed over. Repeated letters inside one
    /// operand and `...` are not supported.
    ///
    /// ```
    /// use plimsoll_graph::Graph;
    /// use plimsoll_tensor::{DType, TensorType};
    /// let mut g = Graph::new();
    /// let q = g.input("q", TensorType::new(DType::F32, [2, 5, 3, 4]));
    /// let k = g.input("k", TensorType::new(DType::F32, [2, 6, 3, 4]));
    /// let scores = g.einsum("bqhd,bkhd->bhqk", &[q, k]).unwrap();
    /// assert_eq!(g.shape(scores).dims(), &[2, 3, 5, 6]);
    /// ```
    ///
    /// # Errors
    /// When the text is not understood or an axis has two sizes.
    pub fn einsum(&mut self, text: &str, operands: &[Value]) -> Result<Value, GraphError> {
        let fail = |g: &Graph, message: String| GraphError::Shape {
            layer: g.layer().to_owned(),
            op: "einsum",
            message: format!("'{text}': {message}"),
            inputs: operands.iter().map(|&v| *g.ty(v)).collect(),
        };
        let spec = parse(text, operands.len()).map_err(|m| fail(self, m))?;
        let mut sizes: Vec<(char, usize)> = Vec::new();
        for (letters, &value) in spec.inputs.iter().zip(operands) {
            let shape = self.shape(value);
            if letters.len() != shape.rank() {
                return Err(fail(self, format!("{} letters for a value with {} axes", letters.len(), shape.rank())));
            }
            for (&letter, &size) in letters.iter().zip(shape.dims()) {
                match sizes.iter().find(|(l, _)| *l == letter) {
                    Some((_, known)) if *known != size => {
                        return Err(fail(self, format!("axis '{letter}' is both {known} and {size}")));
                    }
                    Some(_) => (),
                    None => sizes.push((letter, size)),
                }
            }
        }
        if let Some(letter) = spec.output.iter().find(|l| !sizes.iter().any(|(k, _)| k == *l)) {
            return Err(fail(self, format!("'{letter}' after the arrow stands nowhere before it")));
        }
        match operands {
            [x] => self.einsum_one(&spec.inputs[0], *x, &spec.output),
            [a, b] => self.einsum_two(&spec, *a, *b, &sizes),
            _ => Err(fail(self, format!("{} operands; one or two are supported", operands.len()))),
        }
    }

    /// Sums over the letters that go and puts the others in order.
    fn einsum_one(&mut self, letters: &[char], x: Value, output: &[char]) -> Result<Value, GraphError> {
        let gone: Vec<usize> = (0..letters.len()).filter(|&i| !output.contains(&letters[i])).collect();
        let x = if gone.is_empty() { x } else { self.sum(x, &gone, false)? };
        let left: Vec<char> = letters.iter().copied().filter(|l| output.contains(l)).collect();
        self.arrange(x, &left, output)
    }

    fn einsum_two(&mut self, spec: &Spec, a: Value, b: Value, sizes: &[(char, usize)]) -> Result<Value, GraphError> {
        let (left, right, output) = (&spec.inputs[0], &spec.inputs[1], &spec.output);
        let size = |l: &char| sizes.iter().find(|(k, _)| k == l).expect("every letter has a size").1;
        let keep = |own: &[char], other: &[char]| -> Vec<char> {
            own.iter().copied().filter(|l| other.contains(l) || output.contains(l)).collect()
        };
        // What only one side has and nobody wants is summed first.
        let (kept_a, kept_b) = (keep(left, right), keep(right, left));
        let a = self.einsum_one(left, a, &kept_a)?;
        let b = self.einsum_one(right, b, &kept_b)?;
        let batch: Vec<char> = kept_a.iter().copied().filter(|l| kept_b.contains(l) && output.contains(l)).collect();
        let inner: Vec<char> = kept_a.iter().copied().filter(|l| kept_b.contains(l) && !output.contains(l)).collect();
        let rows: Vec<char> = kept_a.iter().copied().filter(|l| !kept_b.contains(l)).collect();
        let columns: Vec<char> = kept_b.iter().copied().filter(|l| !kept_a.contains(l)).collect();
        let product = |letters: &[char]| letters.iter().map(size).product::<usize>();
        let sides = [product(&batch), product(&rows), product(&inner), product(&columns)];
        let a = self.arrange(a, &kept_a, &[&batch[..], &rows, &inner].concat())?;
        let b = self.arrange(b, &kept_b, &[&batch[..], &inner, &columns].concat())?;
        let a = self.reshape(a, [sides[0], sides[1], sides[2]])?;
        let b = self.reshape(b, [sides[0], sides[2], sides[3]])?;
        let y = self.matmul(a, b)?;
        let order = [&batch[..], &rows, &columns].concat();
        let dims: Vec<usize> = order.iter().map(size).collect();
        let y = self.reshape(y, Shape::new(&dims))?;
        self.arrange(y, &order, output)
    }

    /// Puts axes in another order, if it is another one.
    fn arrange(&mut self, x: Value, from: &[char], to: &[char]) -> Result<Value, GraphError> {
        if from == to {
            return Ok(x);
        }
        let axes: Vec<usize> = to.iter().map(|l| from.iter().position(|f| f == l).expect("the same letters")).collect();
        self.transpose(x, &axes)
    }

    /// A loop over the first axis of `xs`: `carry, y = body(carry, x)` for every element, as in a recurrence.
    ///
    /// Gives the last carry and the `y` of all steps, stacked along a new first axis. The body is traced once per step, so
    /// that every step is planned like the rest of the graph; gradients follow by themselves.
    ///
    /// ```
    /// use plimsoll_graph::{Graph, interpret};
    /// use plimsoll_tensor::{DType, Tensor, TensorType};
    /// let mut g = Graph::new();
    /// let x = g.input("x", TensorType::new(DType::F32, [4]));
    /// let zero = g.constant(0.0, DType::F32).unwrap();
    /// let (_, sums) = g.scan(&[zero], &[x], |g, carry, x| {
    ///     let sum = g.add(carry[0], x[0])?;
    ///     Ok((vec![sum], vec![sum]))
    /// }).unwrap();
    /// g.output("sums", sums[0]);
    /// let x = Tensor::from_slice(&[4], &[1.0f32, 2.0, 3.0, 4.0]).unwrap();
    /// assert_eq!(interpret(&g, &[("x", x)]).unwrap()["sums"].to_f64(), [1.0, 3.0, 6.0, 10.0]);
    /// ```
    ///
    /// # Errors
    /// When the values in `xs` differ in their number of steps, or the body fails or changes the number of carried values.
    pub fn scan(
        &mut self,
        init: &[Value],
        xs: &[Value],
        mut body: impl FnMut(&mut Graph, &[Value], &[Value]) -> Result<(Vec<Value>, Vec<Value>), GraphError>,
    ) -> Result<(Vec<Value>, Vec<Value>), GraphError> {
        let fail = |g: &Graph, message: String| GraphError::Shape {
            layer: g.layer().to_owned(),
            op: "scan",
            message,
            inputs: xs.iter().map(|&v| *g.ty(v)).collect(),
        };
        let steps = xs.first().and_then(|&x| self.shape(x).dims().first().copied()).unwrap_or(0);
        if steps == 0 || xs.iter().any(|&x| self.shape(x).dims().first() != Some(&steps)) {
            return Err(fail(
                self,
                "all values have the same number of steps, at least one, as their first axis".into(),
            ));
        }
        let mut carry = init.to_vec();
        let mut stacks: Vec<Vec<Value>> = Vec::new();
        for step in 0..steps {
            let mut elements = Vec::with_capacity(xs.len());
            for &x in xs {
                let element = self.slice_axis(x, 0, step, 1)?;
                let shape = self.shape(element).remove(0);
                elements.push(self.reshape(element, shape)?);
            }
            let (next, ys) = body(self, &carry, &elements)?;
            if next.len() != init.len() || step > 0 && ys.len() != stacks.len() {
                return Err(fail(
                    self,
                    format!("the body gave {} carried values and {} results in step {step}", next.len(), ys.len()),
                ));
            }
            stacks.resize(ys.len(), Vec::new());
            for (stack, y) in stacks.iter_mut().zip(ys) {
                let shape = self.shape(y).insert(0, 1);
                stack.push(self.reshape(y, shape)?);
            }
            carry = next;
        }
        let ys = stacks.iter().map(|stack| self.concat(stack, 0)).collect::<Result<_, _>>()?;
        Ok((carry, ys))
    }
}

struct Spec {
    inputs: Vec<Vec<char>>,
    output: Vec<char>,
}

fn parse(text: &str, n: usize) -> Result<Spec, String> {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let (left, output) = text.split_once("->").ok_or("expected '->'")?;
    let inputs: Vec<Vec<char>> = left.split(',').map(|part| part.chars().collect()).collect();
    let output: Vec<char> = output.chars().collect();
    if inputs.len() != n {
        return Err(format!("{} operands are named, {n} were given", inputs.len()));
    }
    for letters in inputs.iter().chain([&output]) {
        if let Some(bad) = letters.iter().find(|c| !c.is_ascii_alphabetic()) {
            return Err(format!("'{bad}' is not a letter"));
        }
        if let Some(twice) = letters.iter().enumerate().find(|(i, l)| letters[..*i].contains(l)) {
            return Err(format!("'{}' stands twice in one operand", twice.1));
        }
    }
    Ok(Spec { inputs, output })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpret;
    use crate::op::check::{check_close, random};
    use plimsoll_tensor::DType;

    /// The definition: a loop over every combination of indices.
    fn by_definition(spec: &Spec, sizes: &[(char, usize)], data: &[Vec<f64>]) -> Vec<f64> {
        let size = |l: char| sizes.iter().find(|(k, _)| *k == l).unwrap().1;
        let place = |letters: &[char], at: &[usize]| {
            letters.iter().fold(0, |p, l| p * size(*l) + at[sizes.iter().position(|(k, _)| k == l).unwrap()])
        };
        let mut out = vec![0.0; spec.output.iter().map(|l| size(*l)).product()];
        for mut i in 0..sizes.iter().map(|s| s.1).product::<usize>() {
            let mut at = vec![0; sizes.len()];
            for (a, (_, n)) in at.iter_mut().zip(sizes) {
                *a = i % n;
                i /= n;
            }
            let term: f64 = spec.inputs.iter().zip(data).map(|(l, d)| d[place(l, &at)]).product();
            out[place(&spec.output, &at)] += term;
        }
        out
    }

    #[test]
    fn equals_the_definition() {
        let sizes = [('a', 2), ('b', 3), ('c', 4), ('d', 5), ('e', 2)];
        for text in [
            "ab,bc->ac",
            "ab,bc->ca",
            "abc,acd->abd",
            "ab->ba",
            "abc->b",
            "ab,ab->",
            "ab,cd->dbca",
            "abc,cde->eab",
            "ab,b->a",
            "acbd,aebd->abce",
            "a,b->ab",
            "abc,bd->cd",
        ] {
            let spec = parse(text, text.split("->").next().unwrap().split(',').count()).unwrap();
            let mut g = Graph::new();
            let mut given = Vec::new();
            for (i, letters) in spec.inputs.iter().enumerate() {
                let dims: Vec<usize> = letters.iter().map(|l| sizes.iter().find(|(k, _)| k == l).unwrap().1).collect();
                given.push((["x", "y"][i], random(DType::F64, &dims, i as u64)));
            }
            let values: Vec<Value> = given.iter().map(|(n, t)| g.input(n, *t.ty())).collect();
            let y = g.einsum(text, &values).unwrap();
            g.output("out", y);
            let used: Vec<(char, usize)> =
                sizes.iter().copied().filter(|(l, _)| spec.inputs.iter().any(|i| i.contains(l))).collect();
            let data: Vec<Vec<f64>> = given.iter().map(|(_, t)| t.to_f64()).collect();
            check_close(
                text,
                &interpret(&g, &given).unwrap()["out"].to_f64(),
                &by_definition(&spec, &used, &data),
                1e-12,
            );
        }
    }

    #[test]
    fn says_what_is_wrong() {
        let mut g = Graph::new();
        let x = g.input("x", plimsoll_tensor::TensorType::new(DType::F32, [2, 3]));
        let mut message = |text: &str| g.einsum(text, &[x, x]).unwrap_err().to_string();
        assert!(message("ab,bc->ac").contains("axis 'b' is both 3 and 2"));
        assert!(message("ab,ab").contains("expected '->'"));
        assert!(message("aa,ab->b").contains("'a' stands twice"));
        assert!(message("ab,ab->q").contains("'q' after the arrow"));
    }
}
