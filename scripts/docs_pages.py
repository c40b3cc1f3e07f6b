# SPDX-License-Identifier: Apache-2.0
"""What mkdocs.yml's site has beyond the folder docs: the documents at the top of the tree, and links between pages.

The documents name each other as files, in backquotes (`docs/deploy.md`), as one reads them in a checkout. In the site
such a name is a link to the page. README.md is the site's first page.
"""

import os
import re

from mkdocs.structure.files import File

# Documents at the top of the tree, and the pages that they are.
_TOP = {
    "README.md": "index.md",
    "RATIONALE.md": "rationale.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
_TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_SHIM = os.path.join(_TREE, "build", "docs-tools", "iframe-worker.js")
_BLOCK = re.compile(r"^```.*?^```$", re.M | re.S)
_LINK = re.compile(r"(\]\()([^)#\s]+)")
_NAMED = re.compile(r"(?<!\[)`(?:docs/)?((?:[\w-]+/)*[\w-]+\.(?:md|txt|svg))`(?!\]\()")


def on_files(files, config):
    """Adds the documents at the top of the tree, and the script of the search."""
    for name, page in _TOP.items():
        with open(os.path.join(_TREE, name), encoding="utf-8") as document:
            files.append(File.generated(config, page, content=document.read()))
    with open(_SHIM, encoding="utf-8") as script:
        files.append(File.generated(config, "assets/iframe-worker.js", content=script.read()))
    return files


def on_page_markdown(markdown, page, config, files):
    """Links of this page to others, as paths from where it stands in the site."""
    here = os.path.dirname(page.file.src_uri)
    top = page.file.src_uri in _TOP.values()

    def inside(target):
        """The page or file of the site that a path from the tree's root or from this page names; "" for none."""
        for path in (target, target.removeprefix("docs/"), os.path.normpath(os.path.join(here, target))):
            path = _TOP.get(path.removeprefix("../"), path)
            if path != "README.md" and files.get_file_from_path(path):
                return os.path.relpath(path, here or ".")
        return ""

    def link(found):
        if top and (there := inside(found.group(2))):
            return found.group(1) + there
        return found.group(0)

    def named(found):
        there = inside(found.group(1))
        return (
            f"[{found.group(0)}]({there})" if there and there != os.path.basename(page.file.src_uri) else found.group(0)
        )

    def prose(text):
        return _NAMED.sub(named, _LINK.sub(link, text))

    parts, last = [], 0
    for block in _BLOCK.finditer(markdown):
        parts += [prose(markdown[last : block.start()]), block.group()]
        last = block.end()
    return "".join([*parts, prose(markdown[last:])])
