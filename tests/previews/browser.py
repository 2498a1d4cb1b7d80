# SPDX-License-Identifier: Apache-2.0
"""Headless Chromium by its DevTools protocol: as much of it as the tests need."""

import asyncio
import json
import os
import shutil
import subprocess
import threading
import time

import websockets


def find_chromium():
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Refused(Exception):
    """What the browser says to a call that it cannot serve, such as to a page that is just being left."""


class Browser:
    def __init__(self, program, directory, options=()):
        self.directory = directory
        self.log = open(directory / "log", "wb")
        command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-port=0",
                   f"--user-data-dir={directory}", *options, "about:blank"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True,
                                        env={**os.environ, "HOME": str(directory)})
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.answers, self.next_id, self.events = {}, 0, []

    def __enter__(self):
        self.run(self.connect())
        return self

    def __exit__(self, *_):
        try:
            self.run(self.call("Browser.close"), 20)
        except Exception:  # it may be gone before it answers
            pass
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)
            self.process.wait()
        self.loop.call_soon_threadsafe(self.loop.stop)

    def run(self, coroutine, seconds=120):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(seconds)

    async def connect(self):
        port_file = self.directory / "DevToolsActivePort"
        for _ in range(1200):
            if port_file.exists() and len(port_file.read_text().splitlines()) >= 2:
                break
            assert self.process.poll() is None, (self.directory / "log").read_text(errors="replace")[-2000:]
            await asyncio.sleep(0.1)
        port, path = port_file.read_text().splitlines()[:2]
        self.socket = await websockets.connect(f"ws://127.0.0.1:{port}{path}", max_size=None)
        asyncio.ensure_future(self.receive())

    async def receive(self):
        try:
            async for text in self.socket:
                message = json.loads(text)
                if "id" in message:
                    self.answers.pop(message["id"]).set_result(message)
                else:
                    self.events.append(message)
        except websockets.ConnectionClosed:
            pass

    async def call(self, method, session=None, **parameters):
        self.next_id += 1
        future = self.answers[self.next_id] = self.loop.create_future()
        message = {"id": self.next_id, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        await self.socket.send(json.dumps(message))
        answer = await future
        if "error" in answer:
            raise Refused(answer["error"]["message"])
        return answer["result"]

    def open(self, url):
        """A page in a profile of its own."""
        context = self.run(self.call("Target.createBrowserContext"))["browserContextId"]
        target = self.run(self.call("Target.createTarget", url="about:blank", browserContextId=context))["targetId"]
        session = self.run(self.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        page = Page(self, session)
        page.go(url)
        return page


class Page:
    def __init__(self, browser, session):
        self.browser, self.session = browser, session
        for domain in ("Page", "Runtime", "Network"):
            self.call(domain + ".enable")

    def call(self, method, **parameters):
        return self.browser.run(self.browser.call(method, self.session, **parameters))

    def go(self, url):
        result = self.call("Page.navigate", url=url)
        assert "errorText" not in result, result

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            return "threw " + result["exceptionDetails"]["exception"].get("className", "")
        return result["result"].get("value")

    def look(self, expression):
        """Its value once it has one: none while the page is not there yet."""
        try:
            value = self.evaluate(expression)
        except Refused:
            return None
        return None if isinstance(value, str) and value.startswith("threw ") else value

    def wait_for(self, expression, seconds=60):
        deadline = time.monotonic() + seconds
        while not (value := self.look(expression)):
            assert time.monotonic() < deadline, f"{expression} did not come true: {self.evaluate('document.documentElement.outerHTML')[:1500]}"
            time.sleep(0.05)
        return value
