"""The simplest CONNECT proxy on trio: streams and copied buffers, no policy, no log. A floor to compare with.

python -m bench.plain_relay PORT FOLDER
"""

import sys

import trio

MAX_HEAD_BYTES = 16 * 1024
CHUNK_BYTES = 64 * 1024


async def _pump(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    try:
        async for data in source:
            await sink.send_all(data)
        await sink.send_eof()
    except trio.BrokenResourceError:
        pass


async def _serve(client: trio.SocketStream) -> None:
    head = b""
    while b"\r\n\r\n" not in head:
        data = await client.receive_some(CHUNK_BYTES)
        head += data
        if not data or len(head) > MAX_HEAD_BYTES:
            return
    head, _, rest = head.partition(b"\r\n\r\n")
    host, _, port = head.split(b" ")[1].decode("ascii").rpartition(":")
    async with await trio.open_tcp_stream(host, int(port)) as origin:
        await client.send_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
        if rest:
            await origin.send_all(rest)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_pump, client, origin)
            nursery.start_soon(_pump, origin, client)


async def _handle(client: trio.SocketStream) -> None:
    try:
        await _serve(client)
    except (OSError, trio.BrokenResourceError, ValueError, IndexError):
        return


async def main() -> None:
    """Listen on loopback until killed."""
    await trio.serve_tcp(_handle, int(sys.argv[1]), host="127.0.0.1")


if __name__ == "__main__":
    trio.run(main)
