"""The picture of the dashboard in docs/how-to/serve.md: the demo, with 20 samples labelled in a row.

python benchmarks/serve_figure.py docs/images/serve-dashboard.png
"""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
import threading
from pathlib import Path

import uvicorn
from playwright.sync_api import sync_playwright

from driftwise.serve.api import make_app
from driftwise.serve.demo import LABELLED, QUIET, Demo

LABELS, AFTER = 20, 60
"""answers of a person, and batches after the drift"""


def main() -> None:
    out = Path(sys.argv[1])
    demo = Demo()
    with tempfile.TemporaryDirectory() as folder, demo.open(Path(folder)) as service:
        left = LABELS
        for number in range(LABELLED + QUIET + AFTER):
            demo.send(service, number)
            for card in service.board.lease("figure", min(2, left)) if left else []:
                service.label([card.id], [demo.truth[card.id]], by="figure").result(30)
                left -= 1
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(make_app(service), log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        with sync_playwright() as playwright:
            chromium = shutil.which("chromium") or shutil.which("google-chrome")
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1100, "height": 960}, color_scheme="light")
            page.goto(f"http://127.0.0.1:{listener.getsockname()[1]}/")
            page.wait_for_selector("#drifts img")
            page.wait_for_timeout(500)
            page.screenshot(path=out)
            browser.close()
        server.should_exit = True
        thread.join()
        listener.close()


if __name__ == "__main__":
    main()
