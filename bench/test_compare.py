#!/usr/bin/env python3
"""Tests of compare.py with two commands that print fixed figures: python bench/test_compare.py"""
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent


def printing(*rows):
    """A command that prints the rows whose workload starts with its --only, as both sides do."""
    code = (
        "import argparse, json; p = argparse.ArgumentParser(); p.add_argument('--only', default='');"
        "p.add_argument('--threads', type=int); p.add_argument('--seconds'); a = p.parse_args();"
        f"[print(json.dumps(r)) for r in {list(rows)!r} if r['workload'].startswith(a.only)]"
    )
    return shlex.join([sys.executable, "-c", code])


OURS = printing(
    {"workload": "overhead/add_1", "ms": 0.0002},
    {"workload": "pointwise/add_1e7", "ms": 9.0},
    {"workload": "pointwise/fused_chain_1e7", "ms": 2.0},
    {"workload": "reduce/sort_1e6", "not_yet": "sort comes later"},
    {"workload": "extra/own", "ms": 1.0},
)
TORCH = printing(
    {"workload": "overhead/add_1", "ms": 0.001},
    {"workload": "pointwise/add_1e7", "ms": 10.0},
    {"workload": "pointwise/fused_chain_1e7", "ms": 10.0},
    {"workload": "reduce/sort_1e6", "ms": 50.0},
    {"workload": "nn/new", "ms": 5.0},
)


def compare(*arguments, ours=OURS, torch=TORCH):
    command = [sys.executable, str(HERE / "compare.py"), "--ours", ours, "--torch", torch, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


class Compare(unittest.TestCase):
    def test_rows_are_joined_and_judged(self):
        done = compare("--threads", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
        self.assertEqual(rows["overhead/add_1"], ["0.0002000", "0.001000", "0.20", "0.3", "met"])
        self.assertEqual(rows["pointwise/add_1e7"], ["9.000", "10.00", "0.90", "0.7", "MISSED"])
        self.assertEqual(rows["pointwise/fused_chain_1e7"], ["2.000", "10.00", "0.20", "0.25", "met"])
        self.assertEqual(rows["reduce/sort_1e6"], ["-", "50.00", "not", "yet:", "sort", "comes", "later"])
        self.assertEqual(rows["nn/new"], ["-", "5.000", "not", "run", "by", "ours"])
        self.assertEqual(rows["extra/own"], ["1.000", "-", "not", "run", "by", "PyTorch"])

    def test_ops_are_judged_by_their_kind_and_the_worst_is_first(self):
        ours = printing({"workload": "op/neg", "ms": 4}, {"workload": "op/nn.functional.nll_loss/backward", "ms": 6}, {"workload": "op/sort", "ms": 7})
        torch = printing({"workload": "op/neg", "ms": 2}, {"workload": "op/nn.functional.nll_loss/backward", "ms": 4}, {"workload": "op/sort", "ms": 2})
        rows = [line.split() for line in compare("--ops", ours=ours, torch=torch).stdout.splitlines()]
        self.assertEqual(rows[1], ["op/sort", "7.000", "2.000", "3.50", "1.5", "MISSED"])
        self.assertEqual(rows[2], ["op/neg", "4.000", "2.000", "2.00", "3", "met"])
        self.assertEqual(rows[3][3:], ["1.50", "1.5", "met"])

    def test_the_sides_take_turns_in_being_first(self):
        order = [line.split()[-1] for line in compare("--rounds", "3").stderr.splitlines()]
        self.assertEqual(order, ["fireclay", "torch", "torch", "fireclay", "fireclay", "torch"])

    def test_only_is_passed_on(self):
        names = [line.split()[0] for line in compare("--only", "pointwise/").stdout.splitlines()]
        self.assertEqual(names, ["workload", "pointwise/add_1e7", "pointwise/fused_chain_1e7"])
        self.assertIn("no workload starts with 'none'", compare("--only", "none").stderr)

    def test_a_missed_target_fails_the_check_only_if_asked(self):
        self.assertIn("1 targets missed: pointwise/add_1e7", compare("--check").stderr)
        self.assertEqual(compare("--check").returncode, 1)
        self.assertEqual(compare("--check", "--only", "overhead").returncode, 0)

    def test_markdown_is_a_table_with_its_circumstances(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "table.md"
            self.assertEqual(compare("--markdown", str(path), "--threads", "1").returncode, 0)
            lines = path.read_text(encoding="utf-8").splitlines()
        self.assertIn("1 threads, PyTorch", lines[0])
        self.assertEqual(lines[2], "| workload | ours ms | torch ms | ratio | target | result |")
        self.assertEqual(lines[5], "| pointwise/add_1e7 | 9.000 | 10.00 | 0.90 | 0.7 | MISSED |")

    def test_what_goes_wrong_is_named(self):
        self.assertIn("cannot run no-such-command", compare(ours="no-such-command").stderr)
        fails = shlex.join([sys.executable, "-c", "raise SystemExit(3)"])
        self.assertIn("ended with 3", compare(ours=fails).stderr)
        for text in ("no json", json.dumps({"workload": "a"}), json.dumps([1]), json.dumps({"workload": "a", "ms": 0})):
            odd = shlex.join([sys.executable, "-c", f"print({text!r})"])
            done = compare(ours=odd)
            self.assertIn("expected an object with workload and ms or not_yet", done.stderr)
            self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    unittest.main()
