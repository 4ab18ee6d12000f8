"""A real S3 server on loopback, and a line to it that can be cut."""

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

BUCKET = "bucket"

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    # Our own tries are what is tested.
    "AWS_MAX_ATTEMPTS": "1",
}


@dataclass
class Line:
    """A proxy before the server: counts what comes back, and can break off."""

    port: int = 0
    down: bool = False
    """Whether connections are refused."""
    budget: int | None = None
    """Bytes that still come back before the line goes down; None is no limit."""
    returned: int = 0
    requests: list[str] = field(default_factory=list)
    """First line of each request."""

    def count(self, method: str, part: str) -> int:
        """Return how many requests had this method and this text in their path."""
        return sum(line.startswith(f"{method} ") and part in line for line in self.requests)


@contextlib.contextmanager
def server() -> Iterator[Line]:
    """Start a server with one bucket, and a line to it; yields the line."""
    from moto.server import ThreadedMotoServer

    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    try:
        with _line(host, port) as line:
            yield line
    finally:
        moto.stop()


def environment(line: Line) -> dict[str, str]:
    """Return the environment in which ``s3://`` means that server."""
    return {**CREDENTIALS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{line.port}"}


def make_bucket(line: Line) -> None:
    """Make the bucket, empty if it was there before."""
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    files = s3fs.S3FileSystem(
        key="test", secret="test", endpoint_url=f"http://127.0.0.1:{line.port}"
    )
    if files.exists(BUCKET):
        files.rm(BUCKET, recursive=True)
    files.mkdir(BUCKET)
    s3fs.S3FileSystem.clear_instance_cache()


@contextlib.contextmanager
def _line(host: str, port: int) -> Iterator[Line]:
    line = Line()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        line.port = listener.getsockname()[1]
        stopped = threading.Event()
        threading.Thread(
            target=_accept, args=(line, listener, (host, port), stopped), daemon=True
        ).start()
        try:
            yield line
        finally:
            stopped.set()
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", line.port), timeout=1).close()


def _accept(
    line: Line, listener: socket.socket, server: tuple[str, int], stopped: threading.Event
) -> None:
    while not stopped.is_set():
        try:
            client, _ = listener.accept()
        except OSError:
            return
        if line.down or stopped.is_set():
            client.close()
            continue
        upstream = socket.create_connection(server)
        for source, sink, back in ((client, upstream, False), (upstream, client, True)):
            threading.Thread(target=_pump, args=(line, source, sink, back), daemon=True).start()


def _pump(line: Line, source: socket.socket, sink: socket.socket, back: bool) -> None:
    with contextlib.suppress(OSError), contextlib.closing(source), contextlib.closing(sink):
        while data := source.recv(16384):
            if not back and data[:7].split(b" ")[0] in (
                b"GET",
                b"PUT",
                b"HEAD",
                b"DELETE",
                b"POST",
            ):
                line.requests.append(data.split(b"\r\n")[0].decode("latin-1"))
            if back:
                line.returned += len(data)
                if line.budget is not None:
                    data, line.budget = data[: line.budget], line.budget - len(data)
                    line.down = line.budget <= 0
            sink.sendall(data)
            if back and line.down:
                for end in (source, sink):
                    end.shutdown(socket.SHUT_RDWR)
                return


def heal(line: Line) -> None:
    """Bring the line up again."""
    line.down, line.budget = False, None


@contextlib.contextmanager
def set_environment(values: dict[str, str]) -> Iterator[None]:
    """Set variables of this process for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
