"""Crops in the model: their tokens, the choice of ROI tokens by evidence, and what is learned."""

import json
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tumorchain_jax.core.errors import InputError
from tumorchain_jax.core.path_rules import unflatten
from tumorchain_jax.models.layers.attention import one_sequence
from tumorchain_jax.models.tumorchain.crops import CropConfig, Crops
from tumorchain_jax.models.tumorchain.model import (
    NANO,
    NANO_LENS,
    TumorChain,
    TumorChainConfig,
    abstract_params,
    resolve_slots,
)

REGIONS = ("liver", "lungs")
B, C, L, ORGANS = 2, len(REGIONS), 4, 3
WORLD = jnp.array([[[4.0, 3, 3, 0.1, -0.2, 0.3, 1], [1, 1, 1, 0, 0, 0, 0]]] * B)
EMBEDDING = ("crop_embedding/region", "crop_embedding/place/kernel")


@pytest.fixture(scope="module")
def lens(tiny: TumorChainConfig) -> TumorChainConfig:
    crop = CropConfig(REGIONS, spacing_mm=3.0, candidates=6)
    return replace(tiny, roi_source="crop", roi_rank="evidence", crop=crop)


@pytest.fixture(scope="module")
def params(lens: TumorChainConfig) -> dict[str, np.ndarray]:
    """Random parameters; the crops' embeddings are zero, as before any training."""
    rng = np.random.default_rng(0)
    drawn = {
        path: rng.normal(0.05, 0.3, leaf.shape).astype(np.float32)
        for path, leaf in abstract_params(lens).items()
    }
    return drawn | {path: np.zeros_like(drawn[path]) for path in EMBEDDING}


@pytest.fixture(scope="module")
def volumes(lens: TumorChainConfig) -> tuple[jax.Array, Crops]:
    drawn = np.random.default_rng(1).random((B, 1 + C, *lens.encoder.image), np.float32)
    return jnp.asarray(drawn[:, 0]), Crops(jnp.asarray(drawn[:, 1:]), WORLD)


def candidates(lens: TumorChainConfig) -> tuple[jax.Array, jax.Array]:
    """Those of three organs: in the first crop, in the scan, and none."""
    S, N, first = lens.roi.candidates, lens.roi.cells, lens.roi.offset
    index = jnp.arange(S) + jnp.array([first + N, first, 0])[:, None]
    valid = jnp.arange(S) < jnp.array([S, S - 1, 0])[:, None]
    return (
        jnp.broadcast_to(jnp.where(valid, index, 0), (B, ORGANS, S)),
        jnp.broadcast_to(valid, (B, ORGANS, S)),
    )


def apply(config: TumorChainConfig, params: dict, *args: object, method: str, **options) -> object:
    model = TumorChain(config, **options)
    return jax.jit(partial(model.apply, method=method))({"params": unflatten(params)}, *args)


def without_crops(params: dict) -> dict:
    return {path: leaf for path, leaf in params.items() if path not in EMBEDDING}


def test_tokens_of_the_scan_are_those_of_a_model_without_crops(
    lens: TumorChainConfig, tiny: TumorChainConfig, params: dict, volumes: tuple
) -> None:
    tokens = apply(lens, params, *volumes, method="encode")
    plain = apply(tiny, without_crops(params), volumes[0], method="encode")
    assert tokens.shape[1] == lens.roi.visual_tokens == plain.shape[1] + C * lens.roi.cells
    np.testing.assert_allclose(tokens[:, : plain.shape[1]], plain, atol=1e-6)


def test_untrained_embedding_changes_no_token_of_a_crop(
    lens: TumorChainConfig, params: dict, volumes: tuple
) -> None:
    """A crop that is the scan itself gives the scan's cells."""
    scan, crops = volumes
    same = crops._replace(images=jnp.repeat(scan[:, None], C, axis=1))
    tokens = np.asarray(apply(lens, params, scan, same, method="encode"))
    N, first = lens.roi.cells, lens.roi.offset
    for crop in range(C):
        found = tokens[:, first + (1 + crop) * N : first + (2 + crop) * N]
        np.testing.assert_allclose(found, tokens[:, first : first + N], atol=1e-6)


def test_trained_embedding_changes_the_tokens_of_its_crop_alone(
    lens: TumorChainConfig, params: dict, volumes: tuple
) -> None:
    before = np.asarray(apply(lens, params, *volumes, method="encode"))
    region = np.zeros_like(params[EMBEDDING[0]])
    region[1] = 1
    after = apply(lens, params | {EMBEDDING[0]: region}, *volumes, method="encode")
    expected = before.copy()
    expected[:, lens.roi.offset + 2 * lens.roi.cells :] += 1
    np.testing.assert_allclose(after, expected, atol=1e-6)


def test_evidence_ranks_the_candidates_by_the_classifiers_difference_of_logits(
    lens: TumorChainConfig, params: dict, volumes: tuple
) -> None:
    tokens = np.asarray(apply(lens, params, *volumes, method="encode"))
    index, valid = apply(lens, params, tokens, *candidates(lens), method="choose")
    kernel = params["organ_classifier/fc/kernel"]
    evidence = tokens @ (kernel[:, 1] - kernel[:, 0])
    given, given_valid = map(np.asarray, candidates(lens))
    for row in range(B):
        for organ in range(ORGANS):
            own = given[row, organ][given_valid[row, organ]]
            best = sorted(own[np.argsort(-evidence[row, own], kind="stable")[:L]].tolist())
            assert np.asarray(index)[row, organ][np.asarray(valid)[row, organ]].tolist() == best
    assert not np.asarray(valid)[:, 2].any()
    logits = np.asarray(apply(lens, params, tokens, index, valid, method="classify"))
    mean = tokens[0, np.asarray(index)[0, 0]].mean(axis=0)
    expected = mean @ kernel + params["organ_classifier/fc/bias"]
    np.testing.assert_allclose(logits[0, 0], expected, rtol=1e-4, atol=1e-5)


def test_evidence_of_equals_is_decided_by_the_order(lens: TumorChainConfig, params: dict) -> None:
    tokens = jnp.ones((B, lens.roi.visual_tokens, lens.decoder.hidden_size))
    chosen = [apply(lens, params, tokens, *candidates(lens), method="choose") for _ in range(2)]
    np.testing.assert_array_equal(*(np.asarray(index) for index, _ in chosen))
    np.testing.assert_array_equal(chosen[0][0][:, :2], candidates(lens)[0][:, :2, :L])


def test_references_to_slots_become_the_tokens_that_they_hold(lens: TumorChainConfig) -> None:
    roi_index = jnp.arange(B * ORGANS * L).reshape(B, ORGANS, L) + 1
    M = lens.roi.visual_tokens
    references = jnp.asarray(lens.roi.slot_index(2, 2))
    visual_index = jnp.stack([jnp.array([-1, 0, M - 1, *references])] * B)
    found = np.asarray(resolve_slots(visual_index, roi_index, M))
    np.testing.assert_array_equal(found[0], [-1, 0, M - 1, *roi_index[0, 2, :2]])
    np.testing.assert_array_equal(found[1], [-1, 0, M - 1, *roi_index[1, 2, :2]])


@pytest.mark.system(haste=True)
def test_gradients_reach_the_embedding_and_are_the_same_one_crop_after_the_other(
    lens: TumorChainConfig, params: dict, volumes: tuple
) -> None:
    scan, crops = volumes
    tokens = jnp.ones((B, 8), jnp.int32)
    looks = jnp.stack([jnp.array([-1, 0, -1, *lens.roi.slot_index(0, L), -1])] * B)
    args = scan, tokens, looks, one_sequence(B, 8), *candidates(lens), crops

    def loss(params: dict, remat: str) -> jax.Array:
        model = TumorChain(lens, remat=remat)
        hidden, organs = model.apply({"params": unflatten(params)}, *args, method="hidden")
        return (hidden**2).sum() + (organs[..., 1] ** 2).sum()

    at_once, in_turn = (
        jax.jit(jax.value_and_grad(partial(loss, remat=remat)))(params)
        for remat in ("none", "full")
    )
    for path in EMBEDDING:
        assert np.abs(at_once[1][path]).max() > 1e-3, path
    # The second crop is of no organ's: nothing is learned about it.
    assert not np.asarray(at_once[1][EMBEDDING[0]])[1].any()
    np.testing.assert_allclose(at_once[0], in_turn[0], rtol=1e-5)
    for path, gradient in at_once[1].items():
        np.testing.assert_allclose(in_turn[1][path], gradient, rtol=1e-3, atol=1e-4, err_msg=path)


def test_embedding_starts_at_zero(lens: TumorChainConfig) -> None:
    model = TumorChain(lens)
    crops = Crops(jnp.zeros((1, C, *lens.encoder.image)), WORLD[:1])
    init = jax.jit(partial(model.init, method="encode"))
    made = init(jax.random.key(0), crops.images[:, 0], crops)["params"]["crop_embedding"]
    leaves = jax.tree.leaves(made)
    assert len(leaves) == len(EMBEDDING)
    assert not any(np.asarray(leaf).any() for leaf in leaves)


def test_config_with_crops_survives_json_and_one_without_does_not_name_them() -> None:
    again = TumorChainConfig.from_dict(json.loads(json.dumps(NANO_LENS.to_dict())))
    assert again == NANO_LENS
    assert hash(again) == hash(NANO_LENS)
    assert not {"crop", "roi_rank"} & NANO.to_dict().keys()
    assert TumorChainConfig.from_dict(NANO.to_dict()) == NANO


def test_crops_that_are_not_read_are_refused(tiny: TumorChainConfig) -> None:
    with pytest.raises(InputError, match=r"model\.crop: found crops with roi_source encoder"):
        replace(tiny, crop=CropConfig())
    with pytest.raises(InputError, match=r"model\.crop\.regions"):
        CropConfig(("liver", "liver"))
    assert replace(tiny, roi_source="crop").crop == CropConfig()
