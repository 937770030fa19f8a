"""Writes math_reference.bin: f64 arguments of each elementary function with the exact result.

Needs mpmath. Sections follow each other: the name (8 bytes, padded with spaces), the number of arguments and
of records (u32 each), then the records: each argument's bits (u64), the bits of the correctly rounded result
(u64), and exact less rounded result in units of the rounded one's last place (f32). All little-endian.
"""

import math
import pathlib
import random
import struct

from mpmath import mp, mpf

mp.prec = 220
POINTS = 800
random.seed(20240607)


def from_bits(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


def to_bits(value):
    return struct.unpack("<Q", struct.pack("<d", value))[0]


def signed(x):
    return x if random.random() < 0.5 else -x


def spread(low, high):
    """Evenly over the exponents from `low` to `high`."""
    return math.exp(random.uniform(math.log(low), math.log(high)))


def beside(x):
    """A few units in the last place off `x`."""
    return from_bits(to_bits(abs(x)) + random.randint(-8, 8)) * math.copysign(1, x) if x else 0.0


def denormal():
    return from_bits(random.randint(1, (1 << 52) - 1))


def any_finite():
    return from_bits(random.randint(1, 0x7FEFFFFFFFFFFFFF))


def quarter_turn():
    return beside(random.randint(1, 1 << random.randint(1, 40)) * math.pi / 2)


def mix(*choices):
    """Points from all the choices in turn."""
    return lambda: random.choice(choices)()


tiny = lambda: signed(random.choice([denormal(), spread(1e-300, 1e-8)]))
wide = lambda high: lambda: signed(spread(1e-6, high))
flat = lambda low, high: lambda: random.uniform(low, high)
edges = lambda *xs: lambda: beside(signed(random.choice(xs)))
positive = mix(any_finite, any_finite, denormal, flat(0.4, 2.5), lambda: 1 + signed(spread(1e-15, 0.3)), lambda: beside(random.choice([0.5**0.5, 1.0, 2**0.5, 2.0])))
angle = mix(tiny, flat(-4, 4), wide(1e3), wide(1e6), wide(1e7), lambda: signed(any_finite()), quarter_turn, edges(1048576.0, 6381956970095103.0 * 2.0**797, 1e300))
unit = mix(tiny, flat(-1, 1), flat(-1, 1), lambda: signed(1 - spread(1e-16, 0.3)), edges(0.5))


def pow_arguments():
    x = random.choice([any_finite(), spread(1e-3, 1e3), 1 + signed(spread(1e-14, 0.4)), denormal()])
    limit = 1080 / max(abs(math.log2(x)), 1e-300)
    y = random.choice([random.uniform(-limit, limit), signed(limit * random.uniform(0.9, 1)), float(random.randint(-5, 5)), random.uniform(-2, 2)])
    return x, y


def atan2_arguments():
    x = random.choice([any_finite(), spread(1e-3, 1e3), denormal(), spread(1e300, 1.7e308)])
    y = random.choice([any_finite(), x * spread(1e-3, 1e3), beside(x), x * random.uniform(0.3, 0.6)])
    return signed(y), signed(x)


# name -> (function, arguments)
FUNCTIONS = {
    "exp": (mp.exp, mix(tiny, flat(-746, 710), flat(-746, -707), wide(700), flat(-1, 1))),
    "exp2": (lambda x: mpf(2) ** x, mix(tiny, flat(-1075, 1024), flat(-1075, -1020), wide(1000), flat(-1, 1))),
    "expm1": (mp.expm1, mix(tiny, flat(-40, 710), wide(700), flat(-1, 1), flat(-2, 2))),
    "log": (mp.log, positive),
    "log2": (lambda x: mp.log(x) / mp.log(2), positive),
    "log10": (lambda x: mp.log(x) / mp.log(10), positive),
    "log1p": (mp.log1p, mix(tiny, flat(-1, 2), lambda: -1 + spread(1e-15, 0.5), any_finite, wide(10), flat(-0.3, 0.5))),
    "sin": (mp.sin, angle),
    "cos": (mp.cos, angle),
    "tan": (mp.tan, angle),
    "tanh": (mp.tanh, mix(tiny, flat(-1, 1), flat(-20, 20), wide(19), edges(0.6))),
    "sinh": (mp.sinh, mix(tiny, flat(-1.5, 1.5), flat(-710.4, 710.4), wide(700), edges(1.0, 710.4))),
    "cosh": (mp.cosh, mix(tiny, flat(-1.5, 1.5), flat(-710.4, 710.4), wide(700), edges(710.4))),
    "asin": (mp.asin, unit),
    "acos": (mp.acos, unit),
    "atan": (mp.atan, mix(tiny, flat(-3, 3), wide(1e6), lambda: signed(any_finite()), edges(2**0.5 - 1, 2**0.5 + 1, 1.0))),
    "erf": (mp.erf, mix(tiny, flat(-1, 1), flat(-6, 6), wide(6), edges(0.92))),
    "erfc": (mp.erfc, mix(tiny, flat(-1, 1), flat(-6, 6), flat(0, 27.3), flat(26, 27.3), wide(27))),
    "pow": (lambda x, y: mp.power(x, y), pow_arguments),
    "atan2": (lambda y, x: mp.atan2(y, x), atan2_arguments),
}


def record(function, arguments):
    """The record's bytes, or None where the result is 0, overflows or is complex."""
    with mp.workprec(220):
        exact = function(*[mpf(a) for a in arguments])
    if mp.im(exact) != 0:
        return None
    exact = mp.re(exact)
    if not mp.isfinite(exact) or exact == 0 or abs(exact) >= mpf(2) ** 1024 or abs(exact) < mpf(2) ** -1075:
        return None
    exponent = max(int(mp.floor(mp.log(abs(exact), 2))) - 52, -1074)
    scaled = mp.ldexp(exact, -exponent)
    rounded = mp.nint(scaled)
    result = math.ldexp(int(rounded), exponent) if abs(rounded) < 2**53 else None
    if result is None or math.isinf(result):
        return None
    unit_bits = b"".join(struct.pack("<Q", to_bits(a)) for a in arguments)
    return unit_bits + struct.pack("<Qf", to_bits(result), float(scaled - rounded))


def main():
    out = bytearray()
    for name, (function, arguments) in FUNCTIONS.items():
        records = []
        while len(records) < POINTS:
            chosen = arguments()
            chosen = chosen if isinstance(chosen, tuple) else (chosen,)
            made = record(function, chosen)
            if made:
                records.append(made)
        out += name.ljust(8).encode() + struct.pack("<II", len(chosen), len(records)) + b"".join(records)
        print(name, flush=True)
    pathlib.Path(__file__).with_name("math_reference.bin").write_bytes(out)


main()
