# SPDX-License-Identifier: Apache-2.0
"""Short TCP connections, a separate program in a host:

    short_flows.py serve IP PORT            sends each connection as many bytes as it asks for
    short_flows.py fetch IP PORT PLAN.json  connects when the plan says so; a line for each:
                                            seconds since the start, bytes, seconds it took

It uses only the standard library, as it is started in a host by its path.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path


async def _serve(address: str, port: int) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = int(await reader.readline())
            writer.write(bytes(asked))
            await writer.drain()
        except (OSError, ValueError):
            pass  # the connection's other end has gone
        writer.close()

    server = await asyncio.start_server(answer, address, port)
    async with server:
        await server.serve_forever()


async def _one(address: str, port: int, begun: float, size: int) -> None:
    at = time.monotonic()
    try:
        reader, writer = await asyncio.open_connection(address, port)
        writer.write(b"%d\n" % size)
        got = len(await reader.read(-1))
        writer.close()
    except OSError as error:
        print(f"{at - begun:.3f} {size} failed: {error}", flush=True)
        return
    print(f"{at - begun:.3f} {got} {time.monotonic() - at:.3f}", flush=True)


async def _fetch(address: str, port: int, plan: list[tuple[float, int]]) -> None:
    begun = time.monotonic()
    running = set()
    for at_s, size in plan:
        await asyncio.sleep(max(0.0, begun + at_s - time.monotonic()))
        task = asyncio.create_task(_one(address, port, begun, size))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)


def main(words: list[str]) -> None:
    """Run the command of these words."""
    what, address, port, *rest = words
    if what == "serve":
        asyncio.run(_serve(address, int(port)))
    else:
        plan = [(float(at), int(size)) for at, size in json.loads(Path(rest[0]).read_text())]
        asyncio.run(_fetch(address, int(port), plan))


if __name__ == "__main__":
    main(sys.argv[1:])
