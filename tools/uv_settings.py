"""Print pip's settings of package indexes as environment variables of uv, for a shell.

    eval "$(python tools/uv_settings.py)"

uv reads none of pip's files and variables. Its own variables, where they are set, come first.
"""

from __future__ import annotations

import ast
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping

VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
    "proxy": "ALL_PROXY",
}
_SECTIONS = ("global", "install", ":env:")
"""pip's sections, the weakest first."""


def uv_settings(listed: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return uv's variables that say the same.

    Args:
        listed: What ``pip config list`` prints.
        environment: Variables that are set already.

    Returns:
        Values by the names of variables.
    """
    values: dict[tuple[str, str], str] = {}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        values[section, key] = ast.literal_eval(value)
    settings = {}
    for section in _SECTIONS:
        for key, variable in VARIABLES.items():
            if (section, key) in values and variable not in environment:
                separator = "," if key == "find-links" else " "
                settings[variable] = separator.join(values[section, key].split())
    return settings


if __name__ == "__main__":
    command = [sys.executable, "-m", "pip", "config", "list"]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    for variable, value in uv_settings(printed, os.environ).items():
        print(f"export {variable}={shlex.quote(value)}")
