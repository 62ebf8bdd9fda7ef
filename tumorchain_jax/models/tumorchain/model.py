"""The assembly: encoder, projector, organ classifier and decoder as one module.

All visual tokens of a scan are one table: first the G global tokens (Eq. 1), then, for
`roi_source: encoder`, every cell of the token grid, projected. A visual position of a prompt and a
slot of an organ's ROI both hold an index of that table (`visual_index`, `roi_index`), so Gamma of
Eq. 2 is to gather rows. With `roi_source: crop` the cells of crops around organs follow, which the
same encoder reads at a finer spacing. `roi_spec.py` says what lies where.

Shape letters: B scans, T positions of a row, G global tokens, N cells, C crops, M visual tokens,
O organs (57, row 0 is the background), L ROI slots, S candidates for them, K embedding.
"""

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import flatten
from tumorchain_jax.models.config_check import check_fields, require
from tumorchain_jax.models.families import (
    LANGUAGE_MODELS,
    VISION_ENCODERS,
    EncoderConfig,
    decoder_to_dict,
    encoder_to_dict,
    family_fields,
    language_model,
    vision_encoder,
)
from tumorchain_jax.models.language.chat_template import ChatTemplate
from tumorchain_jax.models.language.qwen2.model import (
    QWEN2_5_3B,
    QWEN2_5_7B,
    Decoder,
    Qwen2Config,
)
from tumorchain_jax.models.layers.attention import Kernel, Packing, one_sequence
from tumorchain_jax.models.layers.linear import LoRA
from tumorchain_jax.models.layers.remat import Remat
from tumorchain_jax.models.tumorchain.crops import WORLD, CropConfig, CropEmbedding, Crops
from tumorchain_jax.models.tumorchain.organ_classifier import OrganClassifier
from tumorchain_jax.models.tumorchain.projector import Projector, ProjectorConfig, pool_cells
from tumorchain_jax.models.tumorchain.roi_spec import RoiRank, RoiSpec
from tumorchain_jax.models.vision.vit3d.model import ViT3DConfig


@dataclass(frozen=True)
class TumorChainConfig:
    """The whole model.

    Attributes:
        encoder, decoder: of any family in `models/families.py`.
        global_pool: cells are mean-pooled in blocks of this size for the global tokens.
        roi_source: `encoder` takes an organ's tokens from unpooled cells (finer), `global` from the
            global tokens (Eq. 2 to the letter), `crop` from a crop around the organ (finest).
        roi_slots: at most this many ROI tokens for an organ.
        roi_rank: which of an organ's cells these are: the best covered by its mask, or those with
            the most evidence of disease by the organ classifier.
        crop: the crops; None unless `roi_source` is `crop`, and by default its own defaults then.
        lora: adapters, None to train without.
        dtype: of the computation; parameters are float32.

    Raises:
        InputError: the grid of cells cannot be pooled so, or there are crops that are not read.
    """

    encoder: EncoderConfig
    decoder: Qwen2Config
    projector: ProjectorConfig = ProjectorConfig()
    global_pool: int = 2
    roi_source: Literal["encoder", "global", "crop"] = "encoder"
    roi_slots: int = 64
    roi_rank: RoiRank = "coverage"
    crop: CropConfig | None = None
    lora: LoRA | None = None
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.roi_source == "crop" and self.crop is None:
            object.__setattr__(self, "crop", CropConfig())
        if self.roi_source != "crop" and self.crop is not None:
            found, expected = f"crops with roi_source {self.roi_source}", "none"
            hint = "set model.roi_source=crop, or model.crop=none"
            raise InputError("config", "model.crop", found, expected, hint)
        if any(n % self.global_pool for n in self.encoder.cells):
            found, expected = str(self.global_pool), f"a divisor of the cells {self.encoder.cells}"
            raise InputError("config", "model.global_pool", found, expected, "change it")

    @property
    def template(self) -> ChatTemplate:
        """The chat template of the decoder's family."""
        return language_model(self.decoder).CHAT

    @property
    def roi(self) -> RoiSpec:
        """The layout of the visual tokens that `TumorChain.encode` makes."""
        d, h, w = (n // self.global_pool for n in self.encoder.cells)
        pooled = d * h * w
        if self.roi_source == "global":
            return RoiSpec((d, h, w), 0, self.roi_slots, pooled, self.roi_rank)
        cells, slots = self.encoder.cells, self.roi_slots
        return RoiSpec(cells, pooled, slots, pooled, self.roi_rank, self.crop)

    @property
    def volumes(self) -> int:
        """1 + C: volumes of a scan that the encoder reads."""
        return 1 + len(self.roi.regions)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; fields that older versions do not know only where they matter."""
        encoder, decoder = encoder_to_dict(self.encoder), decoder_to_dict(self.decoder)
        values = dataclasses.asdict(self) | {"encoder": encoder, "decoder": decoder}
        for name, unset in (("roi_rank", "coverage"), ("crop", None)):
            if values[name] == unset:
                del values[name]
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "TumorChainConfig":
        """The inverse of `to_dict`; lists from JSON become tuples.

        Raises:
            ValueError: a field is unknown, missing, of another type, or makes no model.
        """
        kinds = {
            "encoder": family_fields(VISION_ENCODERS, values.get("encoder")),
            "decoder": family_fields(LANGUAGE_MODELS, values.get("decoder")),
        }
        values = values | {name: fields for name, (_, fields) in kinds.items()}
        check_fields(cls, values, kinds={name: kind for name, (kind, _) in kinds.items()})
        parts = {name: kind(**fields) for name, (kind, fields) in kinds.items()}
        for name, part in parts.items():
            _check_positive(name, part)
        vision_encoder(parts["encoder"]).check(parts["encoder"])
        projector, lora = ProjectorConfig(**values["projector"]), values["lora"]
        fields = parts | {"projector": projector, "lora": lora and LoRA.from_dict(lora)}
        if crop := values.get("crop"):
            fields["crop"] = CropConfig.from_dict(crop)
        config = cls(**{**values, **fields})
        config.check()
        return config

    def check(self) -> None:
        """Check that the sizes make a model.

        Raises:
            ValueError: it names the first field that does not.
        """
        decoder, pool, cells = self.decoder, self.global_pool, self.encoder.cells
        _check_positive("model", self)
        heads, of_keys = decoder.num_attention_heads, decoder.num_key_value_heads
        divides = heads % of_keys == 0
        require("decoder.num_key_value_heads", of_keys, divides, f"a divisor of {heads}")
        require("decoder.head_dim", decoder.head_dim, decoder.head_dim % 2 == 0, "an even number")
        fits = all(n % pool == 0 for n in cells)
        require("global_pool", pool, fits, f"a divisor of the token grid {cells}")
        dtypes = ("float32", "bfloat16", "float16")
        require("dtype", self.dtype, self.dtype in dtypes, " or ".join(dtypes))


def _check_positive(part: str, config: Any) -> None:
    for name, value in vars(config).items():
        numbers = value if isinstance(value, tuple) else (value,)
        is_size = all(type(number) in (int, float) for number in numbers)
        require(f"{part}.{name}", value, not is_size or min(numbers) > 0, "over 0")


NANO = TumorChainConfig(
    encoder=ViT3DConfig((64, 80, 80), (8, 8, 8), 128, 512, 2, 2),
    decoder=Qwen2Config(
        vocab_size=1024,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        tie_word_embeddings=True,
        rope_theta=1e4,
    ),
    roi_slots=32,
)
NANO_LENS = dataclasses.replace(
    NANO,
    encoder=ViT3DConfig((48, 64, 64), (8, 8, 8), 128, 512, 2, 2),
    roi_source="crop",
    roi_slots=16,
    roi_rank="evidence",
    crop=CropConfig(spacing_mm=3.0),
)
"""nano with a second look at six regions, 3 mm a voxel."""
TUMORCHAIN_3B = TumorChainConfig(ViT3DConfig(), QWEN2_5_3B, dtype="bfloat16")
TUMORCHAIN_7B = TumorChainConfig(ViT3DConfig(), QWEN2_5_7B, dtype="bfloat16")


class TumorChain(nn.Module):
    """F of Eq. 1 without the segmentation expert, whose label map arrives as ROI rows.

    Attributes:
        unrolled: the decoder's, for decoding.
        remat: what training keeps of each layer, see `models/layers/remat.py`.
        kernel: of the decoder's attention in training, see `models/layers/attention.py`.
        scan_unroll: layers that one turn of a scan over layers holds.
    """

    config: TumorChainConfig
    unrolled: bool = False
    remat: Remat = "none"
    kernel: Kernel = "xla"
    scan_unroll: int = 1

    def setup(self) -> None:
        """Declare the parts."""
        config = self.config
        dtype = jnp.dtype(config.dtype)
        self.encoder = vision_encoder(config.encoder).build(
            config.encoder, config.lora, dtype, self.remat, self.scan_unroll
        )
        self.projector = Projector(config.projector, config.decoder.hidden_size, config.lora, dtype)
        self.organ_classifier = OrganClassifier(dtype)
        if config.crop:
            self.crop_embedding = CropEmbedding(config.decoder.hidden_size, dtype)
        self.decoder = Decoder(
            config.decoder,
            config.lora,
            dtype,
            self.unrolled,
            self.remat,
            self.kernel,
            self.scan_unroll,
        )

    def encode(
        self, volume: Float[Array, "B D H W"], crops: Crops | None = None
    ) -> Float[Array, "B M K"]:
        """Encode a scan, and its crops if the model reads any, into its visual tokens."""
        config = self.config
        if config.crop is None:
            cells = self.encoder(volume)
            pooled = pool_cells(cells, config.encoder.cells, config.global_pool)
            if config.roi_source == "global":
                return self.projector(pooled)
            return self.projector(jnp.concatenate([pooled, cells], axis=1))
        assert crops is not None, "a model with roi_source crop needs the crops of a scan"
        volumes = jnp.concatenate([volume[:, None], crops.images.astype(volume.dtype)], axis=1)
        cells = self._encode_volumes(volumes)
        pooled = pool_cells(cells[:, 0], config.encoder.cells, config.global_pool)
        features = cells.reshape(len(cells), -1, cells.shape[-1])
        tokens = self.projector(jnp.concatenate([pooled, features], axis=1))
        of_crops = jnp.repeat(self.crop_embedding(crops.world), config.roi.cells, axis=1)
        before = tokens.shape[1] - of_crops.shape[1]
        return tokens + jnp.pad(of_crops, ((0, 0), (before, 0), (0, 0)))

    def _encode_volumes(self, volumes: Float[Array, "B V D H W"]) -> Float[Array, "B V N F"]:
        """Encode several volumes of each scan with the same weights.

        All at once; one after the other in training with activation checkpointing, which saves
        memory: the activations of a layer are those of one volume.
        """
        B, V = volumes.shape[:2]
        if self.remat == "none" or self.is_initializing():
            cells = self.encoder(volumes.reshape(B * V, *volumes.shape[2:]))
            return cells.reshape(B, V, *cells.shape[1:])
        in_turn = nn.scan(
            lambda model, carry, volume: (carry, model.encoder(volume)),
            variable_broadcast="params",
            split_rngs={"params": False},
            in_axes=1,
            out_axes=1,
        )
        return in_turn(self, (), volumes)[1]

    def choose(
        self,
        visual_tokens: Float[Array, "B M K"],
        roi_index: Int[Array, "B O S"],
        roi_valid: Bool[Array, "B O S"],
    ) -> tuple[Int[Array, "B O L"], Bool[Array, "B O L"]]:
        """Choose each organ's ROI tokens among its candidates.

        With `roi_rank: evidence` these are the candidates that the organ classifier's layer finds
        most abnormal, each alone; of equals the first. No gradient flows through the choice.

        Returns:
            indices of the tokens, ascending, 0 beyond the valid ones; and which are valid.
        """
        if self.config.roi_rank == "coverage":
            return roi_index, roi_valid
        logits = self.organ_classifier.classify_tokens(jax.lax.stop_gradient(visual_tokens))
        evidence = gather_rows((logits[..., 1] - logits[..., 0])[..., None], roi_index)[..., 0]
        best = jnp.where(roi_valid, evidence, -jnp.inf)
        _, chosen = jax.lax.top_k(best, self.config.roi_slots)
        valid = jnp.take_along_axis(roi_valid, chosen, axis=2)
        nowhere = visual_tokens.shape[1]
        index = jnp.where(valid, jnp.take_along_axis(roi_index, chosen, axis=2), nowhere)
        index = jnp.sort(index, axis=2)
        valid = index < nowhere
        return jnp.where(valid, index, 0), valid

    def classify(
        self,
        visual_tokens: Float[Array, "B M K"],
        roi_index: Int[Array, "B O L"],
        roi_valid: Bool[Array, "B O L"],
    ) -> Float[Array, "B O 2"]:
        """(normal, abnormal) logits of every organ from its ROI tokens."""
        return self.organ_classifier(gather_rows(visual_tokens, roi_index), roi_valid)

    def embed(
        self,
        visual_tokens: Float[Array, "B M K"],
        tokens: Int[Array, "B T"],
        visual_index: Int[Array, "B T"],
    ) -> Float[Array, "B T K"]:
        """Embed a prompt: visual tokens where `visual_index` is not negative, else text tokens."""
        visual = gather_rows(visual_tokens, jnp.maximum(visual_index, 0))
        return jnp.where(visual_index[:, :, None] >= 0, visual, self.decoder.embed(tokens))

    def hidden(
        self,
        volume: Float[Array, "B D H W"],
        tokens: Int[Array, "B T"],
        visual_index: Int[Array, "B T"],
        packing: Packing,
        roi_index: Int[Array, "B O S"],
        roi_valid: Bool[Array, "B O S"],
        crops: Crops | None = None,
    ) -> tuple[Float[Array, "B T K"], Float[Array, "B O 2"]]:
        """Training: what `logits` reads, for a scan's questions in one row, and organ logits."""
        visual_tokens = self.encode(volume, crops)
        roi_index, roi_valid = self.choose(visual_tokens, roi_index, roi_valid)
        if self.config.roi_rank == "evidence":
            visual_index = resolve_slots(visual_index, roi_index, visual_tokens.shape[1])
        hidden, _ = self.decoder(self.embed(visual_tokens, tokens, visual_index), packing)
        return hidden, self.classify(visual_tokens, roi_index, roi_valid)

    def __call__(self, *args: Any) -> tuple[Float[Array, "B T V"], Float[Array, "B O 2"]]:
        """Next-token logits and organ logits; what `hidden` takes."""
        hidden, organs = self.hidden(*args)
        return self.decoder.logits(hidden), organs

    def extend(self, *args: Any) -> Any:
        """`Decoder.extend`."""
        return self.decoder.extend(*args)

    def logits(self, hidden: Float[Array, "B T K"]) -> Float[Array, "B T V"]:
        """`Decoder.logits`."""
        return self.decoder.logits(hidden)


def gather_rows(
    visual_tokens: Float[Array, "B M K"], rows: Int[Array, "B ..."]
) -> Float[Array, "B ... K"]:
    """Gather visual tokens of each scan by their indices (Gamma of Eq. 2)."""
    return jax.vmap(lambda table, index: table[index])(visual_tokens, rows)


def resolve_slots(
    visual_index: Int[Array, "B T"], roi_index: Int[Array, "B O L"], visual_tokens: int
) -> Int[Array, "B T"]:
    """Replace references to ROI slots (`RoiSpec.slot_index`) by the tokens that these hold."""
    slot = visual_index - visual_tokens
    held = jnp.take_along_axis(
        roi_index.reshape(len(roi_index), -1), jnp.maximum(slot, 0), axis=1, mode="clip"
    )
    return jnp.where(slot >= 0, held, visual_index)


def init_params(config: TumorChainConfig, key: Array) -> dict[str, Any]:
    """Random parameters by path."""
    return flatten(nn.meta.unbox(_variables(config, False, key))["params"])


def abstract_params(config: TumorChainConfig) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes of the parameters by path, without making any."""
    return jax.eval_shape(partial(init_params, config), jax.random.key(0))


def logical_axes(
    config: TumorChainConfig, unrolled: bool = False
) -> dict[str, tuple[tuple[str | None, ...], tuple[int, ...]]]:
    """The logical names of each parameter's axes, and its shape, by path."""
    variables = jax.eval_shape(partial(_variables, config, unrolled), jax.random.key(0))
    return {
        path: (box.names, box.value.shape) for path, box in flatten(variables["params"]).items()
    }


def attention_heads(config: TumorChainConfig) -> dict[str, tuple[str, int]]:
    """Numbers of heads by part, each with the logical axis of activations that it is cut along."""
    encoder_heads = vision_encoder(config.encoder).num_heads(config.encoder)
    of_encoder = (
        {} if encoder_heads is None else {"encoder heads": ("attention_heads", encoder_heads)}
    )
    decoder = config.decoder
    return of_encoder | {
        "decoder num_attention_heads": ("attention_heads", decoder.num_attention_heads),
        "decoder num_key_value_heads": ("projected_heads", decoder.num_key_value_heads),
    }


def _variables(config: TumorChainConfig, unrolled: bool, key: Array) -> Any:
    tokens = jnp.zeros((1, 2), jnp.int32)
    rows = jnp.zeros((1, 1, config.roi.candidates), jnp.int32)
    volume, packing = jnp.zeros((1, *config.encoder.image)), one_sequence(1, 2)
    crops = None
    if config.crop:
        count = len(config.crop.regions)
        images = jnp.zeros((1, count, *config.encoder.image))
        crops = Crops(images, jnp.ones((1, count, WORLD)))
    model = TumorChain(config, unrolled)
    return model.init(key, volume, tokens, tokens, packing, rows, rows > 0, crops)
