use plimsoll::layers::{Activation, Dense};
use plimsoll::model::Model;
use plimsoll::trace::{Mode, Trace, Variables};
use plimsoll_budget::Budget;
use plimsoll_exec::Engine;
use plimsoll_plan::{Options, StateLayout, explain, plan};
use std::time::Instant;
fn main() {
    let w6 = std::env::args().nth(1).as_deref() == Some("w6");
    let threads = std::env::args().nth(2).map_or(2, |v| v.parse().unwrap());
    let (batch, model) = if w6 {
        let mut m = Model::sequential([2048]);
        for _ in 0..24 {
            m = m.layer(Dense::new(2048).activation(Activation::Relu));
        }
        (4096, m)
    } else {
        (32, Model::sequential([1000]).layer(Dense::new(128).activation(Activation::Relu)).layer(Dense::new(1)))
    };
    let mut vars = Variables::new();
    let mut t = Trace::new(&mut vars, Mode::Train);
    let (_, out) = model.trace(&mut t, batch).unwrap();
    let ty = *t.ty(out[0]);
    let y = t.input("y", ty);
    let loss = if w6 {
        let d = t.sub(out[0], y).unwrap();
        let s = t.square(d).unwrap();
        t.mean_all(s).unwrap()
    } else {
        let z = out[0];
        let sp = t.softplus(z).unwrap();
        let zy = t.mul(z, y).unwrap();
        let l = t.sub(sp, zy).unwrap();
        t.mean_all(l).unwrap()
    };
    t.output("loss", loss);
    let ws = t.weights();
    let vals: Vec<_> = ws.iter().map(|w| w.1).collect();
    let grads = plimsoll_graph::gradients(&mut t, loss, &vals).unwrap();
    for (w, g) in vals.iter().zip(grads) {
        let s = t.scale(g.unwrap(), -1e-3).unwrap();
        let n = t.add(*w, s).unwrap();
        t.update(*w, n).unwrap();
    }
    let g = t.finish();
    let state = StateLayout::new(vars.iter().map(|v| (v.name.as_str(), v.ty)));
    let t0 = Instant::now();
    let p = plan(&g, &state, &Options { threads, ..Default::default() }).unwrap();
    println!("plan {:?} arena {} live {} state {}", t0.elapsed(), p.arena_bytes, p.live_bytes, state.bytes());
    println!("{}", explain(&p));
    if !w6 {
        println!("{}", p.graph);
    }
    let mut e = Engine::open(&Budget::unlimited(), &state, vec![p], threads).unwrap();
    for v in vars.iter() {
        let s = v.ty.shape;
        v.init.fill(0, &v.name, &s, e.state_mut::<f32>(&v.name).unwrap());
    }
    let n = if w6 { 2 } else { 2000 };
    for _ in 0..3 {
        let t0 = Instant::now();
        for _ in 0..n {
            e.input_mut::<f32>(0, "input")
                .unwrap()
                .iter_mut()
                .enumerate()
                .for_each(|(i, v)| *v = ((i * 7919) & 1023) as f32 / 500.0 - 1.0);
            e.input_mut::<f32>(0, "y").unwrap().fill(1.0);
            e.run(0).unwrap();
        }
        println!("{:?}/step loss {}", t0.elapsed() / n, e.output(0, "loss").unwrap().to_f64()[0]);
    }
    let tm = e.run_timed(0).unwrap();
    let mut tm: Vec<_> = tm.into_iter().map(|t| (t.time, e.plan(0).graph.describe(t.node), t.node)).collect();
    tm.sort();
    tm.reverse();
    for (d, n, id) in tm.iter().take(14) {
        let node = e.plan(0).graph.node(*id);
        println!(
            "{d:?} {n} {:?}->{:?}",
            node.inputs.iter().map(|v| e.plan(0).graph.ty(*v)).collect::<Vec<_>>(),
            e.plan(0).graph.ty(node.outputs[0])
        );
    }
}
