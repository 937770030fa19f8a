#!/usr/bin/env python3
"""Runs Fireclay's bench and the PyTorch workloads by turns and prints how they compare.

Both print one JSON object a line: {"workload": name, "ms": median, ...}; ours may say
{"workload": name, "not_yet": reason} instead. The two run in alternation, `--rounds` times each, and who goes
first changes from round to round, so that a machine that slows down or warms up treats both alike. A figure is
the median over the rounds; a ratio below 1 means that Fireclay is faster.

Usage: python bench/compare.py [--ops] [--only PREFIX] [--threads N] [--rounds N] [--markdown FILE] [--check]
It runs under a Python that has torch, or `--torch` says how to run the PyTorch side. `--ops` measures every op of the table,
bench/op_loads.txt, and puts the rows that have a ratio in its order, the worst first.
"""
import argparse
import datetime
import fnmatch
import json
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys

# The most that ours may take, as a fraction of PyTorch's time; the first pattern that fits counts.
TARGETS = {
    "overhead/add_1": 0.3,
    "matmul/f32_1024": 1.6,
    "matmul/f32_2048": 1.6,
    "pointwise/fused_chain*": 0.25,
    "pointwise/*": 0.7,
    "reduce/sum*": 1.2,
    "reduce/softmax*": 1.2,
    "train/tiny*": 0.3,
    "train/mlp*": 1.2,
    "train/cnn*": 1.6,
    # Sorts and scans, then what chooses and writes by places, then norms, then losses.
    **dict.fromkeys(("op/sort*", "op/argsort*", "op/topk*", "op/cum*"), 1.5),
    **dict.fromkeys(("op/gather*", "op/take*", "op/*index*", "op/*scatter*", "op/*masked*", "op/*embedding*"), 1.5),
    **dict.fromkeys(("op/*norm*",), 1.5),
    **dict.fromkeys(("op/*loss*", "op/*cross_entropy*", "op/*kl_div*"), 1.5),
    "op/*": 3,
}


def main():
    args = parse_arguments()
    commands = {"fireclay": shlex.split(args.ours), "torch": shlex.split(args.torch)}
    for command in commands.values():
        command += ["--seconds", str(args.seconds)] if args.seconds else []
        command += ["--only", args.only] if args.only else []
        command += ["--threads", str(args.threads)] if args.threads else []
    results = {"fireclay": [], "torch": []}
    for number in range(args.rounds):
        for side in sorted(commands, reverse=number % 2 == 1):
            print(f"round {number + 1} of {args.rounds}: {side}", file=sys.stderr, flush=True)
            results[side].append(run(commands[side]))
    rows = join(results["fireclay"], results["torch"])
    if args.ops:
        rows.sort(key=lambda row: -(row["ratio"] or 0))
    if not rows:
        sys.exit(f"compare: no workload starts with {args.only!r}")
    print(table(rows))
    if args.markdown:
        pathlib.Path(args.markdown).write_text(markdown(rows, args), encoding="utf-8")
    missed = [row["workload"] for row in rows if row["verdict"] == "MISSED"]
    if args.check and missed:
        sys.exit(f"compare: {len(missed)} targets missed: {', '.join(missed)}")


def parse_arguments():
    here = pathlib.Path(__file__).resolve().parent
    ours = "target/release/fireclay bench"
    loads = here / "op_loads.txt"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", help=f"command of our side ({ours})")
    parser.add_argument("--torch", help="command of PyTorch's side (torch_workloads.py, or torch_ops.py, under this Python)")
    parser.add_argument("--ops", action="store_true", help="measure every op of the table, the worst first")
    parser.add_argument("--only", default="", metavar="PREFIX", help="workloads whose name starts so")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="threads of both sides (all cores)")
    parser.add_argument("--seconds", type=float, metavar="S", help="budget a workload (1.5; with --ops 0.2)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="runs of each side (%(default)s)")
    parser.add_argument("--markdown", metavar="FILE", help="write the table there as Markdown, with date and machine")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {args.rounds}")
    args.ours = args.ours or ours + (f" --ops {shlex.quote(str(loads))}" if args.ops else "")
    side = here / ("torch_ops.py" if args.ops else "torch_workloads.py")
    args.torch = args.torch or shlex.join([sys.executable, str(side)])
    args.seconds = args.seconds or (0.2 if args.ops else None)
    return args


def run(command):
    """The objects that `command` prints, by workload, in its order."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    except OSError as error:
        sys.exit(f"compare: cannot run {shlex.join(command)}: {error.strerror}; build it first, or name it with --ours")
    if done.returncode != 0:
        sys.exit(f"compare: {shlex.join(command)} ended with {done.returncode}; its message stands above")
    found = {}
    for line in filter(str.strip, done.stdout.splitlines()):
        try:
            row = json.loads(line)
            name = row["workload"]
            usable = "not_yet" in row or row["ms"] > 0
        except (ValueError, KeyError, TypeError):
            usable = False
        if not usable:
            sys.exit(f"compare: {shlex.join(command)} printed {line!r}, expected an object with workload and ms or not_yet")
        found[name] = row
    return found


def join(ours, torch):
    """One row a workload, in PyTorch's order, then what only ours has."""
    names = list(dict.fromkeys(name for results in torch + ours for name in results))
    rows = []
    for name in names:
        ours_ms, torch_ms = median_ms(ours, name), median_ms(torch, name)
        ratio = ours_ms / torch_ms if ours_ms and torch_ms else None
        target = next((limit for pattern, limit in TARGETS.items() if fnmatch.fnmatchcase(name, pattern)), None)
        reason = next((results[name]["not_yet"] for results in ours if "not_yet" in results.get(name, {})), None)
        if ours_ms is None:
            verdict = f"not yet: {reason}" if reason else "not run by ours"
        elif torch_ms is None:
            verdict = "not run by PyTorch"
        elif target is None:
            verdict = ""
        else:
            verdict = "met" if ratio <= target else "MISSED"
        rows.append({"workload": name, "ours": ours_ms, "torch": torch_ms, "ratio": ratio, "target": target, "verdict": verdict})
    return rows


def median_ms(rounds, name):
    times = [results[name]["ms"] for results in rounds if "ms" in results.get(name, {})]
    return statistics.median(times) if times else None


HEADINGS = ("workload", "ours ms", "torch ms", "ratio", "target", "")


def cells(row):
    return (
        row["workload"],
        milliseconds(row["ours"]),
        milliseconds(row["torch"]),
        "" if row["ratio"] is None else f"{row['ratio']:.2f}",
        "" if row["target"] is None else f"{row['target']:g}",
        row["verdict"],
    )


def milliseconds(value):
    """Four significant digits, without an exponent."""
    if value is None:
        return "-"
    decimals = next((count for limit, count in ((0.001, 7), (0.01, 6), (0.1, 5), (1, 4), (10, 3), (100, 2)) if value < limit), 1)
    return f"{value:.{decimals}f}"


def table(rows):
    lines = [HEADINGS] + [cells(row) for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    return "\n".join(
        "  ".join(cell.rjust(width) if 0 < column < 5 else cell.ljust(width) for column, (cell, width) in enumerate(zip(line, widths))).rstrip()
        for line in lines
    )


def markdown(rows, args):
    threads = args.threads or "all"
    lines = [
        f"{datetime.date.today().isoformat()}, {machine()}, {threads} threads, PyTorch {torch_version(args.torch)}; "
        f"medians of {args.rounds} alternating runs a side, ratio = ours / PyTorch.",
        "",
        "| " + " | ".join(HEADINGS[:-1] + ("result",)) + " |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells(row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def machine():
    """Processor and number of cores that this process may use."""
    name = platform.processor() or platform.machine()
    try:
        info = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
        name = next(line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} cores"


def torch_version(command):
    """The version under the Python that runs PyTorch's side, "?" if it cannot be told."""
    python = shlex.split(command)[0]
    done = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "?"


if __name__ == "__main__":
    main()
