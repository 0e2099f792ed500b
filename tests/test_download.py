"""Standard datasets over a real (local) HTTP server: resume, checksums, no network; archives that mean harm."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from harmonium.datasets import download, load, locate
from harmonium.datasets.download import unpack
from harmonium.errors import HarmoniumError
from harmonium.graph import SPLITS

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
    with Server() as found:
        threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True).start()
        know(monkeypatch, [found.url + "/{split}.txt"])
        yield found
        found.shutdown()


def know(monkeypatch: pytest.MonkeyPatch, sources: list[str]) -> None:
    """Toy-1 is a standard dataset."""
    sums = {split: hashlib.sha256(FILES[f"{split}.txt"]).hexdigest() for split in SPLITS}
    monkeypatch.setattr(download, "known", lambda: {"Toy-1": {"sources": sources, **sums}})


def test_a_dataset_is_downloaded_once(server: Server) -> None:
    graph = load("toy1")
    assert (graph.name, len(graph.train), len(graph.valid), len(graph.test)) == ("Toy-1", 500, 1, 1)
    assert server.log == [(f"/{split}.txt", None) for split in SPLITS]
    folder = locate("TOY_1")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == FILES
    assert len(server.log) == 3


def test_a_broken_connection_is_continued(server: Server) -> None:
    size = len(FILES["train.txt"])
    server.breaks["/train.txt"] = [1000, 2000, 3000]
    assert len(load("Toy-1").train) == 500
    tries = [wanted for path, wanted in server.log if path == "/train.txt"]
    assert tries == [None, "bytes=1000-", "bytes=3000-", "bytes=6000-"]
    assert size > 6000


def test_what_an_earlier_attempt_left_is_used(server: Server, tmp_path: Path) -> None:
    server.status["/train.txt"] = [503] * 3
    server.breaks["/train.txt"] = [2500]
    with pytest.raises(HarmoniumError, match=r"train\.txt cannot be reached \(503 Service Unavailable\)"):
        load("Toy-1")
    (part,) = (tmp_path / "cache" / "datasets" / "Toy-1").iterdir()
    assert part.read_bytes() == FILES["train.txt"][:2500]
    server.log.clear()
    folder = locate("Toy-1")
    assert (folder / "train.txt").read_bytes() == FILES["train.txt"]
    assert server.log[0] == ("/train.txt", "bytes=2500-")


def test_a_server_that_cannot_continue_begins_again(server: Server) -> None:
    server.ranges = False
    server.breaks["/train.txt"] = [3000]
    assert len(load("Toy-1").train) == 500


def test_a_complete_rest_of_an_earlier_attempt_does_no_harm(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "datasets" / "Toy-1"
    folder.mkdir(parents=True)
    part = hashlib.sha256(f"{server.url}/valid.txt".encode()).hexdigest()[:16] + ".part"
    (folder / part).write_bytes(FILES["valid.txt"])
    assert len(load("Toy-1").valid) == 1


@pytest.mark.parametrize("rest", [b"", b"e9\tr9\te9\n"], ids=["whole file", "rest of another file"])
def test_a_wrong_checksum_is_never_used(server: Server, tmp_path: Path, rest: bytes) -> None:
    server.files["/valid.txt"] = b"e1\tr0\te9\n" + b"more\n" * len(rest)
    if rest:
        folder = tmp_path / "cache" / "datasets" / "Toy-1"
        folder.mkdir(parents=True)
        part = hashlib.sha256(f"{server.url}/valid.txt".encode()).hexdigest()[:16] + ".part"
        (folder / part).write_bytes(rest)
    with pytest.raises(HarmoniumError, match=r"valid\.txt is not the expected file \(sha256 \w{12}\.\.\., not \w{12}"):
        load("Toy-1")
    left = {file.name for file in (tmp_path / "cache" / "datasets" / "Toy-1").iterdir()}
    assert left == {"train.txt"}
    server.files["/valid.txt"] = FILES["valid.txt"]
    assert len(load("Toy-1").valid) == 1


def test_another_source_is_tried(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files["/copy/train.txt"] = b"something else"
    server.files |= {f"/good/{name}": data for name, data in FILES.items()}
    know(
        monkeypatch,
        [server.url + "/copy/{split}.txt", server.url + "/none/{split}.txt", server.url + "/good/{split}.txt"],
    )
    assert len(load("Toy-1").train) == 500


def test_no_network_says_what_to_do(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, ["http://127.0.0.1:9/{split}.txt"])
    with pytest.raises(HarmoniumError) as caught:
        load("Toy-1")
    assert "Toy-1 cannot be downloaded: http://127.0.0.1:9/train.txt cannot be reached (" in str(caught.value)
    assert "put its train.txt, valid.txt and test.txt into a folder Toy-1" in str(caught.value)
    assert "HARMONIUM_DATA=" in str(caught.value)
    know(monkeypatch, [server.url + "/nothing/{split}.txt"])
    with pytest.raises(HarmoniumError, match=r"nothing/train\.txt answers 404 Not Found"):
        load("Toy-1")
    monkeypatch.setenv("HARMONIUM_OFFLINE", "1")
    with pytest.raises(HarmoniumError, match="cannot be downloaded: HARMONIUM_OFFLINE is set"):
        load("Toy-1")


def test_the_shelf_comes_before_the_network(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, data in FILES.items():
        (tmp_path / "shelf" / "toy_1").mkdir(parents=True, exist_ok=True)
        (tmp_path / "shelf" / "toy_1" / name).write_bytes(data)
    monkeypatch.setenv("HARMONIUM_DATA", str(tmp_path / "shelf"))
    assert len(load("TOY-1").train) == 500
    assert server.log == []


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


def zip_of(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return packed.getvalue()


@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_an_archive_is_searched_by_checksum(server: Server, monkeypatch: pytest.MonkeyPatch, pack) -> None:
    inside = {f"data/freebase_{name}": data for name, data in FILES.items()} | {"data/train.txt": b"not this one"}
    server.files["/all.archive"] = pack(inside)
    know(monkeypatch, [server.url + "/all.archive"])
    folder = locate("Toy-1")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == FILES


def test_an_archive_without_the_files_is_not_used(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.files |= {"/old.tgz": tar_of(FILES | {"test.txt": b"old"}), "/page.tgz": b"<html>gone</html>"}
    know(monkeypatch, [server.url + "/old.tgz", server.url + "/page.tgz"])
    with pytest.raises(HarmoniumError, match=r"old\.tgz has no test with the right checksum, .* cannot be unpacked"):
        load("Toy-1")
    assert list((tmp_path / "cache" / "datasets" / "Toy-1").iterdir()) == []


def link_zip() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        info = zipfile.ZipInfo("innocent")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    return packed.getvalue()


HARMFUL = {
    "absolute": (tar_of({"/abs.txt": b"x"}), "leads out of its folder"),
    "absolute zip": (zip_of({"/abs.txt": b"x"}), "leads out of its folder"),
    "above": (tar_of({"a/../../up.txt": b"x"}), "leads out of its folder"),
    "above zip": (zip_of({"../up.txt": b"x"}), "leads out of its folder"),
    "above, as Windows says it": (zip_of({"..\\up.txt": b"x"}), "leads out of its folder"),
    "a drive": (tar_of({"C:/up.txt": b"x"}), "leads out of its folder"),
    "link": (tar_of({}, {"link": "/etc"}), "is a link or a device"),
    "link zip": (link_zip(), "is a link or a device"),
    "bomb": (tar_of({"zeros": bytes(2_000_000)}), "goes beyond 1,000,000 bytes unpacked"),
    "bomb zip": (zip_of({"zeros": bytes(2_000_000)}), "goes beyond 1,000,000 bytes unpacked"),
    "bomb in parts": (zip_of({f"{i}": bytes(300_000) for i in range(4)}), "goes beyond 1,000,000 bytes unpacked"),
    "many": (tar_of({f"{i}": b"" for i in range(30)}), "is one file too many"),
    "twice": (tar_of({"a": b"x", "./a": b"y"}), "cannot be unpacked"),
    "cut off": (tar_of({"a": os.urandom(9000)})[:5000], "cannot be unpacked"),
    "no archive": (b"hello", "cannot be unpacked"),
}


@pytest.mark.parametrize(("data", "message"), HARMFUL.values(), ids=HARMFUL.keys())
def test_harmful_archives_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "x.archive").write_bytes(data)
    (tmp_path / "in").mkdir()
    with pytest.raises(HarmoniumError, match=message):
        unpack(tmp_path / "x.archive", tmp_path / "in", largest=1_000_000, most=20)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "x.archive"]
    assert sum(p.stat().st_size for p in (tmp_path / "in").rglob("*")) <= 1_000_000


def test_the_list_of_standard_datasets_is_well_formed() -> None:
    assert [download.find(name) for name in ("fb15k", "FB15k-237", "wn18rr", "countries_s1")] == [
        "FB15K", "FB15K-237", "WN18RR", "Countries-S1",
    ]  # fmt: skip
    assert download.find("fb15k-238") is None
    for entry in download.known().values():
        assert all(url.startswith("https://") for url in entry["sources"])
        assert all(len(bytes.fromhex(entry[split])) == 32 for split in SPLITS)
