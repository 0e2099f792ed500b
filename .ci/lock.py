"""Write requirements.lock: everything `.[dev]` installs, at the versions of constraints.txt, with each file's sha256.

torch is left out: its builds differ by machine (CPU, CUDA), so it is installed separately and pinned by version alone.
"""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

NOT_LOCKED = ("torch", "harmonium")

command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
command += ["--constraint", "constraints.txt", "--only-binary", ":all:", ".[dev]"]
report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

python = f"{sys.version_info[0]}.{sys.version_info[1]}"
lines = [f"# written by `make lock` for Python {python} on {sysconfig.get_platform()}\n"]
for package in sorted(report["install"], key=lambda package: package["metadata"]["name"].lower()):
    name, version = package["metadata"]["name"], package["metadata"]["version"]
    if name not in NOT_LOCKED:
        sha256 = package["download_info"]["archive_info"]["hashes"]["sha256"]
        lines.append(f"{name}=={version} --hash=sha256:{sha256}\n")
Path("requirements.lock").write_text("".join(lines), encoding="utf-8")
