"""Run a reader of untrusted files in another process, with limits on memory, time and output; if it dies, that is an error.

The reader is a generator of messages, each a list of bytes. They come back over a pipe, so that both processes work at
the same time. Nothing that comes back is executed.
"""

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from harmonium.errors import HarmoniumError
from harmonium.runtime.untrusted import ALWAYS_ALLOWED, MAX_RATIO

MEGABYTE = 1 << 20
ASSUMED_COMPRESSION = 20  # ratio of a compressed file, for its limits
MEMORY_RATIO = 64  # bytes of memory allowed for each byte of a file: names and their index
SECONDS_PER_MEGABYTE = 3  # allowed; 0.05 to 0.3 are usual
BASE_SECONDS = 5
IDLE_SECONDS = 10  # without output or CPU time
WALL_RATIO, WALL_SECONDS = 10, 60  # limits on elapsed time: a multiple of the CPU time, plus a minute
STDERR_BYTES = MEGABYTE  # kept for the error message
DATA, ERROR, END = b"DEZ"
HEADER = struct.Struct("<BI")  # kind of a message, number of its parts
ADVICE_ON_FILE = "inspect it, or convert it to another format with a program of your choice"


@dataclass(frozen=True)
class Limits:
    """Resources that a process may use to read a file."""

    memory: int  # bytes
    seconds: int  # of CPU time
    output: int  # bytes
    idle: int = IDLE_SECONDS  # seconds without output or CPU time; servers need longer than files

    @classmethod
    def of(cls, paths: Iterable[Path], base_memory: int) -> "Limits":
        """Limits for files of this size, far above what valid files need."""
        memory, seconds, output = float(base_memory), float(BASE_SECONDS), ALWAYS_ALLOWED
        for path in paths:
            size = path.stat().st_size
            text = size * (ASSUMED_COMPRESSION if path.suffix in (".gz", ".xz", ".zst", ".parquet") else 1)
            memory += MEMORY_RATIO * text
            seconds += SECONDS_PER_MEGABYTE * text / MEGABYTE
            output += MAX_RATIO * size
        return cls(int(memory), int(seconds), output)


def stream(
    function: str, arguments: dict[str, Any], limits: Limits, location: str, advice: str = ADVICE_ON_FILE
) -> Iterator[list[bytes]]:
    """Call a generator, named as "module:function", in another process; yields its messages. Arguments are JSON types."""
    command = [sys.executable, "-P", "-m", __name__, function, json.dumps(arguments), json.dumps(asdict(limits))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(folder for folder in sys.path if folder)}
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
        ) as process:
            watch = _Watch(process, limits)
            watch.start()
            try:
                finished = yield from _receive(watch.read, limits, location, advice)
                if not finished:  # the process closed the pipe, and is about to end
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(IDLE_SECONDS)
            finally:
                watch.done.set()
                process.kill()
        if not finished:
            errors.seek(0)
            message = errors.read(STDERR_BYTES).decode("utf-8", "replace")
            silence = f"no answer for {limits.idle:,} s" if watch.was_idle else None
            raise HarmoniumError(f"{location}: {silence or _cause(process.returncode, message, limits)}; {advice}")


class _Watch(threading.Thread):
    """Kills a process that takes too long, or that neither computes nor answers, as in a deadlock."""

    def __init__(self, process: subprocess.Popen[bytes], limits: Limits) -> None:
        super().__init__(daemon=True)
        self.process, self.done, self.is_reading, self.was_idle = process, threading.Event(), False, False
        self.idle = limits.idle
        self.deadline = time.monotonic() + WALL_SECONDS + WALL_RATIO * limits.seconds

    def read(self, size: int) -> bytes:
        assert self.process.stdout is not None
        self.is_reading = True
        content = self.process.stdout.read(size)
        self.is_reading = False
        return content

    def run(self) -> None:
        spent, since = -1.0, time.monotonic()
        while not self.done.wait(1):
            now = time.monotonic()
            if not self.is_reading or spent != (spent := _cpu_time(self.process.pid)):
                since = now
            if now > min(self.deadline, since + self.idle):
                self.was_idle = now <= self.deadline
                self.process.kill()
                return


def _cpu_time(process: int) -> float:
    """The CPU time of a process in ticks; where the system does not report it, a value that always grows."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return float(fields[11]) + float(fields[12])
    except OSError:
        return time.monotonic()


def _receive(
    read: Callable[[int], bytes], limits: Limits, location: str, advice: str = ADVICE_ON_FILE
) -> Generator[list[bytes], None, bool]:
    """Yield messages until the end, which returns True, or until the pipe breaks, which returns False."""
    total = 0
    while True:
        header = read(HEADER.size)
        if len(header) < HEADER.size:
            return False
        kind, n_parts = HEADER.unpack(header)
        if kind == END:
            return True
        lengths = struct.unpack(f"<{n_parts}Q", read(8 * n_parts))
        total += sum(lengths)
        if total > limits.output:
            megabytes = limits.output // MEGABYTE
            raise HarmoniumError(
                f"{location}: holds more than {megabytes:,} MB, which no graph of its size does; {advice}"
            )
        parts = [read(length) for length in lengths]
        if any(len(part) < length for part, length in zip(parts, lengths, strict=True)):
            return False
        if kind == ERROR:
            raise HarmoniumError(parts[0].decode("utf-8", "replace"))
        yield parts


def _cause(code: int, message: str, limits: Limits) -> str:
    """Why a process died, from its exit code and what it wrote to stderr."""
    last_line = (message.strip().splitlines() or ["no message"])[-1].strip()
    if "MemoryError" in message or "memory allocation" in message or "Cannot allocate memory" in message:
        return f"reading it takes more than {limits.memory // MEGABYTE:,} MB of memory, which no graph of its size does"
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"reading it takes more than {limits.seconds:,} s or all memory, which no graph of its size does"
    if code < 0:
        return f"its reader crashed ({signal.Signals(-code).name}): it is damaged, or nested too deeply"
    return f"its reader failed ({last_line[:300]})"


# In the other process ------------------------------------------------------------------------------------------------


def main() -> None:
    function, arguments, limits = sys.argv[1], json.loads(sys.argv[2]), Limits(**json.loads(sys.argv[3]))
    set_limits(limits)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is interrupted too, and ends this process
    module, name = function.split(":")
    with os.fdopen(os.dup(1), "wb") as pipe:
        os.dup2(2, 1)  # whatever a library prints stays out of the pipe
        try:
            for parts in getattr(import_module(module), name)(**arguments):
                _send(pipe, DATA, parts)
            _send(pipe, END, [])
        except HarmoniumError as error:
            _send(pipe, ERROR, [str(error).encode("utf-8", "replace")])


def _send(pipe: IO[bytes], kind: int, parts: list[bytes]) -> None:
    pipe.write(HEADER.pack(kind, len(parts)) + struct.pack(f"<{len(parts)}Q", *map(len, parts)))
    for part in parts:
        pipe.write(part)
    pipe.flush()


def set_limits(limits: Limits) -> None:
    """Limit this process, where the system can; no core dump is written when it dies."""
    with contextlib.suppress(ImportError):
        import resource

        wanted = {
            resource.RLIMIT_DATA: (limits.memory, limits.memory),
            resource.RLIMIT_CPU: (limits.seconds, limits.seconds + 1),
            resource.RLIMIT_FSIZE: (STDERR_BYTES, STDERR_BYTES),
            resource.RLIMIT_CORE: (0, 0),
        }
        for kind, (soft, hard) in wanted.items():
            most = resource.getrlimit(kind)[1]  # the hard limit, which cannot be raised
            bounds = [limit if most == resource.RLIM_INFINITY else min(limit, most) for limit in (soft, hard)]
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(kind, (bounds[0], bounds[1]))


if __name__ == "__main__":
    main()
