//! Random chains of stages against a naive model: lists of elements in memory, one plain loop per stage.
//!
//! The same chain runs as lookup and as stream, with several numbers of threads, whole and resumed in the middle.

mod common;

use common::Random;
use plimsoll_budget::{Budget, Bytes};
use plimsoll_data::{AUTOTUNE, Calls, Component, Dataset, Element, Kind, Options, Padding, Permutation};
use plimsoll_tensor::{DType, Tensor};

/// A component of an element: its name, shape and values.
#[derive(Clone, Debug, PartialEq)]
struct Cell {
    name: String,
    shape: Vec<usize>,
    values: Values,
}

#[derive(Clone, Debug, PartialEq)]
enum Values {
    Numbers(Vec<i64>),
    Strings(Vec<Vec<u8>>),
}

type Row = Vec<Cell>;

fn cells(element: &Element) -> Row {
    let cell = |c: &Component| Cell {
        name: c.name.clone(),
        shape: element.shape(&c.name).unwrap().dims().to_vec(),
        values: match c.kind {
            Kind::Number(DType::I64) => Values::Numbers(element.get(&c.name).unwrap().to_vec()),
            Kind::Bytes => Values::Strings(element.strings(&c.name).unwrap().map(<[u8]>::to_vec).collect()),
            other => panic!("{other}"),
        },
    };
    element.spec().components().iter().map(cell).collect()
}

fn mix(x: u64) -> u64 {
    let z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// The plain shuffle buffer: fill it, draw one, put the next one in.
fn buffer_shuffle(rows: &[Row], size: u64, seed: u64, epoch: u64) -> Vec<Row> {
    let key = mix(seed ^ mix(epoch));
    let mut input = rows.iter().cloned();
    let mut buffer: Vec<Row> = input.by_ref().take(size as usize).collect();
    let mut out = Vec::new();
    while !buffer.is_empty() {
        let slot = ((mix(key ^ mix(out.len() as u64)) as u128 * buffer.len() as u128) >> 64) as usize;
        out.push(buffer.swap_remove(slot));
        buffer.extend(input.next());
    }
    out
}

fn stack(rows: &[Row]) -> Row {
    let mut out = rows[0].clone();
    for (i, cell) in out.iter_mut().enumerate() {
        cell.shape.insert(0, rows.len());
        for row in &rows[1..] {
            match (&mut cell.values, &row[i].values) {
                (Values::Numbers(a), Values::Numbers(b)) => a.extend(b),
                (Values::Strings(a), Values::Strings(b)) => a.extend(b.iter().cloned()),
                _ => panic!("kinds differ"),
            }
        }
    }
    out
}

/// Every element with its values in the corner of the largest of them, `-7` and `<pad>` elsewhere; then stacked.
fn pad_and_stack(rows: &[Row]) -> Row {
    let mut rows = rows.to_vec();
    for i in 0..rows[0].len() {
        let rank = rows[0][i].shape.len();
        let largest: Vec<usize> = (0..rank).map(|d| rows.iter().map(|r| r[i].shape[d]).max().unwrap()).collect();
        for row in &mut rows {
            let cell = &mut row[i];
            let n: usize = largest.iter().product();
            // Where the value at each place of the large array is in the small one.
            let at = |mut place: usize| {
                let (mut from, mut step) = (0, 1);
                for (size, small) in largest.iter().zip(&cell.shape).rev() {
                    if place % size >= *small {
                        return None;
                    }
                    from += place % size * step;
                    (step, place) = (step * small, place / size);
                }
                Some(from)
            };
            cell.values = match &cell.values {
                Values::Numbers(v) => Values::Numbers((0..n).map(|p| at(p).map_or(-7, |from| v[from])).collect()),
                Values::Strings(v) => {
                    Values::Strings((0..n).map(|p| at(p).map_or(b"<pad>".to_vec(), |from| v[from].clone())).collect())
                }
            };
            cell.shape = largest.clone();
        }
    }
    stack(&rows)
}

fn unstack(row: &Row) -> Vec<Row> {
    let n = row[0].shape[0];
    let part = |cell: &Cell, i: usize| {
        let shape = cell.shape[1..].to_vec();
        let size: usize = shape.iter().product();
        let values = match &cell.values {
            Values::Numbers(v) => Values::Numbers(v[i * size..(i + 1) * size].to_vec()),
            Values::Strings(v) => Values::Strings(v[i * size..(i + 1) * size].to_vec()),
        };
        Cell { name: cell.name.clone(), shape, values }
    };
    (0..n).map(|i| row.iter().map(|cell| part(cell, i)).collect()).collect()
}

/// The elements of an epoch.
type Model = Box<dyn Fn(u64) -> Vec<Row>>;

/// What a chain does, described twice: as a data set, and as what each epoch should give.
struct Pair {
    data: Dataset,
    model: Model,
    text: String,
}

/// A tuple of a tensor and a map of maps, flattened as everywhere.
const X: &str = "0/x";
const NAME: &str = "1/meta/name";

fn source(random: &mut Random) -> Pair {
    let n = [0, 1, 2, 7, 30, 100][random.below(6) as usize] as usize;
    let values: Vec<i64> = (0..n as i64 * 2).map(|i| i * 7 % 31).collect();
    let x = Tensor::from_slice([n, 2], &values).unwrap();
    let names: Vec<String> = (0..n).map(|i| format!("row {i}")).collect();
    let numbers = Dataset::from_arrays([("x", x)]);
    let strings = Dataset::from_strings("name", names.clone());
    let data = Dataset::zip_named(&[("a", &numbers), ("b", &strings)]).rename(&[("a/x", X), ("b/name", NAME)]);
    let model = move |_| {
        let cell = |name: &str, shape: &[usize], values| Cell { name: name.into(), shape: shape.to_vec(), values };
        (0..n)
            .map(|i| {
                vec![
                    cell(X, &[2], Values::Numbers(values[i * 2..i * 2 + 2].to_vec())),
                    cell(NAME, &[], Values::Strings(vec![names[i].clone().into_bytes()])),
                ]
            })
            .collect()
    };
    Pair { data, model: Box::new(model), text: format!("{n} rows") }
}

fn first_number(row: &Row) -> i64 {
    row.iter()
        .find_map(|c| match &c.values {
            Values::Numbers(v) => v.first().copied(),
            _ => None,
        })
        .unwrap_or(0)
}

/// Where caches on disk are.
fn folder() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("plimsoll-model-{}", std::process::id()))
}

/// Adds one random stage.
fn extend(pair: Pair, random: &mut Random) -> Pair {
    let Pair { data, model, text } = pair;
    let rank = data.spec().unwrap().components()[0].dims.as_ref().map_or(0, Vec::len);
    let small = random.below(5) + 1;
    let seed = random.below(1000);
    let text_digest = text.bytes().fold(seed, |digest, byte| mix(digest ^ byte as u64));
    let (data, next, what): (Dataset, Model, String) = match random.below(27) {
        0 => (
            data.map_in_place(X, |x: &mut [i64]| x.iter_mut().for_each(|v| *v = *v * 3 + 1)),
            Box::new(move |e| {
                let mut rows = model(e);
                for cell in rows.iter_mut().flatten().filter(|c| c.name == X) {
                    let Values::Numbers(v) = &mut cell.values else { panic!() };
                    v.iter_mut().for_each(|v| *v = *v * 3 + 1);
                }
                rows
            }),
            "map in place".into(),
        ),
        1 => {
            let components = data.spec().unwrap().components().to_vec();
            let data = data.map(components, |row, out| {
                out.copy(X, row, X)?;
                let strings: Vec<Vec<u8>> = row.strings(NAME)?.map(|s| [s, b"!"].concat()).collect();
                let strings: Vec<&[u8]> = strings.iter().map(|s| &s[..]).collect();
                out.strings(NAME, row.shape(NAME)?.dims(), &strings)
            });
            let data = if random.below(2) == 0 { data.parallel(Calls::Fixed(small as usize)) } else { data };
            (
                data,
                Box::new(move |e| {
                    let mut rows = model(e);
                    for cell in rows.iter_mut().flatten() {
                        if let Values::Strings(v) = &mut cell.values {
                            v.iter_mut().for_each(|s| s.push(b'!'));
                        }
                    }
                    rows
                }),
                "map".into(),
            )
        }
        2 => (
            data.filter(|row| Ok(row.get::<i64>(X)?.first().copied().unwrap_or(0) % 3 != 0)),
            Box::new(move |e| model(e).into_iter().filter(|r| first_number(r) % 3 != 0).collect()),
            "filter".into(),
        ),
        // Becomes a stream without a change.
        3 => (data.filter(|_| Ok(true)), model, "stream".into()),
        4 | 5 if rank < 4 => (
            data.batch(small as usize),
            Box::new(move |e| model(e).chunks(small as usize).map(stack).collect()),
            format!("batch {small}"),
        ),
        6 if rank < 4 => (
            data.batch_exact(small as usize),
            Box::new(move |e| model(e).chunks_exact(small as usize).map(stack).collect()),
            format!("batch exact {small}"),
        ),
        7 if rank >= 2 => {
            (data.unbatch(), Box::new(move |e| model(e).iter().flat_map(unstack).collect()), "unbatch".into())
        }
        8 if data.is_indexable().unwrap() => (
            data.shuffle(None, seed),
            Box::new(move |e| {
                let rows = model(e);
                let p = Permutation::new(rows.len() as u64, seed, e);
                (0..rows.len()).map(|i| rows[p.at(i as u64) as usize].clone()).collect()
            }),
            format!("shuffle, seed {seed}"),
        ),
        9 => {
            let size = small * 4;
            let lookup = data.is_indexable().unwrap();
            let complete = lookup && data.cardinality().unwrap().known().is_some_and(|n| n <= size);
            (
                data.shuffle(size, seed),
                Box::new(move |e| {
                    let rows = model(e);
                    if complete {
                        let p = Permutation::new(rows.len() as u64, seed, e);
                        return (0..rows.len()).map(|i| rows[p.at(i as u64) as usize].clone()).collect();
                    }
                    buffer_shuffle(&rows, size, seed, e)
                }),
                format!("shuffle {size}, seed {seed}"),
            )
        }
        10 => (
            data.repeat(small),
            Box::new(move |e| (0..small).flat_map(|round| model(e * small + round)).collect()),
            format!("repeat {small}"),
        ),
        11 => (
            data.take(small * 5),
            Box::new(move |e| model(e).into_iter().take(small as usize * 5).collect()),
            format!("take {}", small * 5),
        ),
        12 => (
            data.skip(small),
            Box::new(move |e| model(e).into_iter().skip(small as usize).collect()),
            format!("skip {small}"),
        ),
        13 => {
            let index = random.below(small);
            (
                data.shard(small, index),
                Box::new(move |e| model(e).into_iter().skip(index as usize).step_by(small as usize).collect()),
                format!("shard {index} of {small}"),
            )
        }
        14 => {
            let parallel = random.below(2) == 0;
            (data.prefetch(if parallel { AUTOTUNE } else { Calls::Fixed(small as usize) }), model, "prefetch".into())
        }
        15 => (data.cache(), Box::new(move |_| model(0)), "cache".into()),
        16 => {
            let folder = std::env::temp_dir();
            (
                data.shuffle_on_disk(folder, seed),
                Box::new(move |e| {
                    let rows = model(0);
                    let p = Permutation::new(rows.len() as u64, seed, e);
                    (0..rows.len()).map(|i| rows[p.at(i as u64) as usize].clone()).collect()
                }),
                format!("shuffle on disk, seed {seed}"),
            )
        }
        17 => {
            let again = data.map_in_place(X, |x: &mut [i64]| x.reverse());
            (
                data.concatenate(&again),
                Box::new(move |e| {
                    let first = model(e);
                    let mut second = first.clone();
                    for cell in second.iter_mut().flatten().filter(|c| c.name == X) {
                        let Values::Numbers(v) = &mut cell.values else { panic!() };
                        v.reverse();
                    }
                    first.into_iter().chain(second).collect()
                }),
                "concatenate".into(),
            )
        }
        18 if rank < 4 => {
            let (shift, stride) = (random.below(4) + 1, random.below(3) + 1);
            let drop = random.below(2) == 0;
            (
                data.window(small as usize, shift as usize, stride as usize, drop),
                Box::new(move |e| {
                    let rows = model(e);
                    let mut out = Vec::new();
                    for start in (0..rows.len()).step_by(shift as usize) {
                        let picked: Vec<Row> =
                            rows[start..].iter().step_by(stride as usize).take(small as usize).cloned().collect();
                        if picked.len() == small as usize || !drop {
                            out.push(stack(&picked));
                        }
                    }
                    out
                }),
                format!("window {small} every {shift} stride {stride} drop {drop}"),
            )
        }
        19 => {
            let components = data.spec().unwrap().components().to_vec();
            let (cycle, block) = (random.below(3) + 1, random.below(3) + 1);
            let whole = data.clone();
            let parallel = random.below(2) == 0;
            let data = Dataset::range(0, 4, 1).interleave(components, cycle as usize, block as usize, parallel, {
                move |row| Ok(whole.shard(4, row.get::<i64>("value")?[0] as u64))
            });
            (
                data,
                Box::new(move |e| {
                    let rows = model(e);
                    let mut inputs: Vec<std::collections::VecDeque<Row>> =
                        (0..4).map(|i| rows.iter().skip(i).step_by(4).cloned().collect()).collect();
                    inputs.reverse();
                    let mut places: Vec<Option<std::collections::VecDeque<Row>>> = vec![None; cycle as usize];
                    let (mut out, mut turn) = (Vec::new(), 0);
                    while out.len() < rows.len() {
                        if places[turn].is_none() {
                            places[turn] = inputs.pop();
                        }
                        if let Some(place) = &mut places[turn] {
                            let n = place.len().min(block as usize);
                            out.extend(place.drain(..n));
                            if n < block as usize {
                                places[turn] = None;
                            }
                        }
                        turn = (turn + 1) % cycle as usize;
                    }
                    out
                }),
                format!("interleave {cycle} by {block}"),
            )
        }
        20 if rank >= 2 => {
            let drop = random.below(2) == 0;
            (
                data.rebatch(small as usize, drop),
                Box::new(move |e| {
                    let rows: Vec<Row> = model(e).iter().flat_map(unstack).collect();
                    let chunks = rows.chunks(small as usize).filter(|c| c.len() == small as usize || !drop);
                    chunks.map(stack).collect()
                }),
                format!("rebatch {small} drop {drop}"),
            )
        }
        21 => {
            let start = seed as i64;
            let components = data.spec().unwrap().components().to_vec();
            let numbered = data.enumerate("n", start).map(components, |row, out| {
                let n = row.get::<i64>("n")?[0];
                let x: Vec<i64> = row.get::<i64>(X)?.iter().map(|v| v + n).collect();
                out.set(X, row.shape(X)?.dims(), &x)?;
                out.copy(NAME, row, NAME)
            });
            (
                numbered,
                Box::new(move |e| {
                    let mut rows = model(e);
                    for (n, row) in rows.iter_mut().enumerate() {
                        let Values::Numbers(v) = &mut row[0].values else { panic!() };
                        v.iter_mut().for_each(|v| *v += start + n as i64);
                    }
                    rows
                }),
                format!("enumerate from {start}"),
            )
        }
        22 => {
            let later = data.skip(small);
            let both = Dataset::zip(&[data, later]);
            (
                both.rename(&[(&format!("0/{X}"), X), (&format!("1/{NAME}"), NAME)]),
                Box::new(move |e| {
                    let rows = model(e);
                    let later = rows.iter().skip(small as usize);
                    rows.iter().zip(later).map(|(a, b)| vec![a[0].clone(), b[1].clone()]).collect()
                }),
                format!("zip with itself {small} later"),
            )
        }
        23 if rank < 4 => {
            let drop = random.below(2) == 0;
            let padding = Padding::default().value(X, -7.0).string(NAME, b"<pad>");
            (
                data.padded_batch(small as usize, if drop { padding.drop_remainder() } else { padding }),
                Box::new(move |e| {
                    let rows = model(e);
                    rows.chunks(small as usize)
                        .filter(|c| c.len() == small as usize || !drop)
                        .map(pad_and_stack)
                        .collect()
                }),
                format!("padded batch {small} drop {drop}"),
            )
        }
        24 => {
            let components = data.spec().unwrap().components().to_vec();
            let whole = data.clone();
            let data = Dataset::range(0, small as i64, 1)
                .flat_map(components, move |row| Ok(whole.shard(small, row.get::<i64>("value")?[0] as u64)));
            (
                data,
                Box::new(move |e| {
                    let rows = model(e);
                    (0..small as usize).flat_map(|i| rows.iter().skip(i).step_by(small as usize).cloned()).collect()
                }),
                format!("flat map of {small}"),
            )
        }
        25 => {
            let components = data.spec().unwrap().components().to_vec();
            let refused = data.map(components, |row, out| {
                if row.get::<i64>(X)?.first().copied().unwrap_or(0) % 5 == 1 {
                    return Err(plimsoll_data::Error::element("is refused"));
                }
                out.copy(X, row, X)?;
                out.copy(NAME, row, NAME)
            });
            (
                refused.ignore_errors(),
                Box::new(move |e| model(e).into_iter().filter(|r| first_number(r) % 5 != 1).collect()),
                "ignore errors".into(),
            )
        }
        26 => {
            let path = folder().join(format!("{text_digest:x}"));
            (data.cache_on_disk(path), Box::new(move |_| model(0)), "cache on disk".into())
        }
        _ => (data, model, "nothing".into()),
    };
    Pair { data, model: next, text: format!("{text} | {what}") }
}

fn rows(data: &Dataset, options: &Options) -> Vec<Row> {
    data.iter_with(options).unwrap().map(|e| cells(&e.unwrap())).collect()
}

#[test]
fn random_chains_give_what_the_model_gives() {
    let (mut n_checked, mut n_stated) = (0, 0);
    for case in 0..1500u64 {
        let _ = std::fs::remove_dir_all(folder());
        std::fs::create_dir_all(folder()).unwrap();
        let mut random = Random(case * 7919 + 1);
        let mut pair = source(&mut random);
        for _ in 0..random.below(6) + 1 {
            pair = extend(pair, &mut random);
            // A batch of what differs in shape is an error of its own, tested below.
            if pair.data.iter(&Budget::unlimited()).unwrap().any(|e| e.is_err()) {
                break;
            }
        }
        let budget = Budget::unlimited();
        let epoch = random.below(3);
        let options = |threads| Options::new(&budget).threads(threads).epoch(epoch);
        if pair.data.iter_with(&options(1)).unwrap().any(|e| e.is_err()) {
            continue;
        }
        let expected = (pair.model)(epoch);
        n_checked += 1;
        for threads in 1..=3 {
            let found = rows(&pair.data, &options(threads));
            assert_eq!(found.len(), expected.len(), "case {case}: {}", pair.text);
            assert!(found == expected, "case {case}, {threads} threads: {}\n{found:?}\n{expected:?}", pair.text);
        }
        if let Some(n) = pair.data.cardinality().unwrap().known() {
            assert_eq!(n, expected.len() as u64, "case {case}: {}", pair.text);
        }
        let spec = pair.data.spec().unwrap();
        for row in &expected {
            for (cell, component) in row.iter().zip(spec.components()) {
                assert!(component.admits(&cell.shape[..].into()), "case {case}: {component} {:?}", cell.shape);
            }
        }
        // The memory that it says it needs is enough, to the byte.
        if let Some(least) = pair.data.least_memory().unwrap() {
            let budget = Budget::new(least);
            let found: Result<Vec<Row>, _> = pair
                .data
                .iter_with(&Options::new(&budget).threads(2).epoch(epoch))
                .and_then(|iter| iter.map(|e| e.map(|e| cells(&e))).collect());
            match found {
                Ok(found) => assert!(found == expected, "case {case} with {least}: {}", pair.text),
                Err(error) => panic!("case {case} with {least}: {}\n{error}", pair.text),
            }
            assert!(budget.peak() <= least);
            n_stated += 1;
        }
        // Kill and resume: the joined sequence is the unbroken one.
        let stop = random.below(expected.len() as u64 + 1) as usize;
        let mut iter = pair.data.iter_with(&options(2)).unwrap();
        let mut joined: Vec<Row> = iter.by_ref().take(stop).map(|e| cells(&e.unwrap())).collect();
        let position = iter.save();
        drop(iter);
        let rest = pair.data.resume(&position, &Options::new(&budget).threads(1)).unwrap();
        joined.extend(rest.map(|e| cells(&e.unwrap())));
        assert!(joined == expected, "case {case} resumed at {stop}: {}", pair.text);
        drop(pair);
        assert_eq!(budget.held(), Bytes::ZERO, "case {case}");
    }
    assert!(n_checked > 1200 && n_stated > 600, "{n_checked}, {n_stated}");
    std::fs::remove_dir_all(folder()).unwrap();
}

#[test]
fn shapes_that_differ_in_a_batch_are_an_error_that_names_both() {
    let ragged = Dataset::range(0, 10, 1).map([Component::ragged("x", DType::I64, &[None])], |row, out| {
        let n = row.get::<i64>("value")?[0] as usize / 4 + 1;
        out.set("x", &[n], &vec![1i64; n])
    });
    let mut iter = ragged.batch(3).iter(&Budget::unlimited()).unwrap();
    assert_eq!(iter.next().unwrap().unwrap().shape("x").unwrap().dims(), [3, 1]);
    let error = iter.next().unwrap().unwrap_err().to_string();
    let expected =
        "batch, element 4: component 'x' has shape [2], but the first of its batch has [1]; padded_batch takes both";
    assert_eq!(error, expected);
    // The bad batch is lost, not the ones behind it.
    assert_eq!(iter.filter(|b| b.is_ok()).count(), 1);
    let all = ragged.batch(3).ignore_errors();
    let mut iter = all.iter(&Budget::unlimited()).unwrap();
    assert_eq!(iter.by_ref().filter(|b| b.is_ok()).count(), 2);
    assert_eq!(iter.report().errors_ignored, 2);
}

#[test]
fn padded_batches_pad_to_the_largest_or_to_what_is_given() {
    let ragged = |stream: bool| {
        let data = Dataset::range(1, 8, 1).map(
            [Component::ragged("x", DType::F32, &[None, Some(2)]), Component::ragged("s", Kind::Bytes, &[None])],
            |row, out| {
                let n = row.get::<i64>("value")?[0] as usize % 4;
                out.set("x", &[n, 2], &vec![n as f32; n * 2])?;
                out.strings("s", &[n], &vec![&b"ab"[..]; n])
            },
        );
        if stream { data.filter(|_| Ok(true)) } else { data }
    };
    for stream in [false, true] {
        let padding = Padding::default().sizes("x", &[Some(4), None]).value("x", -1.0);
        let data = ragged(stream).padded_batch(3, padding);
        assert_eq!(data.spec().unwrap().to_string(), "{x: f32[?,4,2], s: bytes[?,?]}");
        let batches: Vec<Element> = data.iter(&Budget::unlimited()).unwrap().map(Result::unwrap).collect();
        assert_eq!(batches.len(), 3);
        for (b, batch) in batches.iter().enumerate() {
            let lengths: Vec<usize> = (1..8).map(|n| n % 4).skip(b * 3).take(3).collect();
            let longest = *lengths.iter().max().unwrap();
            assert_eq!(batch.shape("x").unwrap().dims(), [lengths.len(), 4, 2]);
            assert_eq!(batch.shape("s").unwrap().dims(), [lengths.len(), longest]);
            let (x, s) = (batch.get::<f32>("x").unwrap(), batch.strings("s").unwrap().collect::<Vec<_>>());
            for (row, n) in lengths.iter().enumerate() {
                for i in 0..8 {
                    assert_eq!(x[row * 8 + i], if i / 2 < *n { *n as f32 } else { -1.0 });
                }
                for i in 0..longest {
                    assert_eq!(s[row * longest + i], if i < *n { &b"ab"[..] } else { b"" });
                }
            }
        }
    }
    let error = ragged(false).padded_batch(3, Padding::default().sizes("x", &[Some(2), None]));
    let error = error.iter(&Budget::unlimited()).unwrap().next().unwrap().unwrap_err().to_string();
    assert_eq!(
        error,
        "padded batch, element 2: component 'x' has shape [3,2], larger than [2,2], to which it is padded"
    );
}

#[test]
fn mistakes_are_told_when_the_data_set_is_used() {
    let message = |data: Dataset| data.iter(&Budget::unlimited()).err().unwrap().to_string();
    let range = Dataset::range(0, 5, 1);
    assert_eq!(message(range.batch(0)), "batch: size, shift and stride must be at least 1");
    assert_eq!(message(range.unbatch()), "unbatch: component value: i64[] has no axis to take apart");
    let float = range.map_in_place("value", |_: &mut [f32]| ());
    assert_eq!(message(float), "map: component 'value' holds i64, but the function takes f32");
    assert_eq!(message(range.select(&["x"])), "select: there is no component 'x'; there are value");
    assert_eq!(message(range.parallel(AUTOTUNE)), "parallel: follows a map; here it follows 'range of 5 from 0 by 1'");
    assert!(message(range.filter(|_| Ok(true)).shuffle(None, 0)).contains("shuffle_on_disk"));
    assert!(message(range.repeat(None).shuffle(None, 0)).contains("through a buffer"));
    assert!(message(range.repeat(None).cache()).contains("take first"));
    let other = message(range.concatenate(&range.select(&["value"]).enumerate("n", 0)));
    assert!(other.contains("part 1 has elements {n: i64[], value: i64[]}"), "{other}");
}

#[test]
fn errors_of_functions_name_the_element_and_leave_the_rest() {
    let bad = |lookup: bool| {
        let source = Dataset::range(0, 100, 1);
        let source = if lookup { source } else { source.filter(|_| Ok(true)) };
        source.map([Component::new("y", DType::I64, &[])], |row, out| match row.get::<i64>("value")?[0] {
            v if v % 10 == 3 => Err(plimsoll_data::Error::element(format!("{v} is bad"))),
            v => out.set("y", &[], &[v]),
        })
    };
    for lookup in [true, false] {
        for data in [bad(lookup), bad(lookup).prefetch(AUTOTUNE), bad(lookup).parallel(Calls::Fixed(3))] {
            let mut values = Vec::new();
            let mut errors = Vec::new();
            for element in data.iter(&Budget::unlimited()).unwrap() {
                match element {
                    Ok(element) => values.push(element.get::<i64>("y").unwrap()[0]),
                    Err(error) => errors.push(error.to_string()),
                }
            }
            assert!(values.into_iter().eq((0..100).filter(|v| v % 10 != 3)));
            let expected: Vec<String> =
                (0..100).filter(|v| v % 10 == 3).map(|v| format!("map, element {v}: {v} is bad")).collect();
            assert_eq!(errors, expected);
            let mut iter = data.ignore_errors().batch(45).iter(&Budget::unlimited()).unwrap();
            assert_eq!(iter.by_ref().map(|b| b.unwrap().get::<i64>("y").unwrap().len()).collect::<Vec<_>>(), [45, 45]);
            assert_eq!(iter.report().errors_ignored, 10);
        }
    }
}

#[test]
fn a_function_that_panics_is_an_error_and_not_a_hang() {
    let data = Dataset::range(0, 10, 1)
        .filter(|_| Ok(true))
        .map_in_place("value", |v: &mut [i64]| assert_ne!(v[0], 7, "seven"))
        .parallel(Calls::Fixed(2));
    let error = data.iter(&Budget::unlimited()).unwrap().find_map(|e| e.err()).unwrap().to_string();
    assert!(error.contains("panicked") && error.contains("seven"), "{error}");
}

#[test]
fn batches_are_assembled_in_memory_that_is_given() {
    let x: Vec<f32> = (0..1000).map(|v| v as f32).collect();
    let data = Dataset::from_arrays([("x", Tensor::from_slice([100, 10], &x).unwrap())]).shuffle(None, 5);
    for data in [data.batch(32), data.batch(32).prefetch(AUTOTUNE), data.filter(|_| Ok(true)).batch(32)] {
        let expected: Vec<Vec<f32>> =
            data.iter(&Budget::unlimited()).unwrap().map(|b| b.unwrap().get("x").unwrap().to_vec()).collect();
        let mut iter = data.iter(&Budget::unlimited()).unwrap();
        let mut memory = vec![0u64; 160];
        for expected in expected {
            // SAFETY: 160 words are 1280 bytes.
            let bytes: &mut [u8] = unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), 1280) };
            let shapes = iter.next_into(&mut [Some(bytes)]).unwrap().unwrap();
            assert_eq!(shapes[0].dims(), [expected.len() / 10, 10]);
            // SAFETY: as many floats were written.
            let found: &[f32] = unsafe { std::slice::from_raw_parts(memory.as_ptr().cast(), expected.len()) };
            assert_eq!(found, expected);
        }
        // SAFETY: as above.
        let bytes: &mut [u8] = unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), 1280) };
        assert!(iter.next_into(&mut [Some(bytes)]).unwrap().is_none());
        let mut iter = data.iter(&Budget::unlimited()).unwrap();
        // SAFETY: as above.
        let bytes: &mut [u8] = unsafe { std::slice::from_raw_parts_mut(memory.as_mut_ptr().cast(), 80) };
        let error = iter.next_into(&mut [Some(bytes)]).unwrap_err().to_string();
        assert!(error.contains("80 were given"), "{error}");
    }
}

#[test]
fn positions_of_other_pipelines_are_refused() {
    let budget = Budget::unlimited();
    let data = Dataset::range(0, 10, 1).shuffle(None, 1);
    let position = data.iter(&budget).unwrap().save();
    let other = Dataset::range(0, 10, 1).shuffle(None, 2);
    let error = other.resume(&position, &Options::new(&budget)).err().unwrap().to_string();
    assert!(error.starts_with("this position was saved by another pipeline"), "{error}");
    for cut in 0..position.len() {
        assert!(data.resume(&position[..cut], &Options::new(&budget)).is_err());
    }
    // How many threads work ahead is no part of what the elements are.
    let a = data.prefetch(AUTOTUNE).iter(&budget).unwrap().save();
    assert!(data.prefetch(Calls::Fixed(3)).resume(&a, &Options::new(&budget)).is_ok());
}

#[test]
fn the_least_memory_is_enough_and_less_is_refused() {
    let x: Vec<f32> = (0..40_000).map(|v| v as f32).collect();
    let source = Dataset::from_arrays([("x", Tensor::from_slice([400, 100], &x).unwrap())]);
    let stream = source.filter(|_| Ok(true));
    for (name, data) in [
        ("batch", source.batch(50)),
        ("shuffled", source.shuffle(None, 1).batch(50).prefetch(AUTOTUNE)),
        ("buffer", source.shuffle(100, 1).batch(10).prefetch(AUTOTUNE)),
        ("stream", stream.shuffle(20, 1).batch(7).prefetch(AUTOTUNE)),
        ("window", stream.window(5, 2, 3, false)),
        ("repeat", source.shuffle(30, 2).repeat(3).batch(3)),
        ("unbatch", source.batch_exact(10).unbatch().batch(6)),
        ("disk", stream.shuffle_on_disk(std::env::temp_dir(), 1).batch(9).prefetch(Calls::Fixed(4))),
    ] {
        let expected = rows_f32(&data, &Budget::unlimited()).unwrap();
        let least = data.least_memory().unwrap().expect("sizes are fixed");
        let budget = Budget::new(least);
        assert_eq!(rows_f32(&data, &budget).unwrap(), expected, "{name}");
        assert!(budget.peak() <= least);
        // With more it is the same; with next to nothing it says so and does not hang.
        assert_eq!(rows_f32(&data, &Budget::new(least * 4)).unwrap(), expected, "{name}");
        let error = rows_f32(&data, &Budget::new(Bytes(300))).unwrap_err().to_string();
        assert!(error.contains("pipeline"), "{name}: {error}");
    }
}

fn rows_f32(data: &Dataset, budget: &Budget) -> Result<Vec<f32>, plimsoll_data::Error> {
    let mut all = Vec::new();
    for element in data.iter(budget)? {
        all.extend_from_slice(element?.get::<f32>("x")?);
    }
    Ok(all)
}

#[test]
fn the_report_says_who_took_the_time() {
    let data = Dataset::range(0, 200, 1)
        .map([Component::new("slow", DType::I64, &[])], |row, out| {
            std::thread::sleep(std::time::Duration::from_micros(300));
            out.set("slow", &[], &[row.get::<i64>("value")?[0]])
        })
        .batch(4)
        .prefetch(AUTOTUNE);
    let mut iter = data.iter_with(&Options::new(&Budget::unlimited()).threads(4)).unwrap();
    assert_eq!(iter.by_ref().count(), 50);
    let report = iter.report();
    assert!(report.slowest().unwrap().name.starts_with("map"), "{report}");
    assert!(report.waited.as_millis() > 5, "{report}");
    assert!(report.to_string().contains("mostly for 'map"), "{report}");
}

#[test]
fn unordered_calls_give_every_element_once() {
    let data = Dataset::range(0, 5000, 1)
        .filter(|_| Ok(true))
        .map_in_place("value", |v: &mut [i64]| v[0] += 1)
        .parallel_unordered(Calls::Fixed(3));
    let mut values: Vec<i64> =
        data.iter(&Budget::unlimited()).unwrap().map(|e| e.unwrap().get("value").unwrap()[0]).collect();
    values.sort();
    assert!(values.into_iter().eq(1..=5000));
}

#[test]
fn a_buffer_shuffles_as_far_as_it_reaches() {
    // Where the first element ends up in a buffer of 8: geometric, as drawing one of 8 at a time makes it.
    let data = Dataset::range(0, 64, 1).shuffle(8, 3);
    let mut counts = [0u32; 5];
    let epochs = 20_000;
    for epoch in 0..epochs {
        let options = Options::new(&Budget::unlimited()).epoch(epoch);
        let order: Vec<i64> = data.iter_with(&options).unwrap().map(|e| e.unwrap().get("value").unwrap()[0]).collect();
        let place = order.iter().position(|v| *v == 0).unwrap();
        counts[place.min(4)] += 1;
        assert!(order.iter().enumerate().all(|(place, v)| *v < place as i64 + 8), "{order:?}");
    }
    let p = |place: i32| 0.125 * 0.875f64.powi(place);
    let expected = [p(0), p(1), p(2), p(3), 0.875f64.powi(4)].map(|p| p * epochs as f64);
    let chi: f64 = counts.iter().zip(expected).map(|(c, e)| (*c as f64 - e).powi(2) / e).sum();
    // 4 degrees of freedom: above 18.5 once in a thousand.
    assert!(chi < 18.5, "{counts:?} {expected:?}");
}
