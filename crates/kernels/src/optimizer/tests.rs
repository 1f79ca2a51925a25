use super::*;
use crate::random::{Distribution, Key, fill_block};

const START: [f64; 3] = [1.0, -2.0, 0.5];
const GRADIENTS: [[f64; 3]; 3] = [[0.1, -0.2, 1e-5], [0.3, 0.1, -2e-5], [-0.2, 0.4, 0.0]];
const EPSILON: f64 = 1e-3;

const ADAM: Adam = Adam {
    beta_1: 0.9,
    beta_2: 0.999,
    epsilon: EPSILON,
    epsilon_form: EpsilonForm::Keras,
    amsgrad: false,
    weight_decay: 0.0,
};
const RMS: RmsProp = RmsProp {
    rho: 0.8,
    momentum: 0.0,
    centered: false,
    epsilon: EPSILON,
    epsilon_form: EpsilonForm::Keras,
    weight_decay: 0.0,
};
const ADAGRAD: Adagrad =
    Adagrad { initial_accumulator: 0.1, epsilon: EPSILON, epsilon_form: EpsilonForm::Keras, weight_decay: 0.0 };
const ADADELTA: Adadelta = Adadelta { rho: 0.8, epsilon: EPSILON, weight_decay: 0.0 };
const ADAMAX: Adamax =
    Adamax { beta_1: 0.9, beta_2: 0.999, epsilon: EPSILON, epsilon_form: EpsilonForm::Keras, weight_decay: 0.0 };
const NADAM: Nadam = Nadam { beta_1: 0.9, beta_2: 0.999, epsilon: EPSILON, momentum_decay: 1.0, weight_decay: 0.0 };
const LION: Lion = Lion { beta_1: 0.9, beta_2: 0.99, weight_decay: 0.05 };
const SGD: Sgd = Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 };
const PYTORCH: EpsilonForm = EpsilonForm::PyTorch;

#[track_caller]
fn check(rule: Rule, learning_rate: f64, want: [f64; 3]) {
    check_within(1e-11, rule, learning_rate, want);
}

#[track_caller]
fn check_within(tolerance: f64, rule: Rule, learning_rate: f64, want: [f64; 3]) {
    let fast = |p: &mut [f64], g: &[f64], state: &mut [&mut [f64]], step| {
        update(&Pool::new(1), &rule, step, p, g, state);
    };
    let slow = |p: &mut [f64], g: &[f64], state: &mut [&mut [f64]], step| update_naive(&rule, step, p, g, state);
    for f in [&fast as &dyn Fn(&mut [f64], &[f64], &mut [&mut [f64]], Step), &slow] {
        let mut p = START;
        let mut state = vec![[rule.initial_state(); 3]; rule.state().len()];
        for (t, g) in GRADIENTS.iter().enumerate() {
            let mut state: Vec<&mut [f64]> = state.iter_mut().map(|s| &mut s[..]).collect();
            f(&mut p, g, &mut state, Step::new(t as f64 + 1.0, learning_rate));
        }
        for (got, want) in p.iter().zip(want) {
            assert!((got - want).abs() < tolerance, "{got} and {want}");
        }
    }
}

#[test]
fn as_keras() {
    // Keras 3.15.1 in float64 after three steps.
    check(Rule::Sgd(SGD), 0.1, [0.98, -2.03, 0.500_001]);
    let sgd = Sgd { momentum: 0.9, weight_decay: 0.01, ..SGD };
    check(Rule::Sgd(sgd), 0.1, [0.932_961_989, -1.998_853_978, 0.498_502_590_399]);
    let sgd = Sgd { momentum: 0.9, nesterov: true, ..SGD };
    check(Rule::Sgd(sgd), 0.1, [0.922_31, -2.034_32, 0.500_001_981]);
    check(Rule::Adam(ADAM), 0.1, [0.816_811_211_167, -1.933_100_474_69, 0.500_014_238_698]);
    let amsgrad = Adam { amsgrad: true, ..ADAM };
    check(Rule::Adam(amsgrad), 0.1, [0.816_811_211_167, -1.933_100_474_69, 0.500_014_238_691]);
    let adamw = Adam { weight_decay: 0.05, ..ADAM };
    check(Rule::Adam(adamw), 0.1, [0.803_061_105_066, -1.904_228_202_19, 0.492_551_862_202]);
    check(Rule::RmsProp(RMS), 0.1, [0.735_714_414_815, -2.093_027_310_52, 0.500_031_622_774]);
    let rms = RmsProp { momentum: 0.7, ..RMS };
    check(Rule::RmsProp(rms), 0.1, [0.372_137_200_67, -1.914_352_770_05, 0.500_038_263_555]);
    let rms = RmsProp { centered: true, ..RMS };
    check(Rule::RmsProp(rms), 0.1, [0.685_924_337_107, -2.085_980_061_23, 0.500_031_622_774]);
    let rms = RmsProp { centered: true, momentum: 0.7, ..RMS };
    check(Rule::RmsProp(rms), 0.1, [0.280_066_990_928, -1.882_069_621_64, 0.500_038_263_555]);
    check(Rule::Adagrad(ADAGRAD), 0.1, [0.943_810_070_415, -2.044_198_412_52, 0.500_003_146_584]);
    check(Rule::Adadelta(ADADELTA), 1.0, [0.926_542_236_974, -2.070_418_574_42, 0.500_009_999_999]);
    check(Rule::Adamax(ADAMAX), 0.1, [0.814_266_409_662, -1.909_711_601_35, 0.499_935_654_112]);
    check(Rule::Nadam(NADAM), 0.1, [0.843_983_683_282, -2.024_711_240_15, 0.500_374_057_423]);
    check(Rule::Lion(LION), 0.1, [0.886_572_375, -2.070_647_25, 0.593_034_937_5]);
}

#[test]
fn as_pytorch() {
    // PyTorch 2.15.0 in float64 after three steps.
    let adam = Adam { epsilon_form: PYTORCH, ..ADAM };
    check(Rule::Adam(adam), 0.1, [0.783_948_965_521, -1.919_592_244_86, 0.499_940_493_594]);
    let amsgrad = Adam { amsgrad: true, ..adam };
    check(Rule::Adam(amsgrad), 0.1, [0.783_948_965_521, -1.919_592_244_86, 0.499_940_491_294]);
    let adamw = Adam { weight_decay: 0.05, ..adam };
    check(Rule::Adam(adamw), 0.1, [0.770_468_312_165, -1.890_866_863_63, 0.492_484_957_659]);
    let rms = RmsProp { epsilon_form: PYTORCH, ..RMS };
    check(Rule::RmsProp(rms), 0.1, [0.697_647_556_469, -2.089_047_950_96, 0.500_985_046_444]);
    let rms = RmsProp { centered: true, momentum: 0.7, ..rms };
    check(Rule::RmsProp(rms), 0.1, [0.166_065_880_615, -1.860_827_888_63, 0.501_186_730_818]);
    let adagrad = Adagrad { epsilon_form: PYTORCH, ..ADAGRAD };
    check(Rule::Adagrad(adagrad), 0.1, [0.943_748_792_839, -2.044_156_941_86, 0.500_003_152_309]);
    let adamax = Adamax { epsilon_form: PYTORCH, ..ADAMAX };
    check(Rule::Adamax(adamax), 0.1, [0.814_266_348_039, -1.909_711_496_93, 0.499_936_005_599]);
    let nadam = Nadam { momentum_decay: 0.004, ..NADAM };
    // PyTorch keeps the product of the momenta in f32.
    check_within(1e-8, Rule::Nadam(nadam), 0.1, [0.847_194_488_753, -2.032_622_035_73, 0.500_411_194_741]);
}

fn all_rules() -> Vec<Rule> {
    let rms = |momentum, centered| Rule::RmsProp(RmsProp { momentum, centered, weight_decay: 0.01, ..RMS });
    vec![
        Rule::Sgd(Sgd { weight_decay: 0.1, ..SGD }),
        Rule::Sgd(Sgd { momentum: 0.9, ..SGD }),
        Rule::Sgd(Sgd { momentum: 0.9, nesterov: true, weight_decay: 0.1 }),
        Rule::Adam(Adam { weight_decay: 0.01, ..ADAM }),
        Rule::Adam(Adam { amsgrad: true, epsilon_form: PYTORCH, ..ADAM }),
        rms(0.0, false),
        rms(0.5, false),
        rms(0.0, true),
        rms(0.5, true),
        Rule::Adagrad(Adagrad { weight_decay: 0.01, ..ADAGRAD }),
        Rule::Adadelta(Adadelta { weight_decay: 0.01, ..ADADELTA }),
        Rule::Adamax(Adamax { epsilon_form: PYTORCH, weight_decay: 0.01, ..ADAMAX }),
        Rule::Nadam(Nadam { weight_decay: 0.01, ..NADAM }),
        Rule::Lion(LION),
    ]
}

#[test]
fn every_rule_agrees_with_its_twin_and_ignores_the_threads() {
    let n = 2 * TASK + 37;
    for rule in all_rules() {
        let runs = [1, 2, 3].map(|threads| run::<f32>(&rule, n, threads));
        assert!(runs[0] == runs[1] && runs[0] == runs[2], "{rule:?}: bits depend on the threads");
        let wide = run::<f64>(&rule, n, 2);
        let mut p = start::<f64>(n, 0);
        let mut state = vec![vec![rule.initial_state(); n]; rule.state().len()];
        for t in 1..=4 {
            let mut state: Vec<&mut [f64]> = state.iter_mut().map(|s| &mut s[..]).collect();
            update_naive(&rule, step(t), &mut p, &start::<f64>(n, t), &mut state);
        }
        for i in 0..n {
            assert!((wide[i] - p[i]).abs() < 1e-12, "{rule:?} at {i}: {} and {}", wide[i], p[i]);
            assert!((runs[0][i] as f64 - p[i]).abs() < 2e-5, "{rule:?} at {i}: {} and {}", runs[0][i], p[i]);
        }
    }
}

fn step(t: u32) -> Step {
    Step { number: t as f64, learning_rate: 0.02, gradient_scale: 0.5 }
}

/// Numbers that f32 holds exactly, so that both widths start from the same place.
fn start<T: Float>(n: usize, op: u32) -> Vec<T> {
    let mut out = vec![0.0f32; n];
    fill_block(Distribution::Uniform, Key { seed: 3, step: 0, stream: op }, 0, &mut out);
    out.iter().map(|&x| T::from_f64(x as f64 - 0.5)).collect()
}

fn run<T: Float>(rule: &Rule, n: usize, threads: usize) -> Vec<T> {
    let pool = Pool::new(threads);
    let mut p = start::<T>(n, 0);
    let mut state = vec![vec![T::from_f64(rule.initial_state()); n]; rule.state().len()];
    for t in 1..=4 {
        let mut state: Vec<&mut [T]> = state.iter_mut().map(|s| &mut s[..]).collect();
        update(&pool, rule, step(t), &mut p, &start::<T>(n, t), &mut state);
    }
    p
}

#[test]
fn nadams_product_ends_early_for_late_steps() {
    assert!(NADAM.momentum_product(1e15) < 1e-19);
    assert!((NADAM.momentum_product(2.0) - NADAM.momentum_at(1.0) * NADAM.momentum_at(2.0)).abs() < 1e-15);
}
