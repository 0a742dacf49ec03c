"""A headless Chromium driven over chromedriver's plain HTTP, for what only a browser can tell."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
PATIENCE = 60.0
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Browser:
    """One window; what the page wrote to its console is kept, violations of its policy too."""

    def __init__(self, base: str, flags: list[str], phone: dict[str, Any] | None) -> None:
        options: dict[str, Any] = {"args": flags}
        if phone:
            options["mobileEmulation"] = phone
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
            "browserName": "chrome",
        }
        self._base = base
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._base = f"{base}/session/{made['sessionId']}"

    def open(self, path: Path) -> None:
        """Load a file, and wait until it is there."""
        self._ask("POST", "/url", {"url": path.resolve().as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        """What a function body returns in the page."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def click(self, selector: str) -> None:
        """A click with a real pointer, which counts as the user's own."""
        found = self._ask("POST", "/element", {"using": "css selector", "value": selector})
        self._ask("POST", f"/element/{next(iter(found.values()))}/click", {})

    def type(self, selector: str, text: str) -> None:
        """Keys pressed in an element."""
        found = self._ask("POST", "/element", {"using": "css selector", "value": selector})
        self._ask("POST", f"/element/{next(iter(found.values()))}/value", {"text": text})

    def media(self, **features: str) -> None:
        """Emulate media features, as `prefers_color_scheme="dark"`; `media="print"` the printer."""
        medium = features.pop("media", "")
        told = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.devtools("Emulation.setEmulatedMedia", media=medium, features=told)

    def devtools(self, command: str, **parameters: Any) -> Any:
        """A command of the browser's own protocol."""
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def picture(self, path: Path) -> None:
        """The whole page as a picture."""
        size = self.devtools("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 12000), "scale": 1}
        shot = self.devtools("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def said(self) -> list[str]:
        """What stands in the console since the last look."""
        return [entry["message"] for entry in self._ask("POST", "/se/log", {"type": "browser"})]

    def close(self) -> None:
        """End the window."""
        self._ask("DELETE", "", None)

    def _ask(self, method: str, path: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._base + path, data, headers, method=method)
        try:
            with _DIRECT.open(request, timeout=PATIENCE) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.read().decode()[:500]}") from None


def missing() -> str:
    """What is not here that a browser test needs."""
    lacking = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"no {' and no '.join(lacking)}" if lacking else ""


@contextmanager
def browser(
    folder: Path, *, width: int = 1400, height: int = 900, phone: int | None = None
) -> Iterator[Browser]:
    """A browser with an empty profile in a folder; `phone` is the width of an emulated one."""
    log = folder / "chromedriver.log"
    driver = subprocess.Popen(
        ["chromedriver", "--port=0", f"--log-path={log}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        flags = [*FLAGS, f"--user-data-dir={folder / 'profile'}", f"--window-size={width},{height}"]
        metrics = {"deviceMetrics": {"width": phone, "height": 740, "pixelRatio": 2.0, "touch": True}}
        window = Browser(f"http://127.0.0.1:{_port(driver)}", flags, metrics if phone else None)
        try:
            yield window
        finally:
            window.close()
    finally:
        driver.terminate()
        driver.wait(10)


def _port(driver: subprocess.Popen[bytes]) -> int:
    assert driver.stdout is not None
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        line = driver.stdout.readline().decode()
        if "successfully on port" in line:
            return int(line.split("on port")[1].strip(" .\n"))
        if not line:
            break
    raise AssertionError("chromedriver did not start")
