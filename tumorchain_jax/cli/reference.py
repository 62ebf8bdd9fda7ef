"""Write the command reference, `cli/README.md`, from the parser.

python -m tumorchain_jax.cli.reference
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from tumorchain_jax.cli.parser import Parser, build_parser

README = Path(__file__).with_name("README.md")
INTRODUCTION = """\
# The command line

One file per subcommand; each parses its flags and makes a thin call. This page is written by
`python -m tumorchain_jax.cli.reference` from the parser, and a test compares the two: change the
help texts, not this page.

| file | what it holds |
| --- | --- |
| `main.py` | runs a command line; every error becomes one line and an exit code |
| `parser.py` | the subcommands in groups; refuses unknown, shortened and joined flags |
| `options.py` | flags and checks that several subcommands share |
| `evaluate_endpoint.py` | the flags of `evaluate --by endpoint`, and its call |
| `segmenter_flags.py` | the flags that choose a segmenter |
| `web_input.py` | series on a DICOMweb server as inputs |
| `printing.py` | lines and chains at the terminal, without control characters |
| `reference.py` | writes this page |
| `demo.py`, `analyze.py`, ... | one subcommand each |

## Conventions

- Exit codes: 0 done, 1 failed while running, 2 bad input or usage, 130 after Ctrl-C. Several scans
  of which some were refused end with 2, after the others are done. `train` exits 0 after a signal,
  or with `--preempted-exit-code`.
- Bad input is refused in one line on stderr: the file or flag, what was found, what was expected,
  and a hint. `-v` after the subcommand shows the traceback of a failure.
- `--json` leaves nothing but JSON on stdout. Progress goes to stderr: bars at a
  terminal alone, the phases of `demo` as lines elsewhere.
- A flag has one meaning in all commands (`-i` input, `-o` output, `-c` checkpoint, `-m` masks, `-q`
  question, `-t` task of the question, `-s` statistics). `segment` takes TotalSegmentator's flags
  for what it does too (`-ta`, `-rs`, `--roi_subset`, `-ml`, `-s`, `-ro`, `-f`), with one exception:
  quiet is `--quiet`, since `-q` is the question.
- Flags are neither shortened nor joined with their values: `-ot x` and `--over` are refused.
- A scan is a NIfTI file, or the folder or zip archive of a DICOM series. A folder of scans is
  searched with all its folders, and scans are named by their relative paths:
  `DIR/site1/p1/CT.nii.gz` becomes `OUTPUT/site1/p1/CT`. A folder with `ct.nii.gz` (or a DICOM
  folder `ct`) is one scan, named after the folder; its `labels.nii.gz` is its mask where `-m` names
  the same folder of folders. Hidden files are skipped.
- An output must be new, and lie outside the folders that are read. `--overwrite` replaces an
  earlier output once the new one is complete; a folder with any other file is refused. `demo`
  asks before it replaces an earlier one at a terminal, and refuses elsewhere.
- Files and folders appear whole or not at all, also after a kill or on a full disk.
"""


def reference() -> str:
    """Return the command reference as Markdown."""
    _, groups = build_parser()
    parts = [INTRODUCTION]
    for title, commands in groups.items():
        parts.append(f"## {title}\n")
        for command in commands:
            own = [command] if command.get_default("run") else []
            parts += [_command(each) for each in [*own, *command.verbs.values()]]
    return "\n".join(parts)


def _command(command: Parser) -> str:
    lines = [f"### `{command.prog}`", "", f"{command.summary}.", ""]
    rows = [*_rows(command)]
    if rows:
        lines += ["| argument | meaning |", "| --- | --- |", *rows, ""]
    if command.epilog:
        lines += [command.epilog, ""]
    return "\n".join(lines)


def _rows(command: Parser) -> Iterator[str]:
    for action in command._actions:
        if action.dest in ("help", "verbose") or isinstance(action, argparse._SubParsersAction):
            continue
        text = action.help or ""
        if action.required and action.option_strings:
            text = f"{text}; required" if text else "required"
        elif _shows_default(action):
            text = f"{text}; default: {action.default}" if text else f"default: {action.default}"
        yield f"| {_words(action)} | {text} |".replace("<", "&lt;")


def _shows_default(action: argparse.Action) -> bool:
    stated = "default" in (action.help or "")
    plain = isinstance(action.default, str | int | float) and not isinstance(action.default, bool)
    given = plain and action.default != argparse.SUPPRESS
    return given and not stated and bool(action.option_strings)


def _words(action: argparse.Action) -> str:
    value = ""
    if action.nargs != 0:
        choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else ""
        name = action.metavar or choices or (action.dest.upper() if action.option_strings else "")
        value = " ".join(name) if isinstance(name, tuple) else name
        value = {"+": f"{value} ...", "?": f"[{value}]"}.get(str(action.nargs), value)
    if not action.option_strings:
        return f"`{value}`"
    flags = ", ".join(action.option_strings)
    return f"`{flags} {value}`" if value else f"`{flags}`"


if __name__ == "__main__":
    README.write_text(reference(), "utf-8")
