"""Makes crates/plan/tests/data/evictions.json: small training steps with the least time in which they can run under a limit.

Every optimum is that of an integer program after Jain et al., "Checkmate" (MLSys 2020), solved to proven optimality by HiGHS
(through SciPy): the order of first runs is fixed, between two of them any earlier task may run again. Instances that HiGHS does
not finish in 60 seconds are left out.

    pip install scipy
    python evictions.py
"""

import json
import pathlib
import random

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_matrix

SECONDS = 60


def training_step(forward):
    """Tasks (inputs, bytes, seconds) of a forward pass given as such tuples with what its gradient reads, and its backward pass."""
    tasks = [(inputs, size, cost) for inputs, size, cost, _ in forward]
    last = len(forward) - 1
    gradient = {last: len(tasks)}
    tasks.append(([last], forward[last][1], 1))
    for node in range(last, -1, -1):
        inputs, size, cost, saved = forward[node]
        reads = {"in": list(inputs), "out": [node], "none": []}[saved]
        for source in inputs:
            tasks.append((sorted({gradient[node], *reads}), forward[source][1], cost))
            made = len(tasks) - 1
            if source in gradient:
                tasks.append(([gradient[source], made], forward[source][1], 1))
                made = len(tasks) - 1
            gradient[source] = made
    return tasks


def chain(n, seed=None):
    dice = random.Random(seed)
    size = lambda: 4 if seed is None else dice.choice([1, 2, 4, 8])
    cost = lambda: 10 if seed is None else dice.choice([2, 10, 30])
    return training_step([([i - 1] if i else [], size(), cost(), "in") for i in range(n)])


def residual(blocks, seed):
    dice = random.Random(seed)
    forward = [([], 4, 5, "none")]
    for _ in range(blocks):
        x = len(forward) - 1
        forward.append(([x], dice.choice([2, 4, 6]), dice.choice([10, 20]), "in"))
        forward.append(([x + 1], forward[-1][1], 1, "out"))
        forward.append(([x, x + 2], 4, 1, "none"))
    return training_step(forward)


def u_shape(depth, seed):
    dice = random.Random(seed)
    forward, skips, size = [([], 8, 3, "none")], [], 8
    for _ in range(depth):
        forward.append(([len(forward) - 1], size, dice.choice([10, 30]), "in"))
        skips.append((len(forward) - 1, size))
        size = max(1, size // 2)
        forward.append(([len(forward) - 1], size, 1, "in"))
    for skip, size in reversed(skips):
        forward.append(([len(forward) - 1, skip], size, 3, "none"))
        forward.append(([len(forward) - 1], size, dice.choice([10, 40]), "in"))
    return training_step(forward)


def random_step(n, seed):
    dice = random.Random(seed)
    forward = [([], dice.randint(1, 6), dice.randint(1, 20), "none")]
    for i in range(1, n):
        inputs = {i - 1} | ({dice.randrange(i)} if dice.random() < 0.3 else set())
        saved = dice.choice(["in", "out", "in", "none"])
        forward.append((sorted(inputs), dice.randint(1, 6), dice.randint(1, 20), saved))
    return training_step(forward)


def peak(tasks):
    last = {}
    for step, (inputs, _, _) in enumerate(tasks):
        for unit in inputs:
            last[unit] = step
    live, highest = {}, 0
    for step, (_, size, _) in enumerate(tasks):
        live[step] = size
        highest = max(highest, sum(live.values()))
        live = {unit: size for unit, size in live.items() if last.get(unit, -1) > step}
    return highest


def optimum(tasks, limit):
    """The least sum of costs, None when impossible, or False when HiGHS ran out of time."""
    n = len(tasks)
    sizes, costs = [t[1] for t in tasks], [t[2] for t in tasks]
    users = [[k for k in range(n) if u in tasks[k][0]] for u in range(n)]
    index = {}
    new = lambda *key: index.setdefault(key, len(index))
    # run[s, i]: task i runs in stage s; keep[s, i]: i is in memory when stage s begins; free[s, u, k]: u goes after k;
    # used[s, k]: what is in memory while k runs in stage s.
    edges = [(u, k) for k in range(n) for u in [*tasks[k][0], k]]
    for stage in range(n):
        for i in range(stage + 1):
            new("run", stage, i)
            new("used", stage, i)
            if i < stage:
                new("keep", stage, i)
        for u, k in edges:
            if k <= stage:
                new("free", stage, u, k)
    rows, low, high = [], [], []

    def add(coefficients, at_least, at_most):
        row = {}
        for key, weight in coefficients:
            if key in index:
                row[index[key]] = row.get(index[key], 0) + weight
        rows.append(row)
        low.append(at_least)
        high.append(at_most)

    infinity = np.inf
    for s in range(n):
        for i in range(s + 1):
            for u in tasks[i][0]:
                add([(("run", s, i), 1), (("run", s, u), -1), (("keep", s, u), -1)], -infinity, 0)
            add([(("keep", s + 1, i), 1), (("run", s, i), -1), (("keep", s, i), -1)], -infinity, 0)
            if i < s:
                add([(("run", s, i), 1), (("keep", s, i), 1)], -infinity, 1)
        for u, k in edges:
            if k > s:
                continue
            later = [j for j in users[u] if k < j <= s]
            hazards = [(("run", s, k), -1), (("keep", s + 1, u), 1)] + [(("run", s, j), 1) for j in later]
            most = 2 + len(later)
            add([(("free", s, u, k), -1)] + [(key, -w) for key, w in hazards], -infinity, 0)
            add([(("free", s, u, k), most)] + hazards, -infinity, most - 1)
        start = [(("used", s, 0), 1), (("run", s, 0), -sizes[0])]
        add(start + [(("keep", s, i), -sizes[i]) for i in range(s)], 0, 0)
        for k in range(s):
            freed = [(("free", s, u, k), sizes[u]) for u in [*tasks[k][0], k]]
            add([(("used", s, k + 1), 1), (("used", s, k), -1), (("run", s, k + 1), -sizes[k + 1])] + freed, 0, 0)
    count = len(index)
    lower, upper, whole, objective = np.zeros(count), np.ones(count), np.ones(count), np.zeros(count)
    for key, i in index.items():
        if key[0] == "used":
            upper[i], whole[i] = limit, 0
        if key[0] == "run":
            objective[i] = costs[key[2]]
            lower[i] = key[1] == key[2]
    entries = [(r, c, w) for r, row in enumerate(rows) for c, w in row.items()]
    r, c, w = zip(*entries)
    matrix = coo_matrix((w, (r, c)), shape=(len(rows), count)).tocsr()
    options = {"time_limit": SECONDS, "mip_rel_gap": 1e-6}
    result = milp(objective, constraints=LinearConstraint(matrix, low, high), integrality=whole, bounds=Bounds(lower, upper), options=options)
    return {0: lambda: round(result.fun), 2: lambda: None}.get(result.status, lambda: False)()


def main():
    steps = {"chain-8": chain(8), "chain-12": chain(12)}
    steps |= {f"uneven-chain-{n}-{seed}": chain(n, seed) for n, seed in [(8, 1), (8, 2), (10, 3), (12, 4)]}
    steps |= {f"residual-{blocks}-{seed}": residual(blocks, seed) for blocks, seed in [(2, 1), (2, 2), (3, 3)]}
    steps |= {f"u-shape-{depth}-{seed}": u_shape(depth, seed) for depth, seed in [(1, 1), (2, 2)]}
    steps |= {f"random-{n}-{seed}": random_step(n, seed) for n, seed in [(6, 1), (7, 2), (8, 3), (8, 4), (9, 5)]}
    table = []
    for name, tasks in steps.items():
        whole = peak(tasks)
        solved = []
        for part in (0.9, 0.8, 0.7, 0.6, 0.5):
            limit = int(whole * part)
            seconds = optimum(tasks, limit)
            print(name, len(tasks), limit, seconds, flush=True)
            if seconds is False:
                break
            solved.append({"limit": limit, "seconds": seconds})
            if seconds is None:
                break
        table.append({"name": name, "tasks": [list(t) for t in tasks], "solved": solved})
    target = pathlib.Path(__file__).parents[2] / "crates/plan/tests/data/evictions.json"
    lines = ",\n".join(json.dumps(entry) for entry in table)
    target.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
