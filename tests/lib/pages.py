"""Programs and commands out of the documentation, so that tests run the very text."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def blocks(page, language="python", under=None):
    """The blocks of this language of docs/`page`, in order; `under`: those below this heading alone."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    if under is not None:
        parts = re.split(r"(?m)^## (.*)$", text)
        text = dict(zip(parts[1::2], parts[2::2]))[under]
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)
