"""A person at a Chromium that nobody sees: opens notebooks of a Jupyter server, types, clicks and reads.

Role: test code, outside the jail. Invariants: nothing sleeps; what is awaited is awaited in the page, and a wait that
fails leaves a picture and says what was to be seen. Pictures go to screenshots/ in the build folder. Needs Debian's
chromium and chromium-driver. Traffic stays on loopback. Used by tests/frontends.
"""

import base64
import contextlib
import json
import os
import shutil
import signal
from pathlib import Path

import pytest

import kernels
import servers

FLAGS = (
    "headless no-sandbox disable-gpu disable-quic no-first-run disable-background-networking disable-component-update "
    "disable-sync disable-dev-shm-usage disable-backgrounding-occluded-windows disable-renderer-backgrounding "
    "disable-background-timer-throttling window-size=1400,1100"
).split()
ADDRESS = r"(http://127\.0\.0\.1:\d+/)\S*\?token=(\w+)"
WIDGET = "const panel = [...(window.jupyterapp?.shell.widgets('main') ?? [])].find(w => w.sessionContext); "
OUTPUTS = """return [...document.querySelectorAll('.jp-Notebook .jp-Cell')].map(
    cell => [...cell.querySelectorAll('.jp-Cell-outputArea')].map(area => area.innerText).join('\\n'))"""

TEXT = """return [...document.querySelectorAll(arguments[0])].filter(e => e.checkVisibility()).map(e => e.innerText)
    .join('\\n')"""


def notebook(sources, **metadata):
    """A notebook of code cells; a source may come with metadata of its own."""
    spec = {"name": kernels.NAME, "display_name": kernels.NAME, "language": "python"}
    cells = []
    for source in sources:
        source, own = source if isinstance(source, tuple) else (source, {})
        about = {**metadata, **own}
        cell = {"cell_type": "code", "source": source, "metadata": about, "outputs": [], "execution_count": None}
        cells.append(cell)
    return {"cells": cells, "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 4}


def cell(index):
    return f".jp-Notebook :nth-child({index + 1} of .jp-Cell)"


def needed():
    """Skips the test where there is no browser or no JupyterLab."""
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            pytest.skip(f"NOT RUN: {program} is missing (Debian packages chromium, chromium-driver)")
    pytest.importorskip("jupyterlab", reason="NOT RUN: no release of JupyterLab's is pinned for this Python")


@contextlib.contextmanager
def at_jupyterlab(folder):
    """A person at a JupyterLab of their own, if both can be had; folder/work is its root."""
    needed()
    (folder / "work").mkdir(parents=True)
    expose = ["--LabApp.expose_app_in_browser=True", "--JupyterNotebookApp.expose_app_in_browser=True"]
    with servers.running("jupyterlab", folder, expose, ADDRESS) as found:
        person = Person(folder, (found[1], found[2]))
        try:
            yield person
        finally:
            person.ends()


class Person:
    def __init__(self, folder, server):
        self.folder, self.server, self.name = folder, server, "start"
        self.shots = Path(os.environ.get("CELLBLOCK_BUILD", folder)) / "screenshots"
        self.shots.mkdir(exist_ok=True)
        self.starts()

    def starts(self):
        """Chromium, with what its profile holds of the last time."""
        from selenium import webdriver
        from urllib3.exceptions import HTTPError

        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for flag in (*FLAGS, f"user-data-dir={self.folder}/profile"):
            options.add_argument("--" + flag)
        env = {**os.environ, "HOME": str(self.folder)}
        service = webdriver.ChromeService(shutil.which("chromedriver"), env=env)
        self.driver = webdriver.Chrome(options=options, service=service)
        self.driver.set_script_timeout(300)  # a page on a busy machine answers none for more than the 30 s that it has
        self.driver.set_page_load_timeout(300)
        self.driver.command_executor.client_config.timeout = 360  # who asks hung up before that, after 120 s
        execute, hung = self.driver.execute, []

        def once(*arguments):
            """What gave no answer is asked nothing more: each further question would take as long."""
            if hung:
                raise hung[0]
            try:
                return execute(*arguments)
            except HTTPError as e:
                hung.append(e)
                raise

        self.driver.execute = once

    def opens(self, name, book, page="lab/tree/"):
        """Opens this notebook in a page of its own, and waits for its kernel."""
        self.name = name
        (self.folder / "work" / f"{name}.ipynb").write_text(json.dumps(book))
        self.goes_to(f"{page}{name}.ipynb")

    def goes_to(self, path):
        address, token = self.server
        self.driver.get(f"{address}{path}?reset&token={token}")
        self.until("the notebook is open and its kernel idle", lambda: self.status() == "idle")
        self.turns_to(self.driver.current_window_handle)

    def turns_to(self, window):
        """Commands go to the notebook in this window from now on."""
        self.driver.switch_to.window(window)
        self.js(WIDGET + "window.jupyterapp.shell.activateById(panel.id)")
        current = WIDGET + "return window.jupyterapp.shell.currentWidget === panel"
        self.until("the notebook is at hand", lambda: self.js(current))

    def js(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def waits(self, condition, seconds):
        """What the condition gives as soon as it is true; None if it never was."""
        from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
        from selenium.webdriver.support.ui import WebDriverWait

        wait = WebDriverWait(self.driver, seconds, 0.2, [StaleElementReferenceException])
        try:
            return wait.until(lambda _: condition())
        except TimeoutException:
            return None

    def until(self, what, condition, seconds=400):
        """What the condition gives as soon as it is true."""
        found = self.waits(condition, seconds)
        if found:
            return found
        seen = self.js("return document.body.innerText")
        said = f"it was never seen that {what}; kernel {self.status()}; cells {self.js(OUTPUTS)}; {seen[-1500:]}"
        try:
            self.looks()
        finally:
            pytest.fail(said)

    def looks(self):
        """A picture, of what failed alone: a page that answers all else may give none, and hangs from then on.
        save_screenshot() would ask it four times."""
        picture = self.driver.execute_cdp_cmd("Page.captureScreenshot", {})["data"]
        (self.shots / f"{self.name}.png").write_bytes(base64.b64decode(picture))

    def all(self, css):
        from selenium.webdriver.common.by import By

        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def one(self, css, index=0):
        found = lambda: [e for e in self.all(css) if e.is_displayed()]  # noqa: E731
        return self.until(f"there is {css}", lambda: found()[index:])[0]

    def text(self, css):
        """Of all that is in sight."""
        return self.js(TEXT, css)

    def types(self, *keys):
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def holds(self, key, *keys):
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).key_down(key).send_keys(*keys).key_up(key).perform()

    def presses(self, command):
        """The button in the notebook's toolbar for this command."""
        self.one(f".jp-NotebookPanel-toolbar [data-command='{command}']").click()

    def command(self, name):
        self.js("window.jupyterapp.commands.execute(arguments[0])", name)

    def status(self):
        """Of the kernel as the page knows it; None until it has one."""
        return self.js(WIDGET + "return panel?.sessionContext?.session?.kernel?.status")

    def restarts(self):
        """Presses the button, says yes, and waits for the end of it. The page shows it for a moment only, so it is
        noted there."""
        note = "window.noted = []; panel.sessionContext.statusChanged.connect((_, status) => window.noted.push(status))"
        self.js(WIDGET + note)
        self.presses("notebook:restart-kernel")
        self.one(".jp-Dialog .jp-mod-accept").click()
        self.until("the kernel restarts", lambda: "restarting" in self.js("return window.noted"))
        self.idle()

    def kernel(self):
        return self.js(WIDGET + "return panel.sessionContext.session.kernel.id")

    def runs(self, index):
        """Chooses and runs it in one turn of the page: a late change of the focus would choose another one between."""
        chosen = "panel.content.deselectAll(); panel.content.activeCellIndex = arguments[0]; "
        self.js(WIDGET + chosen + "window.jupyterapp.commands.execute('notebook:run-cell')", index)

    def ran(self, index):
        """Waits until it has: then there is a number at its side."""
        prompt = "return document.querySelector(arguments[0]).innerText"
        number = lambda: self.js(prompt, f"{cell(index)} .jp-InputPrompt")  # noqa: E731
        return self.until(f"cell {index} has run", lambda: number().strip("[]: ").isdigit())

    def said(self, index):
        """The output of a cell as it is shown."""
        return self.js(OUTPUTS)[index]

    def sees(self, index, *words):
        for word in words:
            self.until(f"cell {index} says {word}", lambda: word in self.said(index))
        return self.said(index)

    def idle(self):
        return self.until("the kernel is shown as idle", lambda: self.status() == "idle")

    def busy(self):
        return self.until("the kernel is shown as busy", lambda: self.status() == "busy")

    def edits(self, index):
        """The cursor stands at the end of this cell."""
        from selenium.webdriver.common.keys import Keys

        self.one(f"{cell(index)} .cm-content").click()
        self.holds(Keys.CONTROL, Keys.END)

    def saves(self):
        """The notebook's cells as they are in the file."""
        done = "window.jupyterapp.commands.execute('docmanager:save').then(arguments[0], arguments[0])"
        self.driver.execute_async_script(done)
        self.until("it is saved", lambda: self.js(WIDGET + "return !panel.context.model.dirty"))
        return json.loads((self.folder / "work" / f"{self.name}.ipynb").read_text())["cells"]

    def leaves(self):
        """Ends all kernels and shuts all windows but one. After a page that answers nothing, the next test gets another
        browser."""
        try:
            first, *others = self.driver.window_handles
            for other in others:
                self.driver.switch_to.window(other)
                self.driver.close()
            self.driver.switch_to.window(first)
            self.driver.get("about:blank")
        except BaseException:  # also the end of the test's time
            self.ends()
            self.starts()
            raise
        finally:
            for session in servers.rest(self.server, "api/sessions"):
                servers.rest(self.server, f"api/sessions/{session['id']}", method="DELETE")

    def ends(self):
        """Ends Chromium as it is: who asks it to end waits for its pages."""
        with contextlib.suppress(OSError):  # it has ended by itself
            _, _, pid = os.readlink(self.folder / "profile/SingletonLock").rpartition("-")
            os.kill(int(pid), signal.SIGKILL)
        self.driver.quit()
