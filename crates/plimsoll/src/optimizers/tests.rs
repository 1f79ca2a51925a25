use super::*;
use plimsoll_graph::Source;

fn f32s(values: &[f32]) -> Tensor {
    Tensor::from_slice([values.len()], values).unwrap()
}

/// Two weights, updated once with gradients [3, 0] and [0, 4]; gives the run afterwards.
fn update_two(optimizer: &dyn Optimizer, options: impl Fn(&mut Trace<'_>) -> UpdateOptions) -> Run {
    let mut run = Run::new();
    let inputs = [
        ("g", f32s(&[3.0, 0.0])),
        ("h", f32s(&[0.0, 4.0])),
        ("rate", Tensor::scalar(1.0f32)),
        ("step", Tensor::scalar(1.0f32)),
    ];
    run.step(Mode::Train, &inputs, |t| {
        let [g, h] = ["g", "h"].map(|n| t.input(n, TensorType::new(DType::F32, [2])));
        let [rate, step] = ["rate", "step"].map(|n| t.input(n, TensorType::new(DType::F32, [])));
        let (a, b) = (t.weight("a/kernel", [2], Initializer::Ones)?, t.weight("b/bias", [2], Initializer::Ones)?);
        let options = options(t);
        let hyper = Hyper { learning_rate: rate, step };
        apply(optimizer, t, &[("a/kernel".into(), a, g), ("b/bias".into(), b, h)], &hyper, &options)?;
        Ok(())
    })
    .unwrap();
    run
}

#[track_caller]
fn check_weights(run: &Run, kernel: [f64; 2], bias: [f64; 2]) {
    for (name, expected) in [("a/kernel", kernel), ("b/bias", bias)] {
        let found = run.get(name).unwrap().to_f64();
        assert!(found.iter().zip(expected).all(|(f, e)| (f - e).abs() < 1e-6), "{name}: {found:?}, not {expected:?}");
    }
}

#[test]
fn moments_are_named_after_their_weights() {
    let run = update_two(&Adam::new(0.1).amsgrad(), |_| UpdateOptions::new().ema(0.9));
    let mut names: Vec<&str> = run.variables().iter().filter(|v| v.role == Role::Moment).map(|v| &v.name[..]).collect();
    names.sort();
    let expected = ["momentum", "velocity", "velocity_hat", "average"];
    let mut expected: Vec<String> =
        ["a/kernel", "b/bias"].iter().flat_map(|w| expected.map(|m| format!("adam/{w}/{m}"))).collect();
    expected.sort();
    assert_eq!(names, expected);
}

#[test]
fn gradients_are_cut_in_every_way() {
    let sgd = Sgd::new(1.0);
    check_weights(&update_two(&sgd, |_| UpdateOptions::new()), [-2.0, 1.0], [1.0, -3.0]);
    check_weights(&update_two(&sgd, |_| UpdateOptions::new().clip_value(0.5)), [0.5, 1.0], [1.0, 0.5]);
    check_weights(&update_two(&sgd, |_| UpdateOptions::new().clip_norm(3.5)), [-2.0, 1.0], [1.0, -2.5]);
    // Together they have length 5.
    check_weights(&update_two(&sgd, |_| UpdateOptions::new().clip_global_norm(1.0)), [0.4, 1.0], [1.0, 0.2]);
    check_weights(&update_two(&sgd, |_| UpdateOptions::new().clip_global_norm(9.0)), [-2.0, 1.0], [1.0, -3.0]);
}

#[test]
fn gradients_are_divided_before_they_are_cut() {
    let sgd = Sgd::new(1.0);
    let halved = |options: UpdateOptions| {
        move |t: &mut Trace<'_>| {
            let divisor = t.constant(2.0, DType::F32).unwrap();
            UpdateOptions { gradient_divisor: Some(divisor), ..options.clone() }
        }
    };
    check_weights(&update_two(&sgd, halved(UpdateOptions::new())), [-0.5, 1.0], [1.0, -1.0]);
    check_weights(&update_two(&sgd, halved(UpdateOptions::new().clip_value(1.75))), [-0.5, 1.0], [1.0, -0.75]);
    check_weights(&update_two(&sgd, halved(UpdateOptions::new().clip_norm(1.75))), [-0.5, 1.0], [1.0, -0.75]);
    check_weights(&update_two(&sgd, halved(UpdateOptions::new().clip_global_norm(1.0))), [0.4, 1.0], [1.0, 0.2]);
    check_weights(&update_two(&sgd, halved(UpdateOptions::new().clip_global_norm(9.0))), [-0.5, 1.0], [1.0, -1.0]);
}

#[test]
fn weights_decay_by_name() {
    let options = UpdateOptions::new().weight_decay(0.5).decay_only(|name| name.ends_with("kernel"));
    check_weights(&update_two(&Sgd::new(1.0), |_| options.clone()), [-2.5, 0.5], [1.0, -3.0]);
    // Without a word in the options it is the optimizer's own decay.
    let decay_of = |options: UpdateOptions| {
        let run = update_two(&AdamW::new(1.0).weight_decay(0.5), |_| options.clone());
        1.0 - run.get("a/kernel").unwrap().to_f64()[1]
    };
    assert_eq!(decay_of(UpdateOptions::new()), 0.5);
    assert_eq!(decay_of(UpdateOptions::new().weight_decay(0.25)), 0.25);
}

#[test]
fn the_global_norm_is_given() {
    let mut variables = crate::trace::Variables::new();
    let mut t = Trace::new(&mut variables, Mode::Train);
    let [rate, step] = ["rate", "step"].map(|n| t.input(n, TensorType::new(DType::F32, [])));
    let (w, g) = (t.weight("w", [2], Initializer::Ones).unwrap(), t.input("g", TensorType::new(DType::F32, [2])));
    let hyper = Hyper { learning_rate: rate, step };
    let options = UpdateOptions::new().clip_global_norm(1.0);
    let applied = apply(&Sgd::new(0.1), &mut t, &[("w".into(), w, g)], &hyper, &options).unwrap();
    assert_eq!(*t.ty(applied.global_norm.unwrap()), TensorType::new(DType::F32, []));
    // The weight after the update is what later readers see, and lives where the weight does.
    let (_, new) = &applied.weights[0];
    assert_eq!(t.weights(), [("w".into(), *new)]);
    assert!(matches!(&t.value(t.state_of(*new).unwrap()).source, Source::State { name } if name == "w"));
}

#[test]
fn averages_follow_and_take_over() {
    let weight = f32s(&[0.0]);
    let gradients = vec![f32s(&[-1.0]); 3];
    let after = |options: UpdateOptions| -> Vec<f64> {
        evaluate(&Sgd::new(1.0), &options, &weight, &gradients).unwrap().iter().map(|w| w.to_f64()[0]).collect()
    };
    assert_eq!(after(UpdateOptions::new().ema(0.5)), [1.0, 2.0, 3.0]);
    // Averages 1, 1.5; the second is written over the weight.
    assert_eq!(after(UpdateOptions::new().ema_overwriting(0.5, 2)), [1.0, 1.5, 2.5]);
}

#[test]
fn gradients_of_another_precision() {
    let gradient = Tensor::from_f64(DType::BF16, [2], &[1.0, -2.0]).unwrap();
    for options in [UpdateOptions::new(), UpdateOptions::new().clip_global_norm(10.0)] {
        let after = evaluate(&Sgd::new(0.5), &options, &f32s(&[1.0, 1.0]), std::slice::from_ref(&gradient)).unwrap();
        assert_eq!(after[0].to_f64(), [0.5, 2.0]);
    }
}

#[track_caller]
fn check_refused(optimizer: &dyn Optimizer, options: UpdateOptions, message: &str) {
    let error = evaluate(optimizer, &options, &f32s(&[1.0]), &[f32s(&[1.0])]).unwrap_err();
    assert_eq!(error.to_string(), message);
}

#[test]
fn bad_settings_are_refused() {
    let (sgd, plain) = (Sgd::new(0.1), UpdateOptions::new());
    check_refused(&Sgd::new(-0.1), plain.clone(), "schedule: the rate is -0.1; it must be a number of at least 0");
    check_refused(
        &Sgd::new(0.1).momentum(1.5),
        plain.clone(),
        "sgd: momentum is 1.5; it must be at least 0 and below 1",
    );
    check_refused(&Adam::new(0.1).beta_2(1.0), plain.clone(), "adam: beta_2 is 1; it must be at least 0 and below 1");
    check_refused(
        &Adam::new(0.1).epsilon(-1e-7),
        plain.clone(),
        "adam: epsilon is -0.0000001; it must be a number of at least 0",
    );
    check_refused(
        &AdamW::new(0.1).weight_decay(f64::NAN),
        plain.clone(),
        "adamw: weight_decay is NaN; it must be a number of at least 0",
    );
    check_refused(
        &sgd,
        plain.clone().clip_norm(0.0),
        "optimizer: gradients are to be cut to 0; it must be a number above 0",
    );
    check_refused(
        &sgd,
        plain.clone().weight_decay(-1.0),
        "optimizer: weight_decay is -1; it must be a number of at least 0",
    );
    check_refused(
        &sgd,
        plain.clone().ema(1.0),
        "optimizer: the momentum of the moving averages is 1; it must be at least 0 and below 1",
    );
    check_refused(
        &sgd,
        plain.ema_overwriting(0.9, 0),
        "optimizer: averages are to be written over the weights every 0 steps; it must be at least 1",
    );
}
