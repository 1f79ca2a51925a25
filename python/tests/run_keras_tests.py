"""Runs Keras' own tests against this backend, prints the pass rate of each group, and writes the supported list.

    python python/tests/run_keras_tests.py                    the groups of the test command, about ten minutes on two cores
    python python/tests/run_keras_tests.py --all              every group
    python python/tests/run_keras_tests.py losses layers/rnn  these
    ... --page docs/keras-support.md                          write the page, too
    ... --keep results.json                                   add to the results of earlier runs there: groups can run apart

The tests are those in the installed Keras wheel; nothing of them is copied here. Some of them use jax, TensorFlow or
pandas to make the numbers they compare with, and are reported as not collected where those are missing. A rate counts
tests that ran: neither those that Keras skips nor those excluded in `keras_excluded.txt`. The exit code is 1 when a
group is below its bar.
"""

import argparse
import concurrent.futures
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent

# Group -> the share of tests that must pass. Groups in the first table are part of the test command.
BARS = {
    "losses": 1.0,
    "activations": 1.0,
    "optimizers": 1.0,
    "layers/core": 0.98,
    "layers/convolutional": 0.98,
    "layers/normalization": 0.98,
    "layers/pooling": 0.98,
    "layers/attention": 0.98,
    "layers/rnn": 0.98,
    "trainers": 0.95,
    "ops/numpy_test.py": 0.99,
    "ops/nn_test.py": 0.99,
    "ops/core_test.py": 0.99,
    "ops/math_test.py": 0.99,
    "ops/image_test.py": 0.99,
    "ops/linalg_test.py": 0.99,
    "ops/ops_test.py": 0.99,
}
# Groups that take minutes.
LONG = ("ops/numpy_test.py", "ops/nn_test.py", "layers/core", "layers/convolutional", "trainers")
MORE = [
    "backend/common",
    "callbacks",
    "constraints",
    "initializers",
    "layers/activations",
    "layers/merging",
    "layers/preprocessing",
    "layers/regularization",
    "layers/reshaping",
    "metrics",
    "models",
    "ops/einops_test.py",
    "ops/function_test.py",
    "ops/node_test.py",
    "ops/operation_test.py",
    "ops/operation_utils_test.py",
    "ops/symbolic_arguments_test.py",
    "random",
    "regularizers",
    "saving",
    "utils",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--page", type=pathlib.Path)
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--timeout", type=int, default=1800, help="seconds for one group")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="groups that run at a time")
    options = parser.parse_args()
    groups = options.groups or (list(BARS) + (MORE if options.all else []))
    results = {}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        # The long ones first, so that none of them runs alone at the end.
        order = sorted(groups, key=lambda group: group not in LONG)
        running = {pool.submit(run, group, options.timeout): group for group in order}
        for done in concurrent.futures.as_completed(running):
            group = running[done]
            results[group] = done.result()
            print(line(group, results[group]), flush=True)
            if options.keep:
                earlier = json.loads(options.keep.read_text()) if options.keep.exists() else {}
                options.keep.write_text(json.dumps({**earlier, group: results[group]}))
    if options.page:
        everything = json.loads(options.keep.read_text()) if options.keep else results
        ordered = {group: everything[group] for group in [*BARS, *MORE, *everything] if group in everything}
        options.page.parent.mkdir(exist_ok=True)
        options.page.write_text(page(ordered))
    below = [group for group, result in results.items() if rate(result) < BARS.get(group, 0.0)]
    if below:
        print("below the bar:", ", ".join(below))
    return 1 if below else 0


def run(group, timeout):
    """The outcomes of a group's tests."""
    keras = pathlib.Path(importlib.util.find_spec("keras").origin).parent
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.json")
        environment = dict(os.environ, KERAS_BACKEND="plimsoll", KERAS_JUDGE_REPORT=str(report), CUDA_VISIBLE_DEVICES="")
        environment["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-m", "pytest", "-q", "-p", "keras_judge", "-p", "no:cacheprovider"]
        command += ["--assert=plain", "--tb=line", "--continue-on-collection-errors", f"--rootdir={folder}", f"{keras}/src/{group}"]
        try:
            done = subprocess.run(command, cwd=folder, env=environment, timeout=timeout, capture_output=True, text=True)
        except subprocess.TimeoutExpired:
            return {"outcomes": {f"{group} (not finished in {timeout} s)": "failed"}, "excluded": []}
        if not report.exists():
            print(done.stdout[-3000:], done.stderr[-2000:])
            return {"outcomes": {f"{group} (did not finish)": "failed"}, "excluded": []}
        return json.loads(report.read_text())


def counts(result):
    outcomes = list(result["outcomes"].values())
    return {kind: outcomes.count(kind) for kind in ("passed", "failed", "skipped", "not collected")}


def rate(result):
    found = counts(result)
    ran = found["passed"] + found["failed"]
    return found["passed"] / ran if ran else 0.0


def line(group, result):
    found = counts(result)
    ran = found["passed"] + found["failed"]
    text = f"{group:24} {100 * rate(result):6.2f} %  {found['passed']} of {ran}"
    for kind in ("skipped", "not collected"):
        text += f", {found[kind]} {kind}" if found[kind] else ""
    return text + (f", {len(result['excluded'])} excluded" if result["excluded"] else "")


def page(results):
    """The supported list."""
    from keras_judge import excluded
    from keras_plimsoll import hook

    version = importlib.metadata.version("keras")
    text = [
        "# Keras on Plimsoll: what works",
        "",
        f"Written by `python/tests/run_keras_tests.py` from a run of Keras' own tests (keras {version}, in its wheel) against this",
        "backend. A rate counts the tests that ran: neither those that Keras skips itself nor the excluded ones below.",
        "",
        "| tests | passed | of | rate | skipped | not collected | excluded |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for group, result in results.items():
        found = counts(result)
        ran = found["passed"] + found["failed"]
        row = [group, found["passed"], ran, f"{100 * rate(result):.2f} %", found["skipped"], found["not collected"], len(result["excluded"])]
        text.append("| " + " | ".join(map(str, row)) + " |")
    text += ["", "Not collected: the test file imports a package that was not installed beside Keras.", "", "## Excluded", ""]
    text += [f"- `{name}`: {reason}" for name, reason in excluded().items()]
    failed = sorted(name for result in results.values() for name, outcome in result["outcomes"].items() if outcome == "failed")
    text += ["", "## Failing", ""]
    text += [f"- `{name}`" for name in failed] or ["None."]
    text += ["", f"Other versions of Keras than {'.'.join(map(str, hook.SUPPORTED))}.x are refused with an ImportError.", ""]
    return "\n".join(text)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    sys.exit(main())
