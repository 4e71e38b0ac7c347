"""Starting the provider, and going through its pages as a browser would."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import requests

from config.embedded.ports import choose_port

CLIENT_ID, CLIENT_SECRET = "headroom", "a secret of the client"
PASSWORD = "a password at the provider"


@dataclass
class IdentityProvider:
    """A provider that runs."""

    url: str
    process: subprocess.Popen[bytes]

    @property
    def issuer(self) -> str:
        return f"{self.url}/o"

    def has(self, name: str, *groups: str, **more: Any) -> None:
        """Let there be somebody of this name, in these groups, from now on."""
        told = {"name": name, "groups": groups, **more}
        requests.post(f"{self.url}/control", json=told, timeout=10).raise_for_status()

    def visit(self, address: str, name: str) -> str:
        """Sign in as ``name`` where we were sent to, and return where we are sent back to."""
        with requests.Session() as browser:
            page = browser.get(address, timeout=10)
            while page.status_code == 200:
                page = self._sign_in(browser, page, name)
            location: str = page.headers["Location"]
            while location.startswith(("/", self.url)):
                page = browser.get(urljoin(self.url, location), allow_redirects=False, timeout=10)
                location = page.headers["Location"]
            return location

    def _sign_in(
        self, browser: requests.Session, page: requests.Response, name: str
    ) -> requests.Response:
        fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', unescape(page.text)))
        token = fields.pop("csrfmiddlewaretoken")
        form = {"csrfmiddlewaretoken": token, "username": name, "password": PASSWORD}
        return browser.post(page.url, {**fields, **form}, allow_redirects=False, timeout=10)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def start(folder: Path, back: str) -> IdentityProvider:
    """Start a provider that sends browsers back to ``back`` (addresses with spaces between)."""
    port = choose_port()
    script = Path(__file__).with_name("serve.py")
    process = subprocess.Popen([sys.executable, str(script), str(port), str(folder), back])
    provider = IdentityProvider(f"http://127.0.0.1:{port}", process)
    _wait(provider)
    return provider


def _wait(provider: IdentityProvider) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and provider.process.poll() is None:
        try:
            requests.get(f"{provider.issuer}/.well-known/openid-configuration", timeout=5)
        except requests.ConnectionError:
            time.sleep(0.1)
        else:
            return
    provider.stop()
    raise RuntimeError("the identity provider did not start")
