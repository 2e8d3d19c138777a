"""The job of `finaz stream` in bytewax: decode, filter by instrument, skip what was seen, ema(20) and count of each instrument.

BROKERS, TOPIC, RECORDS in the environment; run by `python -m bytewax.run`, one worker. OPERATOR=batch takes its operator over
batches of a key, the fastest there is, in place of `stateful_map`. Says "first", "late" before the last tenth of RECORDS, and
"done" after all of them, with how many were counted. The identities of an instrument are part of its state: so are they kept and
recovered.
"""
import json
import os

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import DynamicSink, StatelessSinkPartition

PERIOD = 20
INSTRUMENTS = frozenset(f"bench.{n:02}" for n in range(20))
wanted = int(os.environ["RECORDS"])
records = counted = 0


def say(word):
    print(word, counted, flush=True)


def decode(message):
    global records
    if records == 0:
        say("first")
    records += 1
    if records == wanted - wanted // 10:
        say("late")
    if records == wanted:
        say("done")
    event = json.loads(message.value)
    instrument = event["instrument"]
    return (instrument, event) if instrument in INSTRUMENTS else None


def step(state, event):
    global counted
    if state is None:
        state = [set(), 0, 0.0]
    seen, count, level = state
    identity = event["event_id"]
    if identity in seen:
        return state, None
    seen.add(identity)
    counted += 1
    count += 1
    close = event["close"]
    if count > PERIOD:
        level += (close - level) * (2 / (PERIOD + 1))
    else:
        level = (level + close) / PERIOD if count == PERIOD else level + close
    state[1], state[2] = count, level
    return state, level


class Batch(StatefulBatchLogic):
    def __init__(self, state):
        self.state = state

    def on_batch(self, values):
        out = []
        for event in values:
            self.state, level = step(self.state, event)
            if level is not None:
                out.append(level)
        return out, StatefulBatchLogic.RETAIN

    def snapshot(self):
        seen, count, level = self.state
        return [seen.copy(), count, level]


class Nowhere(DynamicSink):
    def build(self, step_id, worker_index, worker_count):
        return Nothing()


class Nothing(StatelessSinkPartition):
    def write_batch(self, items):
        pass


flow = Dataflow("peer")
source = KafkaSource([os.environ["BROKERS"]], [os.environ["TOPIC"]], tail=False, batch_size=1000)
events = op.filter_map("decode", op.input("in", flow, source), decode)
if os.environ.get("OPERATOR") == "batch":
    levels = op.stateful_batch("job", events, Batch)
else:
    levels = op.stateful_map("job", events, step)
op.output("out", levels, Nowhere())
