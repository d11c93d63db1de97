"""`emitc weights`: the file of a new model's weights for a package that is in use."""

from pathlib import Path
from typing import Any

import click

from emitc.cli import options as shared


@click.command("weights", cls=shared.CompilingCommand, short_help="Make the weights of MODEL for an existing package.")
@click.argument("model", type=click.Path(path_type=Path))
@shared.path_option(
    "--for", "package", required=True, help="The package, or its manifest.json; made with --weights external."
)
@shared.path_option("-o", "--output", required=True, help="The file of weights.")
@click.option(
    "--weights-version", type=click.IntRange(0), help="Version of the weights; default: one more than the package's."
)
@shared.path_option("--signature", help="A file with the signature of the first covered bytes.")
@click.option("--signature-bytes", type=click.IntRange(0), default=0, help="Keep this room for a signature.")
@shared.path_option("--self-test-vectors", help="The .npz file of the self test's inputs; default: random ones.")
@shared.plugin_option
@shared.force_option
@shared.json_option
def weights(
    model: Path,
    package: Path,
    output: Path,
    signature: Path | None,
    force: bool,
    as_json: bool,
    **values: Any,
) -> None:
    """Make the weights of MODEL as a file for an existing package, or say what differs in its code."""
    with shared.reported(as_json):
        from emitc.emit.output_file import OutputFile
        from emitc.explore.weights_exchange import LARGEST_SIGNATURE, Signature, exchange
        from emitc.program.weights import MAGIC
        from emitc.report.tables import number

        manifest = package / "manifest.json" if package.is_dir() else package
        read = (model, manifest, *filter(None, (signature, values["self_test_vectors"])))
        file = OutputFile(output, "-o", MAGIC.to_bytes(4, "little"), read, force)
        file.check()
        data = shared.read_small(signature, LARGEST_SIGNATURE, "--signature") if signature else b""
        made = exchange(
            model,
            package,
            version=values["weights_version"],
            signature=Signature(data, values["signature_bytes"]),
            backends=shared.backends_of(values),
            plugins=values["plugins"],
            vectors=values["self_test_vectors"],
        )
        file.write(made.data)
        covers = "covers" if data or values["signature_bytes"] else "none; one would cover"
        text = (
            f"{model.name} -> {output}, {number(len(made.data))} bytes, version {made.version}\n"
            f"  structure   {made.structure}, that of the package\n"
            f"  signature   {covers} the first {number(made.covered_bytes)} bytes"
        )
        shared.print_result(made.to_json() | {"file": str(output)}, as_json, lambda: text)
