"""`emitc profile`: what a board has recorded with emitc_profile.h, layer by layer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from emitc.cli import options as shared
from emitc.errors import EmitcError, Where, shown

_MOST_BYTES = 1 << 26


@click.command("profile", short_help="Read what a board has recorded with emitc_profile.h.")
@click.option("--port", help="Read a serial port until a whole profile has arrived.")
@shared.path_option("--file", help="Read a log instead.")
@shared.path_option("--manifest", required=True, help="The package, or its manifest.json.")
@click.option("--baud", type=click.IntRange(50, 20_000_000), default=115_200, show_default=True, help="Of the port.")
@click.option(
    "--seconds", type=click.FloatRange(0.1, 86_400), default=30.0, show_default=True, help="To wait for a profile."
)
@click.option(
    "--clock", type=click.IntRange(1, 1 << 40), help="Ticks a second; replaces what the application has stated."
)
@shared.path_option("--chrome-trace", help="Write the runs for chrome://tracing or Perfetto to this file.")
@shared.force_option
@shared.json_option
def profile(
    port: str | None, file: Path | None, manifest: Path, chrome_trace: Path | None, as_json: bool, **values: Any
) -> None:
    """Show what each layer took on a board, by what emitc_profile.h has written to a serial port or into a log.

    Lines of other programs in between are skipped. What is cut, damaged or of another model is left out and named.
    """
    with shared.reported(as_json):
        from emitc.boards.profile import Block, ProfileReader, profile_of, read_model
        from emitc.emit.output_file import OutputFile
        from emitc.report.run import TRACE_MARK, profile_text, trace_json

        if (port is None) == (file is None):
            where, hint = Where(option="--port, --file"), "give the port, or a file with what came from it"
            why = f"{'none' if port is None else 'two'} given"
            raise EmitcError("one place to read from is needed", where, why, hint)
        model = read_model(manifest)
        inputs = tuple(path for path in (file, manifest) if path is not None)
        output = chrome_trace and OutputFile(
            chrome_trace, "--chrome-trace", TRACE_MARK.encode(), inputs, values["force"]
        )
        if output:
            output.check()
        reader = ProfileReader()
        blocks: list[Block] = []
        lines = _of_file(file) if file is not None else _of_port(port or "", values["baud"], values["seconds"])
        for block in reader.read(lines):
            blocks.append(block)
            if port is not None and (block.name, block.sha256) == (model.name, model.sha256):
                break
        result = profile_of(model, blocks, reader.problems, values["clock"] or 0)
        if output:
            output.write(trace_json(result).encode("ascii"))
        shared.print_result(result.to_json(), as_json, lambda: profile_text(result))


def _of_port(port: str, baud: int, seconds: float) -> Iterator[str]:
    from emitc.boards.serial_port import read_lines, require_serial

    where = Where(option=f"--port {shown(port)}")
    require_serial(where)
    return read_lines(port, baud, seconds, where)


def _of_file(path: Path) -> Iterator[str]:
    """The lines of a log of any bytes."""
    where, hint = Where(option=f"--file {path}"), "name a file with what the board has written"
    try:
        with path.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", "") or str(error)
        raise EmitcError(f"{path.name} cannot be read", where, why, hint) from error
    if len(data) > _MOST_BYTES:
        raise EmitcError(f"{path.name} is too large", where, f"it has more than {_MOST_BYTES} bytes", "cut it")
    yield from data.decode("ascii", errors="replace").splitlines()
