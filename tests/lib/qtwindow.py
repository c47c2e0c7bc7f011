"""The qtconsole that nobody sees: the real application's window, run by keys and menus, and read.

Role: a program that tests/frontends/test_qtconsole.py starts, for what goes wrong in Qt (an exception in a slot, a
library that it lacks) ends the whole process. It reads a call a line from stdin, [method, argument...], and answers
with a line of JSON; at stdin's end it closes the window, and with it the kernel. Invariants: nothing sleeps; what is
awaited is awaited in Qt's event loop, up to a deadline.
"""

import json
import os
import sys
from pathlib import Path

from qtconsole.qtconsoleapp import JupyterQtConsoleApp
from qtpy.QtCore import QEventLoop, Qt, QTimer, QUrl
from qtpy.QtGui import QTextDocument
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QMessageBox
from rawclient import DEADLINE


class Fault(Exception):
    """What was awaited did not come."""


class Window:
    def __init__(self, argv):
        self.app = JupyterQtConsoleApp()
        self.app.initialize(argv)
        self.app.window.show()
        self.since = 0

    @property
    def widget(self):
        return self.app.window.active_frontend

    def text(self):
        """What is shown below the latest cell."""
        return self.widget._control.toPlainText()[self.since :]

    def until(self, what, condition):
        """What the condition gives as soon as it is true: it is looked at again after each of Qt's events."""
        alarm = QTimer(singleShot=True)
        alarm.start(int(DEADLINE * 1000))
        found = condition()
        while not found:
            if not alarm.isActive():
                raise Fault(f"it was never seen that {what}; shown: {self.text()[-3000:]}")
            self.app.app.processEvents(QEventLoop.AllEvents | QEventLoop.WaitForMoreEvents)
            found = condition()
        return found

    def asks(self):
        """It asks for a cell: gives the prompt, as "In [3]: "."""
        prompt = self.until("it asks for a cell", lambda: not self.widget._executing and self.widget._prompt)
        # what is left on the line; an error, too: shell and iopub are two sockets, and it may come after the prompt
        self.until("the line is empty", lambda: not self.widget.input_buffer or self.presses("Escape"))
        return prompt

    def sees(self, *words):
        """All of these are shown; gives all that is."""
        for word in words:
            self.until(f"{word!r} is shown", lambda: word in self.text())
        return self.text()

    def runs(self, source):
        """Pastes this cell at the next prompt and runs it."""
        self.asks()
        self.app.app.clipboard().setText(source)
        self.widget.paste()
        self.since = len(self.widget._control.toPlainText())
        self.presses("Return", "Shift")

    def types(self, text):
        QTest.keyClicks(self.widget._control, text)

    def presses(self, key, modifier="No"):
        QTest.keyClick(self.widget._control, getattr(Qt, f"Key_{key}"), getattr(Qt, f"{modifier}Modifier"))

    def is_asked(self, prompt):
        """The cell that runs asks for input."""
        self.until(f"{prompt!r} is asked", lambda: self.widget._reading and self.text().endswith(prompt))

    def tip(self):
        label = self.widget._call_tip_widget
        return self.until("the tooltip is there", lambda: label.isVisible() and label.text())

    def images(self):
        """Width and height of each picture in the text; there is one at least, which may come after the prompt."""
        document = self.widget._control.document()
        names = self.until("a picture is shown", lambda: [
            f.toImageFormat().name() for f in document.allFormats() if f.isImageFormat()])
        pictures = [document.resource(QTextDocument.ImageResource, QUrl(name)) for name in names]
        return [[picture.width(), picture.height()] for picture in pictures]

    def interrupts(self):
        self.app.window.interrupt_kernel_action.trigger()

    def restarts(self):
        """From the menu, and says yes to the question; the window itself does not show when the new kernel is there."""
        heard = []
        hears = self.widget.kernel_client.iopub_channel.message_received
        hears.connect(lambda message: heard.append(message["content"].get("execution_state")))

        def yes():
            self.app.app.activeModalWidget().button(QMessageBox.Yes).click()

        QTimer.singleShot(0, yes)  # the question has an event loop of its own
        self.app.window.restart_kernel_action.trigger()
        self.until("the kernel restarts", lambda: "starting" in heard)


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what anybody prints is no answer
    window = Window(sys.argv[2:])
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            answer = {"is": getattr(window, name)(*arguments)}
        except Fault as fault:
            window.app.window.grab().save(str(Path(sys.argv[1]) / "qtconsole-failed.png"))
            answer = {"fault": str(fault)}
        print(json.dumps(answer), file=answers, flush=True)
    window.app.window.close()


if __name__ == "__main__":
    main()
