"""Computes the polynomials of this folder: minimax fits (Remez exchange) in high precision.

Run `python fit_coefficients.py [name ...]`; needs mpmath. It prints each polynomial as Rust constants, lowest
power first, with the largest weighted error as a power of two. The f32 coefficients are rounded one after
the other, each time refitting those that follow, so that rounding them costs next to nothing (where the
variable keeps its sign; elsewhere they are just rounded).
"""

import sys

from mpmath import mp, mpf

mp.dps = 50


def rounded(value, bits):
    """`value` to `bits` significant bits."""
    if value == 0:
        return value
    mantissa, exponent = mp.frexp(value)
    return mp.ldexp(mp.nint(mp.ldexp(mantissa, bits)), exponent - bits)


def minimax(xs, values, weights, variable, terms):
    """Coefficients c with the least maximum of |weight (value - sum c_k variable^k)|, and that maximum."""
    count = terms + 1
    last = len(xs) - 1
    nodes = [round(last * (1 - float(mp.cos(mp.pi * i / terms))) / 2) for i in range(count)]
    for _ in range(40):
        rows = mp.matrix(count, count)
        right = mp.matrix(count, 1)
        for row, node in enumerate(nodes):
            power = mpf(1)
            for k in range(terms):
                rows[row, k] = power
                power *= variable[node]
            rows[row, terms] = (-1) ** row / weights[node]
            right[row] = values[node]
        solution = mp.lu_solve(rows, right)
        coefficients = [solution[k] for k in range(terms)]
        level = abs(solution[terms])
        errors = [w * (v - mp.polyval(coefficients[::-1], t)) for t, v, w in zip(variable, values, weights)]
        # One extremum per run of equal sign; then drop the smallest at an end until the count fits.
        extrema = []
        for i, error in enumerate(errors):
            if extrema and (errors[extrema[-1]] > 0) == (error > 0):
                if abs(error) > abs(errors[extrema[-1]]):
                    extrema[-1] = i
            else:
                extrema.append(i)
        while len(extrema) > count:
            extrema.pop(0 if abs(errors[extrema[0]]) < abs(errors[extrema[-1]]) else -1)
        worst = max(abs(e) for e in errors)
        if len(extrema) < count or worst <= level * mpf("1.001"):
            break
        nodes = extrema
    return coefficients, worst


def fit(name, function, weight, low, high, terms, bits, variable=lambda x: x, points=800):
    """Prints the fit of `function` over [low, high] by a polynomial in `variable(x)`."""
    low, high = mpf(low), mpf(high)
    xs = [low + (high - low) * (1 - mp.cos(mp.pi * (i + mpf(1) / 2) / points)) / 2 for i in range(points)]
    values = [function(x) for x in xs]
    weights = [abs(weight(x)) for x in xs]
    t = [variable(x) for x in xs]
    fixed = []
    coefficients, ideal = minimax(xs, values, weights, t, terms)
    if bits == 24 and min(t) > 0:  # across zero, what is left after fixing the first is no Chebyshev system
        for index in range(terms - 1):
            fixed.append(rounded(coefficients[0], bits))
            values = [(v - fixed[-1]) / z for v, z in zip(values, t)]
            weights = [abs(w * z) for w, z in zip(weights, t)]
            coefficients, _ = minimax(xs, values, weights, t, terms - index - 1)
    fixed += [rounded(c, bits) for c in coefficients]
    errors = [abs(weight(x) * (function(x) - mp.polyval(fixed[::-1], z))) for x, z in zip(xs, t)]
    print(f"// {name}: ideal 2^{float(mp.log(ideal, 2)):.1f}, rounded 2^{float(mp.log(max(errors), 2)):.1f}")
    print(f"const {name}: [f64; {terms}] = [")
    for c in fixed:
        print(f"    {float(c)!r},")
    print("];")
    print(f"// rounded off the first: {float(coefficients[0] - fixed[0]) if len(coefficients) == terms else 0.0!r}", flush=True)


def square(x):
    return x * x


# name -> (function, weight, low, high, variable, terms for f32, terms for f64)
def odd(f, high):
    """f(x) = x + x^3 p(x^2), to least relative error."""
    return (lambda x: (f(x) - x) / x**3, lambda x: x**3 / f(x), "0.002", high, square)


def erfc_fit(k, high):
    return (
        lambda a: (1 + 2 * a) * mp.exp(a * a) * mp.erfc(a),
        lambda a: 1 / ((1 + 2 * a) * mp.exp(a * a) * mp.erfc(a)),
        "0",
        high,
        lambda a: (a - k) / (a + k),
    )


def lgamma_fit():
    """log(gamma(2 + s)) = s (s + 1) p(s)."""
    f = lambda s: mp.loggamma(2 + s) / (s * (s + 1))
    return f, lambda s: 1 / f(s), "-1", "1", lambda s: s


def lgamma_tail():
    """log(gamma(x)) = (x - 1/2) (log(x) - 1) + (log(2 pi) - 1) / 2 + p(t) / x with t = 1 / x^2, from x = 3 on."""
    constant = (mp.log(2 * mp.pi) - 1) / 2

    def f(t):
        x = 1 / mp.sqrt(t)
        return (mp.loggamma(x) - (x - mpf(1) / 2) * (mp.log(x) - 1) - constant) * x

    return f, lambda t: mp.sqrt(t) / mp.loggamma(1 / mp.sqrt(t)), "1e-6", mpf(1) / 9, lambda t: t


FITS = {
    "EXP": ((lambda r: (mp.exp(r) - 1 - r) / r**2, lambda r: r**2 / mp.expm1(r), "-0.3472", "0.3472", lambda r: r), 5, 10),
    "EXP2": ((lambda r: (2**r - 1) / r, lambda r: r / 2**r, "-0.5001", "0.5001", lambda r: r), 6, 11),
    "LOG": ((lambda f: (mp.log1p(f) - f) / f**2, lambda f: f**2 / mp.log1p(f), "-0.2929", "0.41425", lambda f: f), 9, None),
    "LOG_ATANH": ((lambda s: (2 * mp.atanh(s) - 2 * s) / s**3, lambda s: s**3 / mp.atanh(s) / 2, "0.001", "0.17158", square), None, 7),
    "LOG_TAIL": ((lambda s: (mp.atanh(s) - s - s**3 / 3) / s**5, lambda s: s**5 / mp.atanh(s), "0.003", "0.17158", square), 3, 7),
    "SIN": (odd(mp.sin, "0.7860"), 3, 6),
    "COS": ((lambda r: (mp.cos(r) - 1 + r**2 / 2) / r**4, lambda r: r**4 / mp.cos(r), "0.002", "0.7860", square), 3, 6),
    "TAN": (odd(mp.tan, "0.7860"), 7, 14),
    "ASIN": (odd(mp.asin, "0.5"), 5, 12),
    "ATAN": (odd(mp.atan, "0.5001"), 6, 13),
    "SINH": (odd(mp.sinh, "1"), 4, 8),
    "TANH": (odd(mp.tanh, "0.6"), 5, 12),
    "ERF": ((lambda x: (mp.erf(x) - x) / x, lambda x: x / mp.erf(x), "0.002", "0.92", square), 6, 12),
    "ERF_TAIL": ((lambda a: mp.log(mp.erfc(a), 2), lambda a: mp.erfc(a), "0.92", "4", lambda a: a), 7, None),
    "ERFC32": (erfc_fit(2, "10.1"), 10, None),
    "ERFC64": (erfc_fit(4, "27.3"), None, 23),
    "LGAMMA": (lgamma_fit(), 14, 29),
    "LGAMMA_TAIL": (lgamma_tail(), 4, 13),
}

if __name__ == "__main__":
    for name in sys.argv[1:] or FITS:
        (function, weight, low, high, variable), single, double = FITS[name]
        if single:
            fit(name + "_F32", function, weight, low, high, single, 24, variable)
        if double:
            fit(name + "_F64", function, weight, low, high, double, 53, variable)
