"""Standard datasets over a real (local) HTTP server: resume, checksums, no network; harmful archives."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from harmonium.data import download
from harmonium.data.datasets import load, locate
from harmonium.data.graph import SPLITS
from harmonium.errors import HarmoniumError

FILES = {
    "train.txt": "".join(f"e{i}\tr{i % 3}\te{i * 7 % 500}\n" for i in range(500)).encode(),
    "valid.txt": b"e1\tr0\te2\n",
    "test.txt": b"e2\tr1\te3\n",
}


class Server(ThreadingHTTPServer):
    """Files by path, with faults to come: break off after so many bytes, then answer with a status."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {f"/{name}": data for name, data in FILES.items()}
        self.breaks: dict[str, list[int]] = {}
        self.status: dict[str, list[int]] = {}
        self.ranges = True
        self.log: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.log.append((self.path, wanted))
        data = self.server.files.get(self.path)
        if self.server.status.get(self.path) and not self.server.breaks.get(self.path):
            return self.send_error(self.server.status[self.path].pop(0))
        if data is None:
            return self.send_error(404)
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.server.ranges else 0
        if start >= len(data):
            return self.send_error(416)
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        stop = self.server.breaks.get(self.path, [])
        self.wfile.write(data[start : start + stop.pop(0)] if stop else data[start:])
        self.close_connection = True

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    monkeypatch.delenv("HARMONIUM_OFFLINE")
    monkeypatch.delenv("HARMONIUM_DATA", raising=False)
    monkeypatch.setenv("HARMONIUM_CACHE", str(tmp_path / "cache"))
    with Server() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        know(monkeypatch, server.url + "/{split}.txt")
        yield server
        server.shutdown()


def know(monkeypatch: pytest.MonkeyPatch, *sources: str) -> None:
    """Toy-1 is a standard dataset."""
    sums = {split: hashlib.sha256(FILES[f"{split}.txt"]).hexdigest() for split in SPLITS}
    monkeypatch.setattr(download, "standard_datasets", lambda: {"Toy-1": {"sources": sources, **sums}})


def test_a_dataset_is_downloaded_once(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    counts: list[int] = []
    graph = load("toy1", progress=counts.append)
    assert sum(counts) == 2 * sum(map(len, FILES.values()))  # downloaded, then read
    assert capfd.readouterr().out == ""
    assert (graph.name, len(graph.train), len(graph.valid), len(graph.test)) == ("Toy-1", 500, 1, 1)
    assert server.log == [(f"/{split}.txt", None) for split in SPLITS]
    folder = locate("TOY_1")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == FILES
    assert len(server.log) == 3


@pytest.fixture
def folder(server: Server, tmp_path: Path) -> Path:
    """Where the dataset is put."""
    folder = tmp_path / "cache" / "datasets" / "Toy-1"
    folder.mkdir(parents=True)
    return folder


def leave_part(server: Server, folder: Path, content: bytes) -> None:
    """What an earlier attempt left of valid.txt."""
    (folder / f"{hashlib.sha256(f'{server.url}/valid.txt'.encode()).hexdigest()[:16]}.part").write_bytes(content)


@pytest.mark.parametrize("part", [b"", b"e9\tr9\te9\n"], ids=["whole file", "part of another file"])
def test_a_wrong_checksum_is_never_used(server: Server, folder: Path, part: bytes) -> None:
    server.files["/valid.txt"] = b"e1\tr0\te9\n" + b"more\n" * len(part)
    leave_part(server, folder, part)
    with pytest.raises(HarmoniumError, match=r"valid\.txt is not the expected file \(sha256 \w{12}\.\.\., not \w{12}"):
        load("Toy-1")
    assert [file.name for file in folder.iterdir()] == ["train.txt"]
    server.files["/valid.txt"] = FILES["valid.txt"]
    assert len(load("Toy-1").valid) == 1


def test_no_network_says_what_to_do(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, "http://127.0.0.1:9/{split}.txt")
    unreachable = r"127.0.0.1:9/train.txt cannot be reached \(.* into a folder Toy-1 and set HARMONIUM_DATA"
    with pytest.raises(HarmoniumError, match=unreachable):
        load("Toy-1")
    know(monkeypatch, server.url + "/nothing/{split}.txt")
    with pytest.raises(HarmoniumError, match=r"nothing/train\.txt answers 404 Not Found"):
        load("Toy-1")
    monkeypatch.setenv("HARMONIUM_OFFLINE", "1")
    with pytest.raises(HarmoniumError, match="cannot be downloaded: HARMONIUM_OFFLINE is set"):
        load("Toy-1")


def tar_of(files: dict[str, bytes], links: dict[str, str] | None = None) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    return packed.getvalue()


NAMES = ["/tmp/harmonium-absolute", "a/../../up", "..\\up", "C:/up", "wanted.txt", "a", "./a", "\0"]


@pytest.mark.parametrize("name", NAMES)
def test_names_and_links_in_an_archive_lead_nowhere(tmp_path: Path, name: str) -> None:
    (tmp_path / "outside").write_bytes(b"outside")
    links = {name: str(tmp_path / "outside"), "folder": str(tmp_path)}
    content = tar_of({name: b"x", "folder/up": b"y"}, links)
    archive = tmp_path / "in" / "x.archive"
    archive.parent.mkdir()
    archive.write_bytes(content)
    download.extract(archive, {hashlib.sha256(b"x").hexdigest(): archive.with_name("wanted.txt")})
    assert (archive.parent / "wanted.txt").read_bytes() == b"x"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["in", "outside", "wanted.txt", "x.archive"]
    assert not Path("/tmp/harmonium-absolute").exists()
    with pytest.raises(HarmoniumError, match="has no wanted with the right checksum"):  # a link is not followed
        download.extract(archive, {hashlib.sha256(b"outside").hexdigest(): archive.with_name("wanted.txt")})


HARMFUL = {
    "bomb": tar_of({"zeros": bytes(2_000_000)}),
    "bomb in parts": tar_of({f"{i}": bytes(300_000) for i in range(4)}),
    "many files": tar_of({f"{i}": b"" for i in range(2000)}),
    "cut off": tar_of({"a": os.urandom(9000)})[:5000],
    "no archive": b"hello",
}


@pytest.mark.parametrize("content", HARMFUL.values(), ids=HARMFUL.keys())
def test_harmful_archives_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.archive").write_bytes(content)
    with pytest.raises(HarmoniumError, match="cannot be unpacked"):
        download.extract(tmp_path / "x.archive", {}, max_bytes=1_000_000)
    assert [path.name for path in tmp_path.iterdir()] == ["x.archive"]
