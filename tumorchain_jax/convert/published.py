"""Published weights: Hugging Face's language models, M3D's encoder, PEFT's adapters, GGUF files."""

from pathlib import Path

from tumorchain_jax.convert.exporter import export_folder
from tumorchain_jax.convert.format import Facts, Format, Options
from tumorchain_jax.convert.imported import MANIFEST, Imported
from tumorchain_jax.convert.importer import describe, import_folder
from tumorchain_jax.convert.recognise import as_folder, open_source
from tumorchain_jax.convert.verifier import verify
from tumorchain_jax.weights.matching import FLOATS, match


def _inspect(source: Path, options: Options) -> Facts:
    if (source / MANIFEST).is_file():
        imported = Imported(source)
        return describe(imported.family, imported.tensors, imported.matched)
    with (
        as_folder(source) as folder,
        open_source(folder, options.base, options.drop_head, options.tower) as (tensors, family),
    ):
        return describe(family, tensors, match(folder, family, tensors, options.dtype))


PUBLISHED = Format(
    name="published weights",
    detect=lambda folder: True,  # the last of all: whatever else it is, its reader refuses
    inspect=_inspect,
    to_ours=lambda source, output, options: len(
        import_folder(source, output, options.dtype, options.base, options.drop_head, options.tower)
    ),
    to_theirs=lambda source, output, options: len(
        export_folder(source, output, options.dtype, options.adapter)
    ),
    verify=verify,
    dtypes=FLOATS,
    options=("base", "adapter", "drop_head", "tower"),
)
