"""An OpenAI-compatible server for tests: it replays recorded answers over real HTTP, and misbehaves when told to.

    with ModelServer({"strike through text": '{"terms": ["GFM"]}'}) as server:
        server.api_base                                   # http://127.0.0.1:PORT/v1
        server.next(Fault.status(429, retry_after=1))     # for the next call only
        server.always(Fault.hang())                       # until server.heal()
        server.calls, server.most_at_once                 # what arrived
        server.batches.ends = "expired"                   # what becomes of batches

`python -m tests.model_server --answers FILE --corpus FILE --port N --latency S` runs one in a process of its own.
"""

from tests.model_server.batches import Line
from tests.model_server.server import Fault, ModelServer, join_answers

__all__ = ["Fault", "Line", "ModelServer", "join_answers"]
