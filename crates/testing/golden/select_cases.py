"""Keeps the cases of some ops of a golden set.

    python select_cases.py --from DIR --ops ops.txt --out DIR [--per-op K]

FORMAT: a set is `cases.json` and `tensors.safetensors`. `--per-op` keeps the first K cases of an op that pass the
other filters, error cases counted apart.
"""

import argparse
import json
from collections import Counter
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="source", type=Path, required=True)
    parser.add_argument("--ops", type=Path, required=True, help="names of ops, one a line")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--per-op", type=int, default=1000)
    options = parser.parse_args()

    ops = set(options.ops.read_text().split())
    document = json.loads((options.source / "cases.json").read_text())
    kept, count = [], Counter()
    for case in document["cases"]:
        kind = case["op"], "error" in case
        if case["op"] in ops and count[kind] < options.per_op:
            count[kind] += 1
            case.get("error", {}).pop("torch", None)
            kept.append(case)
    ids = {case["id"] for case in kept}
    with safe_open(options.source / "tensors.safetensors", "pt") as stored:
        tensors = {name: stored.get_tensor(name) for name in stored.keys() if name.rsplit("/", 1)[0] in ids}
    options.out.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case, separators=(",", ":"), allow_nan=False) for case in kept)
    head = f'{{"torch":"{document["torch"]}","seed":{document["seed"]},"cases":[\n'
    (options.out / "cases.json").write_text(f"{head}{lines}\n]}}\n")
    save_file(tensors, options.out / "tensors.safetensors")
    print(f"{len(kept)} cases of {len({case['op'] for case in kept})} ops")


if __name__ == "__main__":
    main()
