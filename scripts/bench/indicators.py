"""TA-Lib's C loop over the prices in a file of little-endian f64, as one JSON document.

indicators.py FILE TIMES: seconds of the fastest of TIMES calls of each function, and the SHA-256 of its result with every
warm-up value as 0.0.
"""
import hashlib
import json
import sys
import time

import numpy
import talib

prices = numpy.fromfile(sys.argv[1], dtype="<f8")
times = int(sys.argv[2])


def measure(function):
    best = float("inf")
    for _ in range(times):
        started = time.perf_counter_ns()
        values = function()
        best = min(best, (time.perf_counter_ns() - started) / 1e9)
    digest = hashlib.sha256(numpy.nan_to_num(values).astype("<f8").tobytes()).hexdigest()
    return {"seconds": best, "sha256": digest}


print(json.dumps({
    "version": talib.__version__,
    "ema": measure(lambda: talib.EMA(prices, timeperiod=20)),
    "rsi": measure(lambda: talib.RSI(prices, timeperiod=14)),
}))
