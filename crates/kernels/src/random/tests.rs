use super::*;

const ALL: [Distribution; 3] = [Distribution::Uniform, Distribution::Normal, Distribution::TruncatedNormal];

const fn key(seed: u64, step: u64, stream: u32) -> Key {
    Key { seed, step, stream }
}

#[test]
fn philox_gives_the_published_answers() {
    // The known-answer vectors distributed with Random123 (kat_vectors, philox4x32 10).
    assert_eq!(bits(0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    assert_eq!(bits(u64::MAX, u128::MAX), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    let counter = 0x0370_7344_1319_8a2e_85a3_08d3_243f_6a88;
    assert_eq!(bits(0x299f_31d0_a409_3822, counter), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
}

#[track_caller]
fn check_twin<T: Draw>(distribution: Distribution, start: u64, tolerance: f64) {
    let key = key(0x1234_5678_9abc_def0, 1_000_000, 77);
    let (mut fast, mut slow) = (vec![T::ZERO; 1000], vec![0.0; 1000]);
    fill_block(distribution, key, start, &mut fast);
    fill_naive(distribution, key, start, &mut slow);
    for (i, (fast, slow)) in fast.iter().zip(&slow).enumerate() {
        let error = (fast.to_f64() - slow).abs();
        assert!(error <= tolerance, "{distribution:?} at {i}: {fast:?} and {slow}");
    }
}

#[test]
fn blocks_agree_with_the_naive_twin() {
    for distribution in ALL {
        for start in [0, 5, 64, 1 << 40] {
            check_twin::<f32>(distribution, start, 2e-6);
            check_twin::<f64>(distribution, start, 1e-14);
        }
    }
}

#[test]
fn any_block_can_be_drawn_alone() {
    let key = key(9, 3, 1);
    for distribution in ALL {
        let mut whole = vec![0.0f32; 500];
        fill_block(distribution, key, 0, &mut whole);
        for (start, len) in [(0, 0), (0, 1), (63, 2), (64, 64), (17, 300), (499, 1), (130, 10)] {
            let mut part = vec![0.0f32; len];
            fill_block(distribution, key, start as u64, &mut part);
            assert_eq!(part, whole[start..start + len]);
        }
    }
}

#[test]
fn threads_do_not_change_the_numbers() {
    let key = key(5, 7, 6);
    let n = 3 * TASK + 100;
    for distribution in ALL {
        let runs = [1, 2, 3].map(|threads| {
            let mut out = vec![0.0f32; n];
            fill(&Pool::new(threads), distribution, key, 11, &mut out);
            out
        });
        assert!(runs[0] == runs[1] && runs[0] == runs[2]);
    }
}

#[test]
fn streams_differ() {
    let draw = |key| {
        let mut out = [0i64; 8];
        integers_block(0, i64::MAX, key, 0, &mut out);
        out
    };
    for other in [key(2, 3, 2), key(1, 3, 3), key(1, 4, 2), key(1 << 40, 3, 2)] {
        assert_ne!(draw(key(1, 3, 2)), draw(other));
    }
}

#[test]
fn moments_are_right() {
    let n = 1 << 20;
    let moments = |distribution| {
        let mut out = vec![0.0f32; n];
        fill(&Pool::new(2), distribution, key(3, 0, 0), 0, &mut out);
        let mean = out.iter().map(|&x| x as f64).sum::<f64>() / n as f64;
        let power = |k| out.iter().map(|&x| (x as f64 - mean).powi(k)).sum::<f64>() / n as f64;
        (mean, power(2), power(3), power(4))
    };
    let close = |(m1, m2, m3, m4): (f64, f64, f64, f64), want: [f64; 4]| {
        for (got, want) in [m1, m2, m3, m4].into_iter().zip(want) {
            assert!((got - want).abs() < 0.02, "{got} and {want}");
        }
    };
    close(moments(Distribution::Uniform), [0.5, 1.0 / 12.0, 0.0, 1.0 / 80.0]);
    close(moments(Distribution::Normal), [0.0, 1.0, 0.0, 3.0]);
    // Variance 1 - 4 phi(2) / erf(sqrt 2); fourth moment 3 - (12 + 16) phi(2) / erf(sqrt 2).
    let ratio = 0.053_990_966_513_188_06 / normal::WITHIN_TWO;
    close(moments(Distribution::TruncatedNormal), [0.0, 1.0 - 4.0 * ratio, 0.0, 3.0 - 28.0 * ratio]);
}

#[test]
fn truncated_stays_within_two() {
    let edges = [0, 1, u32::MAX - 1, u32::MAX];
    assert!(edges.iter().all(|&word| normal::truncated_f32(word).abs() <= 2.0));
    assert!((normal::truncated_f32(u32::MAX) - 2.0).abs() < 1e-5);
    assert!((normal::truncated_f64(0) + 2.0).abs() < 1e-14);
}

#[test]
fn uniform_stays_below_one() {
    assert_eq!(f32::uniform(u32::MAX, 0), 1.0f32.next_down());
    assert_eq!(f64::uniform(u32::MAX, u32::MAX), 1.0f64.next_down());
    assert_eq!(f32::uniform(0, 0), 0.0);
}

#[test]
fn quantiles_are_right() {
    // Computed with mpmath in 40 digits from the inverse of erfc.
    for (p, z) in [
        (1e-18, -8.757_290_348_782_315),
        (1e-12, -7.034_483_825_301_132),
        (1e-6, -4.753_424_308_822_899),
        (0.01, -2.326_347_874_040_841),
        (0.3, -0.524_400_512_708_040_8),
        (0.6, 0.253_347_103_135_799_8),
        (0.9, 1.281_551_565_544_600_5),
    ] {
        assert!((normal_quantile(p) / z - 1.0).abs() < 2e-15, "at {p}");
    }
}

#[test]
fn the_f32_normal_is_accurate_to_the_last_words() {
    let mut worst = 0.0f64;
    let edges = [0, 1, 2, 100, u32::MAX, u32::MAX - 1, 1 << 31, (1 << 31) - 1];
    let spread = (0..200_000u32).map(|i| i.wrapping_mul(2_654_435_769));
    for word in edges.into_iter().chain(spread) {
        let exact = normal::normal_f64((word as u64) << 32 | 1 << 31);
        worst = worst.max((normal::normal_f32(word) as f64 / exact - 1.0).abs());
    }
    assert!(worst < 1e-6, "relative error {worst}");
    assert!(normal::normal_f32(u32::MAX) > 6.2 && normal::normal_f32(0) < -6.2);
}

#[test]
fn integers_cover_their_range() {
    let key = key(1, 1, 1);
    let mut out = vec![0i32; 60_000];
    integers(&Pool::new(2), -3, 3, key, 0, &mut out);
    let mut counts = [0; 6];
    out.iter().for_each(|&x| counts[(x + 3) as usize] += 1);
    assert!(counts.iter().all(|&c: &i32| (c - 10_000).abs() < 500), "{counts:?}");
    let (mut fast, mut slow) = (vec![0i64; 100], vec![0i64; 100]);
    for (low, high) in [(i64::MIN, i64::MAX), (0, 1), (-10, 1 << 40)] {
        integers_block(low, high, key, 33, &mut fast);
        integers_naive(low, high, key, 33, &mut slow);
        assert_eq!(fast, slow);
    }
}
