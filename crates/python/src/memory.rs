//! The memory limit, as Python sets and sees it.

use crate::error::Error;
use crate::function::Program;
use crate::run;
use plimsoll::session::Techniques;
use plimsoll_budget::{Entry, measure};
use plimsoll_plan::explain;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Sets the memory limit of the whole process: bytes, text such as "512MiB" or "50%", or None for what the host allows. Gives back the limit in bytes
/// as it counts now.
#[pyfunction(signature = (limit=None))]
fn set_memory_limit(py: Python<'_>, limit: Option<Bound<'_, PyAny>>) -> PyResult<Option<u64>> {
    let text = match &limit {
        Some(limit) => Some(match limit.extract::<u64>() {
            Ok(bytes) => format!("{bytes}B"),
            Err(_) => limit.extract::<String>()?,
        }),
        None => None,
    };
    Ok(py.detach(|| {
        let mut runtime = run::runtime_detached();
        // What was asked for so far belongs to the limit so far. If it does not fit there, that is told once the new one is set: whoever
        // saw a refusal and raises the limit must not be stopped by it.
        let flushed = runtime.flush();
        runtime.session().set_terms(|terms| match &text {
            Some(text) => terms.set_limit(text.as_str()),
            None => terms.clear_limit(),
        })?;
        let limit = runtime.session().terms().limits()?.limit;
        match flushed {
            Err(error) if !error.is_about_memory() => return Err(error),
            _ => {}
        }
        Ok::<_, Error>(limit.map(|limit| limit.0))
    })?)
}

/// Which techniques may be used to keep the limit.
#[pyfunction(signature = (split=true, recompute=true, spill=true))]
fn set_techniques(py: Python<'_>, split: bool, recompute: bool, spill: bool) -> PyResult<()> {
    Ok(py.detach(|| {
        let mut runtime = run::runtime_detached();
        runtime.session().set_terms(|terms| terms.set_techniques(Techniques { split, recompute, spill }))?;
        Ok::<_, Error>(())
    })?)
}

/// Bytes: `limit` (None without one) and `source` in words, `current` and `peak` of the process as the kernel counts it, `held` by the engine's
/// accounts, of which `states` and `arena`; `states_in_file` besides; `programs`: how many are ready to run.
#[pyfunction]
fn memory_info(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let (limits, states, arena, programs, filed) = py.detach(|| {
        let mut runtime = run::runtime_detached();
        let session = runtime.session();
        let engine = session.engine();
        (
            session.terms().limits(),
            engine.states_bytes().0,
            engine.arena_bytes().0,
            session.programs(),
            engine.filed_bytes().0,
        )
    });
    let limits = limits.map_err(Error::from)?;
    let usage = measure::usage().unwrap_or_default();
    let info = PyDict::new(py);
    info.set_item("limit", limits.limit.map(|limit| limit.0))?;
    info.set_item("source", limits.binding().map(ToString::to_string))?;
    info.set_item("current", usage.resident.0)?;
    info.set_item("peak", usage.peak.0)?;
    info.set_item("held", run::BUDGET.held().0)?;
    info.set_item("states", states)?;
    info.set_item("arena", arena)?;
    info.set_item("states_in_file", filed)?;
    info.set_item("programs", programs)?;
    Ok(info)
}

/// The most that the process holds is counted anew from now on.
#[pyfunction]
fn reset_peak() -> PyResult<()> {
    run::BUDGET.reset_peaks();
    Ok(measure::reset_peak()?)
}

/// Who holds how much: account to (held, peak) in bytes.
#[pyfunction]
fn ledger(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    fn add(dict: &Bound<'_, PyDict>, prefix: &str, entries: &[Entry]) -> PyResult<()> {
        for entry in entries {
            let name = format!("{prefix}{}", entry.name);
            dict.set_item(&name, (entry.held.0, entry.peak.0))?;
            add(dict, &format!("{name}/"), &entry.entries)?;
        }
        Ok(())
    }
    let dict = PyDict::new(py);
    add(&dict, "", &run::BUDGET.ledger().entries)?;
    Ok(dict)
}

/// How a program runs within the limit: bytes `arena` (of which `live` at once), `states`, `file`; `nodes`; `slices`, `stretches`, `ops_again`, `written`,
/// `read` a step; `seconds` and `extra_seconds` as estimated (0 where nothing was); `kept` and `peak` in words; `states_in_file`. Plans it if it is not
/// ready. With `smallest` also the smallest limit of the process under which a plan is found, which takes a search.
#[pyfunction(signature = (program, smallest=false))]
fn plan_of<'py>(py: Python<'py>, program: &Bound<'py, Program>, smallest: bool) -> PyResult<Bound<'py, PyDict>> {
    let cut = &program.get().cut;
    let (kept, arena, live, states, file, nodes, peak, least) = py.detach(|| {
        let mut runtime = run::runtime_detached();
        let session = runtime.session();
        let least = if smallest { cut.smallest(session)? } else { None };
        let id = cut.prepare(session)?;
        let kept = session.kept(id);
        let plan = session.engine().plan(id);
        let peak = explain(plan);
        let words: Vec<String> =
            peak.tenants.iter().take(5).map(|t| format!("{} {}", t.what, plimsoll_budget::Bytes(t.bytes))).collect();
        let states = plan.state.bytes();
        Ok::<_, Error>((
            kept,
            plan.arena_bytes,
            plan.live_bytes,
            states,
            plan.file_bytes,
            plan.instructions.len(),
            words,
            least,
        ))
    })?;
    let info = PyDict::new(py);
    for (name, bytes) in [("arena", arena), ("live", live), ("states", states), ("file", file), ("nodes", nodes as u64)]
    {
        info.set_item(name, bytes)?;
    }
    info.set_item("smallest", least.map(|least| least.0))?;
    info.set_item("states_in_file", kept.states_in_file.0)?;
    info.set_item("slices", kept.slices)?;
    info.set_item("stretches", kept.stretches)?;
    info.set_item("ops_again", kept.ops_again)?;
    info.set_item("written", kept.written.0)?;
    info.set_item("read", kept.read.0)?;
    info.set_item("seconds", kept.seconds)?;
    info.set_item("extra_seconds", kept.extra_seconds)?;
    info.set_item("kept", kept.to_string())?;
    info.set_item("peak", peak)?;
    Ok(info)
}

/// Adds the memory limit to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($name:ident),* $(,)?) => {$( module.add_function(wrap_pyfunction!($name, module)?)?; )*};
    }
    add!(set_memory_limit, set_techniques, memory_info, reset_peak, ledger, plan_of);
    Ok(())
}
