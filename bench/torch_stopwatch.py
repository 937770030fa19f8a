"""The flags of the PyTorch workloads and the rule that they are measured by: that of `fireclay bench`, crates/cli/src/bench/stopwatch.rs."""
import argparse
import json
import statistics
import time

import torch

# Seconds that a run on a device takes at least, so that the wait at its end is a small part of it; the most calls of a run made longer.
DEVICE_RUN, MOST_CALLS = 0.005, 1000


def arguments(description, *more, **values):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="PREFIX", help="workloads whose name starts so")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="threads (all cores)")
    parser.add_argument("--seconds", type=float, default=1.5, metavar="S", help="budget a workload")
    parser.add_argument("--device", default="cpu", help="where tensors and modules are made")
    for flag in more:
        parser.add_argument(flag, action="store_true")
    for flag, default in values.items():
        parser.add_argument("--" + flag, default=default, help="(%(default)s)")
    args = parser.parse_args()
    torch.set_default_device(args.device)
    # Both sides compute with f32 where f32 is said.
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    return args


def stopwatch(args, shortest_run=0):
    """A function that measures a call and prints the line of its workload; runs take at least `shortest_run` seconds."""
    on_device = torch.device(args.device).type != "cpu"
    if on_device:
        shortest_run = max(shortest_run, DEVICE_RUN)

    def wait():
        # Until the device has done all of its work: only then the clock says something.
        if on_device:
            torch.cuda.synchronize()

    def run(fn, inner):
        start = time.perf_counter()
        for _ in range(inner):
            fn()
        wait()
        return time.perf_counter() - start

    def bench(name, fn, inner=1):
        if not name.startswith(args.only):
            return
        fn()
        fn()
        wait()
        if shortest_run:
            longer = max(shortest_run / max(run(fn, inner), 1e-9), 1)
            inner = min(max(int(inner * longer), 1), MOST_CALLS)
        times, start = [], time.perf_counter()
        while (time.perf_counter() - start < args.seconds or len(times) < 5) and len(times) < 400:
            times.append(run(fn, inner) * 1e3 / inner)
        print(json.dumps({"workload": name, "ms": round(statistics.median(times), 6),
                          "min_ms": round(min(times), 6), "n": len(times)}), flush=True)

    return bench
