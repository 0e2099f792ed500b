"""Write requirements.lock: what `.[dev]` installs, with versions of constraints.txt and the sha256 of each file.

torch is left out: its builds differ by machine (CPU, CUDA) and it is installed first, pinned by version alone.
"""

import json
import subprocess
import sys
import sysconfig

command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
command += ["--constraint", "constraints.txt", "--only-binary", ":all:", ".[dev]"]
found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["install"]
lines = [
    f"# made by `make lock` for Python {sys.version_info[0]}.{sys.version_info[1]} on {sysconfig.get_platform()}\n"
]
for entry in sorted(found, key=lambda entry: entry["metadata"]["name"].lower()):
    name, sums = entry["metadata"]["name"], entry["download_info"].get("archive_info", {}).get("hashes", {})
    if name not in ("torch", "harmonium"):
        lines.append(f"{name}=={entry['metadata']['version']} --hash=sha256:{sums['sha256']}\n")
with open("requirements.lock", "w", encoding="utf-8") as file:
    file.writelines(lines)
