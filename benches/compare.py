"""Runs the workloads in Plimsoll and in the peers, one after another in one run, and prints ratios.

    python benches/compare.py --python PEERS_PYTHON            all workloads
    python benches/compare.py --python PEERS_PYTHON w4 w5      some of them

PEERS_PYTHON is an interpreter with benches/requirements.txt installed. Every measurement is a process of its own; the
programs take turns for `--rounds` rounds, so that a slow minute of the machine hits all of them, and each one's best
round counts. A ratio below 1 means that Plimsoll is faster, or leaner, than the best peer.
"""

import argparse
import json
import pathlib
import platform
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent

# The example, and the variants of the peers that are worth running: each framework in its usual and its fastest form.
WORKLOADS = {
    "w1": ("w1_mlp", ["torch", "torch-compile", "jax", "keras"], ["--steps", "500", "--repeats", "5"]),
    "w4": ("w4_cnn", ["torch", "torch-channels-last", "torch-compile", "jax", "keras"], ["--steps", "5", "--repeats", "4"]),
    "w5": ("w5_gpt", ["torch", "torch-compile", "jax", "keras"], ["--steps", "2", "--repeats", "4"]),
    "w6": ("w6_wall", ["torch", "jax", "keras"], ["--steps", "1", "--repeats", "2"]),
}


def cpu():
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def run(command):
    """The last line that a command prints, as JSON; None when it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        print(f"failed: {' '.join(map(str, command))}\n{done.stderr[-500:]}", file=sys.stderr)
        return None
    return json.loads(lines[-1])


def variants(script, wanted):
    """Those of the wanted variants that a peer's script knows."""
    text = (HERE / "peers" / f"{script}.py").read_text()
    return [variant for variant in wanted if f'"{variant}"' in text]


def measure(workload, python, rounds, data):
    """The best round of every program: {program: result}."""
    example, wanted, options = WORKLOADS[workload]
    extra = ["--data", data] if workload == "w1" else []
    commands = {"plimsoll": [ROOT / "target/release/examples" / example, "--json", *options, *extra]}
    for variant in variants(workload, wanted):
        commands[variant] = [python, HERE / "peers" / f"{workload}.py", variant, *options, *extra]
    best = {}
    for _ in range(rounds):
        for program, command in commands.items():
            result = run(command)
            if result is None:
                continue
            known = best.setdefault(program, result)
            peak = max(known["rss_peak"], result["rss_peak"])
            if result["ms_per_step"] < known["ms_per_step"]:
                best[program] = result
            best[program]["rss_peak"] = peak
    return best


def report(workload, results):
    ours = results["plimsoll"]
    peers = {program: result for program, result in results.items() if program != "plimsoll"}
    print(f"\n{workload.upper()}\n\n| program | version | ms a step | time, ours / its | peak RSS, MiB | memory, ours / its |")
    print("|---|---|---|---|---|---|")
    for program, r in results.items():
        time, memory = ours["ms_per_step"] / r["ms_per_step"], ours["rss_peak"] / r["rss_peak"]
        print(f"| {program} | {r['version']} | {r['ms_per_step']:.3f} | {time:.2f} | {r['rss_peak']:.0f} | {memory:.3f} |")
    if peers:
        fastest = min(peers.values(), key=lambda r: r["ms_per_step"])
        leanest = min(peers.values(), key=lambda r: r["rss_peak"])
        print(f"\nagainst the fastest peer ({fastest['variant']}): {ours['ms_per_step'] / fastest['ms_per_step']:.2f} of its time; "
              f"against the leanest ({leanest['variant']}): {ours['rss_peak'] / leanest['rss_peak']:.3f} of its memory", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []], help="default: all")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with the peers installed")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rows", type=int, default=200_000, help="rows of W1's data")
    arguments = parser.parse_args()
    subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "plimsoll", "--examples"], cwd=ROOT, check=True)
    print(f"{cpu()}, Python {platform.python_version()}, best of {arguments.rounds} rounds")
    with tempfile.TemporaryDirectory() as data:
        workloads = arguments.workloads or list(WORKLOADS)
        if "w1" in workloads:
            maker = [arguments.python, HERE / "peers" / "data.py", data, "--rows", str(arguments.rows)]
            subprocess.run(maker, check=True, stdout=subprocess.DEVNULL)
        for workload in workloads:
            report(workload, measure(workload, arguments.python, arguments.rounds, data))


if __name__ == "__main__":
    main()
