"""Qwen2.5 as transformers and PEFT name it <-> `Decoder`. See `weight_map`.

The keys are those of the released files, of Qwen2.5 and of Qwen2.5-VL alike. A tied head has no key
of its own there. An adapter lies in a file of its own: to read both at once, join the two tables
and the two state dicts.
"""

from tumorchain_jax.models.weight_map import KEEP, TRANSPOSE, Table

TABLE: Table = (
    (r"embed_tokens/embedding", r"model.embed_tokens.weight", KEEP),
    (r"layers/(\w+_layernorm)/weight", r"model.layers.{layer}.\1.weight", KEEP),
    (r"layers/(self_attn|mlp)/(\w+)/kernel", r"model.layers.{layer}.\1.\2.weight", TRANSPOSE),
    (r"layers/(self_attn)/(\w+)/bias", r"model.layers.{layer}.\1.\2.bias", KEEP),
    (r"norm/weight", r"model.norm.weight", KEEP),
    (r"lm_head/kernel", r"lm_head.weight", TRANSPOSE),
)
# The image tower of Qwen2.5-VL: ours is the 3D encoder.
IGNORE = (r"visual\..*",)

_PEFT = r"base_model.model.model.layers.{layer}.\1.\2"
LORA_TABLE: Table = (
    (r"layers/(self_attn|mlp)/(\w+)/lora_a", _PEFT + r".lora_A.weight", TRANSPOSE),
    (r"layers/(self_attn|mlp)/(\w+)/lora_b", _PEFT + r".lora_B.weight", TRANSPOSE),
)
